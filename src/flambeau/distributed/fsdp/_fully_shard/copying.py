"""Many copies in one launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.kernels.loops import updates
from flambeau.ops.updates import gathered

COPY = gathered.kernel(())


def copied(places: Sequence[Any], values: Sequence[Any]) -> None:
    """places[i][...] = values[i], of flat arrays that lie in order, of one dtype."""
    if places:
        updates.run(COPY, (list(places), list(values)), (1.0,))


def flat(tensor: Any) -> Any:
    """The elements of a tensor, in order, as a flat array: its own memory where that is in order."""
    array = tensor._array
    return array.reshape(-1) if hasattr(array, "flags") and array.flags.c_contiguous else tensor.contiguous()._array.reshape(-1)
