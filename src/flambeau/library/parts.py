"""Operators of PyTorch's that are pieces of operations here, or that mean something else than the function of their name.

Each is a function with the arguments of the schema, by their names there; an annotation says no more than the schema does, so there is none.
What differentiates is in derivatives.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


@part()
def _to_copy(self, dtype, layout, device, pin_memory, non_blocking, memory_format):
    options = {} if memory_format is None else {"memory_format": memory_format}
    made = self.to(device=device, dtype=dtype, copy=True, non_blocking=non_blocking, **options)
    return made.pin_memory() if pin_memory else made


@part("to.device", "to.dtype")
def to(self, dtype, non_blocking, copy, memory_format, device=None):
    options = {} if memory_format is None else {"memory_format": memory_format}
    return self.to(device=device, dtype=dtype, copy=copy, non_blocking=non_blocking, **options)


@part("to.dtype_layout")
def to_options(self, dtype, layout, device, pin_memory, non_blocking, copy, memory_format):
    return to(self, dtype, non_blocking, copy, memory_format, device)


@part("to.other")
def to_other(self, other, non_blocking, copy, memory_format):
    return to(self, other.dtype, non_blocking, copy, memory_format, other.device)


@part("alias", "lift", "lift_fresh", "_conj_physical.alias")
def alias(self):
    return self.view_as(self)


@part("lift_fresh_copy")
def lift_fresh_copy(self):
    return self.clone()


@part("view.default", "_unsafe_view", "_reshape_alias")
def view(self, size, stride=None):
    return self.view(size)


@part("view.dtype")
def view_dtype(self, dtype):
    return self.view(dtype)


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


@part("index.Tensor", "_unsafe_index.Tensor")
def index(self, indices):
    return self[tuple([slice(None) if i is None else i for i in indices])]


@part("index_put", "_unsafe_index_put")
def index_put(self, indices, values, accumulate):
    return index_put_(self.clone(), indices, values, accumulate)


@part("index_put_", "_index_put_impl_")
def index_put_(self, indices, values, accumulate, unsafe=False):
    if any(i is None for i in indices):
        where = tuple([slice(None) if i is None else i for i in indices])
        if not accumulate:
            self[where] = values
            return self
        rows = _positions(self)[where]  # which elements are meant, counted in row-major order
        flat = self.reshape(-1).index_add(0, rows.reshape(-1), values.expand(rows.shape).reshape(-1))
        return self.copy_(flat.view(self.shape))
    return self.index_put_(tuple(indices), values, accumulate)


def _positions(self: Tensor) -> Tensor:
    return self.new_ones(self.numel(), dtype=dtype_named("int64")).cumsum(0).sub(1).view(self.shape)


def dtype_named(name: str) -> Any:
    """The dtype of this name."""
    from flambeau import dtypes

    return getattr(dtypes, name)


@part("_unsafe_masked_index")
def _unsafe_masked_index(self, mask, indices, fill):
    return index(self, [None if i is None else i.where(mask, i.new_zeros(())) for i in indices]).masked_fill(~mask, fill)


@part("split.sizes")
def split_sizes(self, split_size, dim):
    return list(self.split_with_sizes(split_size, dim))


@part("unsafe_split.Tensor", "split.Tensor")
def split_tensor(self, split_size, dim):
    return list(self.split(split_size, dim))


@part("squeeze.dims")
def squeeze_dims(self, dim):
    return self.squeeze(tuple(dim))


@part("unfold")
def unfold(self, dimension, size, step):
    return self.unfold(dimension, size, step)


@part("_conj")
def _conj(self):
    return self.conj()


@part("_conj_physical")
def _conj_physical(self):
    return self.conj_physical()


@part("_neg_view")
def _neg_view(self):
    return op("_neg_view")(self)


@part("_local_scalar_dense", "item")
def _local_scalar_dense(self):
    return self.item()


@part("copy_.default", "copy_.Tensor")
def copy_(self, src=None, non_blocking=False, other=None):
    source = other if src is None else src
    return self.copy_(source, non_blocking) if isinstance(source, Tensor) else self.fill_(source)


@part("copy")
def copy(self, src, non_blocking):
    return copy_(self.clone(), src, non_blocking)


@part("fill.Scalar", "fill.Tensor")
def fill(self, value):
    return self.clone().fill_(value)


@part("zero")
def zero(self):
    return self.clone().zero_()


@part("zeros_like")
def zeros_like(self, dtype, layout, device, pin_memory, memory_format):
    made = self.new_zeros(self.shape, dtype=dtype, device=device)
    return made if memory_format is None else made.contiguous(memory_format=memory_format)


@part("_efficientzerotensor")
def _efficientzerotensor(size, dtype, layout, device, pin_memory):
    return named("zeros")(size, dtype=dtype, device=device)


def named(name: str) -> Callable:
    """The public function of this name."""
    from flambeau.ops import ABOVE

    return ABOVE["named"](name)


@part("empty.memory_format")
def empty(size, dtype, layout, device, pin_memory, memory_format):
    options = {} if memory_format is None else {"memory_format": memory_format}
    return named("empty")(size, dtype=dtype, layout=layout, device=device, pin_memory=bool(pin_memory), **options)


@part("is_pinned")
def is_pinned(self, device):
    return self.is_pinned()


@part("_pin_memory", "pin_memory")
def _pin_memory(self, device):
    return self.pin_memory()


@part("record_stream")
def record_stream(self, s):
    self.record_stream(s)


@part("set_.source_Storage_storage_offset")
def set_storage(self, source, storage_offset, size, stride):
    return self.set_(source, storage_offset, size, stride)


@part("set_.source_Tensor_storage_offset")
def set_tensor(self, source, storage_offset, size, stride):
    return self.set_(source, storage_offset, size, stride or None)


@part("resize_")
def resize_(self, size, memory_format):
    return self.resize_(size) if memory_format is None else self.resize_(size, memory_format=memory_format)


@part("sym_size.int")
def sym_size(self, dim):
    return self.size(dim)


@part("sym_size.default", "size.default")
def sym_sizes(self):
    return list(self.shape)


@part("sym_stride.int")
def sym_stride(self, dim):
    return self.stride(dim)


@part("sym_stride.default")
def sym_strides(self):
    return list(self.stride())


@part("sym_numel")
def sym_numel(self):
    return self.numel()


@part("sym_storage_offset")
def sym_storage_offset(self):
    return self.storage_offset()


@part("is_strides_like_format")
def is_strides_like_format(self, memory_format):
    dims = {formats.channels_last: 4, formats.channels_last_3d: 5}.get(memory_format)
    return self.dim() == dims and geometry.looks_channels_last(tuple(self.shape), tuple(self.stride()))


@part("is_non_overlapping_and_dense")
def is_non_overlapping_and_dense(self):
    return geometry.is_non_overlapping_and_dense(tuple(self.shape), tuple(self.stride()))


@part("is_contiguous", "sym_is_contiguous", "is_contiguous.memory_format")
def is_contiguous(self, memory_format=None):
    return (
        self.is_contiguous() if memory_format is None or isinstance(memory_format, int) else self.is_contiguous(memory_format=memory_format)
    )


@part("device.default")
def device(a):
    return a.device


@part("layout.default")
def layout(a):
    return a.layout


def product(sizes: list[int]) -> int:
    """How many elements there are."""
    found = 1
    for size in sizes:
        found *= size
    return found
