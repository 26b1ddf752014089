"""What `x[index]` means: first a view, then, where the index holds tensors, a gather.

Python hands `__getitem__` whatever stood between the brackets: ints, slices, None, `...`, bools, lists, tensors.
A `Plan` says what to do with it, from the shape and strides alone:

1. Take the view (shape, strides, offset). Ints, slices, None and `...` are used up here; it shares the memory of x.
2. If there are `indices`: gather from that view with them: the entries answer for its dimensions in order. None
   keeps a dimension; an integer tensor picks along one; a mask of n dimensions picks in n of them; True and False stand
   for the positions [0] and [] in a dimension of size 1 made for them. Dimensions after the last entry are kept. Apart
   from True and False, this is the list `torch.ops.aten.index` takes.
3. The picked dimensions become one group, shaped as the index tensors broadcast, at dimension `position` of the result:
   where they stood if they were neighbours, in front if a kept dimension stood between them.

>>> plan((0, slice(1, None)), (2, 3, 4), (12, 4, 1), 0)[:3]
((2, 4), (4, 1), 4)

PyTorch's rules differ from NumPy's in one respect worth knowing: an int is a select, never an index tensor. So in
x[0, :, t] there is one index tensor, nothing is separated, and the result does not move to the front.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from operator import index as as_int
from typing import Any, NamedTuple, Protocol

from flambeau.kernels.layout import Layout, Sizes, broadcast_shapes, contiguous_strides, expand, pointwise_strides, view

# The kind of an entry in Plan.indices, a letter of Plan.kinds.
KEEP, INTEGERS, MASK, FLAG = "-imf"


class IndexTensor(Protocol):
    """What must be known of a tensor to index with it. `dtype_kind` is NumPy's letter: "b", "i", "u", "f", ..."""

    shape: Sizes
    dtype_kind: str
    itemsize: int

    def item(self) -> Any:
        """The only element, of a 0-d tensor: a 0-d integer indexes as an int, a 0-d bool as True or False."""


class Plan(NamedTuple):
    """How to compute x[index]; see the top of this file."""

    shape: Sizes
    strides: Sizes
    offset: int
    indices: tuple[Any, ...] = ()
    kinds: str = ""  # a letter per entry of `indices`: KEEP, INTEGERS, MASK or FLAG
    index_shapes: tuple[Sizes, ...] = ()  # the shape of each entry of `indices`, () for the dimensions kept
    position: int = 0


Describe = Callable[[Any], IndexTensor | None]


def plan(index: Any, shape: Sizes, strides: Sizes, offset: int, is_tensor: Describe = lambda obj: None, convert: Any = None) -> Plan:
    """Read `index` against a tensor's layout.

    is_tensor(obj)  a description of obj if it is a tensor (perhaps obj itself), else None
    convert(obj)    a tensor from a list, a range, a NumPy array, ...: bool and uint8 stay, all else becomes int64,
                    even 1.5 (it becomes 1)
    """
    basic = basic_view(index, shape, strides, offset)
    if basic is not None:
        return Plan(*basic)
    items = [(item, is_tensor(item)) for item in _items(index, is_tensor)]
    reader = _Reader(shape, strides, offset, len(shape) - _dims_named(items, len(shape)), is_tensor, convert)
    for place, (item, described) in enumerate(items):
        reader.read(item, described, place)
    return reader.plan()


def basic_view(index: Any, shape: Sizes, strides: Sizes, offset: int) -> Layout | None:
    """The view x[index] of plain ints, slices, None and one `...`; None for anything else, errors included.

    The quick way through: `plan` begins with it and takes the long way round for what is left.
    """
    if type(index) is int:
        size = shape[0] if shape else 0
        if not -size <= index < size:
            return None
        return shape[1:], strides[1:], offset + (index if index >= 0 else index + size) * strides[0]
    items = index if type(index) is tuple else (index,)
    new_shape: list[int] = []
    new_strides: list[int] = []
    dim, ndim = 0, len(shape)
    for item in items:
        if item is None:
            new_shape.append(1)
            new_strides.append(shape[dim] * strides[dim] if dim < ndim else 1)
            continue
        if item is ...:
            end = dim + ndim - sum([1 for other in items if other is not None and other is not ...])
            if not dim <= end <= ndim:
                return None
            new_shape += shape[dim:end]
            new_strides += strides[dim:end]
            dim = end
            continue
        if dim == ndim:
            return None
        size, stride = shape[dim], strides[dim]
        if type(item) is int:
            if not -size <= item < size:
                return None
            offset += (item if item >= 0 else item + size) * stride
        elif type(item) is slice:
            start, stop, step = item.indices(size)
            if step < 0:
                return None
            new_shape.append((stop - start + step - 1) // step if stop > start else 0)
            new_strides.append(stride * step)
            offset += start * stride
        else:
            return None
        dim += 1
    return (*new_shape, *shape[dim:]), (*new_strides, *strides[dim:]), offset


# ---- the result ----------------------------------------------------------------------------------------------------


def result_shape(plan: Plan, count: Callable[[Any], int] | None = None) -> Sizes:
    """The shape of x[index]. `count(mask)`, needed if there are masks, says how many elements of a mask are true."""
    return _placed(plan, plan.shape, _group_shape(plan, _gathered_shapes(plan, count))) if plan.indices else plan.shape


def result_strides(plan: Plan, count: Callable[[Any], int] | None = None) -> Sizes:
    """The strides PyTorch gives x[index].

    They are those of a pointwise operation on the view, with stride 0 where it is indexed, and the index tensors, which
    are taken to be contiguous.
    """
    if not plan.indices:
        return plan.strides
    gathered = _gathered_shapes(plan, count)
    group = _group_shape(plan, gathered)
    shape = _placed(plan, plan.shape, group)
    padded = _placed(plan, (1,) * len(plan.shape), group)
    operands = [(shape, _placed(plan, plan.strides, (0,) * len(group)))]
    for own in gathered:
        strides = view(*expand(own, contiguous_strides(own), group), padded)
        assert strides is not None  # dimensions of size 1 fit anywhere
        operands.append((padded, strides))
    return pointwise_strides(shape, *operands)


def _placed(plan: Plan, sizes: Sizes, group: Sizes) -> Sizes:
    """A number for each dimension of the result, from those of the view and those of the picked group."""
    kept = [size for size, kind in zip(sizes, dim_kinds(plan), strict=True) if kind == KEEP]
    return (*kept[: plan.position], *group, *kept[plan.position :])


def dim_kinds(plan: Plan) -> str:
    """A letter for every dimension of the view, as `kinds` has one for every entry: a mask of n dimensions has n."""
    entries = zip(plan.kinds, plan.index_shapes, strict=True)
    return "".join([kind * len(shape) if kind == MASK else kind for kind, shape in entries]).ljust(len(plan.shape), KEEP)


def _gathered_shapes(plan: Plan, count: Callable[[Any], int] | None) -> list[Sizes]:
    """Shapes of the integer tensors that the gather uses; a mask is as good as a 1-d one for each of its dimensions."""
    shapes: list[Sizes] = []
    for index, kind, shape in zip(plan.indices, plan.kinds, plan.index_shapes, strict=True):
        if kind == MASK:
            if count is None:
                raise TypeError("the shape of x[mask] depends on the mask: pass count(mask) -> how many are true")
            shapes += [(count(index),)] * len(shape)
        elif kind != KEEP:
            shapes.append(shape)
    return shapes


def _group_shape(plan: Plan, shapes: list[Sizes]) -> Sizes:
    """The shape of the picked dimensions together: what the index tensors broadcast to."""
    try:
        group = broadcast_shapes(*shapes)
    except RuntimeError:
        raise IndexError(
            f"shape mismatch: indices cannot be broadcast together with shapes {', '.join(str(list(s)) for s in shapes)}; to "
            "pick every combination, give each index tensor a dimension of its own with None"
        ) from None
    if 0 not in group and any(size == 0 and kind != KEEP for size, kind in zip(plan.shape, dim_kinds(plan), strict=True)):
        raise IndexError("out of bounds for dimension with size 0: there is nothing to pick from")
    return group


# ---- the long way round --------------------------------------------------------------------------------------------

KEPT = (None, KEEP, ())


class _Reader:
    """Reads the items of an index from left to right and builds the view and the list of indices."""

    def __init__(self, shape: Sizes, strides: Sizes, offset: int, skipped: int, is_tensor: Describe, convert):
        self.shape, self.strides, self.offset = shape, strides, offset
        self.is_tensor, self.convert = is_tensor, convert
        self.skipped = skipped  # dimensions that `...` stands for
        self.dim = 0  # the next dimension of x
        self.beyond = False  # whether a second `...` has led past the last dimension
        self.view: list[tuple[int, int]] = []  # size and stride of each dimension of the view
        self.entries: list[tuple[Any, str, Sizes]] = []  # index, kind and shape of each entry of the plan

    def read(self, item: Any, described: IndexTensor | None, place: int) -> None:
        """One item: each of PyTorch's kinds of index in turn."""
        if item is None or isinstance(item, bool):
            self.insert(item)
        elif item is ...:
            count = min(self.skipped, len(self.shape) - self.dim)
            self.beyond = self.beyond or count < self.skipped
            self.keep(count, [KEPT] * count)
        elif isinstance(item, slice):
            self.cut(item)
        elif described is not None:
            self.tensor(item, described, place)
        elif _is_sequence(item):
            if isinstance(item, (str, bytes)) or self.convert is None:
                raise TypeError(f"a {type(item).__name__} cannot be an index (got {item!r}): expected integers, slices, lists or tensors")
            tensor = self.convert(item)
            self.tensor(tensor, self.is_tensor(tensor), place)
        else:
            self.select(_integer(item), place)

    def insert(self, item: bool | None) -> None:
        """A new dimension of size 1. From it True picks once and False not at all."""
        if self.beyond:
            raise IndexError("an index takes one `...`: the second leaves no place for what comes after it")
        inside = self.dim < len(self.shape)
        self.view.append((1, self.shape[self.dim] * self.strides[self.dim] if inside else 1))
        self.entries.append(KEPT if item is None else (item, FLAG, (int(item),)))

    def keep(self, count: int, entries: list) -> None:
        """`count` dimensions whole, for which these entries answer."""
        end = self.dim + count
        self.view += zip(self.shape[self.dim : end], self.strides[self.dim : end], strict=True)
        self.entries += entries
        self.dim = end

    def next_dim(self) -> tuple[int, int]:
        """(size, stride) of the next dimension of x, which there must be."""
        if self.beyond or self.dim >= len(self.shape):
            raise IndexError(f"too many indices for tensor of dimension {len(self.shape)}: the last find none left")
        self.dim += 1
        return self.shape[self.dim - 1], self.strides[self.dim - 1]

    def cut(self, item: slice) -> None:
        """Some positions of a dimension."""
        if item == slice(None) and self.dim >= len(self.shape):
            return  # PyTorch lets x[list_mask, 0, :] pass, though the mask of two dimensions has used up the colon's
        size, stride = self.next_dim()
        start, stop, step = item.indices(size)
        if step < 0:
            raise ValueError(f"slice step must be greater than zero, but got {step}; flip() reverses a dimension")
        self.offset += start * stride
        self.view.append((len(range(start, stop, step)), stride * step))
        self.entries.append(KEPT)

    def select(self, item: int, place: int) -> None:
        """One position: the dimension disappears."""
        size, stride = self.next_dim()
        if not -size <= item < size:
            raise IndexError(f"index {item} is out of bounds for dimension {place} with size {size}")
        self.offset += (item if item >= 0 else item + size) * stride

    def tensor(self, item: Any, described: IndexTensor, place: int) -> None:
        """A tensor: a 0-d one is its number, a mask covers as many dimensions as it has, integers cover one."""
        kind, shape, masks = described.dtype_kind, tuple(described.shape), _is_mask(described)
        if not shape and masks:
            self.insert(bool(described.item()))
        elif not shape and kind in "iu":
            self.select(int(described.item()), place)
        elif masks:
            self.check_mask(shape)
            if kind == "u":
                _warn("indexing with a uint8 mask is deprecated: say mask.bool(), or .long() if these are positions")
            self.keep(len(shape), [(item, MASK, shape)])
        elif kind == "i" and described.itemsize >= 4:
            self.view.append(self.next_dim())
            self.entries.append((item, INTEGERS, shape))
        else:
            raise IndexError(
                f"a tensor as an index must be long, int, byte or bool; index {place} has dtype kind {kind!r} with "
                f"{described.itemsize} bytes: try .long(), or a comparison"
            )

    def check_mask(self, shape: Sizes) -> None:
        """A mask must have the sizes of the dimensions that it covers."""
        found = self.shape[self.dim : self.dim + len(shape)]
        if self.beyond or found != shape:
            wrong = next((i for i, (a, b) in enumerate(zip(shape, found, strict=False)) if a != b), len(found))
            raise IndexError(
                f"The shape of the mask, {list(shape)}, does not match that of the tensor, {list(self.shape)}, from dimension "
                f"{self.dim} on: see size {wrong} of the mask and {self.dim + wrong} of the tensor"
            )

    def plan(self) -> Plan:
        """What was read, with the dimensions nobody named kept whole."""
        self.keep(len(self.shape) - self.dim, [])
        shape, strides = zip(*self.view, strict=True) if self.view else ((), ())
        kinds = "".join([kind for _, kind, _ in self.entries]).rstrip(KEEP)
        if not kinds:
            return Plan(shape, strides, self.offset)
        indices, _, index_shapes = zip(*self.entries[: len(kinds)], strict=True)
        return Plan(shape, strides, self.offset, indices, kinds, index_shapes, group_position(kinds))


def group_position(kinds: str) -> int:
    """Where the picked dimensions go: where they stood if they were neighbours, else in front."""
    picked = kinds.strip(KEEP)
    return kinds.index(picked) if KEEP not in picked else 0


def _items(index: Any, is_tensor: Describe) -> Sequence[Any]:
    """The index as a tuple of items.

    A list is one index tensor, unless something in it (a slice, None, `...`, a tensor, another sequence) shows that a
    tuple was meant: a habit from old NumPy that PyTorch still keeps, with a warning.
    """
    if isinstance(index, tuple):
        return index
    opaque = isinstance(index, (str, bytes)) or hasattr(type(index), "__array__")
    if opaque or is_tensor(index) is not None or not _is_sequence(index) or len(index) >= 32:
        return (index,)
    parts = tuple(index)
    for part in parts:
        if type(part) is int:
            continue
        if part is None or part is ... or isinstance(part, slice) or is_tensor(part) is not None or _is_sequence(part):
            _warn("a list of lists, slices or tensors is read as a tuple: say x[tuple(seq)] or x[tensor(seq)] instead")
            return parts
    return (index,)


def _dims_named(items: Sequence[tuple[Any, IndexTensor | None]], ndim: int) -> int:
    """How many of `ndim` dimensions the items answer for. A list counts for one, even if it is a mask of two."""
    named = 0
    for item, described in items:
        if described is not None and _is_mask(described):
            named += len(described.shape)
        else:
            named += item is not None and item is not ... and not isinstance(item, bool)
    if named > ndim:
        hint = f": {named} were given" if ndim else ", or invalid index of it; it is a single number, which item() returns"
        raise IndexError(f"too many indices for tensor of dimension {ndim}{hint}")
    return named


def _is_mask(described: IndexTensor) -> bool:
    """Bool, or uint8 from the days before bool."""
    return described.dtype_kind == "b" or (described.dtype_kind == "u" and described.itemsize == 1)


def _is_sequence(obj: Any) -> bool:
    """Whether something is indexed by position and has a length. NumPy's scalars are indexed, but have none."""
    kind = type(obj)
    return hasattr(kind, "__getitem__") and hasattr(kind, "__len__") and not isinstance(obj, dict)


def _integer(item: Any) -> int:
    """The int that `item` stands for by `__index__`."""
    try:
        number = as_int(item)
    except TypeError:
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), None, bools, and tensors or lists of integers or bools "
            f"are valid indices (got {type(item).__name__})"
        ) from None
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"the index {number} does not fit 64 bits (Overflow)")
    return number


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=5)  # about where the brackets stand
