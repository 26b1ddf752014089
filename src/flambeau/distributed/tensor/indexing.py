"""x[index] and x[index] = value, where x is a DTensor.

Ints, slices, None and ... are taken one after the other as views, each with its rule; then the tensors, as one lookup (or one scatter).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau.distributed.tensor._api import DTensor
from flambeau.distributed.tensor._dtensor_spec import DTensorSpec
from flambeau.distributed.tensor.pieces import meta_of
from flambeau.distributed.tensor.placement_types import Replicate
from flambeau.distributed.tensor.sharded import from_local
from flambeau.eager.indexing import _as_tensor, _Described
from flambeau.kernels import layout
from flambeau.kernels.indexing.index_plan import FLAG, plan
from flambeau.ops import OPS
from flambeau.ops.indexing import as_index
from flambeau.tensor import Tensor, wrap


def getitem(self: Any, index: Any) -> Any:
    """x[index]."""
    if not isinstance(self, DTensor):
        raise RuntimeError(
            "x[index] got mixed torch.Tensor and DTensor: a plain tensor cannot be indexed by a DTensor. Distribute x, or gather the index"
        )
    view, indices = _split(self, index)
    return view if indices is None else OPS["_index"](view, indices)


def setitem(self: Any, index: Any, value: Any) -> None:
    """x[index] = value: what the index shows is whole on every rank, or lies as the value does."""
    if not isinstance(self, DTensor):
        raise RuntimeError("x[index] = value got mixed torch.Tensor and DTensor: x is a plain tensor. Try value.full_tensor()")
    if index is False:
        return
    view, indices = _split(self, index)
    if view is not self and view._local_tensor._shared_storage() is not self._local_tensor._shared_storage():
        raise RuntimeError(
            f"x[index] = value: the index goes through a dimension that is cut ({self._spec}), so what it shows is a copy. Redistribute x first, or write to "
            "x.to_local()"
        )
    if indices is not None:
        put = value if isinstance(value, Tensor) else view.new_full((), value)
        OPS["_index_put"].call_inplace(view, indices, put, False)
    elif isinstance(value, Tensor):
        view.copy_(value)
    else:
        view.fill_(value)


def _split(self: DTensor, index: Any) -> tuple[Any, list | None]:
    """(the view that ints, slices and Nones show, the index tensors for its dimensions or None if there are none)."""
    shape = tuple(self._array.shape)
    described = lambda item: _Described(item) if isinstance(item, Tensor) else None  # noqa: E731
    wanted = plan(index, shape, layout.contiguous_strides(shape), 0, described, _as_tensor)
    view = _basic(self, index)
    if not wanted.indices:
        return view, None
    found: list = []
    for item, kind in zip(wanted.indices, wanted.kinds, strict=True):
        if item is None:
            found.append(None)
            continue
        tensor = wrap(np.arange(int(item))) if kind == FLAG else as_index(item)
        found.append(tensor if isinstance(tensor, DTensor) else _replicated(tensor, self))
    return view, found


def _replicated(tensor: Tensor, like: DTensor) -> DTensor:
    """A plain index: every rank has given the same one."""
    mesh = like.device_mesh
    return from_local(tensor.to(mesh.device_type), DTensorSpec(mesh, (Replicate(),) * mesh.ndim, meta_of(tensor)))


def _takes(item: Any) -> int:
    """How many dimensions an item of an index is about."""
    if item is None or isinstance(item, (bool, np.bool_)):
        return 0
    if isinstance(item, Tensor):
        return item.dim() if item.dtype.name in ("bool", "uint8") else 1
    if isinstance(item, (list, np.ndarray)):
        array = np.asarray(item)
        return array.ndim if array.dtype == np.bool_ else 1
    return 1


def _basic(self: Any, index: Any) -> Any:
    """What the ints, slices and Nones of an index show, one after the other; tensors leave their dimensions as they are."""
    items = list(index) if isinstance(index, tuple) else [index]
    hidden = self.dim() - sum(_takes(item) for item in items if item is not ...)
    if not any(item is ... for item in items):
        items.append(...)
    view, dim = self, 0
    for item in items:
        if item is ...:
            dim += hidden
        elif item is None or isinstance(item, (bool, np.bool_)):
            view, dim = OPS["unsqueeze"](view, dim), dim + 1
        elif isinstance(item, slice):
            view, dim = _sliced(view, dim, item), dim + 1
        elif isinstance(item, Tensor) and item.dim() == 0 and item.dtype.name not in ("bool", "uint8"):
            view = OPS["_select"](view, dim, int(item))
        elif isinstance(item, (Tensor, list, range, np.ndarray)):
            dim += _takes(item)
        else:
            view = OPS["_select"](view, dim, int(item))
    return OPS["_alias"](view) if view is self and isinstance(index, (slice, type(...), tuple)) else view


def _sliced(view: Any, dim: int, item: slice) -> Any:
    if item.start is None and item.stop is None and item.step is None:
        return view
    start, stop, step = item.indices(view.shape[dim])
    if (item.step or 1) <= 0:
        raise ValueError("step must be greater than zero")
    return OPS["_slice"](view, dim, start, max(start, stop), step)
