"""Shapes: flattening, repeating, rolling, flipping, splitting. Views where the strides allow it, copies where they do not."""

from __future__ import annotations

import numpy as np

from flambeau.kernels import arrays, layout
from flambeau.kernels.native import copies, native
from flambeau.ops import specs
from flambeau.ops.declare import OPS, composite, on_arrays, view
from flambeau.ops.formats import contiguous_format
from flambeau.ops.joining import joined_strides
from flambeau.ops.views import _permute, _slice, _split, _split_with_sizes, listed, reshaped, sizes_of, whole


def _as_other(name: str, meaning: str) -> None:
    @composite(public=False, name=f"{name}_as", doc=f"`input` {meaning} the shape of `other`.")
    def shaped(input, other):
        return getattr(input, name)(tuple(other.shape))


_as_other("view", "viewed in")
_as_other("reshape", "in")
_as_other("expand", "expanded to")


@composite
def broadcast_to(input, *size, **named):
    """`input` expanded to `size`."""
    return input.expand(listed("broadcast_to", "size", size, named))


@composite(method=False)
def broadcast_tensors(*tensors):
    """All tensors expanded to their common shape."""
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    shape = layout.broadcast_shapes(*(tuple(t.shape) for t in tensors))
    return tuple([t if tuple(t.shape) == shape else t.expand(shape) for t in tensors])


@composite(as_view=True)
def flatten(input, start_dim=0, end_dim=-1):
    """Dimensions start_dim to end_dim made one."""
    old = tuple(input.shape)
    shape = layout.flatten_shape(old, start_dim, end_dim)
    return input if len(shape) == len(old) else reshaped(input, shape)


@composite
def ravel(input):
    """One dimension, contiguous."""
    return input.contiguous().view(-1)


@composite(as_view=True)
def unflatten(input, dim, sizes):
    """One dimension cut into `sizes`, of which one may be -1."""
    return input.view(layout.unflatten_shape(tuple(input.shape), dim, sizes_of((sizes,))))


@composite(aliases=("moveaxis",), as_view=True)
def movedim(input, source, destination):
    """Dimensions moved to other places; the others keep their order."""
    n = input.dim()
    places = [d if isinstance(d, (tuple, list)) else whole(d) for d in (source, destination)]
    order, _ = layout.movedim(tuple(range(n)), (0,) * n, *places)
    return _permute(input, order)


@composite(as_view=True)
def swapdims(input, dim0, dim1):
    """Two dimensions exchanged: another name for transpose."""
    return input.transpose(dim0, dim1)


@composite(as_view=True)
def swapaxes(input, axis0, axis1):
    """Two dimensions exchanged: NumPy's name for transpose."""
    return input.transpose(axis0, axis1)


@composite(as_view=True)
def t(input):
    """The transpose of a matrix; vectors and numbers as they are."""
    if input.dim() > 2:
        most = "2 sparse and 0 dense dimensions" if input.is_sparse else "2 dimensions"
        raise RuntimeError(f"t() expects a tensor with <= {most}, but self is {input.dim()}D. Try .mT or .transpose(dim0, dim1)")
    return _t(input)


@view
def _t(input):
    shape, strides, offset = input
    return shape[::-1], strides[::-1], offset


_t.derivative(lambda grad: _t(grad))


@composite(as_view=True)
def adjoint(input):
    """The conjugate transpose of the last two dimensions."""
    if input.dim() == 1:
        raise RuntimeError("adjoint() is only supported on matrices, or batches of them, found a 1-D tensor.")
    if not input.dim():
        return input.conj() if input.is_complex() else input.view(())
    swapped = input.transpose(-2, -1)
    return swapped.conj() if input.is_complex() else swapped


# -- pieces ----------------------------------------------------------------------------------------------------------


def _cut(input, size, dim):
    """Pieces of one size, or of the sizes in a list."""
    listed = isinstance(size, (list, tuple))
    bounds = layout.split_bounds(tuple(input.shape), sizes_of((tuple(size),)) if listed else whole(size), whole(dim))
    return (_split_with_sizes if listed else _split)(input, dim, bounds)


@composite(as_view=True)
def split(input, split_size_or_sections=None, dim=0, *, split_size=None):
    """Pieces of a dimension, of one size (the last may be shorter) or of the sizes in a list, as views."""
    return _cut(input, split_size if split_size_or_sections is None else split_size_or_sections, dim)


@composite(as_view=True)
def split_with_sizes(input, split_sizes, dim=0):
    """Pieces of a dimension of the given sizes, as views."""
    return _cut(input, tuple(split_sizes), dim)


@composite(as_view=True)
def chunk(input, chunks, dim=0):
    """At most `chunks` equal pieces of a dimension (the last may be shorter), as views."""
    return _split(input, dim, layout.chunk_bounds(tuple(input.shape), whole(chunks), whole(dim)))


def _unsafe(name: str, cut) -> None:
    doc = f"`{name}`, the pieces being no views as far as history goes: each may be written to, if its input is not used."

    @composite(name=f"unsafe_{name}", doc=doc, planned=False)
    def pieces(input, *args, **kwargs):
        found = cut(input, *args, **kwargs)
        for piece in found:
            piece._base = piece._view_mode = None
            piece._storage = piece._storage.counted_apart()
        return found


_unsafe("split", split)
_unsafe("split_with_sizes", split_with_sizes)
_unsafe("chunk", chunk)


@composite
def tensor_split(input, indices_or_sections=None, dim=0, *, tensor_indices_or_sections=None, indices=None, sections=None):
    """Pieces of a dimension: exactly so many, or cut at these indices, as views."""
    given = next((v for v in (indices_or_sections, tensor_indices_or_sections, indices, sections) if v is not None), None)
    if hasattr(given, "_array"):
        what = "tensor_split expected tensor_indices_or_sections to"
        if given.device.type != "cpu":
            raise RuntimeError(f"{what} be on cpu, but it's on {given.device}: it says how many views there are")
        if given.dtype.name != "int64":
            raise RuntimeError(f"{what} have dtype of long, but got {given.type().rpartition('.')[2].removesuffix('Tensor')}")
        if given.dim() > 1:
            raise RuntimeError(f"{what} be a zero-dimensional or one-dimensional tensor, but got a tensor with {given.dim()} dims")
        given = given.tolist()
    where = sizes_of((tuple(given),)) if isinstance(given, (list, tuple)) else whole(given)
    bounds = layout.tensor_split_bounds(tuple(input.shape), where, whole(dim))
    return tuple([_slice(input, dim, start, start + length, 1) for start, length in bounds])


def _numpy_split(name: str, minimum: int, dim: int) -> None:
    @composite(name=name, doc=f"tensor_split as NumPy's {name}: equal pieces, or pieces cut at indices.")
    def split_along(input, indices_or_sections=None, *, indices=None, sections=None):
        indices_or_sections = next(v for v in (indices_or_sections, indices, sections) if v is not None)
        if input.dim() < minimum:
            raise RuntimeError(f"torch.{name} requires a tensor with at least {minimum} dimension(s), found {input.dim()}")
        at = min(dim, input.dim() - 1)
        size = input.shape[at]
        if isinstance(indices_or_sections, int) and (indices_or_sections <= 0 or size % indices_or_sections):
            what = f"torch.{name} attempted to split along dimension {at}, whose size {size} is not divisible by {indices_or_sections}"
            raise RuntimeError(f"{what}: try tensor_split")
        return input.tensor_split(indices_or_sections, at)


_numpy_split("hsplit", 1, 1)
_numpy_split("vsplit", 2, 0)
_numpy_split("dsplit", 3, 2)


def _atleast(least: int) -> None:
    """Declare atleast_<least>d. The first two new dimensions come first, the third last: a matrix becomes (M, N, 1)."""

    def lift(x):
        for n in range(x.dim(), least):
            x = x.unsqueeze(-1 if n == 2 else 0)
        return x

    @composite(method=False, name=f"atleast_{least}d", doc=f"Tensors with at least {least} dimensions.")
    def lifted(*tensors):
        if len(tensors) != 1:
            return tuple(lift(x) for x in tensors)
        return tuple(lift(x) for x in tensors[0]) if isinstance(tensors[0], (list, tuple)) else lift(tensors[0])


for _least in (1, 2, 3):
    _atleast(_least)


# -- repeating -------------------------------------------------------------------------------------------------------


@composite(public=False)
def repeat(input, *repeats, **named):
    """`input` repeated along every dimension, copied. New dimensions come first."""
    times = listed("repeat", "repeats", repeats, named)
    if len(times) < input.dim():
        raise RuntimeError(f"repeat: every dimension of the tensor needs a number of times, found {len(times)} numbers for {input.dim()}")
    if any(n < 0 for n in times):
        raise RuntimeError(f"Trying to create tensor with negative dimension: repeats {list(times)}")
    return _repeat(input, times)


@on_arrays
def _repeat(input, times):
    """A copy in which every dimension d is there times[d] times."""
    shape = (1,) * (len(times) - input.ndim) + tuple(input.shape)
    out = arrays.empty_beside(input, [n * s for n, s in zip(times, shape, strict=True)], input.dtype)
    # (n, s) for every dimension, of which the first is broadcast: a copy in one pass.
    arrays.write(out.reshape(_pairs(times, shape)), input.reshape(_pairs((1,) * len(times), shape)))
    return out


def _pairs(times, shape) -> tuple[int, ...]:
    return tuple([n for pair in zip(times, shape, strict=True) for n in pair])


@_repeat.work
def _(input, times):
    own = (1,) * (len(times) - input.ndim) + input.shape
    shape, pairs = tuple([n * s for n, s in zip(times, own, strict=True)]), _pairs(times, own)
    if not input.size or 0 in shape or not input.flags.c_contiguous:
        return None
    steps = _pairs((0,) * len(own), layout.contiguous_strides(own))
    out_steps, dtype = layout.contiguous_strides(pairs), input.dtype
    empty, view = native.empty, native.strided_view

    def run(input):
        out = empty(shape, dtype)
        return out if copies.made(view(out, pairs, out_steps, 0), view(input, pairs, steps, 0)) else NotImplemented

    return run


_repeat.derivative(input=lambda grad, input_shape, times: _folded(grad, tuple(input_shape), times))


def _folded(grad, shape, times):
    """The sum over all repetitions."""
    if 0 in times:
        return grad.new_zeros(shape)
    full = (1,) * (len(times) - len(shape)) + shape
    summed = grad.reshape(_pairs(times, full)).sum(tuple(range(0, 2 * len(times), 2))) if times else grad
    return summed.reshape(shape)


@_repeat.meta
def _(input, times):
    shape = (1,) * (len(times) - input.ndim) + tuple(input.shape)
    return [n * s for n, s in zip(times, shape, strict=True)], input.dtype


@composite
def tile(input, *dims, **named):
    """`input` repeated, NumPy's way: missing counts are 1."""
    times = listed("tile", "dims", dims, named)
    return input.repeat((1,) * (input.dim() - len(times)) + times)


@composite
def roll(input, shifts, dims=None):
    """Elements moved along dimensions, those that fall off the end coming back at the start."""
    shifts = sizes_of((shifts,))
    dims = () if dims is None else (dims,) if isinstance(dims, int) else tuple(dims)
    if not shifts:
        raise RuntimeError("`shifts` required: say by how many places the elements move")
    if len(shifts) != (len(dims) or 1):
        raise RuntimeError(f"shifts and dimensions must align: found {len(shifts)} and {len(dims)}")
    if len(dims) == 1 and not input.numel():
        return input.clone()  # PyTorch does not look at the dimension of a tensor without elements
    if dims and not input.dim():
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    return _roll(input, shifts, tuple(layout.wrap_dim(d, input.dim()) for d in dims))


@on_arrays
def _roll(input, shifts, dims):
    """A copy with elements moved along `dims`, or, if there are none, through all of it."""
    xp = arrays.module_of(input)
    if not dims:
        return arrays.contiguous(xp.roll(input, shifts[0]))
    strides = joined_strides(input.shape, [arrays.view_of(input)])
    for shift, dim in zip(shifts, dims, strict=True):
        out = arrays.empty_strided(input.shape, strides, input.dtype, arrays.device_of(input))
        before, n = (slice(None),) * dim, input.shape[dim]
        at = shift % n if n else 0
        for to, of in ((slice(at, n), slice(0, n - at)), (slice(0, at), slice(n - at, n))):
            if to.stop > to.start:
                arrays.write(out[(*before, to)], input[(*before, of)])
        input = out
    return input


@_roll.work
def _(input, shifts, dims):
    if len(dims) != 1 or not 0 < input.size < arrays.MANY or not input.flags.c_contiguous:
        return None
    shape, dtype, dim, steps = input.shape, input.dtype, dims[0], arrays.element_strides(input)
    at = shifts[0] % shape[dim]  # so many from the end come first
    end, begin = ((*shape[:dim], n, *shape[dim + 1 :]) for n in (at, shape[dim] - at))
    there, empty, view, concatenate = (shape[dim] - at) * steps[dim], native.empty, native.strided_view, np.concatenate

    def run(input):
        parts = (view(input, end, steps, there), view(input, begin, steps, 0)) if at else (input,)
        return concatenate(parts, dim, out=empty(shape, dtype))

    return run


_roll.derivative(input=lambda grad, shifts, dims: _roll(grad, tuple(-s for s in shifts), dims))
_roll.meta(lambda input, shifts, dims: specs.in_kind(input, input.shape) if dims else specs.contiguous(input))


@on_arrays(meta=specs.like)
def _flip(input, dims):
    """A copy with dimensions reversed."""
    window = input[tuple(slice(None, None, -1) if d in dims else slice(None) for d in range(input.ndim))]
    out = arrays.empty_like(input)
    arrays.write(out, window if input.ndim else input)
    return out


@_flip.work
def _(input, dims):
    if not input.size or not input.flags.c_contiguous or 1 in input.shape or not input.ndim:  # sizes of 1 have their own say in strides
        return None
    shape, dtype, steps = input.shape, input.dtype, arrays.element_strides(input)
    turned = tuple([-s if d in dims else s for d, s in enumerate(steps)])
    last = sum([(shape[d] - 1) * steps[d] for d in dims])
    empty, view = native.empty, native.strided_view

    def run(input):
        out = empty(shape, dtype)
        return out if copies.made(out, view(input, shape, turned, last)) else NotImplemented

    return run


_flip.derivative(input=lambda grad, dims: _flip(grad, dims))


@composite
def flip(input, *dims, **named):
    """Dimensions reversed, as a copy."""
    if not dims and not named:
        raise TypeError('flip() missing 1 required positional arguments: "dims"')
    given = listed("flip", "dims", dims, named)
    return _flip(input, layout.wrap_dims(given, input.dim()))


def _flipping(name: str, dim: int, which: str) -> None:
    @composite(name=name, doc=f"The {which} dimension reversed.")
    def flipped(input):
        if input.dim() <= dim:
            raise RuntimeError(f"Input must be >= {dim + 1}-d.")
        return flip(input, dim)


_flipping("flipud", 0, "first")
_flipping("fliplr", 1, "second")


@composite
def rot90(input, k=1, dims=(0, 1)):
    """A plane turned by k quarter turns from dims[0] toward dims[1]."""
    dims = tuple(dims)
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, found {len(dims)}")
    if input.dim() < 2:
        raise RuntimeError(f"expected total dims >= 2, found {input.dim()}")
    a, b = (layout.wrap_dim(d, input.dim()) for d in dims)
    if a == b:
        raise RuntimeError(f"expected rotation dims to be different, found {dims[0]} and {dims[1]}")
    return _rot90(input, k % 4, (a, b))


@on_arrays
def _rot90(input, k, dims):
    """A copy turned by k quarter turns: reversed in one dimension, or in both; an odd number of turns exchanges them too."""
    if not k:
        return arrays.contiguous_copy(input)
    a, b = dims
    copy = _flip.forward(input, ((b,), (a, b), (a,))[k - 1])
    return copy.swapaxes(a, b) if k % 2 else copy


_rot90.derivative(input=lambda grad, k, dims: _rot90(grad, -k % 4, dims))


@_rot90.meta
def _(input, k, dims):
    if not k:
        return specs.contiguous(input)
    shape, dtype, strides = specs.like(input)
    if k % 2:
        shape, strides = layout.transpose(shape, strides, *dims)
    return shape, dtype, strides


@composite
def repeat_interleave(input, repeats=None, dim=None, *, output_size=None):
    """Every element repeated in place: as often as a number says, or each as often as its entry in a tensor."""
    if repeats is None:
        return _indices_repeated(input, output_size)
    if dim is None:
        input, dim = input.reshape(-1), 0
    dim = layout.wrap_dim(dim, input.dim())
    size = input.shape[dim] if input.dim() else 1
    if not hasattr(repeats, "_array"):
        repeats = whole(repeats)
        if repeats < 0:
            raise RuntimeError("Repeats must be non-negative")
        shape = tuple(input.shape)
        wide = input.unsqueeze(dim + 1).expand((*shape[: dim + 1], repeats, *shape[dim + 1 :]))
        return wide.clone(memory_format=contiguous_format).view((*shape[:dim], size * repeats, *shape[dim + 1 :]))
    if repeats.dim() == 0 or (repeats.dim() == 1 and repeats.numel() == 1):
        repeats = repeats.reshape(1).expand((size,))
    elif repeats.numel() != size:
        raise RuntimeError(
            f"repeats must be one number, or one for each of {size} slices of dimension {dim}: the same size, found {repeats.numel()}"
        )
    return OPS["index_select"](input, dim, _indices_repeated(repeats, output_size))


def _indices_repeated(repeats, output_size):
    """As many zeros as repeats[0] says, then as many ones as repeats[1], ..."""
    if repeats.dim() > 1:
        raise RuntimeError("repeats must be a number or a row of numbers: 0-dim or 1-dim")
    if repeats.is_floating_point() or repeats.is_complex():
        raise NotImplementedError(f"repeat_interleave is not implemented for repeats of {repeats.dtype}: int64 or int32. Try .long()")
    found = _repeat_indices(repeats, output_size)
    if output_size is not None and found.numel() != output_size:
        raise RuntimeError(f"allocated size does not match required size: output_size is {output_size}, repeats add up to {found.numel()}")
    return found


@on_arrays
def _repeat_indices(repeats, size):
    xp = arrays.module_of(repeats)
    if repeats.size and int(repeats.min()) < 0:
        raise RuntimeError("repeats can not be negative")
    return xp.repeat(xp.arange(repeats.size, dtype=repeats.dtype), repeats.reshape(-1))


_repeat_indices.meta(lambda repeats, size: specs.of_data() if size is None else ((size,), repeats.dtype))


# -- copies under the names of views ---------------------------------------------------------------------------------


def _copying_twin(name: str, look, method: bool = False) -> None:
    """Declare <name>_copy: what `look` shows, copied."""

    @composite(name=f"{name}_copy", method=method, out="same", doc=f"`{name}` as a copy instead of a view.")
    def twin(input, *args, **kwargs):
        found = look(input, *args, **kwargs)
        copies = [v.clone(memory_format=contiguous_format) for v in (found if isinstance(found, (tuple, list)) else (found,))]
        return tuple(copies) if isinstance(found, (tuple, list)) else copies[0]


def _narrow(input, dim, start, length):
    if dim >= input.dim():  # PyTorch raises an IndexError for one that is too far below, as narrow does, but not for this
        raise RuntimeError(f"narrow_copy: expected dim < {input.dim()}, the number of dimensions, found {dim}")
    return input.narrow(dim, start, length)


for _name in (
    "as_strided", "detach", "diagonal", "expand", "permute", "select", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind",
    "unfold", "unsqueeze",
):  # fmt: skip
    _copying_twin(_name, lambda input, *args, _name=_name, **kwargs: getattr(input, _name)(*args, **kwargs))
_copying_twin("alias", lambda input: input)
_copying_twin("view", lambda input, size: input.view(size) if hasattr(size, "itemsize") else input.reshape(size))
_copying_twin("slice", lambda input, dim=0, start=None, end=None, step=1: _slice(input, dim, start, end, step))
_copying_twin("narrow", _narrow, method=True)
for _name in ("view_as_real", "view_as_complex"):
    _copying_twin(_name, lambda input, _name=_name: OPS[_name](input))
