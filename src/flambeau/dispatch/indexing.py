"""x[index] and x[index] = value as the operations that PyTorch has for them: select, slice, unsqueeze, index, index_put_, copy_."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau import literals
from flambeau.eager.indexing import _as_tensor, _Described
from flambeau.kernels import layout
from flambeau.kernels.indexing.index_plan import FLAG, plan
from flambeau.ops import OPS
from flambeau.ops.indexing import _index, _index_put, as_index
from flambeau.tensor import Tensor, wrap


def getitem(self: Tensor, index: Any) -> Tensor:
    """x[index]."""
    view, indices = _split(self, index)
    if indices is not None:
        return _index.call(view, indices)
    return view if view is not self else OPS["_alias"].call(self)


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """x[index] = value."""
    if index is False:
        return
    view, indices = _split(self, index)
    if indices is not None:
        _index_put.call_inplace(view, indices, value if isinstance(value, Tensor) else view.new_tensor(value), False)
        return
    if not isinstance(value, Tensor):
        view.fill_(literals.filling(value, view.dtype))
        return
    while value.dim() > view.dim() and value.shape[0] == 1:
        value = value.squeeze(0)
    view.copy_(value)


def _split(self: Tensor, index: Any) -> tuple[Tensor, list | None]:
    """(the view that ints, slices and Nones show, the index tensors for its dimensions or None if there are none)."""
    shape = tuple(self._array.shape)
    described = lambda item: _Described(item) if isinstance(item, Tensor) else None  # noqa: E731
    wanted = plan(index, shape, layout.contiguous_strides(shape), 0, described, _as_tensor)
    view = _view(self, index)
    if not wanted.indices:
        return view, None
    pairs = zip(wanted.indices, wanted.kinds, strict=True)
    return view, [None if i is None else wrap(np.arange(int(i))) if kind == FLAG else as_index(i) for i, kind in pairs]


def _view(self: Tensor, index: Any) -> Tensor:
    """The view, item by item; what is a tensor, list or array leaves its dimensions as they are."""
    items = index if isinstance(index, tuple) else (index,)
    used = sum(_width(item) for item in items)
    dim, view = 0, self
    for item in items:
        if item is None or isinstance(item, bool | np.bool_):
            view, dim = view.unsqueeze(dim), dim + 1
        elif item is Ellipsis:
            dim += self.dim() - used
        elif isinstance(item, slice):
            view, dim = _sliced(view, dim, item), dim + 1
        elif isinstance(item, Tensor | np.ndarray | list):
            dim += _width(item)
        else:
            view = view.select(dim, item.__index__())
    return view


def _sliced(view: Tensor, dim: int, item: slice) -> Tensor:
    start, stop, step = [None if n is None else n.__index__() for n in (item.start, item.stop, item.step)]
    if start in (None, 0) and (stop is None or stop >= view._array.shape[dim]) and step in (None, 1):
        return view
    return OPS["_slice"].call(
        view, dim, 0 if start is None else start, (1 << 63) - 1 if stop is None else stop, 1 if step is None else step
    )


def _width(item: Any) -> int:
    """How many dimensions of the tensor an item of an index stands for."""
    if item is None or item is Ellipsis or isinstance(item, bool | np.bool_):
        return 0
    if isinstance(item, Tensor | np.ndarray) and (
        item.dtype == np.bool_ if isinstance(item, np.ndarray) else item.dtype.name in ("bool", "uint8")
    ):
        return max(item.ndim, 0)
    return 1
