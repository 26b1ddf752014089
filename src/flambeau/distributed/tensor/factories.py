"""torch.distributed.tensor.zeros and its like: DTensors whose pieces are made where they will be.

Random ones are the same numbers as one process would draw: every rank draws all of them and keeps its own, see rules/drawing.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor import drawing
from flambeau.distributed.tensor._api import DTensor, made
from flambeau.distributed.tensor.placement_types import Placement
from flambeau.tensor.layouts import strided
from flambeau.tensor.making import factories, random_factories

Placements = Sequence[Placement] | None


def _size(size: tuple) -> tuple[int, ...]:
    """Sizes given one by one, or as one sequence."""
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)


def _plain(name: str, meaning: str) -> Any:
    def function(
        *size: Any, dtype: Any = None, layout: Any = strided, requires_grad: bool = False, device_mesh: DeviceMesh | None = None,
        placements: Placements = None,
    ) -> DTensor:  # fmt: skip
        _check(name, layout)
        return made(getattr(factories, name), _size(size), dtype, device_mesh, placements, requires_grad)

    function.__name__, function.__qualname__, function.__doc__ = name, name, meaning
    return function


zeros = _plain("zeros", "Zeros on a mesh, replicated unless `placements` says otherwise.")
ones = _plain("ones", "Ones on a mesh, replicated unless `placements` says otherwise.")
empty = _plain("empty", "Memory on a mesh that nobody has written to.")


def full(
    size: Sequence[int], fill_value: Any, *, dtype: Any = None, layout: Any = strided, requires_grad: bool = False,
    device_mesh: DeviceMesh | None = None, placements: Placements = None,
) -> DTensor:  # fmt: skip
    """One number everywhere, on a mesh."""
    _check("full", layout)
    make = lambda shape, **options: factories.full(shape, fill_value, **options)  # noqa: E731
    return made(make, _size((size,)), dtype, device_mesh, placements, requires_grad)


def _drawn(name: str, meaning: str) -> Any:
    def function(
        *size: Any, requires_grad: bool = False, dtype: Any = None, layout: Any = strided, device_mesh: DeviceMesh | None = None,
        placements: Placements = None,
    ) -> DTensor:  # fmt: skip
        _check(name, layout)
        blank = made(factories.empty, _size(size), dtype, device_mesh, placements, False)
        drawing.written(
            blank, lambda whole: whole.copy_(getattr(random_factories, name)(whole.shape, dtype=whole.dtype, device=whole.device))
        )
        return blank.requires_grad_() if requires_grad else blank

    function.__name__, function.__qualname__, function.__doc__ = name, name, meaning
    return function


rand = _drawn("rand", "Uniform on [0, 1), on a mesh.")
randn = _drawn("randn", "Normal, on a mesh.")


def _check(name: str, layout: Any) -> None:
    if layout is not strided:
        raise NotImplementedError(f"{name}: layout {layout} is not supported by DTensor. Only torch.strided is")
