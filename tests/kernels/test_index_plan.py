"""x[index] as planned from shape and strides alone is x[index] as PyTorch computes it."""

from __future__ import annotations

import re
import warnings
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from flambeau.kernels.indexing.index_plan import basic_view, dim_kinds, plan, result_shape, result_strides

torch = pytest.importorskip("torch")

many = settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

T = torch.tensor
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


class Described:
    """What a plan needs to know of a torch.Tensor."""

    def __init__(self, tensor):
        self.shape, self.itemsize, self.item = tensor.shape, tensor.itemsize, tensor.item
        signed = "i" if tensor.dtype.is_signed else "u"
        floating = tensor.is_floating_point() or tensor.is_complex()
        self.dtype_kind = "b" if tensor.dtype is torch.bool else "f" if floating else signed


def is_tensor(obj):
    return Described(obj) if isinstance(obj, torch.Tensor) else None


def convert(obj):
    tensor = torch.tensor(obj)
    return tensor if tensor.dtype in (torch.bool, torch.uint8) else tensor.long()


def plan_for(x, index):
    return plan(index, tuple(x.shape), x.stride(), x.storage_offset(), is_tensor, convert)


def count(mask):
    return int(mask.count_nonzero())


def gather(x, p):
    """Carry a plan out with PyTorch's own view and gather."""
    view = x.as_strided(p.shape, p.strides, p.offset)
    if not p.indices:
        return view
    return torch.ops.aten.index(view, aten_indices(p))


def aten_indices(p):
    return [torch.arange(int(index)) if kind == "f" else index for index, kind in zip(p.indices, p.kinds, strict=True)]


def integer_indices(p):
    """An integer tensor or None for every dimension of the view: the indices with masks and flags spelled out."""
    spelled = []
    for index, kind in zip(aten_indices(p), p.kinds, strict=True):
        spelled += index.nonzero(as_tuple=True) if kind == "m" else [index]
    return spelled + [None] * (len(p.shape) - len(spelled))


def outcome(function, *args):
    """What came back, or the type of what was raised."""
    try:
        return function(*args)
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        return type(error)


def assert_same(x, index):
    """The plan's result has PyTorch's values, shape and strides; a view is a view; an error has PyTorch's type."""
    theirs = outcome(lambda: x[index])
    p = outcome(plan_for, x, index)
    if isinstance(theirs, type):
        if not isinstance(p, type):  # what concerns the index tensors together is found when the result is shaped
            found = outcome(result_shape, p, count)
            # A plan never looks into an index tensor: a value out of range is the gather's to find.
            p = found if isinstance(found, type) or "i" not in p.kinds else outcome(gather, x, p)
        assert p is theirs
        return
    assert not isinstance(p, type), f"{p} where PyTorch returns {tuple(theirs.shape)}"
    ours = gather(x, p)
    assert torch.equal(ours, theirs)
    assert result_shape(p, count) == tuple(theirs.shape)
    assert result_strides(p, count) == theirs.stride()
    if not p.indices:
        assert (p.shape, p.strides, p.offset) == (tuple(theirs.shape), theirs.stride(), theirs.storage_offset())


def layouts():
    """Tensors of 0 to 4 dimensions, permuted, strided and expanded."""
    random = Random(0)
    found = []
    for _ in range(300):
        shape = [random.choice([0, 1, 2, 3, 3, 4]) for _ in range(random.randint(0, 4))]
        x = torch.arange(int(np.prod(shape, dtype=int))).reshape(shape)
        if random.random() < 0.5:
            x = x.permute(random.sample(range(x.dim()), x.dim()))
        if x.dim() and random.random() < 0.3:
            x = x[..., random.randint(0, 1) :: random.randint(1, 2)]
        if random.random() < 0.2:
            x = x.expand([3 if size == 1 else size for size in x.shape])
        found.append(x)
    return st.sampled_from(sorted(found, key=lambda x: (x.dim(), x.numel())))


bounds = st.one_of(st.none(), st.integers(-5, 5))
slices = st.builds(slice, bounds, bounds, st.sampled_from([None, None, 1, 2, 3]))
plain = st.one_of(st.integers(-3, 2), st.just(slice(None)), slices, st.none(), st.just(...))
index_shapes = st.sampled_from([(), (1,), (2,), (2,), (2, 1), (1, 2), (0,), (2, 2)])


@st.composite
def basic_cases(draw):
    x = draw(layouts_pool)
    items = draw(st.lists(plain, max_size=x.dim() + 2))
    assume(sum(item is ... for item in items) < 2)
    return x, items[0] if len(items) == 1 and draw(st.booleans()) else tuple(items)


@st.composite
def advanced_cases(draw):
    """Mixtures of everything, with values mostly in range: masks are drawn for the dimensions they will meet."""
    x = draw(layouts_pool)
    random = Random(draw(st.integers(0, 9999)))
    items, dim = [], 0
    for _ in range(draw(st.integers(1, x.dim() + 1))):
        choice = random.choice(["plain", "plain", "integers", "integers", "mask", "flag", "list"])
        size = x.shape[dim] if dim < x.dim() else 2
        if choice == "plain":
            item = draw(plain)
            dim += item is not None and item is not ...
        elif choice == "integers":
            low = (-size, size) if size else (0, 1)
            item = torch.randint(*low, draw(index_shapes), generator=generator(random))
            dim += 1
        elif choice == "mask":
            span = random.choice([0, 1, 1, 2])
            item = torch.rand(x.shape[dim : dim + span], generator=generator(random)) < 0.6
            dim += span
        elif choice == "flag":
            item = random.random() < 0.7
        else:
            item = [random.randrange(size or 1) for _ in range(random.choice([1, 2, 2]))]
            dim += 1
        items.append(item)
    return x, items[0] if len(items) == 1 and draw(st.booleans()) else tuple(items)


def generator(random):
    return torch.Generator().manual_seed(random.randrange(2**31))


layouts_pool = layouts()


@many
@given(basic_cases())
def test_basic_indexing(case):
    """Ints, slices, None and `...` give PyTorch's view, strides and offset, or its error."""
    assert_same(*case)


@many
@given(advanced_cases())
def test_advanced_indexing(case):
    """Index tensors, masks, lists and bools, mixed with slices, land where PyTorch puts them."""
    assert_same(*case)


@settings(many, max_examples=150)
@given(advanced_cases())
def test_writing_goes_where_reading_came_from(case):
    """x[index] = value through the plan's view and indices writes the elements PyTorch writes."""
    x, index = case
    x = x.contiguous()
    theirs, ours = x.clone(), x.clone()
    p = outcome(plan_for, ours, index)
    if isinstance(p, type) or isinstance(outcome(lambda: theirs[index]), type):
        return
    theirs[index] = -7
    view = ours.as_strided(p.shape, p.strides, p.offset)
    if p.indices:
        torch.ops.aten.index_put_(view, aten_indices(p), T(-7))
    else:
        view.fill_(-7)
    assert torch.equal(ours, theirs)


@settings(many, max_examples=150)
@given(advanced_cases())
def test_integer_indices_pick_the_same(case):
    """With masks and flags spelled out as integers, one per dimension, the gather is the same."""
    x, index = case
    p = outcome(plan_for, x, index)
    theirs = outcome(lambda: x[index])
    if isinstance(theirs, type) or not p.indices:
        return
    spelled = integer_indices(p)
    assert len(spelled) == len(p.shape) == len(dim_kinds(p))
    assert torch.equal(torch.ops.aten.index(x.as_strided(p.shape, p.strides, p.offset), spelled), theirs)


class Position:
    def __index__(self):
        return 1


class Positions:
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return [0, 2][i]


X = torch.arange(60).reshape(3, 4, 5)
HALF = torch.arange(12).reshape(3, 4) % 2 == 0  # a mask of two dimensions
LISTED = HALF.tolist()
LONG, BYTE = torch.long, torch.uint8

ODD_INDICES = [
    # what is not an index
    1.5, "a", "", "ab", b"a", {}, {1}, {0: 1}, object(), int, slice, NotImplemented, (0, "a"), (0, ""), ("a", 0),
    (0, b"a"), (0, {}), (1.5, 0), (0, 1j), np.bool_(True), (0, np.bool_(True)), np.float32(1),
    # ints by other names
    np.int64(1), np.uint8(1), Position(), (0, Position()), T(1), T(-1), T(3), T(1, dtype=torch.int16),
    T(1, dtype=torch.uint16), 2**63, -(2**63), -(2**63) - 1, (0, 2**70), 3, -4, (0, 4), (0, ..., 5), (None, 0, 7),
    # bools and bytes
    True, False, (True, False), (True, True), (True, 0), (0, True), (slice(None), True),
    (slice(None), True, slice(None), True), T(True), T(False), T(1, dtype=BYTE), T(0, dtype=BYTE), T(2, dtype=BYTE),
    (0, 0, 0, True), (False, 0, slice(None), T([0])),
    # too many, and more than one ellipsis
    (0, 0, 0, 0), (slice(None),) * 4, (0, 0, 0, T([0])), (0, 0, 0, ...), (0, 0, 0, None), (..., ...), (..., 0, ...),
    (..., ..., 0), (..., ..., T([0])), (..., ..., slice(None)), (..., ..., None), (..., 0, ..., ...),
    (..., None, ...), (0, ..., ..., 0), (..., slice(None), ..., 0), (..., True, ...), (..., ..., True),
    # slices
    slice(None, None, -1), slice(None, None, 0), (slice(None, None, -1), 0), slice(5, 2), slice(2, 1, 3),
    slice(-100, 100), slice(1, None, 2), slice(T(0), T(2)), slice(1.5, 2), slice("a", 2), slice(True, 2),
    slice(np.int64(1), 2), slice(T(1.5), 2), slice(T([1]), 2), slice(T([1, 2]), 2), slice(0, 2**70),
    slice(0, 2, Position()),
    # tensors of the wrong dtype
    T(1.5), T([1.5]), T([]), T(1j), T([1], dtype=torch.int16), T([1], dtype=torch.int8), T([1], dtype=torch.uint16),
    (T([1.5]), 5), (T([True, True, True]), T([1.5])), (slice(None), torch.zeros(0)),
    # integers
    T([1], dtype=torch.int32), torch.zeros(0, dtype=LONG), (T([0, 1]), T([0, 1, 2])), (T([0, 1]), True, T([0])),
    (T([0, 1]), False, T([0])), (T([0, 1]), 0, T([0, 1])), (T([0, 1]), T(0), T([0, 1])), (T([0, 1]), None, T([0, 1])),
    (T([0, 1]), ..., T([0, 1])), (T([0, 1]), T([0, 1]), ..., T([0, 1])), (0, slice(None), T([0, 1])),
    (None, T([0, 1])), (T([[0, 1], [1, 2]]), T([0, 1])), (T([[0, 1], [1, 2]]), T([[0], [1]])), (T(False), T([0, 1])),
    (T(False), T([0])),
    # masks
    HALF, (HALF, slice(1, 3)), (HALF, 1), (HALF, [0] * 6), (HALF, None), (HALF, ...), (HALF, ..., 1),
    (HALF, slice(None)), (HALF, HALF), (HALF, slice(None), slice(None)), (..., X[0] > 3), (slice(None), X[0] > 3),
    (T([True, True, True]), X[0] > 3), (HALF, 0, 0), (X > 5, True), X[..., None] > 5, T([True, False]), T([[True]]),
    T([1, 0, 1], dtype=BYTE), T([1], dtype=BYTE), torch.empty(0, dtype=BYTE), torch.ones(0, dtype=torch.bool),
    (T([True, False]), 0), (T([True, False, True]), 5),
    # sequences
    [], (), ((),), ((), 0), (0, ()), [0, 1], [True, False, True], [True] * 4, [True, 0], [0.5, 1.5], [1.5],
    ([[0.5, 1.5]],), range(2), range(0), (range(2), range(2)), bytearray(b"\0\1"), memoryview(b"\0\1"), Positions(),
    (0, Positions()), [0] * 40, [[0]] * 40, [[0]] * 32, [[0]] * 31, [None] * 31, [[True] * 4] * 3,
    ([[True] * 4] * 3,), (0, [[1, 2], [3]]), (LISTED,), (LISTED, 0), (LISTED, 0, 0), (LISTED, 0, slice(None)),
    (LISTED, 0, T([0])), (LISTED, slice(0, 2), slice(None)), (LISTED, slice(0, 2)), (LISTED, None, slice(0, 2)),
    (LISTED, ...), (LISTED, ..., 0), (..., LISTED), (..., [[True] * 5] * 4), torch.Size([1, 2]),
    # lists that mean tuples
    [0, slice(1)], [[0, 1], [1, 2]], [[0, 1]], [None], [...], [0, None], [T(0), T(1)], [T([0]), T([1])], [T([0, 1])],
    [[], []], [[]], [()], [(0, 1), (0, 1)], [1, [2]], [[1], 2], [T([1]), 2], [np.array([0, 1]), np.array([0, 1])],
    [np.array(0), np.array(1)], [np.int64(0), np.int64(1)], [torch.Size([1, 2])],
    # NumPy arrays are never tuples
    np.array([0, 1]), np.array([[0, 1], [1, 2]]), np.array([True, False, True]), np.ones((3, 4), bool), np.array(1),
    np.array(1.5), np.array([1.5]), np.array(True), (np.array(True), np.array(False)), (0, np.array([[1]])),
]  # fmt: skip


@pytest.mark.parametrize("index", ODD_INDICES, ids=lambda index: re.sub(r"0x[0-9a-f]+|\s", "", repr(index))[:40])
def test_odd_indices(index):
    """Whatever people put between brackets: PyTorch's result, or its type of error."""
    assert_same(X, index)


FOR_SCALARS = [
    0, 1, ..., None, True, False, (), slice(None), T(True), T(0), T([0]), (None, 0), [], (..., 0), (None, T([0])),
    np.array(True), np.array([True]), (T(True), T(True)),
]  # fmt: skip


@pytest.mark.parametrize("index", FOR_SCALARS, ids=repr)
def test_scalars(index):
    """A 0-d tensor takes None, `...` and bools, and nothing else."""
    assert_same(T(1), index)


FOR_EMPTY = [
    0, (slice(None), 0), T([0]), (slice(None), T([0])), T([], dtype=LONG), (T([], dtype=LONG), 5), (T([0]), 0),
    torch.ones(0, 3) > 0, torch.ones(0, 2) > 0, slice(5),
]  # fmt: skip


@pytest.mark.parametrize("index", FOR_EMPTY, ids=repr)
def test_empty(index):
    """Nothing can be picked from an empty dimension, but nothing can be picked from it too."""
    assert_same(torch.ones(0, 3), index)


def test_errors_teach():
    """Messages name the index, the dimension and its size."""
    for index, message in [
        ((0, 0, 0, 0), "too many indices for tensor of dimension 3"),
        ((0, 4), "index 4 is out of bounds for dimension 1 with size 4"),
        (1.5, r"valid indices \(got float\)"),
        (
            T([True, False]),
            r"mask, \[2\], does not match that of the tensor, \[3, 4, 5\], from dimension 0 on",
        ),
        (T([1.5]), "must be long, int, byte or bool"),
    ]:
        with pytest.raises(IndexError, match=message):
            plan_for(X, index)
    with pytest.raises(ValueError, match="greater than zero"):
        plan_for(X, slice(None, None, -1))
    with pytest.raises(IndexError, match=r"broadcast together with shapes \[2\], \[3\]"):
        result_shape(plan_for(X, (T([0, 1]), T([0, 1, 2]))))
    with pytest.raises(TypeError, match="count"):
        result_shape(plan_for(X, HALF))


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("index", [[[0, 1]], T([1, 0, 1], dtype=BYTE)], ids=["list of lists", "uint8 mask"])
def test_deprecated_habits_warn(index):
    """A list meant as a tuple and a uint8 mask work, with a UserWarning, as in PyTorch."""
    with pytest.warns(UserWarning):
        plan_for(X, index)


def test_plain_lists_do_not_warn():
    """A list of ints is an index tensor, and nothing to warn about."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plan_for(X, [0, 1]).kinds == "i"


def test_the_quick_way_takes_only_what_is_plain():
    """basic_view answers for ints, slices, None and `...`, and leaves the rest (and all errors) to plan."""
    layout = (3, 4), (4, 1), 0
    assert basic_view(1, *layout) == ((4,), (1,), 4)
    assert basic_view(slice(1, None), *layout) == ((2, 4), (4, 1), 4)
    assert basic_view((..., None, -1), *layout) == ((3, 1), (4, 4), 3)
    assert basic_view(5, *layout) is None
    assert basic_view(True, *layout) is None
    assert basic_view([0], *layout) is None
    assert basic_view((0, T([0])), *layout) is None


def test_plans_say_what_they_do():
    """indices, kinds and position describe the gather."""
    p = plan_for(X, (slice(None), HALF[0], T([0])))
    assert p.indices and "m" in p.kinds and p.kinds == "-mi" and p.position == 1
    p = plan_for(X, (T([0]), slice(None), T([0])))
    assert p.indices and "m" not in p.kinds and p.kinds == "i-i" and p.position == 0
    assert (p.shape, p.strides, p.offset) == ((3, 4, 5), (20, 5, 1), 0)
    assert not plan_for(X, 0).indices
