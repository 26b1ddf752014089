"""The geometry of strided views: where element (i, j, ...) of a tensor lies in its storage.

A layout is three things: a shape, strides, and an offset. Element `index` of the tensor is element

    offset + sum(i * stride for i, stride in zip(index, strides))

of the storage. Strides and offsets count ELEMENTS, as PyTorch's do, not bytes. Every view (transpose, slice, expand,
diagonal, ...) is arithmetic on these tuples and touches no data:

>>> transpose((2, 3), (3, 1), 0, 1)
((3, 2), (1, 3))
>>> select((2, 3), (3, 1), 0, dim=0, index=1)
((3,), (1,), 3)

Functions that can move the start take the offset and return (shape, strides, offset); the others leave it alone and
return (shape, strides). Shapes and strides are tuples of int. The answers are PyTorch's to the last number, including
the strides of dimensions of size 1 and 0, which no element can feel but which a program can print.

The file goes from orders of memory to broadcasting, views, pieces, and overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod
from operator import mul

Sizes = tuple[int, ...]
View = tuple[Sizes, Sizes]  # shape, strides
Layout = tuple[Sizes, Sizes, int]  # shape, strides, offset

# A program asks about the same few shapes again and again: an answer remembered takes 0.1 us, one computed 0.5 to 5.
_remember = lru_cache(maxsize=4096)

# Dimensions from the fastest in memory to the slowest, for images (N, C, H, W) and volumes (N, C, D, H, W).
_CHANNELS_LAST_ORDER = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}


# ---- orders of memory ----------------------------------------------------------------------------------------------


@_remember
def contiguous_strides(shape: Sizes) -> Sizes:
    """Row-major strides: the last dimension is the fastest. (2, 3, 4) -> (12, 4, 1).

    A size of 0 counts as 1, so that an empty tensor has the strides it would have with one element in that dimension.
    """
    steps = accumulate((size or 1 for size in shape[:0:-1]), mul, initial=1)
    return tuple(steps)[::-1] if shape else ()


@_remember
def channels_last_strides(shape: Sizes) -> Sizes:
    """Strides of (N, C, H, W) or (N, C, D, H, W) with the channels fastest. (2, 3, 4, 5) -> (60, 1, 15, 3).

    A size of 0 does count as 0 here: PyTorch's two memory formats disagree on that.
    """
    order = _CHANNELS_LAST_ORDER.get(len(shape))
    if order is None:
        raise RuntimeError(
            f"channels_last: required rank 4 tensor (N, C, H, W), or rank 5 for channels_last_3d, but found shape {list(shape)}"
        )
    return _dense_strides(shape, order)


@_remember
def is_contiguous(shape: Sizes, strides: Sizes) -> bool:
    """Whether the elements lie one after the other in row-major order. Dimensions of size 1 may have any stride."""
    return _is_dense(shape, strides, range(len(shape))[::-1]) or 0 in shape  # nothing cannot be out of order


def _is_dense(shape: Sizes, strides: Sizes, fastest_first: Sequence[int]) -> bool:
    """Whether the strides are those without gaps, for dimensions listed from the fastest to the slowest."""
    expected = 1
    for dim in fastest_first:
        if shape[dim] != 1:
            if strides[dim] != expected:
                return False
            expected *= shape[dim]
    return True


def is_channels_last(shape: Sizes, strides: Sizes) -> bool:
    """Whether an image or volume lies dense in memory with the channels fastest. False for any other rank."""
    order = _CHANNELS_LAST_ORDER.get(len(shape))
    return order is not None and _is_dense(shape, strides, order)


def looks_channels_last(shape: Sizes, strides: Sizes) -> bool:
    """Whether strides are ordered as channels last, gaps allowed: convolution and resizing then answer in kind.

    The strides must not fall on the way from C over W and H to N. Cases that fit both formats count as row-major:
    an expanded channel, and an (N, 1, 1, 1) whose strides are all alike.
    """
    order = _CHANNELS_LAST_ORDER.get(len(shape))
    if order is None or strides[1] == 0 or 0 in shape:
        return False
    least = 0
    for dim in order:
        stride = strides[dim]
        if stride < least or (dim == 0 and least == strides[1]):
            return False
        least = stride * shape[dim]
    return True


@_remember
def is_non_overlapping_and_dense(shape: Sizes, strides: Sizes) -> bool:
    """Whether the elements fill one stretch of memory, each cell once, in whatever order of dimensions."""
    by_stride = sorted(range(len(shape)), key=lambda dim: (strides[dim], shape[dim]))
    return is_contiguous(shape, strides) or _is_dense(shape, strides, by_stride)


def preserve_format_strides(shape: Sizes, strides: Sizes) -> Sizes:
    """Strides of `empty_like` and `clone` under `torch.preserve_format`.

    A dense layout is kept as it is. One with gaps or repeats becomes dense, its dimensions in the same order of speed.
    """
    if is_non_overlapping_and_dense(shape, strides):
        return strides
    return _dense_strides(tuple(size or 1 for size in shape), loop_order(shape, strides)[::-1])


def pointwise_strides(shape: Sizes, *operands: View) -> Sizes:
    """Strides of the output of a pointwise operation over `operands`, each (shape, strides), that broadcast to `shape`.

    Operands that agree on a dense layout hand it on; otherwise each in turn votes on the order of the dimensions.
    A Python number is an operand too, the 0-d ((), ()): that is how `x + 1` and `x.exp()` may differ in the stride
    of a dimension of size 1.
    """
    contiguous = contiguous_strides(shape)
    for operand_shape, strides in operands:
        if strides != contiguous or operand_shape != shape:
            return _voted_strides(shape, operands)
    return contiguous


@_remember
def _voted_strides(shape: Sizes, operands: tuple[View, ...]) -> Sizes:
    if all(operand_shape == shape for operand_shape, _ in operands):
        if all(is_contiguous(*operand) for operand in operands):
            return contiguous_strides(shape)
        if len(shape) == 4 and all(is_channels_last(*operand) for operand in operands):
            return channels_last_strides(shape)
        strides = operands[0][1]
        if all(operand[1] == strides for operand in operands) and is_non_overlapping_and_dense(shape, strides):
            return strides
    order = loop_order(shape, *(broadcast_strides(*operand, shape) for operand in operands))
    return contiguous_strides(shape) if order == tuple(range(len(shape))) else _dense_strides(shape, order[::-1])


def _dense_strides(shape: Sizes, fastest_first: Sequence[int]) -> Sizes:
    """Strides without gaps, for dimensions listed from the fastest to the slowest."""
    strides = [0] * len(shape)
    step = 1
    for dim in fastest_first:
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


@_remember
def loop_order(shape: Sizes, *strides: Sizes) -> Sizes:
    """Dimensions from the outermost loop to the innermost, so that a walk over all operands moves in small steps.

    The first operand decides (larger strides outside); where it has stride 0 or a tie, the next is asked. When nobody
    knows, the dimensions stay as they are. "Nobody knows" is not transitive, so this is an insertion sort that looks
    past it, and the result depends on doing the comparisons in PyTorch's order.
    """
    fastest_first = list(range(len(shape)))[::-1]
    for count in range(1, len(fastest_first)):
        position = count
        for earlier in range(count - 1, -1, -1):
            verdict = _slower(shape, strides, fastest_first[earlier], fastest_first[position])
            if verdict is False:
                break
            if verdict:
                fastest_first[earlier], fastest_first[position] = fastest_first[position], fastest_first[earlier]
                position = earlier
    return tuple(fastest_first[::-1])


def _slower(shape: Sizes, operands: Sequence[Sizes], dim: int, other: int) -> bool | None:
    """Whether `dim` belongs outside `other` (True), inside (False), or no operand can tell (None)."""
    for strides in operands:
        if strides[dim] and strides[other] and strides[dim] != strides[other]:
            return strides[dim] > strides[other]
        if strides[dim] and strides[other] and shape[dim] > shape[other]:
            return True
    return None


@_remember
def collapse(shape: Sizes, *strides: Sizes, reorder: bool = True) -> tuple[Sizes, tuple[Sizes, ...]]:
    """The fewest nested loops that visit all elements of several operands of one shape together.

    Drops dimensions of size 1 and merges neighbours that every operand walks in one stride. With `reorder` the loops
    are sorted first (`loop_order`), so the visiting order may change; without it the order stays row-major.
    Returns the loop sizes, outermost first, and one tuple of strides per operand. A single element needs no loop: ().

    >>> collapse((2, 3, 4), (12, 4, 1), (12, 4, 1))
    ((24,), ((1,), (1,)))
    >>> collapse((2, 3, 4), (12, 4, 1), (0, 4, 1))
    ((2, 12), ((12, 1), (0, 1)))
    """
    if 0 in shape:
        return (0,), ((0,),) * len(strides)
    order = loop_order(shape, *strides) if reorder else range(len(shape))
    loops: list[tuple[int, tuple[int, ...]]] = []  # (size, the stride of each operand)
    for dim in order:
        size = shape[dim]
        if size == 1:
            continue
        steps = tuple(operand[dim] for operand in strides)
        if loops and loops[-1][1] == tuple(step * size for step in steps):
            size *= loops.pop()[0]
        loops.append((size, steps))
    return tuple(size for size, _ in loops), tuple(tuple(steps[i] for _, steps in loops) for i in range(len(strides)))


# ---- naming dimensions ---------------------------------------------------------------------------------------------


def wrap_dim(dim: int, ndim: int, scalar_ok: bool = True) -> int:
    """`dim` counted from the front: -1 is the last of `ndim`. A 0-d tensor takes 0 and -1, if `scalar_ok`."""
    if 0 <= dim < ndim:
        return dim
    if -ndim <= dim < 0:
        return dim + ndim
    if ndim == 0:
        if not scalar_ok:
            raise IndexError(f"Dimension {dim} was named, but the tensor is 0-d: it has no dimensions to name")
        if dim in (0, -1):
            return 0
        words = f"Dimension out of range (expected to be in range of [-1, 0], but got {dim})"
        raise IndexError(f"{words}: Expected reduction dim -1 or 0 for scalar but got {dim}")
    raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})")


def _with(sizes: Sizes, dim: int, *new: int) -> Sizes:
    """`sizes` with others, or none, in place of the one at `dim`."""
    return (*sizes[:dim], *new, *sizes[dim + 1 :])


def wrap_dims(dims: Sequence[int], ndim: int) -> Sizes:
    """Each of `dims` counted from the front; naming one twice is an error."""
    wrapped: list[int] = []
    for name in dims:
        dim = wrap_dim(name, ndim)
        if dim in wrapped:
            raise RuntimeError(f"dim {dim} appears multiple times in the list of dims {list(dims)}, {ndim}-d tensor")
        wrapped.append(dim)
    return tuple(wrapped)


# ---- broadcasting --------------------------------------------------------------------------------------------------


def broadcast_shapes(*shapes: Sizes) -> Sizes:
    """The shape that all `shapes` stretch to: aligned at the last dimension, a size of 1 fits any size.

    >>> broadcast_shapes((5, 1, 4), (3, 1))
    (5, 3, 4)
    """
    if not shapes:
        return ()
    result = shapes[0]
    for shape in shapes[1:]:
        if shape != result:
            result = _broadcast_two(result, shape)
    return result


@_remember
def _broadcast_two(a: Sizes, b: Sizes) -> Sizes:
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    result = list(longer)
    for dim in range(-1, -len(shorter) - 1, -1):  # from the last dimension: if several do not fit, that is the one to name
        size = shorter[dim]
        if result[dim] == 1:
            result[dim] = size
        elif size != 1 and size != result[dim]:
            i = dim + len(longer)
            raise RuntimeError(
                f"The size of tensor a ({a[dim]}) must match the size of tensor b ({b[dim]}) at non-singleton dimension {i}\n    a  {a}\n"
                f"    b  {b}\n    shapes are aligned at the last dimension, and only a size of 1 stretches: here dimension {dim} does not fit"
            )
    return tuple(result)


def broadcast_strides(shape: Sizes, strides: Sizes, target: Sizes) -> Sizes:
    """Strides that walk a tensor as if it had shape `target` (to which it must broadcast): 0 wherever it repeats."""
    if shape == target:
        return strides
    lead = len(target) - len(shape)
    kept = [0 if size == 1 and target[lead + i] != 1 else strides[i] for i, size in enumerate(shape)]
    return (0,) * lead + tuple(kept)


def expand(shape: Sizes, strides: Sizes, sizes: Sequence[int]) -> View:
    """`Tensor.expand`: repeat dimensions of size 1 without copying (stride 0). -1 keeps a size."""
    lead = len(sizes) - len(shape)
    if lead < 0:
        raise RuntimeError(
            f"expand: {len(sizes)} sizes must be greater or equal to the number of dimensions, {len(shape)}\n    sizes   "
            f"{tuple(sizes)}\n    tensor  {shape}"
        )
    new_shape, new_strides = list(sizes), [0] * len(sizes)
    for i in range(len(sizes) - 1, -1, -1):
        size, wanted = shape[i - lead] if i >= lead else 1, sizes[i]
        if i >= lead and (wanted == size or wanted == -1):
            new_shape[i], new_strides[i] = size, strides[i - lead]
        elif size != 1 or wanted < 0:
            why = f"must match the existing size ({size}) at non-singleton dimension {i}: only a size of 1 can be expanded"
            if i < lead:
                why = f"isn't allowed for a new leading dimension {i}: -1 keeps a size, and there is none to keep"
            raise RuntimeError(f"The expanded size of the tensor ({wanted}) {why}\n    sizes   {tuple(sizes)}\n    tensor  {shape}")
        elif wanted == 1 and shape:  # a new dimension of size 1 gets the stride that `unsqueeze` would give it
            new_strides[i] = new_shape[i + 1] * new_strides[i + 1]
    return tuple(new_shape), tuple(new_strides)


# ---- views: the same elements in another shape ---------------------------------------------------------------------


def infer_size(new_shape: Sequence[int], numel: int) -> Sizes:
    """`new_shape` with its -1 replaced by the size that makes `numel` elements.

    >>> infer_size((2, -1), 12)
    (2, 6)
    """
    sizes = tuple(new_shape)
    known = prod(sizes)
    if known == numel and (not sizes or min(sizes) >= 0):
        return sizes
    for i, size in enumerate(sizes):
        if size < -1:
            raise RuntimeError(f"invalid shape dimension {size} at index {i} of shape {list(sizes)}")
    unknown = sizes.count(-1)
    if unknown > 1:
        raise RuntimeError(f"only one dimension can be inferred, but shape {list(sizes)} leaves {unknown} open (-1)")
    if unknown and known == 0 and numel == 0:
        why = "because the unspecified dimension size -1 can be any value and is ambiguous: name it"
        raise RuntimeError(f"cannot reshape tensor of 0 elements to {list(sizes)} {why}")
    if not unknown or known == 0 or numel % known:
        found = f"it needs a multiple of {-known}" if unknown else f"it has {known}"
        raise RuntimeError(f"shape '{list(sizes)}' is invalid for input of size {numel}: {found} elements")
    return _with(sizes, sizes.index(-1), numel // -known)


@_remember
def view(shape: Sizes, strides: Sizes, new_shape: Sizes) -> Sizes | None:
    """Strides that show the elements as `new_shape` (of as many elements), or None if only a copy can.

    Neighbours that memory holds as one run may be cut anywhere; no new dimension can reach across two runs.
    """
    if strides == contiguous_strides(shape):
        return contiguous_strides(new_shape)
    if 0 in shape:
        return strides if new_shape == shape else contiguous_strides(new_shape)
    # From the back, every run must be filled exactly by new dimensions.
    new_strides = [0] * len(new_shape)
    new_dim = len(new_shape) - 1
    base, run = strides[-1], 1  # stride of the run's fastest dimension, elements in it
    for dim in range(len(shape) - 1, -1, -1):
        run *= shape[dim]
        if dim and (shape[dim - 1] == 1 or strides[dim - 1] == run * base):
            continue
        filled = 1
        while new_dim >= 0 and (filled < run or new_shape[new_dim] == 1):
            new_strides[new_dim] = filled * base
            filled *= new_shape[new_dim]
            new_dim -= 1
        if filled != run:
            return None
        if dim:
            base, run = strides[dim - 1], 1
    return tuple(new_strides)


def flatten_shape(shape: Sizes, start_dim: int = 0, end_dim: int = -1) -> Sizes:
    """The shape with dimensions start_dim to end_dim (inclusive) made one. A 0-d tensor becomes (1,)."""
    start, end = wrap_dim(start_dim, len(shape)), wrap_dim(end_dim, len(shape))
    if start > end:
        raise RuntimeError(f"flatten: start_dim ({start_dim}) cannot come after end_dim ({end_dim}) in {shape}")
    return (*shape[:start], prod(shape[start : end + 1]), *shape[end + 1 :])


def unflatten_shape(shape: Sizes, dim: int, sizes: Sequence[int]) -> Sizes:
    """The shape with one dimension cut into `sizes`, of which one may be -1."""
    dim = wrap_dim(dim, len(shape)) if sizes else 0
    if not sizes or not shape:
        raise RuntimeError(
            "unflatten: sizes must be non-empty" if not sizes else "unflatten: the tensor is 0-d and has no dimension to cut"
        )
    try:
        return _with(shape, dim, *infer_size(sizes, shape[dim]))
    except RuntimeError as error:
        cause = f"sizes {list(sizes)} don't multiply up to the size of dim {dim} ({shape[dim]})"
        raise RuntimeError(f"unflatten: {cause}: {error}") from None


def view_dtype(shape: Sizes, strides: Sizes, offset: int, old_itemsize: int, new_itemsize: int) -> Layout:
    """`Tensor.view(dtype)`: the same bytes read as elements of another size. The last dimension grows or shrinks.

    >>> view_dtype((2, 3), (3, 1), 0, 4, 2)
    ((2, 6), (6, 1), 0)
    """
    if old_itemsize == new_itemsize:
        return shape, strides, offset
    change = f"view(dtype): going from {old_itemsize}-byte to {new_itemsize}-byte elements"
    if not shape:
        raise RuntimeError(f"{change}, self.dim() cannot be 0: no dimension can grow or shrink; unsqueeze it")
    if strides[-1] != 1:
        raise RuntimeError(f"{change}, self.stride(-1) must be 1, but got {strides[-1]}; call contiguous() first")
    if new_itemsize < old_itemsize:
        ratio = old_itemsize // new_itemsize
        return (*shape[:-1], shape[-1] * ratio), (*[stride * ratio for stride in strides[:-1]], 1), offset * ratio
    ratio = new_itemsize // old_itemsize
    counted = {"self.size(-1)": shape[-1], "self.storage_offset()": offset}
    counted.update((f"self.stride({dim})", stride) for dim, stride in enumerate(strides[:-1]))
    for name, value in counted.items():
        if value % ratio:
            raise RuntimeError(f"{change}, {name} must be divisible by {ratio}, but got {value}")
    return (*shape[:-1], shape[-1] // ratio), (*[stride // ratio for stride in strides[:-1]], 1), offset // ratio


# ---- views: dimensions moved, added, removed -----------------------------------------------------------------------


def transpose(shape: Sizes, strides: Sizes, dim0: int, dim1: int) -> View:
    """Two dimensions exchanged; also `swapaxes` and `swapdims`."""
    dim0, dim1 = wrap_dim(dim0, len(shape)), wrap_dim(dim1, len(shape))
    if dim0 == dim1:
        return shape, strides
    new_shape, new_strides = list(shape), list(strides)
    new_shape[dim0], new_shape[dim1] = shape[dim1], shape[dim0]
    new_strides[dim0], new_strides[dim1] = strides[dim1], strides[dim0]
    return tuple(new_shape), tuple(new_strides)


def permute(shape: Sizes, strides: Sizes, dims: Sequence[int]) -> View:
    """Dimension i of the result is dimension dims[i] of the input."""
    if len(dims) != len(shape):
        why = f"so the length of dims must be input.dim() = {len(shape)}, but len(dims) = {len(dims)}"
        raise RuntimeError(f"permute: every dimension must be named once, {why}\n    input  {shape}\n    dims   {tuple(dims)}")
    order = tuple([wrap_dim(dim, len(shape)) for dim in dims])
    if len(set(order)) < len(order):
        raise RuntimeError(f"permute(): duplicate dims are not allowed: each is named once, but dims = {list(dims)}")
    return tuple([shape[dim] for dim in order]), tuple([strides[dim] for dim in order])


def movedim(shape: Sizes, strides: Sizes, source: int | Sequence[int], destination: int | Sequence[int]) -> View:
    """Dimension source[i] goes to place destination[i]; the others keep their order. Also `moveaxis`."""
    sources = (source,) if isinstance(source, int) else tuple(source)
    places = (destination,) if isinstance(destination, int) else tuple(destination)
    if len(sources) != len(places):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: {list(sources)} and {list(places)} must name the same number of them"
        )
    ndim = len(shape)
    froms, tos = [wrap_dim(dim, ndim) for dim in sources], [wrap_dim(dim, ndim) for dim in places]
    for name, named in (("source", froms), ("destination", tos)):
        if len(set(named)) != len(named):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({named})")
    if not shape:
        return shape, strides
    staying = iter([dim for dim in range(ndim) if dim not in froms])
    arriving = dict(zip(tos, froms, strict=True))
    return permute(shape, strides, [arriving[i] if i in arriving else next(staying) for i in range(ndim)])


def squeeze(shape: Sizes, strides: Sizes, dims: int | Sequence[int] | None = None) -> View:
    """Without the dimensions of size 1: all of them, or those among `dims`."""
    chosen = range(len(shape)) if dims is None else wrap_dims((dims,) if isinstance(dims, int) else dims, len(shape))
    if 1 not in shape:
        return shape, strides
    keep = [dim for dim, size in enumerate(shape) if size != 1 or dim not in chosen]
    return tuple([shape[dim] for dim in keep]), tuple([strides[dim] for dim in keep])


def unsqueeze(shape: Sizes, strides: Sizes, dim: int) -> View:
    """With a new dimension of size 1 in place `dim`."""
    dim = wrap_dim(dim, len(shape) + 1)
    stride = shape[dim] * strides[dim] if dim < len(shape) else 1
    return (*shape[:dim], 1, *shape[dim:]), (*strides[:dim], stride, *strides[dim:])


# ---- views: some of the elements -----------------------------------------------------------------------------------


def select(shape: Sizes, strides: Sizes, offset: int, dim: int, index: int) -> Layout:
    """One slice along `dim`, which disappears."""
    if not shape:
        raise IndexError("a 0-dim tensor has no dimension to select from; use item()")
    dim = wrap_dim(dim, len(shape))
    size = shape[dim]
    if not -size <= index < size:
        takes = f"takes {-size} to {size - 1}" if size else "is empty"
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(shape)} at dimension {dim}, which {takes}")
    return _with(shape, dim), _with(strides, dim), offset + (index if index >= 0 else index + size) * strides[dim]


def narrow(shape: Sizes, strides: Sizes, offset: int, dim: int, start: int, length: int) -> Layout:
    """`length` slices along `dim` from `start` on, which must all be there. A negative start counts from the end."""
    if not shape:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor. It has no dimension to narrow")
    if length < 0:
        raise RuntimeError(f"narrow(): length must be non-negative, but got {length}")
    dim = wrap_dim(dim, len(shape))
    size = shape[dim]
    if not -size <= start <= size:
        raise IndexError(f"narrow(): start out of range, {-size} to {size}: found {start}")
    if start < 0:
        start += size
    if start + length > size:
        raise RuntimeError(f"narrow(): start ({start}) + length ({length}) exceeds dimension size ({size}), dim {dim}")
    return _with(shape, dim, length), strides, offset + start * strides[dim]


def slice_dim(
    shape: Sizes, strides: Sizes, offset: int, dim: int = 0, start: int | None = None, stop: int | None = None, step: int = 1
) -> Layout:
    """Every `step`-th slice along `dim` from `start` to before `stop`, both clamped as Python clamps them; step > 0."""
    if not shape:
        raise IndexError("a 0-dim tensor has no dimension to slice")
    dim = wrap_dim(dim, len(shape))
    if step <= 0:
        raise RuntimeError(f"slice step must be positive, but got {step}; flip() reverses a dimension")
    start, stop, _ = slice(start, stop).indices(shape[dim])
    length = (stop - start + step - 1) // step if stop > start else 0
    return _with(shape, dim, length), _with(strides, dim, strides[dim] * step), offset + start * strides[dim]


def diagonal(shape: Sizes, strides: Sizes, offset: int, diagonal: int = 0, dim1: int = 0, dim2: int = 1) -> Layout:
    """The elements whose index in dim2 is `diagonal` more than in dim1, as a new last dim. (M, N, *) -> (*, D)."""
    first, second = wrap_dim(dim1, len(shape)), wrap_dim(dim2, len(shape))
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical, but got {dim1} and {dim2}")
    rows, columns = shape[first] + min(diagonal, 0), shape[second] - max(diagonal, 0)
    length = max(0, min(rows, columns))
    if length:
        offset += diagonal * strides[second] if diagonal >= 0 else -diagonal * strides[first]
    rest = [dim for dim in range(len(shape)) if dim != first and dim != second]
    return ((*[shape[dim] for dim in rest], length), (*[strides[dim] for dim in rest], strides[first] + strides[second]), offset)


def unfold(shape: Sizes, strides: Sizes, dim: int, size: int, step: int) -> View:
    """All windows of `size` along `dim`, `step` apart; the place in the window is a new last dimension."""
    dim = wrap_dim(dim, len(shape))
    available, stride = (shape[dim], strides[dim]) if shape else (1, 1)  # a 0-d tensor is a window of one element
    if size < 0:
        raise RuntimeError(f"unfold: size is {size} but must be >= 0")
    if size > available:
        raise RuntimeError(f"unfold: windows of size {size} do not fit into dimension {dim}, of size {available}")
    if step <= 0:
        raise RuntimeError(f"unfold: step is {step} but must be > 0")
    if not shape:
        return (size,), (1,)
    windows = (available - size) // step + 1
    return ((*shape[:dim], windows, *shape[dim + 1 :], size), (*strides[:dim], stride * step, *strides[dim + 1 :], stride))


def check_as_strided(size: Sizes, stride: Sizes, offset: int, storage_size: int, itemsize: int = 1) -> None:
    """Refuse a layout for `as_strided` that is none, or that reaches beyond a storage of `storage_size` elements."""
    if len(size) != len(stride):
        raise RuntimeError(f"as_strided: mismatch in length of strides and shape, {len(stride)} and {len(size)}")
    if any(step < 0 for step in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}. flip() copies")
    if any(length < 0 for length in size):
        raise RuntimeError(f"as_strided: sizes must be non-negative, but got {list(size)}")
    if offset < 0:
        raise RuntimeError(f"as_strided: invalid storage offset {offset}: it must be non-negative")
    needed = storage_extent(size, stride, offset)
    check_bytes(needed, itemsize)
    if needed > storage_size:
        found = f"sizes {list(size)}, strides {list(stride)}, storage offset {offset} requiring a storage size of {needed} elements"
        raise RuntimeError(f"as_strided: {found} are out of bounds for storage of size {storage_size}")


# ---- pieces: split, chunk, tensor_split, unbind --------------------------------------------------------------------


def split_bounds(shape: Sizes, split_size: int | Sequence[int], dim: int = 0) -> list[tuple[int, int]]:
    """(start, length) of the pieces `split` cuts: of `split_size` each but the last, or of the sizes in a list."""
    if isinstance(split_size, int) and split_size < 0:
        raise RuntimeError(f"split: split_size must be non-negative, found {split_size}")
    size = _cut_size("split", shape, dim)
    if isinstance(split_size, int):
        if split_size == 0 < size:
            raise RuntimeError(f"split: pieces of size 0 never fill dim {dim}, of size {size}")
        return [(start, min(split_size, size - start)) for start in range(0, size, split_size)] if size else [(0, 0)]
    if any(length < 0 for length in split_size):
        raise RuntimeError(f"split: sizes must be non-negative, found {list(split_size)}")
    ends = list(accumulate(split_size, initial=0))
    if ends[-1] != size:
        expected = f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size at dimension {dim})"
        raise RuntimeError(f"{expected}, but split_sizes={list(split_size)} sum to {ends[-1]}")
    return list(zip(ends, split_size, strict=False))


def chunk_bounds(shape: Sizes, chunks: int, dim: int = 0) -> list[tuple[int, int]]:
    """(start, length) of the pieces `chunk` cuts: equal but the last, and perhaps fewer than `chunks`."""
    if chunks <= 0:
        raise RuntimeError(f"chunk expects a number of `chunks` greater than 0, found {chunks}")
    size = _cut_size("chunk", shape, dim)
    length = -(-size // chunks)
    return [(start, min(length, size - start)) for start in range(0, size, length)] if size else [(0, 0)] * chunks


def tensor_split_bounds(shape: Sizes, sections: int | Sequence[int], dim: int = 0) -> list[tuple[int, int]]:
    """(start, length) of the pieces `tensor_split` cuts.

    A number gives exactly that many, the first ones longer by one; a list cuts at its indices, clamped as in a slice.
    """
    size = _cut_size("tensor_split", shape, dim)
    if isinstance(sections, int):
        if sections <= 0:
            raise RuntimeError(f"tensor_split: number of sections must be larger than 0, got {sections}")
        length, longer = divmod(size, sections)
        return [(i * length + min(i, longer), length + (i < longer)) for i in range(sections)]
    ranges = [range(size)[start:stop] for start, stop in zip([0, *sections], [*sections, size], strict=True)]
    return [(piece.start, len(piece)) for piece in ranges]


def _cut_size(name: str, shape: Sizes, dim: int) -> int:
    if not shape:
        raise RuntimeError(f"{name} expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    return shape[wrap_dim(dim, len(shape))]


def cut(shape: Sizes, strides: Sizes, offset: int, dim: int, bounds: Sequence[tuple[int, int]]) -> list[Layout]:
    """The layouts of the pieces that `bounds`, pairs (start, length), cut out of dimension `dim`."""
    dim = wrap_dim(dim, len(shape))
    return [(_with(shape, dim, length), strides, offset + start * strides[dim]) for start, length in bounds]


def unbind(shape: Sizes, strides: Sizes, offset: int, dim: int = 0) -> list[Layout]:
    """All slices along `dim`, which disappears."""
    dim = wrap_dim(dim, len(shape), scalar_ok=False)
    return [(_with(shape, dim), _with(strides, dim), offset + i * strides[dim]) for i in range(shape[dim])]


# ---- overlap: which cells of the storage a view touches ------------------------------------------------------------


def storage_extent(shape: Sizes, strides: Sizes, offset: int = 0) -> int:
    """Elements a storage must have to hold the view: one more than the last cell touched, 0 if none is."""
    return 0 if 0 in shape else offset + 1 + sum([(size - 1) * stride for size, stride in zip(shape, strides, strict=True)])


def check_bytes(elements: int, itemsize: int) -> int:
    """So many bytes; RuntimeError where no machine word counts them."""
    if elements * itemsize >= 1 << 63:
        raise RuntimeError(f"Storage size calculation overflowed: {elements} elements of {itemsize} bytes are more than any memory has")
    return elements * itemsize


@_remember
def has_internal_overlap(shape: Sizes, strides: Sizes) -> bool | None:
    """Whether two elements of a view are one cell of memory: True, False, or None when finding out is too hard.

    Writing in place through a view asks this. An expanded tensor says True. None is what PyTorch answers for anything
    with gaps, and then lets the write happen.
    """
    if is_non_overlapping_and_dense(shape, strides):
        return False
    return True if any(stride == 0 and size > 1 for size, stride in zip(shape, strides, strict=True)) else None


def overlap(a: Layout, b: Layout, itemsize_a: int = 1, itemsize_b: int = 1) -> str:
    """How two views, which begin at these bytes, share memory: "none", "full" (the same elements), "partial", or "unknown".

    "unknown" is PyTorch's answer when either view has gaps or repeats, unless both are the very same tensor: ask that first.
    """
    if 0 in a[0] or 0 in b[0]:
        return "none"
    if not (is_non_overlapping_and_dense(*a[:2]) and is_non_overlapping_and_dense(*b[:2])):
        return "unknown"
    a_begin, a_end = a[2], a[2] + storage_extent(*a[:2]) * itemsize_a
    b_begin, b_end = b[2], b[2] + storage_extent(*b[:2]) * itemsize_b
    if a_end <= b_begin or b_end <= a_begin:
        return "none"
    return "full" if (a_begin, a_end, a[1]) == (b_begin, b_end, b[1]) else "partial"
