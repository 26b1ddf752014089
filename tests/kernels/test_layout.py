"""Every number of `kernels/layout.py` is the one PyTorch computes for a real tensor of that layout."""

from __future__ import annotations

import itertools
import math
from operator import mul
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from flambeau.kernels import layout as L

torch = pytest.importorskip("torch")

many = settings(max_examples=160, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
some = settings(many, max_examples=100)

shapes = st.lists(st.sampled_from([0, 1, 1, 2, 2, 3, 4]), max_size=5).map(tuple)
dims = st.integers(-6, 5)
small = st.integers(-5, 5)


def views_of(x, random, steps):
    """A tensor nobody would call contiguous: permuted, sliced, expanded, with odd strides where a size is 1."""
    for _ in range(steps):
        n = x.dim()
        dim = random.randrange(n) if n else 0
        step = random.choice(["permute", "slice", "expand", "unsqueeze", "select", "odd"])
        if step == "permute":
            x = x.permute(random.sample(range(n), n))
        elif step == "expand":
            x = x.expand([random.randint(0, 3) if size == 1 and random.random() < 0.5 else size for size in x.shape])
        elif step == "unsqueeze" and n < 5:
            x = x.unsqueeze(random.randint(0, n))
        elif step == "odd":  # as_strided may write anything where no element can feel it
            pairs = zip(x.shape, x.stride(), strict=True)
            x = x.as_strided(x.shape, [random.randint(0, 9) if size == 1 else stride for size, stride in pairs])
        elif step == "slice" and n:
            x = x[(slice(None),) * dim + (slice(random.randint(-4, 4), None, random.randint(1, 3)),)]
        elif step == "select" and n and x.shape[dim]:
            x = x.select(dim, random.randrange(x.shape[dim]))
    return x


def pool(sizes, ndims, count):
    """`count` layouts, simple ones first (hypothesis shrinks towards them). Built once: that is the slow part."""
    random = Random(0)
    bases = [torch.empty([random.choice(sizes) for _ in range(random.choice(ndims))]) for _ in range(count)]
    found = [views_of(x, random, random.randint(0, 4)) for x in bases]
    return st.sampled_from(sorted(found, key=lambda x: (x.dim(), x.numel(), x.stride())))


tensors = pool(sizes=[0, 1, 1, 2, 2, 3, 4], ndims=range(6), count=1500)
images = pool(sizes=[0, 1, 1, 2, 2, 3, 4], ndims=[4, 5], count=800)


def layout_of(x):
    return tuple(x.shape), x.stride(), x.storage_offset()


def outcome(function, *args, **kwargs):
    """What came back, or the type of what was raised."""
    try:
        return function(*args, **kwargs)
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        return type(error)


def same(ours, theirs):
    """Our layout (or error) against PyTorch's tensor (or error)."""
    if isinstance(theirs, torch.Tensor):
        theirs = layout_of(theirs)[: len(ours)] if isinstance(ours, tuple) else layout_of(theirs)
    elif isinstance(theirs, (tuple, list)):
        theirs = [layout_of(piece) for piece in theirs]
    assert ours == theirs


# ---- orders of memory ----------------------------------------------------------------------------------------------


@many
@given(shapes)
def test_contiguous_strides(shape):
    """A fresh tensor has PyTorch's strides, with sizes of 0 counted as 1."""
    assert L.contiguous_strides(shape) == torch.empty(shape).stride()


@some
@given(shapes)
def test_channels_last_strides(shape):
    """A fresh channels-last tensor has PyTorch's strides; other ranks than 4 and 5 are refused."""
    memory_format = torch.channels_last_3d if len(shape) == 5 else torch.channels_last
    theirs = outcome(torch.empty, shape, memory_format=memory_format)
    ours = outcome(L.channels_last_strides, shape)
    assert ours == (theirs.stride() if isinstance(theirs, torch.Tensor) else theirs)


@many
@given(tensors)
def test_contiguity_and_density(x):
    """is_contiguous, is_non_overlapping_and_dense and has_internal_overlap are PyTorch's."""
    shape, strides, _ = layout_of(x)
    assert L.is_contiguous(shape, strides) == x.is_contiguous()
    assert L.is_non_overlapping_and_dense(shape, strides) == torch.ops.aten.is_non_overlapping_and_dense(x)
    assert L.has_internal_overlap(shape, strides) is [False, True, None][torch._debug_has_internal_overlap(x)]


@many
@given(images, st.booleans())
def test_channels_last(x, convert):
    """is_channels_last is PyTorch's; looks_channels_last is what decides the memory format of a resized image."""
    memory_format = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    if convert and x.dim() in (4, 5):
        x = x.to(memory_format=memory_format)
    shape, strides, _ = layout_of(x)
    if x.dim() not in (4, 5):
        assert not L.is_channels_last(shape, strides)
        return
    assert L.is_channels_last(shape, strides) == x.is_contiguous(memory_format=memory_format)
    assert L.is_non_overlapping_and_dense(shape, strides) == torch.ops.aten.is_non_overlapping_and_dense(x)
    if 0 not in shape:
        larger = torch.nn.functional.interpolate(x, scale_factor=2)
        resized_so = larger.stride() == L.channels_last_strides(tuple(larger.shape))
        assert L.looks_channels_last(shape, strides) == resized_so


@many
@given(tensors)
def test_preserve_format(x):
    """empty_like and clone keep a dense layout and make the others dense in the same order."""
    shape, strides, _ = layout_of(x)
    expected = L.preserve_format_strides(shape, strides)
    assert expected == torch.empty_like(x).stride()
    assert expected == x.clone().stride()


@many
@given(tensors)
def test_pointwise_strides_of_one(x):
    """The output of a unary operation, and of one with a Python number, is laid out as PyTorch does."""
    shape, strides, _ = layout_of(x)
    assert L.pointwise_strides(shape, (shape, strides)) == torch.neg(x).stride()
    assert L.pointwise_strides(shape, (shape, strides), ((), ())) == (x + 1).stride()


@st.composite
def broadcastable(draw, count):
    """`count` tensors whose shapes broadcast."""
    shape, random = draw(shapes), Random(draw(st.integers(0, 9999)))
    result = []
    for _ in range(count):
        missing = random.choice([0, 0, random.randint(0, len(shape))])
        own = [random.choice([1, size, size, size]) for size in shape[missing:]]
        order = random.sample(range(len(own)), len(own))
        gap = random.choice([1, 1, 2])
        x = torch.empty([gap * own[dim] for dim in order]).permute([order.index(dim) for dim in range(len(own))])
        result.append(x[tuple(slice(size) for size in own)])
    return result


@settings(many, max_examples=350)
@given(st.one_of(broadcastable(2), broadcastable(3)))
def test_pointwise_strides_of_many(operands):
    """Operands that disagree on the order of dimensions settle it as PyTorch's iterator does."""
    theirs = operands[0] + operands[1] if len(operands) == 2 else torch.addcmul(*operands)
    views = [layout_of(x)[:2] for x in operands]
    shape = L.broadcast_shapes(*[view[0] for view in views])
    assert L.pointwise_strides(shape, *views) == theirs.stride()


@some
@given(broadcastable(3), st.booleans())
def test_collapse_visits_the_same_elements(operands, reorder):
    """Merged loops touch the same cells of all operands together, in the same order unless reordering was allowed."""
    shape = L.broadcast_shapes(*[tuple(x.shape) for x in operands])
    strides = [L.broadcast_strides(*layout_of(x)[:2], shape) for x in operands]
    loops, loop_strides = L.collapse(shape, *strides, reorder=reorder)
    before, after = walk(shape, strides), walk(loops, loop_strides)
    assert (sorted(before) == sorted(after)) if reorder else (before == after)
    assert 1 not in loops and len(loops) <= max(1, len(shape))


def walk(shape, operands):
    """The cells of all operands, element by element in row-major order."""
    indices = itertools.product(*map(range, shape))
    return [tuple(sum(map(mul, index, strides)) for strides in operands) for index in indices]


@some
@given(shapes.filter(lambda shape: 0 not in shape), st.randoms())
def test_collapse_finds_the_single_loop(shape, random):
    """Operands with one dense layout, in whatever order of dimensions, are one loop."""
    order = list(range(len(shape)))
    random.shuffle(order)
    strides = torch.empty(shape).permute(order).stride()
    shape = tuple(shape[i] for i in order)
    loops, loop_strides = L.collapse(shape, strides, strides)
    assert loops == ((math.prod(shape),) if math.prod(shape) > 1 else ())
    assert loop_strides == ((1,) * len(loops),) * 2


# ---- naming dimensions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ndim", range(4))
@pytest.mark.parametrize("dim", range(-5, 5))
def test_wrap_dim(dim, ndim):
    """Negative dimensions count from the end, a 0-d tensor takes 0 and -1, others raise IndexError."""
    theirs = outcome(torch.empty([1] * ndim).sum, dim)
    ours = outcome(L.wrap_dim, dim, ndim)
    assert (ours is IndexError) == (theirs is IndexError)
    assert ours is IndexError or ours == (dim % ndim if ndim else 0)


@some
@given(st.lists(dims, max_size=4), st.integers(0, 4))
def test_wrap_dims(dims, ndim):
    """A dimension named twice is a RuntimeError, one that is not there an IndexError."""
    theirs = outcome(torch.empty([1] * ndim).squeeze, dims)
    wrapped = tuple(dim % max(ndim, 1) for dim in dims)
    assert outcome(L.wrap_dims, dims, ndim) == (theirs if isinstance(theirs, type) else wrapped)


# ---- broadcasting --------------------------------------------------------------------------------------------------


@many
@given(st.lists(shapes, min_size=2, max_size=2))
def test_broadcast_shapes(pair):
    """Two shapes stretch to the shape PyTorch finds, or raise RuntimeError."""
    theirs = outcome(torch.add, *map(torch.empty, pair))
    assert outcome(L.broadcast_shapes, *pair) == (theirs if isinstance(theirs, type) else tuple(theirs.shape))


def test_broadcast_shapes_of_any_number():
    """None, one, or many shapes broadcast together."""
    assert L.broadcast_shapes() == ()
    assert L.broadcast_shapes((2, 1)) == (2, 1)
    assert L.broadcast_shapes((2, 1), (3,), (), (1, 1, 1)) == (1, 2, 3)


@pytest.mark.parametrize(("a", "b", "dim"), [((2, 3), (2, 4), 1), ((3,), (2, 4), 1), ((5, 2, 3), (4, 3), 1)])
def test_broadcast_error_names_sizes_and_dimension(a, b, dim):
    """The message has PyTorch's phrase with both sizes and the dimension of the result."""
    with pytest.raises(RuntimeError) as ours:
        L.broadcast_shapes(a, b)
    with pytest.raises(RuntimeError) as theirs:
        torch.empty(a) + torch.empty(b)
    assert str(theirs.value) in str(ours.value)
    assert "must match the size of tensor b" in str(ours.value) and f"dimension {dim}" in str(ours.value)


@many
@given(tensors, st.data())
def test_expand(x, data):
    """expand has PyTorch's strides, keeps sizes at -1, and refuses what PyTorch refuses."""
    lead = data.draw(st.lists(st.integers(-1, 3), max_size=2))
    wanted = lead + [data.draw(st.sampled_from([size, -1, 2, size])) for size in x.shape]
    if data.draw(st.integers(0, 9)) == 0:
        wanted = wanted[1:]
    theirs = outcome(x.expand, wanted)
    # PyTorch lets scalar.expand(0, -1) have a size of -1; we do not.
    assume(isinstance(theirs, type) or min(theirs.shape, default=0) >= 0)
    same(outcome(L.expand, *layout_of(x)[:2], wanted), theirs)


@some
@given(tensors, st.lists(st.integers(0, 3), max_size=2))
def test_broadcast_strides(x, lead):
    """Broadcasting reads the same cells as expand."""
    shape, strides, _ = layout_of(x)
    target = (*lead, *[3 if size == 1 else size for size in shape])
    ours = L.broadcast_strides(shape, strides, target)
    theirs = x.expand(target).stride()
    assert all(a == b for a, b, size in zip(ours, theirs, target, strict=True) if size > 1)


# ---- views: the same elements in another shape ---------------------------------------------------------------------


@st.composite
def regroupings(draw):
    """A tensor and a shape of as many elements, or nearly."""
    factors = draw(st.lists(st.sampled_from([1, 2, 2, 3]), max_size=5))

    def grouping():
        cuts = sorted(draw(st.lists(st.integers(0, len(factors)), max_size=4)))
        return [math.prod(factors[a:b]) for a, b in zip([0, *cuts], [*cuts, len(factors)], strict=True)]

    x = views_of(torch.empty(grouping()), Random(draw(st.integers(0, 9999))), draw(st.integers(0, 3)))
    wanted = grouping() if draw(st.integers(0, 4)) else list(draw(shapes))
    if draw(st.booleans()) and wanted:
        wanted[draw(st.integers(0, len(wanted) - 1))] = -1
    return x, wanted


def our_view(x, wanted):
    shape, strides, _ = layout_of(x)
    new_shape = L.infer_size(wanted, x.numel())
    new_strides = L.view(shape, strides, new_shape)
    if new_strides is None:
        raise RuntimeError
    return new_shape, new_strides


@settings(many, max_examples=400)
@given(regroupings())
def test_view(case):
    """view has PyTorch's shape and strides, and is impossible exactly when PyTorch says so."""
    x, wanted = case
    same(outcome(our_view, x, wanted), outcome(x.view, wanted))


WANTED = [(2, 5), (-1, -1), (-2, 6), (-1, 7), (0, -1), (-3, -4), (), (12, 1, 1), (-1,), (3, -1, 2)]


@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("numel", [12, 0, 1])
def test_infer_size(wanted, numel):
    """-1 becomes the size that is missing; shapes that cannot be are refused."""
    assert outcome(L.infer_size, wanted, numel) == outcome(lambda: tuple(torch.empty(numel).view(wanted).shape))


def test_infer_size_says_what_people_search_for():
    """The message holds PyTorch's phrase, so that a search for it finds the answer."""
    with pytest.raises(RuntimeError, match=r"shape '\[2, 5\]' is invalid for input of size 12"):
        L.infer_size((2, 5), 12)


@some
@given(tensors, dims, dims)
def test_flatten(x, start, end):
    """flatten joins the dimensions PyTorch joins."""
    theirs = outcome(x.flatten, start, end)
    ours = outcome(L.flatten_shape, tuple(x.shape), start, end)
    assert ours == (theirs if isinstance(theirs, type) else tuple(theirs.shape))


@some
@given(shapes, dims, st.lists(st.sampled_from([-1, 0, 1, 2, 3]), max_size=3))
def test_unflatten(shape, dim, parts):
    """unflatten cuts a dimension as PyTorch does, or raises the same type."""
    theirs = outcome(torch.empty(shape).unflatten, dim, parts)
    ours = outcome(L.unflatten_shape, shape, dim, parts)
    assert ours == (theirs if isinstance(theirs, type) else tuple(theirs.shape))


@many
@given(pool([0, 1, 2, 4, 8], range(4), 500), st.sampled_from([torch.int16, torch.int32, torch.float64, torch.cdouble]))
def test_view_dtype(x, dtype):
    """Reading the bytes as another dtype scales size, strides and offset, or is refused, as in PyTorch."""
    same(outcome(L.view_dtype, *layout_of(x), x.itemsize, dtype.itemsize), outcome(x.view, dtype))


# ---- views: dimensions moved, added, removed; some of the elements -------------------------------------------------


@many
@given(tensors, dims, dims)
def test_transpose(x, dim0, dim1):
    """transpose exchanges two dimensions."""
    same(outcome(L.transpose, *layout_of(x)[:2], dim0, dim1), outcome(x.transpose, dim0, dim1))


@some
@given(tensors, st.data())
def test_permute(x, data):
    """permute takes every dimension once, by either name."""
    n = x.dim()
    order = data.draw(st.one_of(st.permutations(range(n)), st.permutations(range(-n, 0)), st.lists(dims, max_size=5)))
    same(outcome(L.permute, *layout_of(x)[:2], order), outcome(x.permute, order))


@some
@given(tensors, st.data())
def test_movedim(x, data):
    """movedim moves the named dimensions and keeps the order of the others."""
    name = st.integers(-x.dim(), x.dim())
    names = st.lists(name, max_size=3)
    pairs = data.draw(st.one_of(st.tuples(name, name), st.tuples(names, names)))
    same(outcome(L.movedim, *layout_of(x)[:2], *pairs), outcome(x.movedim, *pairs))


@many
@given(tensors, st.one_of(st.none(), dims, st.lists(dims, max_size=3)))
def test_squeeze(x, which):
    """squeeze drops dimensions of size 1: all, one, or some."""
    theirs = outcome(x.squeeze) if which is None else outcome(x.squeeze, which)
    same(outcome(L.squeeze, *layout_of(x)[:2], which), theirs)


@some
@given(tensors, dims)
def test_unsqueeze(x, dim):
    """unsqueeze gives the new dimension PyTorch's stride."""
    same(outcome(L.unsqueeze, *layout_of(x)[:2], dim), outcome(x.unsqueeze, dim))


@some
@given(tensors, dims, small)
def test_select(x, dim, index):
    """select drops a dimension and moves the offset."""
    same(outcome(L.select, *layout_of(x), dim, index), outcome(x.select, dim, index))


@many
@given(tensors, dims, small, st.integers(-1, 4))
def test_narrow(x, dim, start, length):
    """narrow never clamps: it is inside or an error."""
    same(outcome(L.narrow, *layout_of(x), dim, start, length), outcome(x.narrow, dim, start, length))


@many
@given(tensors, dims, st.one_of(st.none(), small), st.one_of(st.none(), small), st.integers(-1, 4))
def test_slice(x, dim, start, stop, step):
    """Slicing clamps its bounds as Python does; empty slices keep PyTorch's offset."""
    same(
        outcome(L.slice_dim, *layout_of(x), dim, start, stop, step),
        outcome(torch.ops.aten.slice, x, dim, start, stop, step),
    )


@many
@given(tensors, small, dims, dims)
def test_diagonal(x, diagonal, dim1, dim2):
    """A diagonal is one dimension with the sum of two strides."""
    same(outcome(L.diagonal, *layout_of(x), diagonal, dim1, dim2), outcome(x.diagonal, diagonal, dim1, dim2))


@some
@given(tensors, dims, st.integers(-1, 4), st.integers(-1, 3))
def test_unfold(x, dim, size, step):
    """Windows along a dimension become a new last one."""
    same(outcome(L.unfold, *layout_of(x)[:2], dim, size, step), outcome(x.unfold, dim, size, step))


@many
@given(st.lists(st.integers(-1, 4), max_size=3), st.lists(st.integers(-1, 4), max_size=3), st.integers(-1, 14))
def test_as_strided(size, stride, offset):
    """as_strided accepts a layout exactly when PyTorch does: inside the storage, no negative numbers."""
    assume(not (0 in size and -1 in size))  # PyTorch lets these have size -1
    theirs = outcome(torch.empty(12).as_strided, size, stride, offset)
    ours = outcome(L.check_as_strided, tuple(size), tuple(stride), offset, 12)
    assert ours == (theirs if isinstance(theirs, type) else None)


# ---- pieces --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["split", "chunk", "tensor_split"])
@some
@given(x=tensors, dim=dims, how=st.one_of(st.integers(-1, 6), st.lists(st.integers(-1, 4), max_size=4)))
def test_pieces(name, x, dim, how):
    """The pieces of split, chunk and tensor_split have PyTorch's number, shapes and offsets."""
    assume(not (name == "chunk" and isinstance(how, list)))
    bounds_of = getattr(L, name + "_bounds")
    ours = outcome(lambda: L.cut(*layout_of(x), dim, bounds_of(tuple(x.shape), how, dim)))
    theirs = outcome(getattr(x, name), tuple(how) if isinstance(how, list) else how, dim)
    same(ours, theirs)


@some
@given(tensors, dims)
def test_unbind(x, dim):
    """unbind gives every slice along a dimension, and refuses a 0-d tensor."""
    same(outcome(L.unbind, *layout_of(x), dim), outcome(x.unbind, dim))


# ---- overlap -------------------------------------------------------------------------------------------------------


@some
@given(tensors)
def test_storage_extent(x):
    """The extent is what PyTorch allocates for such a tensor, and the last cell it touches lies just inside."""
    shape, strides, offset = layout_of(x)
    storage = torch.empty_strided(shape, strides).untyped_storage()
    assert L.storage_extent(shape, strides) * x.itemsize == storage.nbytes()
    cells = [offset + cell for (cell,) in walk(shape, [strides])]
    assert L.storage_extent(shape, strides, offset) == (max(cells) + 1 if cells else 0)


@many
@given(pool([2, 3, 4], [3], 300), st.data())
def test_ranges_that_do_not_meet_share_nothing(x, data):
    """Two views of one storage whose ranges are apart have no cell in common; "full" means every cell in common."""
    whole = torch.empty(0).set_(x.untyped_storage()).view(-1)
    y = whole[data.draw(st.integers(0, 40)) :][: data.draw(st.integers(0, 12))]
    cells = [{layout[2] + cell for (cell,) in walk(layout[0], [layout[1]])} for layout in (layout_of(x), layout_of(y))]
    verdict = L.overlap(layout_of(x), layout_of(y))
    assert verdict != "none" or not cells[0] & cells[1]
    assert verdict != "full" or cells[0] == cells[1]
    assert verdict != "partial" or cells[0] & cells[1]


@pytest.mark.parametrize(
    ("write", "read", "expected"),
    [
        (slice(0, 4), slice(1, 5), "partial"),
        (slice(0, 4), slice(4, 8), "none"),
        (slice(0, 4), slice(0, 4), "full"),
        (slice(0, 8, 2), slice(1, 9, 2), "unknown"),
        (slice(0, 0), slice(0, 4), "none"),
    ],
)
def test_overlap_decides_as_pytorch_does_for_out(write, read, expected):
    """PyTorch refuses an `out` that partly overlaps an input, and only that."""
    base = torch.zeros(10)
    a, b = base[write], base[read]
    assert L.overlap(layout_of(a), layout_of(b)) == expected
    if a.shape == b.shape:
        refused = outcome(torch.neg, b, out=a) is RuntimeError
        assert refused == (expected == "partial")


def test_overlap_of_different_item_sizes():
    """Views begin at bytes, and their elements have sizes: two float32 end where byte 8 begins."""
    floats, shorts = ((2,), (1,), 0), ((4,), (1,), 8)
    assert L.overlap(floats, shorts, 4, 2) == "none"
    assert L.overlap(floats, ((4,), (1,), 6), 4, 2) == "partial"
    assert L.overlap(((4,), (1,), 7), floats, 2, 4) == "partial"
    assert L.overlap(((3,), (1,), 0), floats, 2, 4) == "partial"
