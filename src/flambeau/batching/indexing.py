"""x[index] and x[index] = value, where x, or tensors in the index, are batched.

The index is read for one sample. Its ints, slices and Nones become a view of all samples. Where it holds tensors, the indexed dimensions are
brought to the front of what remains, and the batch, if the tensors have one, becomes one more index: arange(B) beside them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau.batching.batched import Batched, front, level_of, lift
from flambeau.batching.rules import rule
from flambeau.eager.indexing import _as_tensor, _Described
from flambeau.kernels import layout
from flambeau.kernels.indexing.index_plan import FLAG, plan
from flambeau.ops import OPS
from flambeau.ops.indexing import _index, _index_put, as_index
from flambeau.tensor import Tensor, wrap
from flambeau.tensor.making.ranges import arange


def getitem(self: Tensor, index: Any) -> Tensor:
    """x[index]."""
    view, indices, extra = _split(self, index)
    if indices is None:
        return view
    found = _index.call(view, indices)
    return found if extra is None else found.squeeze(extra)


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """x[index] = value."""
    if index is False:
        return
    view, indices, extra = _split(self, index, value)
    if not isinstance(value, Tensor):
        value = view.new_full((), value)
    while value.dim() and value.shape[0] == 1 and (indices is not None or value.dim() > view.dim()):
        value = value.squeeze(0)
    if indices is None:
        view.copy_(value)
    else:
        mask = indices[0] if len(indices) == 1 else None
        if mask is not None and mask.dtype.name == "bool":
            spread = mask.reshape((*mask.shape, *(1,) * (view.dim() - mask.dim())))
            if value.dim():
                raise RuntimeError("vmap: x[mask] = values takes as many values as the mask has true ones. Try torch.where, or a number")
            view.copy_(OPS["where"].call(spread, value.to(view.dtype), view))
        else:
            if extra is not None:
                named = sum(i is not None for i in indices)
                after = view.dim() - named - extra  # dimensions of x[index] behind the place of the index
                value = value.unsqueeze(-1 - after) if value.dim() >= after else value
            _index_put.call_inplace(view, indices, value, False)


def _split(self: Tensor, index: Any, value: Any = None) -> tuple[Tensor, list | None, int | None]:
    """(the view that the ints, slices and Nones show, the index tensors for its dimensions or None if there are none, a dimension of the result
    that is to be taken away again or None)."""
    shape = tuple(self._array.shape)
    index, numbers = _lines(index)
    described = lambda item: _Described(item) if isinstance(item, Tensor) else None  # noqa: E731
    wanted = plan(index, shape, layout.contiguous_strides(shape), 0, described, _as_tensor)
    level = level_of([self, value, *(i for i in wanted.indices or () if isinstance(i, Tensor))])
    view = _basic(lift(self, level), index)
    if not wanted.indices:
        return view, None, None
    indices: list = []
    for item, kind in zip(wanted.indices, wanted.kinds, strict=True):
        found = None if item is None else wrap(np.arange(int(item))) if kind == FLAG else as_index(item)
        indices.append(found)
    extra = None
    if numbers and all(i is None or (isinstance(i, Batched) and id(i) in numbers) for i in indices):
        places = [d for d, i in enumerate(indices) if i is not None]
        extra = places[0] if places == list(range(places[0], places[0] + len(places))) else 0
    return view, indices, extra


def _lines(index: Any) -> tuple[Any, dict[int, Tensor]]:
    """The index with numbers that differ from sample to sample as lines of one number, and these by their id: they cannot select."""
    items = index if isinstance(index, tuple) else (index,)
    kinds = ("bool", "uint8")
    lines = [i.reshape(1) if isinstance(i, Batched) and not i.dim() and i.dtype.name not in kinds else i for i in items]
    return tuple(lines), {id(new): new for new, old in zip(lines, items, strict=True) if new is not old}


def _basic(self: Batched, index: Any) -> Tensor:
    """The view, item by item; what is a tensor, list or flag leaves its dimension as it is."""
    items = index if isinstance(index, tuple) else (index,)
    items = tuple(literal if (literal := _listed(i)) is not None else i for i in items)
    used = sum(_width(i) for i in items)
    dim, view = 0, self
    for item in items:
        if item is None or isinstance(item, (bool, np.bool_)):
            view = view.unsqueeze(dim)
            dim += 1
        elif item is Ellipsis:
            dim += self.dim() - used
        elif isinstance(item, slice):
            if (item.start, item.stop, item.step) != (None, None, None):
                view = OPS["_slice"].call(view, dim, *map(_whole, (item.start, item.stop)), 1 if item.step is None else _whole(item.step))
            dim += 1
        elif isinstance(item, (Tensor, np.ndarray)):
            if isinstance(item, Tensor) and not item.dim() and item.dtype.name != "bool" and not isinstance(item, Batched):
                view = view.select(dim, int(item))  # an integer of one element selects
            elif isinstance(item, Tensor) and not item.dim() and item.dtype.name == "bool":
                view, dim = view.unsqueeze(dim), dim + 1
            else:
                dim += _width(item)
        else:
            view = view.select(dim, _whole(item))
    return view if view is not self else OPS["_alias"].call(self)


def _whole(value: Any) -> Any:
    return value if value is None else value.__index__()


def _listed(item: Any) -> Tensor | None:
    return _as_tensor(item) if isinstance(item, (list, range, np.ndarray, tuple)) else None


def _width(item: Any) -> int:
    """How many dimensions of the tensor an item of an index is about."""
    if item is None or item is Ellipsis or isinstance(item, (bool, np.bool_)):
        return 0
    if isinstance(item, Tensor) and item.dtype.name in ("bool", "uint8"):
        return item.dim()
    return 1


# -- the gather and the scatter ---------------------------------------------------------------------------------------------


class _Ordered:
    """Where everything is once the indexed dimensions have been brought to the front.

    dims     indexed dimensions of the sample, then the others
    at       the index tensors, batch in front where they have one; arange(B) before them if both they and the input have a batch
    place    where the dimensions of the indices stand in the result
    """

    def __init__(self, input: Batched, indices: list):
        level = input.level
        named: list[int] = []
        tensors: list = []
        dim = 0
        for index in indices:
            if index is None:
                dim += 1
            elif index.dtype.name == "bool":
                if index.batched:
                    raise RuntimeError("vmap: x[mask] has another shape for every sample. Try torch.where, which keeps the shape")
                places = index.value.nonzero(as_tuple=True) if index.dim() else (index.value.reshape(1).nonzero().reshape(-1),)
                tensors += [lift(p, level) for p in places]
                named += range(dim, dim + index.dim())
                dim += index.dim()
            else:
                tensors.append(index)
                named.append(dim)
                dim += 1
        self.rank = max(t.dim() for t in tensors)  # of the index
        self.batched = any(t.batched for t in tensors)
        at = [front(t, self.rank) if t.batched else t.value for t in tensors]
        both = self.batched and input.batched
        if both:
            at.insert(0, arange(level.size, device=input.device).reshape((-1, *(1,) * self.rank)))
        self.at, self.both = at, both
        self.dims = [*named, *(d for d in range(input.dim()) if d not in named)]
        adjacent = named == list(range(named[0], named[0] + len(named)))
        self.place = named[0] if adjacent else 0
        self.batch_first = input.batched and not self.batched  # then the batch of the input lies before the indexed dimensions

    def ordered(self, value: Tensor, batched: bool) -> Tensor:
        """A value with the indexed dimensions first, after the batch."""
        return value.permute((0, *(d + 1 for d in self.dims))) if batched else value.permute(tuple(self.dims))

    def indices(self) -> list:
        return [None, *self.at] if self.batch_first else self.at

    def result(self, found: Tensor) -> Tensor:
        """(B, index, rest) -> (B, rest, index, rest)."""
        rest = found.dim() - 1 - self.rank
        order = [0, *range(1 + self.rank, 1 + self.rank + self.place), *range(1, 1 + self.rank)]
        return found.permute((*order, *range(1 + self.rank + self.place, 1 + self.rank + rest))) if self.place else found

    def values(self, given: Batched, rank: int) -> Tensor:
        """What is written, as (B, index, rest): the reverse of `result`."""
        value = front(given, rank)
        order = [0, *range(1 + self.place, 1 + self.place + self.rank), *range(1, 1 + self.place)]
        return value.permute((*order, *range(1 + self.place + self.rank, 1 + rank))) if self.place else value


@rule("_index")
def _(op, input, indices):
    plan = _Ordered(input, indices)
    found = op.call(plan.ordered(input.value, input.batched), plan.indices())
    return plan.result(found)


@rule("_index_put")
def _(op, input, indices, values, accumulate):
    plan = _Ordered(input, indices)
    size, whole = input.level.size, front(input)
    target = plan.ordered(whole, True)
    if not plan.both and not plan.batch_first:  # the index has a batch, the input had none until now
        plan.at.insert(0, arange(size, device=input.device).reshape((-1, *(1,) * plan.rank)))
    rank = plan.rank + input.dim() - (len(plan.dims) - _kept(input, indices))
    found = op.call(target, plan.indices(), plan.values(values, rank), accumulate)
    back = sorted(range(input.dim()), key=plan.dims.__getitem__)
    return found.permute((0, *(d + 1 for d in back)))


def _kept(input: Batched, indices: list) -> int:
    """How many dimensions of the input no index is about."""
    return input.dim() - sum(0 if i is None else i.dim() if i.dtype.name == "bool" else 1 for i in indices)
