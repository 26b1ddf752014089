"""Views: other shapes and orders over the same memory. Nothing is copied, and a write through a view is a write to its base."""

from __future__ import annotations

from math import prod

from flambeau import dtypes
from flambeau.kernels import arrays, layout
from flambeau.ops.declare import composite, on_arrays, view


def sizes_of(sizes) -> tuple[int, ...]:
    """A shape given as numbers or as one sequence: view(2, 3) and view((2, 3)) are the same."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = sizes[0]
    return tuple([s if type(s) is int else whole(s) for s in sizes])


def listed(name: str, keyword: str, sizes: tuple, named: dict) -> tuple[int, ...]:
    """The sizes or dimensions of a call that takes them as numbers, as one sequence or by keyword: permute(1, 0), permute(dims=(1, 0))."""
    if not named:
        return sizes_of(sizes)
    if sizes or list(named) != [keyword]:
        raise TypeError(f"{name}() got an unexpected keyword argument {next(k for k in named if sizes or k != keyword)!r}")
    return sizes_of((named[keyword],))


def whole(value) -> int:
    """An int, or something that stands for one (a NumPy integer, a 0-d integer tensor)."""
    try:
        number = value.__index__()
    except AttributeError:
        raise TypeError(f"expected an int, found {type(value).__name__} {value!r}") from None
    if value is True or value is False:
        raise TypeError(f"expected an int, found bool {value}")
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"Overflow when unpacking long long: {number} does not fit in 64 bits")
    return number


@view
def _view(input, size):
    """The same elements, in order, in another shape."""
    shape, strides, offset = input
    new = layout.infer_size(size, prod(shape))
    found = layout.view(shape, strides, new)
    if found is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride: elements of one new dimension would not lie at "
            f"equal distances. .reshape({', '.join(map(str, size))}) copies when it must; or .contiguous() first. Found shape "
            f"{tuple(shape)}, strides {tuple(strides)}"
        )
    return new, found, offset


_view.derivative(lambda grad, input_shape: grad.reshape(input_shape))


@composite(public=False, name="view", as_view=True)
def view_(input, *size, **named):
    """The same memory in another shape (or, given a dtype, with other elements). One size may be -1."""
    if named or len(size) == 1:
        target = dtypes.asked(named.get("dtype", size[0] if size else None))
        if isinstance(target, dtypes.dtype):
            return input._reinterpret(target)
    return _view.call(input, listed("view", "size", size, named))


@view
def _alias(input):
    """The same view of the same memory, as another tensor object."""
    return input


_alias.derivative(lambda grad: grad)


@composite(as_view=True)
def reshape(input, *shape, **named):
    """The same elements in another shape: a view where the strides allow it, else a copy."""
    return reshaped(input, listed("reshape", "shape", shape, named))


def reshaped(input, sizes: tuple[int, ...]):
    """`input` in another shape, of which one size may be -1."""
    shape, strides = tuple(input.shape), input.stride()
    if strides == layout.contiguous_strides(shape):
        return _view.call(input, sizes)
    new = layout.infer_size(sizes, input.numel())
    return _view.call(input, new) if layout.view(shape, strides, new) is not None else _unsafe_view.call(input.contiguous(), new)


@on_arrays
def _unsafe_view(input, size):
    """The fresh, contiguous memory of a tensor nobody else has, in another shape."""
    return input.reshape(size)


_unsafe_view.derivative(input=lambda grad, input_shape: grad.reshape(input_shape))
_unsafe_view.meta(lambda input, size: (size, input.dtype, layout.view(*arrays.view_of(input), tuple(size))))


def _rearranged(function, input, *args):
    """A view that starts at the same element, with other shape and strides: function(shape, strides, *args) gives them."""
    shape, strides, offset = input
    return *function(shape, strides, *args), offset


@view
def transpose(input, dim0, dim1):
    """Two dimensions exchanged."""
    return _rearranged(layout.transpose, input, whole(dim0), whole(dim1))


transpose.derivative(lambda grad, dim0, dim1: grad.transpose(dim0, dim1))


@view
def _permute(input, dims):
    """Dimensions in another order."""
    return _rearranged(layout.permute, input, dims)


def _inverse(dims) -> tuple[int, ...]:
    n = len(dims)
    inverse = [0] * n
    for i, d in enumerate(dims):
        inverse[d % n] = i
    return tuple(inverse)


_permute.derivative(lambda grad, dims: _permute(grad, _inverse(dims)))


@composite(as_view=True)
def permute(input, *dims, **named):
    """The dimensions in another order: permute(2, 0, 1) or permute((2, 0, 1))."""
    return _permute.call(input, listed("permute", "dims", dims, named))


@view
def _expand(input, size):
    """Dimensions of size 1 repeated without copying."""
    return _rearranged(layout.expand, input, size)


_expand.derivative(lambda grad, input_shape: grad.sum_to_size(input_shape))


@composite(public=False, as_view=True)
def expand(input, *size, implicit=False, **named):
    """Dimensions of size 1 repeated, and new ones put in front, without copying: their stride is 0. -1 keeps a size."""
    return _expand.call(input, listed("expand", "size", size, named))


def _squeezing(number: int):
    """Declare squeeze once for each of the names its node has: without dim (0), with one (1), with several (2), after a product (4)."""

    @view(name=f"_squeeze{number}", grad_name=f"SqueezeBackward{number}")
    def squeezed(input, dim):
        return _rearranged(layout.squeeze, input, dim)

    squeezed.derivative(lambda grad, input_shape: grad.reshape(input_shape))
    return squeezed


_SQUEEZES = [_squeezing(number) for number in range(3)]
squeeze_product = _squeezing(4)  # of the row that a vector was made for the product


@composite(as_view=True)
def squeeze(input, dim=None, *more):
    """Without the dimensions of size 1: all of them, or those named."""
    if more or isinstance(dim, (tuple, list)):
        return _SQUEEZES[2](input, sizes_of((dim, *more)))
    return _SQUEEZES[0](input, None) if dim is None else _SQUEEZES[1](input, whole(dim))


@view
def unsqueeze(input, dim):
    """With a new dimension of size 1 at `dim`."""
    return _rearranged(layout.unsqueeze, input, whole(dim))


unsqueeze.derivative(lambda grad, input_shape: grad.reshape(input_shape))


@view
def _select(input, dim, index):
    return layout.select(*input, dim, index)


def _back_in_place(op, grad, shape, *args):
    """The gradient of a view that shows a part of its input: zeros, but for the window it shows of a contiguous tensor of this shape."""
    return placed(grad, shape, op.forward((tuple(shape), layout.contiguous_strides(tuple(shape)), 0), *args))


@on_arrays(public=False, method=False)
def placed(grad, shape, place):
    """Zeros of `shape` with `grad` in one window of them, whose elements are all different. The gradient of views that show a part."""
    out = arrays.zeros(shape, grad.dtype, arrays.device_of(grad))
    arrays.write(arrays.strided_view(out, *place), grad)
    return out


placed.derivative(grad=lambda grad, place: _window(grad.contiguous(), *place))
placed.meta(lambda grad, shape, place: (shape, grad.dtype))


_select.derivative(lambda grad, input_shape, dim, index: _back_in_place(_select, grad, input_shape, dim, index))


@composite(as_view=True)
def select(input, dim, index):
    """The slice at `index` of dimension `dim`, which disappears."""
    return _select.call(input, whole(dim), whole(index))


@view
def _slice(input, dim, start, stop, step):
    """Every step-th element of a dimension from start to stop."""
    return layout.slice_dim(*input, dim, start, stop, step)


_slice.derivative(lambda grad, input_shape, dim, start, stop, step: _back_in_place(_slice, grad, input_shape, dim, start, stop, step))


@view(grad_name="AsStridedBackward0")
def _window(input, size, stride, offset):
    """Any geometry over the memory of `input`, the offset counted from its first element."""
    return tuple(size), tuple(stride), offset


@on_arrays
def _window_backward(grad, size, stride, offset, shape, strides):
    """The gradient of `_window`: every element of the input gathers the gradients of all places that showed it."""
    xp = arrays.module_of(grad)
    dtype, grad = grad.dtype, _single(grad)
    low = min(0, offset)
    extent = max(layout.storage_extent(tuple(shape), tuple(strides), -low), layout.storage_extent(tuple(size), tuple(stride), offset - low))
    buffer = xp.zeros(max(extent, 1), grad.dtype)
    window = arrays.strided_view(buffer, size, stride, offset - low)
    if layout.has_internal_overlap(tuple(size), tuple(stride)) is False:
        window[...] = grad
    else:
        at = arrays.strided_view(xp.arange(buffer.size), size, stride, offset - low)
        xp.add.at(buffer, at, grad)
    if layout.has_internal_overlap(tuple(shape), tuple(strides)) is not False:
        # Elements of the input that share memory share its gradient, so that it is not counted once for each of them.
        seen = xp.zeros(buffer.size, xp.int64)
        xp.add.at(seen, arrays.strided_view(xp.arange(buffer.size), shape, strides, -low), 1)
        buffer = buffer / xp.maximum(seen, 1).astype(buffer.dtype)
    found = arrays.strided_view(buffer, shape, strides, -low)
    return arrays.copy(found) if dtype == found.dtype else arrays.cast(found, dtype)


_window_backward.meta(
    lambda grad, size, stride, offset, shape, strides: (shape, grad.dtype, layout.preserve_format_strides(tuple(shape), tuple(strides)))
)


def _single(array):
    """float16 and bfloat16 as float32, to add up many of them."""
    half = array.dtype.itemsize == 2 and array.dtype.kind in "fV"
    return arrays.cast(array, dtypes.float32.numpy) if half else array


def _laid_out(grad, strides):
    """A tensor in memory with these strides, for a window on it; elements that share memory are their mean there."""
    from flambeau.ops.copying import _clone

    shape, strides = tuple(grad.shape), tuple(strides)
    if layout.has_internal_overlap(shape, strides) is not False:
        grad = _window_backward(grad, shape, strides, 0, shape, strides)
    return _clone(grad, strides)


_window_backward.derivative(grad=lambda grad, size, stride, offset, strides: _window(_laid_out(grad, strides), size, stride, offset))
_window.derivative(
    lambda grad, size, stride, offset, input_shape, input_stride: _window_backward(grad, size, stride, offset, input_shape, input_stride)
)


@composite
def as_strided(input, size, stride, storage_offset=None):
    """A view with any shape, strides and offset (in elements, from the start of the storage)."""
    size, stride = sizes_of((tuple(size),)), sizes_of((tuple(stride),))
    now = input.storage_offset()
    start = now if storage_offset is None else whole(storage_offset)
    layout.check_as_strided(size, stride, start, input.untyped_storage().nbytes() // input.element_size(), input.element_size())
    return _window(input, size, stride, start - now)


@view
def diagonal(input, offset=0, dim1=0, dim2=1):
    """The diagonal over two dimensions, as the last dimension of the result."""
    return layout.diagonal(*input, offset, dim1, dim2)


diagonal.derivative(lambda grad, input_shape, offset, dim1, dim2: _back_in_place(diagonal, grad, input_shape, offset, dim1, dim2))


@view(public=False)
def unfold(input, dimension, size, step):
    """All windows of `size` along a dimension, `step` apart, as a new last dimension."""
    return _rearranged(layout.unfold, input, whole(dimension), whole(size), whole(step))


unfold.derivative(lambda grad, input_shape, dimension, size, step: _unfold_backward(grad, tuple(input_shape), dimension, size, step))


@on_arrays
def _unfold_backward(grad, shape, dimension, size, step):
    """Windows added back to where they came from."""
    xp = arrays.module_of(grad)
    if not shape:
        return grad.reshape(-1).sum(dtype=grad.dtype).reshape(())  # one window, of one element or none
    dtype, grad = grad.dtype, _single(grad)
    out = xp.zeros(shape, grad.dtype)
    view_shape, _ = layout.unfold(tuple(shape), layout.contiguous_strides(tuple(shape)), dimension, size, step)
    axis = dimension % len(shape)
    windows = xp.moveaxis(grad, -1, 0)
    for k in range(size):  # the k-th elements of all windows lie `step` apart: no two of them are the same
        where = [slice(None)] * len(shape)
        where[axis] = slice(k, k + step * (view_shape[axis] - 1) + 1, step)
        out[tuple(where)] += windows[k]
    return arrays.cast(out, dtype)


_unfold_backward.meta(lambda grad, shape, dimension, size, step: (shape, grad.dtype))


_unfold_backward.derivative(grad=lambda grad, dimension, size, step: grad.unfold(dimension, size, step))


def _splitting(name: str):
    """Declare the cutting of one dimension into pieces (start, length), whose node is called after split or split_with_sizes."""

    @view(name=f"_{name}")
    def pieces(input, dim, bounds):
        return layout.cut(*input, dim, bounds)

    pieces.derivative(lambda grads, input_shape, dim, bounds, again: _pieces_back(grads, input_shape, dim, bounds, again))
    return pieces


_split = _splitting("split")
_split_with_sizes = _splitting("split_with_sizes")


def _pieces_back(grads, input_shape, dim, bounds, again):
    """The gradients of the pieces laid side by side; a piece nobody used has none. Pieces of one size may lie so already, such as those of attention."""
    from flambeau.ops.joining import _cat, _stack_as

    dim = layout.wrap_dim(dim, len(input_shape))
    if not again and None not in grads and len({n for _, n in bounds}) == 1 < len(bounds):
        shape = (*input_shape[:dim], len(bounds), bounds[0][1], *input_shape[dim + 1 :])
        return _stack_as(grads, dim, shape, layout.contiguous_strides(shape)).reshape(tuple(input_shape))
    like = next(g for g in grads if g is not None)
    before, after = tuple(input_shape[:dim]), tuple(input_shape[dim + 1 :])
    lengths = [n for _, n in bounds]
    nothing = {n: like.new_zeros((*before, n, *after)) for n in {n for g, n in zip(grads, lengths, strict=True) if g is None}}
    return _cat([nothing[n] if g is None else g for g, n in zip(grads, lengths, strict=True)], dim)


@view
def _unbind(input, dim):
    """Every slice along a dimension."""
    return layout.unbind(*input, dim)


_unbind.derivative(lambda grads, input_shape, input_stride, dim, again: _slices_back(grads, input_shape, input_stride, dim, again))


def _slices_back(grads, input_shape, input_stride, dim, again):
    from flambeau.ops.joining import _stack, _stack_as

    like, dim = next(g for g in grads if g is not None), layout.wrap_dim(dim, len(input_shape))
    if any([g is None for g in grads]):
        nothing = like.new_zeros(like.shape)
        grads = [nothing if g is None else g for g in grads]
    grads = list(grads)
    if again or like.is_meta or not layout.is_non_overlapping_and_dense(input_shape, input_stride):
        return _stack(grads, dim)
    # In the memory order of the input: whoever permuted it before unbinding need not copy on the way back.
    return _stack_as(grads, dim, input_shape, input_stride)


@composite(as_view=True)
def unbind(input, dim=0):
    """All slices along a dimension, which disappears, as a tuple of views."""
    return _unbind(input, dim)


@composite(as_view=True)
def narrow(input, dim, start, length):
    """`length` elements of a dimension from `start` on, as a view."""
    if hasattr(start, "_array"):
        if start.dim() or start.dtype.category != dtypes.INTEGER:
            raise RuntimeError(f"start must be an 0-dim integral Tensor, found {start.dtype} of shape {tuple(start.shape)}")
        start = start.item()
    dim, start, length = whole(dim), whole(start), whole(length)
    layout.narrow(tuple(input.shape), input.stride(), 0, dim, start, length)  # raises where it does not fit
    if start < 0:
        start += input.shape[dim]
    return _slice(input, dim, start, start + length, 1)
