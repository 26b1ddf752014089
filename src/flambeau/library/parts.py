"""Operators of PyTorch's that are pieces of operations here, or that mean something else than the function of their name.

Each is a function with the arguments of the schema, by their names there; an annotation says no more than the schema does, so there is none.
What differentiates is in derivatives.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import dtypes
from flambeau.kernels import layout as geometry
from flambeau.operators.overloads import OpOverload, aten
from flambeau.ops import OPS, formats
from flambeau.tensor import Tensor

FOUND: dict[str, Callable] = {}


def find(overload: OpOverload) -> Callable | None:
    """The function for an overload, by its name or that of all overloads; by rule, where the name says what it is made of."""
    from flambeau.library import derivatives, layer_parts, loss_parts, numeric_parts  # noqa: F401 - they enter what they have

    found = FOUND.get(overload.__name__) or FOUND.get(overload._opname)
    if found is not None:
        return _into_out(overload, found) if overload._is_out else found
    if overload._opname.endswith("_copy"):
        return _copies(overload)
    return derivatives.of(overload)


def part(*names: str) -> Callable[[Callable], Callable]:
    """The function is what these operators, or overloads, mean; its own name, if none is given."""

    def note(function: Callable) -> Callable:
        for name in names or (function.__name__,):
            FOUND[name] = function
        return function

    return note


def enter(table: dict[str, Callable]) -> None:
    """The same for functions of a line: names, separated by spaces, and what these operators mean."""
    for names, function in table.items():
        FOUND.update(dict.fromkeys(names.split(), function))


def op(name: str) -> Callable:
    """Our operation of this name."""
    return OPS[name]


def _into_out(overload: OpOverload, function: Callable) -> Callable:
    """The function, its results copied into the tensors given for them."""
    names = [a.name for a in overload._schema.arguments if a.is_out]

    def run(**bound: Any) -> Any:
        places = [bound.pop(name) for name in names]
        results = function(**bound)
        results = results if isinstance(results, tuple) else (results,)
        for place, result in zip(places, results, strict=True):
            place.resize_(result.shape).copy_(result)
        return places[0] if len(places) == 1 else tuple(places)

    return run


def _copies(overload: OpOverload) -> Callable | None:
    """`x_copy` is x, with memory of its own."""
    base = getattr(aten, overload._opname.removesuffix("_copy"), None)
    if base is None or overload._is_out or overload._overloadname not in base.overloads():
        return None
    view = getattr(base, overload._overloadname)

    def run(**bound: Any) -> Any:
        from flambeau.library.aten import runner

        found = runner(view)(**bound)
        return [t.clone() for t in found] if isinstance(found, list | tuple) else found.clone()

    return run


# -- the same elements, or copies of them --------------------------------------------------------------------------------------------------


def _in_format(memory_format: Any) -> dict:
    """The option, where it is given: not all functions take None for it."""
    return {} if memory_format is None else {"memory_format": memory_format}


@part()
def _to_copy(self, dtype, layout, device, pin_memory, non_blocking, memory_format):
    made = self.to(device=device, dtype=dtype, copy=True, non_blocking=non_blocking, **_in_format(memory_format))
    return made.pin_memory() if pin_memory else made


@part("to.device", "to.dtype", "to.dtype_layout")
def to(self, dtype, non_blocking, copy, memory_format, device=None, layout=None, pin_memory=None):
    return self.to(device=device, dtype=dtype, copy=copy, non_blocking=non_blocking, **_in_format(memory_format))


@part("slice.Tensor")
def slice_tensor(self, dim, start, end, step):
    index: list = [slice(None)] * self.dim()
    index[_dimension(self, dim)] = slice(start, end, step)
    return self[tuple(index)]


def _dimension(self: Tensor, dim: int) -> int:
    if self.dim() == 0:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    if not -self.dim() <= dim < self.dim():
        raise IndexError(f"Dimension out of range (expected to be in range of [{-self.dim()}, {self.dim() - 1}], but got {dim})")
    return dim % self.dim()


def _by_index(indices: list) -> tuple:
    """Indices as they stand between brackets."""
    return tuple([slice(None) if i is None else i for i in indices])


@part("index_put_", "_index_put_impl_")
def index_put_(self, indices, values, accumulate, unsafe=False):
    if any(i is None for i in indices):
        where = _by_index(indices)
        if not accumulate:
            self[where] = values
            return self
        rows = _positions(self)[where]  # which elements are meant, counted in row-major order
        flat = self.reshape(-1).index_add(0, rows.reshape(-1), values.expand(rows.shape).reshape(-1))
        return self.copy_(flat.view(self.shape))
    return self.index_put_(tuple(indices), values, accumulate)


def _positions(self: Tensor) -> Tensor:
    return self.new_ones(self.numel(), dtype=dtypes.int64).cumsum(0).sub(1).view(self.shape)


def where_masked(mask: Tensor, indices: list) -> list:
    """Indices with 0 where the mask is false, so that none is out of bounds."""
    return [None if i is None else i.where(mask, i.new_zeros(())) for i in indices]


@part("copy_.default", "copy_.Tensor")
def copy_(self, src=None, non_blocking=False, other=None):
    source = other if src is None else src
    return self.copy_(source, non_blocking) if isinstance(source, Tensor) else self.fill_(source)


@part()
def zeros_like(self, dtype, layout, device, pin_memory, memory_format):
    made = self.new_zeros(self.shape, dtype=dtype, device=device)
    return made if memory_format is None else made.contiguous(memory_format=memory_format)


def named(name: str) -> Callable:
    """The public function of this name."""
    from flambeau.ops import ABOVE

    return ABOVE["named"](name)


@part("empty.memory_format")
def empty(size, dtype, layout, device, pin_memory, memory_format):
    options = {"dtype": dtype, "layout": layout, "device": device, "pin_memory": bool(pin_memory)}
    return named("empty")(size, **options, **_in_format(memory_format))


@part()
def is_strides_like_format(self, memory_format):
    dims = {formats.channels_last: 4, formats.channels_last_3d: 5}.get(memory_format)
    return self.dim() == dims and geometry.looks_channels_last(tuple(self.shape), tuple(self.stride()))


@part("is_contiguous", "sym_is_contiguous", "is_contiguous.memory_format")
def is_contiguous(self, memory_format=None):
    return self.is_contiguous(**_in_format(None if isinstance(memory_format, int) else memory_format))


SHORT: dict[str, Callable] = {
    "to.other": lambda self, other, non_blocking, copy, memory_format: to(
        self, other.dtype, non_blocking, copy, memory_format, other.device
    ),
    "alias lift lift_fresh _conj_physical.alias": lambda self: self.view_as(self),
    "lift_fresh_copy": lambda self: self.clone(),
    "view.default _unsafe_view _reshape_alias": lambda self, size, stride=None: self.view(size),
    "view.dtype": lambda self, dtype: self.view(dtype),
    "index.Tensor _unsafe_index.Tensor": lambda self, indices: self[_by_index(indices)],
    "index_put _unsafe_index_put": lambda self, indices, values, accumulate: index_put_(self.clone(), indices, values, accumulate),
    "_unsafe_masked_index": lambda self, mask, indices, fill: self[_by_index(where_masked(mask, indices))].masked_fill(~mask, fill),
    "split.sizes": lambda self, split_size, dim: list(self.split_with_sizes(split_size, dim)),
    "unsafe_split.Tensor split.Tensor": lambda self, split_size, dim: list(self.split(split_size, dim)),
    "squeeze.dims": lambda self, dim: self.squeeze(tuple(dim)),
    "unfold": lambda self, dimension, size, step: self.unfold(dimension, size, step),
    "_conj": lambda self: self.conj(),
    "_conj_physical": lambda self: self.conj_physical(),
    "_neg_view": lambda self: op("_neg_view")(self),
    "_local_scalar_dense item": lambda self: self.item(),
    "copy": lambda self, src, non_blocking: copy_(self.clone(), src, non_blocking),
    "fill.Scalar fill.Tensor": lambda self, value: self.clone().fill_(value),
    "zero": lambda self: self.clone().zero_(),
    "_efficientzerotensor": lambda size, dtype, layout, device, pin_memory: named("zeros")(size, dtype=dtype, device=device),
    "is_pinned": lambda self, device: self.is_pinned(),
    "_pin_memory pin_memory": lambda self, device: self.pin_memory(),
    "record_stream": lambda self, s: self.record_stream(s),
    "set_.source_Storage_storage_offset": lambda self, source, storage_offset, size, stride: self.set_(
        source, storage_offset, size, stride
    ),
    "set_.source_Tensor_storage_offset": lambda self, source, storage_offset, size, stride: self.set_(
        source, storage_offset, size, stride or None
    ),
    "resize_": lambda self, size, memory_format: self.resize_(size, **_in_format(memory_format)),
    "sym_size.int": lambda self, dim: self.size(dim),
    "sym_size.default size.default": lambda self: list(self.shape),
    "sym_stride.int": lambda self, dim: self.stride(dim),
    "sym_stride.default": lambda self: list(self.stride()),
    "sym_numel": lambda self: self.numel(),
    "sym_storage_offset": lambda self: self.storage_offset(),
    "is_non_overlapping_and_dense": lambda self: geometry.is_non_overlapping_and_dense(tuple(self.shape), tuple(self.stride())),
    "device.default": lambda a: a.device,
    "layout.default": lambda a: a.layout,
}
enter(SHORT)
