"""x[...] reads and writes what PyTorch's does: the same elements, the same memory, the same history."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from index_oracle import assert_same, check_gradients, check_lines, numbers, outcome, run, torch, twin, twins

import flambeau

many = settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


# -- what an index means -------------------------------------------------------------------------------------------------


def test_reading_line_by_line():
    """Every kind of index, and every kind of wrong one, does what it does in PyTorch, down to the strides and the name of the node."""
    check_lines(
        """
        x[0]
        x[-1]
        x[1, 2]
        x[:, 1]
        x[..., 0]
        x[0, ..., 1]
        x[1:]
        x[:, ::2]
        x[2:1]
        x[None]
        x[:, None, :, None]
        x[()]
        x[...]
        x[True]
        x[False]
        x[t(True)]
        x[t(1)]
        x[t(1), t([0, 2])]
        x[i]
        x[i.int()]
        x[:, i]
        x[i, i]
        x[t([[0], [1]]), t([0, 2, 1])]
        x[None, t([0]), None, t([0])]
        x[x > 2]
        x[t([True, False])]
        x[:, t([True, False, True])]
        x[t([0, 1], dtype=torch.uint8)]
        x[[0, 1]]
        x[[0, 1], [0, 1]]
        x[[True, False]]
        x[range(2)]
        x[[]]
        x[t([]).long()]
        x[np.array([1, 0])]
        x[np.array([True, False])]
        x[np.int64(1)]
        x[np.array(1)]
        x[1 : t(2)]
        x.t()[i]
        x.t()[t([2, 0]), :]
        x.expand(4, 2, 3)[:, i, 1:]
        t(3.0)[...]
        t(3.0)[None]
        t(3.0)[True]
        g[:]
        g[...]
        g[()]
        g[None]
        g[0]
        g[0, :]
        g[0, ...]
        g[0, 1:]
        g[0, None]
        g[:, 0]
        g[True]
        g[i]
        g[g > 2]
        x[5]
        x[-3]
        x[0, 0, 0]
        x[t([5])]
        x[t([-3])]
        x[t([0]), t([5])]
        x[t([[True, False]])]
        x[t([True, False, True])]
        x[t([0.0])]
        x[t([0], dtype=torch.int16)]
        x[t(0.0)]
        x[1.0]
        x["a"]
        x[::-1]
        x[::0]
        x[0:1.5]
        x[t([0, 1]), t([0, 1, 2])]
        t(3.0)[0]
        """,
        names=True,
    )


def test_writing_line_by_line():
    """Numbers and tensors are converted, broadcast and refused as PyTorch does."""
    check_lines(
        """
        x[0] = 7
        x[0] = True
        x[0] = np.float64(3)
        x[0] = np.int64(3)
        x[0] = t([1, 2, 3])
        x[0] = t([[[1.0, 2, 3]]])
        x[:, 1] = t([1.0, 2])
        x[0, 0] = t([5.0])
        x[...] = t([1, 2, 3])
        x[()] = 3
        x[None, 0] = t([1.0, 2, 3])
        x[i] = 7
        x[i] = t([1.0, 2, 3])
        x[:, t([0, 2])] = t([[1.0], [2.0]])
        x[t([0, 0])] = t([[1.0, 2, 3], [4, 5, 6]])
        x[i, i] = t([8.0, 9.0])
        x[x > 2] = 9
        x[x > 2] = t(9)
        x[x > 2] = t([9.0, 8, 7])
        x[x > 2] = t([[9.0]])
        x[t([True, False])] = t([1.0, 2, 3])
        x[True] = 4
        x[False] = 4
        x[t(True)] = t([[1.0, 2, 3]])
        x[[]] = 4
        x = torch.arange(6.0).expand(2, 6); x[0] = 1
        x = torch.arange(6.0).expand(2, 6); x[0, 0] = 1
        x = torch.arange(3); x[0] = 1.7
        x = torch.arange(3); x[i] = 1.7
        x = torch.arange(3); x[0] = t([1.7])
        x = torch.arange(3, dtype=torch.uint8); x[0] = -1
        x = torch.zeros(3, dtype=torch.bool); x[i] = 2.5
        x = torch.zeros(2, 2, dtype=torch.complex64); x[0] = 1j
        x = torch.zeros(4, dtype=torch.bfloat16); x[i] = 1.5
        x[0] = [1, 2, 3]
        x[0] = np.array([1.0, 2, 3])
        x[0] = np.float32(3)
        x[0] = None
        x[0] = "a"
        x[0] = 1j
        x[0] = t([[1.0, 2, 3], [1, 2, 3]])
        x[0] = t([1.0, 2])
        x[0, 0] = t([5.0, 6])
        x[i] = t([1, 2, 3])
        x[i] = t(7)
        x[i] = t([1.0, 2])
        x[x > 2] = t([9.0, 8])
        x[x > 2] = t([9, 8, 7])
        x[t(False)] = t([1.0, 2])
        x[5] = 0
        x[t([5])] = 0
        x = torch.arange(3); x[0] = float("nan")
        x = torch.arange(3); x[i] = float("inf")
        x = torch.arange(3, dtype=torch.uint8); x[0] = 300
        x = torch.arange(6.0); x[1:] = x[:-1]
        x = torch.arange(6.0); x[i] = x[:2]
        g[0] = 1
        """
    )


def test_index_put_line_by_line():
    """index_put takes a tuple of tensors; values broadcast, duplicates add up or the last stays."""
    check_lines(
        """
        x.index_put((i,), t([1.0, 2, 3]))
        x.index_put((i,), t([1.0, 2, 3]), True)
        x.index_put((t([0, 0]), t([1, 1])), t([1.0, 2]), accumulate=True)
        x.index_put((t([0, 0]), t([1, 1])), t([1.0, 2]))
        x.index_put((x > 2,), t([1.0]))
        x.index_put((x > 2,), t(1.0).double())
        x.index_put((x > 2,), t([1.0, 2, 3]), accumulate=True)
        torch.index_put(x, indices=(i,), values=t([1.0]))
        torch.index_put_(x, (i,), t([1.0]))
        torch._index_put_impl_(x, (i,), t([1.0, 2, 3]))
        g.index_put((i,), t([1.0]))
        x.index_put((i,), t([1, 2, 3]))
        x.index_put((None, i), t([1.0]))
        x.index_put(i, t([1.0]))
        x.index_put([[0, 1]], t([1.0]))
        x.index_put((i, i, i), t([1.0]))
        x.index_put((), t([1.0]))
        x.index_put((x > 2,), 1.0)
        x.index_put((t([7]),), t([1.0]))
        """,
        names=True,
    )


def test_out_of_bounds_is_said_in_pytorchs_words():
    """The message names the index, the dimension and its size."""
    x = flambeau.zeros(3, 4)
    for index in (5, flambeau.tensor([5])):
        with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 0 with size 3"):
            x[index]
    with pytest.raises(IndexError, match="index -5 is out of bounds for dimension 1 with size 4"):
        x[flambeau.tensor([0]), flambeau.tensor([-5])]


# -- any index whatsoever --------------------------------------------------------------------------------------------------


def _layouts() -> list:
    """Tensors of 0 to 4 dimensions, permuted, strided and expanded."""
    random = Random(0)
    found = []
    for _ in range(200):
        shape = [random.choice([0, 1, 2, 3, 3, 4]) for _ in range(random.randint(0, 4))]
        x = torch.arange(float(np.prod(shape, dtype=int))).reshape(shape)
        if random.random() < 0.5:
            x = x.permute(random.sample(range(x.dim()), x.dim()))
        if x.dim() and random.random() < 0.3:
            x = x[..., random.randint(0, 1) :: random.randint(1, 2)]
        found.append(x)
    return sorted(found, key=lambda x: (x.dim(), x.numel()))


LAYOUTS = _layouts()
bounds = st.one_of(st.none(), st.integers(-5, 5))
slices = st.builds(slice, bounds, bounds, st.sampled_from([None, None, 1, 2, 3]))
plain = st.one_of(st.integers(-3, 2), st.just(slice(None)), slices, st.none(), st.just(...), st.booleans())
index_shapes = st.sampled_from([(), (1,), (2,), (2,), (2, 1), (1, 2), (0,), (2, 2)])


@st.composite
def index_tensors(draw):
    """Integers of some shape, mostly within bounds."""
    shape = draw(index_shapes)
    values = draw(st.lists(st.integers(-2, 2), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    found = torch.tensor(values, dtype=draw(st.sampled_from([torch.int64, torch.int64, torch.int32]))).reshape(shape)
    return found.tolist() if found.dim() == 1 and draw(st.integers(0, 4)) == 0 else found


@st.composite
def cases(draw):
    """A tensor and an index into it."""
    x = draw(st.sampled_from(LAYOUTS))
    items: list = []
    dim = 0
    for _ in range(draw(st.integers(0, x.dim() + 1))):
        kind = draw(st.integers(0, 3))
        if kind == 0 and dim < x.dim():
            size = draw(st.integers(1, min(2, x.dim() - dim)))
            mask = torch.tensor(draw(st.lists(st.booleans(), min_size=9, max_size=9))).repeat(30)
            wanted = x.shape[dim : dim + size]
            items.append(mask[: wanted.numel()].reshape(wanted))
            dim += size
        else:
            items.append(draw(index_tensors()) if kind == 1 else draw(plain))
            dim += items[-1] is not None
    if items.count(...) > 1:
        items = [item for item in items if item is not ...]
    return x, items[0] if len(items) == 1 and draw(st.booleans()) else tuple(items)


def memory(x):
    """All of a storage."""
    if isinstance(x, torch.Tensor):
        return x.as_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)
    return x.as_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)


@many
@given(cases())
def test_reading_anything(case):
    """Values, dtype, shape, strides and error types of x[index]; a view is a view and a copy is a copy."""
    x, index = case
    x = x.clone(memory_format=torch.preserve_format)
    ours = twin(x)
    theirs, found = outcome(lambda: x[index]), outcome(lambda: ours[twins(index)])
    assert_same(found, theirs, repr(index))
    if isinstance(theirs, torch.Tensor) and theirs.numel() and 0 not in theirs.stride():
        theirs.fill_(-7)
        found.fill_(-7)
        assert_same(ours, x, f"{index!r}: writing to the result")


@many
@given(cases())
def test_gradients_of_reading_anything(case):
    """The gradient of x[index] is where x[index] came from."""
    x, index = case
    x = x.detach().clone().double()
    if isinstance(outcome(lambda: x[index]), Exception):
        return
    ours_index = twins(index)
    check_gradients(lambda module, x: x[index if module is torch else ours_index], x, twice=True)


values = st.sampled_from([2.5, -1, True, (), (1,), (1, 1, 1), "same", "last", "one in front", (2,)])


def value_for(x, index, wanted):
    """A number, or a tensor of a shape related to that of x[index]."""
    if not isinstance(wanted, (str, tuple)):
        return wanted
    found = outcome(lambda: x[index])
    shape = tuple(found.shape) if isinstance(found, torch.Tensor) else ()
    shape = {"same": shape, "last": shape[-1:], "one in front": (1, *shape)}.get(wanted, wanted) if isinstance(wanted, str) else wanted
    return torch.arange(float(np.prod(shape, dtype=int))).reshape(shape) + 100


@many
@given(cases(), values)
def test_writing_anything(case, wanted):
    """After x[index] = value the whole memory of x is what PyTorch's is, gaps included; so are the version and the errors."""
    x, index = case
    x = x.clone(memory_format=torch.preserve_format)
    x = x[..., 1:] if x.dim() and x.numel() > 8 else x
    value = value_for(x, index, wanted)
    ours = twin(x)
    before = ours._version
    theirs, found = outcome(x.__setitem__, index, value), outcome(ours.__setitem__, twins(index), twins(value))
    assert_same(found, theirs, f"{index!r} = {value!r}")
    if theirs is None:  # PyTorch may write a part before it finds an index out of bounds
        np.testing.assert_array_equal(numbers(memory(ours)), numbers(memory(x)), err_msg=f"{index!r} = {value!r}")
        assert ours._version == before + (index is not False)


@many
@given(cases(), st.sampled_from([2.5, (), "same", "last"]), st.booleans(), st.booleans())
def test_history_of_writing_anything(case, wanted, through_view, of_leaf):
    """What was overwritten gets no gradient, what was written gets it all; whether x is a view, and whether it had a history, or not."""
    x, index = case
    x = x.detach().clone().double()
    value = value_for(x, index, wanted)
    value = value.double() if isinstance(value, torch.Tensor) else value
    recorded = of_leaf or (isinstance(value, torch.Tensor) and index is not False)
    if isinstance(outcome(x.clone().__setitem__, index, value), Exception) or not recorded:
        return
    ours_index = twins(index)

    def program(module, x, value):
        base = (x * 2 if of_leaf else x.detach().clone()).unsqueeze(0)
        target = base[0] if through_view else base.squeeze(0)
        target[index if module is torch else ours_index] = value * 3
        return (base if through_view else target) * 1.5

    check_gradients(program, x, value)


# -- histories in particular -------------------------------------------------------------------------------------------------


def programs():
    """Small programs in which reading, writing and history meet."""

    def row_then_base(x, y):
        z = x * 2
        row = z[1]
        z[1] = y
        return row * z[0]

    def swap(x, y):
        z = x * 1
        z[0], z[1] = z[1].clone(), z[0].clone()
        return z * y

    def accumulate(x, y):
        z = x * 1
        z[:, 1] += y[:2]
        z[0] *= y
        return z

    def chain(x, y):
        z = x * 1
        z[0][1:][0] = y[2] * 4
        return z.exp()

    def masked(x, y):
        z = x * 1
        z[x > 0] = z[x > 0] * 2
        z[x < -0.5] = y[0]
        return z

    def advanced(x, y):
        z = x * 1
        rows = (x.long() * 0 + 1)[0, :2] if hasattr(x, "long") else None
        z[rows] = y
        return z

    def into_constant(x, y):
        z = (x * 0).detach()
        z[1] = y
        z[0, 1] = x[1, 2]
        return z * x

    return [row_then_base, swap, accumulate, chain, masked, advanced, into_constant]


@pytest.mark.parametrize("program", programs(), ids=lambda p: p.__name__)
def test_history(program):
    """Gradients through programs that read and write the same tensor."""
    torch.manual_seed(1)
    check_gradients(lambda module, x, y: program(x, y), torch.randn(2, 3).double(), torch.randn(3).double())


def test_a_leaf_cannot_be_written_to():
    """Writing into a leaf that requires grad is an error, under no_grad it is not, and detached views share the memory."""
    for module in (torch, flambeau):
        x = module.zeros(3, requires_grad=True)
        for index in (0, slice(1, None), module.tensor([0, 1]), x.detach() > -1):
            with pytest.raises(RuntimeError):
                x[index] = 1
            with module.no_grad():
                x[index] = 2
        assert x.is_leaf and x.detach().tolist() == [2.0, 2.0, 2.0]
        x.detach()[0] = 5
        assert x[0].item() == 5


def test_a_write_after_saving_is_noticed():
    """Backward refuses numbers that were changed by x[...] = after they were saved."""
    for module in (torch, flambeau):
        for index in (0, module.tensor([0])):
            x = module.ones(3, requires_grad=True) * 1
            y = x * x
            x[index] = 2
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()


def test_pieces_of_a_split_cannot_be_written_to():
    """The results of split, chunk and unbind refuse writes that would need history; those of tensor_split take them."""
    check_lines(
        """
        x = (g * 1).unbind()[0]; x[0] = 1
        x = (g * 1).split(1)[0]; x[0] = 1
        x = (g * 1).chunk(2)[0]; x[0] = 1
        x = (g * 1).tensor_split(2)[0]; x[0] = 1
        """
    )


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "complex64"])
def test_dtypes(dtype):
    """All dtypes are read, written and added to."""
    lines = f"""
        x = (x > 1).to(torch.{dtype}); x = x[t([1, 0, 1])]
        x = x.to(torch.{dtype}); x = x[x != 1]
        x = x.to(torch.{dtype}); x[t([1, 0, 1])] = t([0, 1, 1]).to(torch.{dtype})
        x = x.to(torch.{dtype}); x[:, 1] = t([0.0, 1.0])
        x = x.to(torch.{dtype}).index_put((t([1, 1]),), t([1, 0, 1]).to(torch.{dtype}), accumulate=True)
        x = x.to(torch.{dtype}); x[x != 1] = 0
    """
    check_lines(lines)


def test_sums_do_not_depend_on_the_order_of_duplicates():
    """The gradient of x[index] with many duplicates is the same in every run; half precision is rounded once, PyTorch's at every step."""
    torch.manual_seed(0)
    index = torch.randint(0, 7, (500,))
    for dtype, rtol in ((torch.float32, 1e-5), (torch.bfloat16, 5e-2)):
        check_gradients(lambda module, x: x[index if module is torch else twin(index)], torch.randn(7, 5).to(dtype), rtol=rtol)
    line = "torch.zeros(7, 5).index_put((torch.arange(500) % 7,), torch.arange(2500.0).reshape(500, 5), True)"
    ours = [run(flambeau, line) for _ in range(2)]
    assert (numbers(ours[0]) == numbers(ours[1])).all()


def test_no_grad_and_inference_mode():
    """Views made without gradients are not recorded; inference tensors may only be written to in inference mode."""
    for module in (torch, flambeau):
        x = module.ones(2, 3, requires_grad=True)
        with module.no_grad():
            assert x[0].grad_fn is None and not x[module.tensor([0])].requires_grad
        with module.inference_mode():
            y = module.ones(3)
            y[0] = 2
            z = y[1:]
        assert y.is_inference() and z.is_inference()
        with pytest.raises(RuntimeError):
            y[0] = 3
        with pytest.raises(RuntimeError):
            z[0] = 3


def test_meta_tensors():
    """Shapes without data."""
    x = flambeau.zeros(2, 3, device="meta")
    assert tuple(x[0, 1:].shape) == (2,)
    assert tuple(x[:, flambeau.zeros(4, dtype=flambeau.int64, device="meta")].shape) == (2, 4)
    with pytest.raises(NotImplementedError):
        x[flambeau.zeros(2, 3, dtype=flambeau.bool, device="meta")]


def test_new_dimensions_again():
    """x[:, None] and its kind, asked for twice, of views and leaves; what is wrong stays wrong."""
    for index in (
        (slice(None), None),
        None,
        (..., None),
        (None, 1),
        (None, slice(None), ..., -1),
        (None, 7),
        (None, ..., ...),
        (0, 0, 0, None),
    ):
        answers = []
        for module in (torch, flambeau):
            x = module.arange(12.0).reshape(3, 4).requires_grad_()
            for source in (x, x.t(), x.detach(), x):
                try:
                    y = source[index]
                except IndexError:
                    answers.append((module, "IndexError"))
                    continue
                if y.requires_grad:
                    (y * y).sum().backward()
                node = type(y.grad_fn).__name__
                answers.append((module, y.tolist(), y.stride(), y.storage_offset(), node, None if x.grad is None else x.grad.tolist()))
        theirs, ours = ([a[1:] for a in answers if a[0] is module] for module in (torch, flambeau))
        assert ours == theirs, index


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32, torch.bfloat16, torch.uint8])
def test_few_elements_are_written_as_many_are(dtype, accumulate):
    """A number, a value for each, or rows, at a few places or at many, some of them named twice and some from the end."""
    generator = torch.Generator().manual_seed(0)
    for n in (5, 400):
        i, j = (torch.randint(-6, 6, (n,), generator=generator) for _ in range(2))
        for indices, values in (((i, j), ()), ((i, j), (n,)), ((i,), ()), ((i,), (n, 6)), ((i,), (6,)), ((i.int(), j.int()), (n,))):
            value = torch.randint(0, 3, values, generator=generator).to(dtype)
            if not accumulate and value.dim():
                value = value * 0 + 1  # of several writes to one place PyTorch keeps any
            expected = torch.ones(6, 6, dtype=dtype).index_put_(indices, value, accumulate)
            found = flambeau.ones(6, 6, dtype=getattr(flambeau, str(dtype)[6:]))
            found.index_put_(tuple(map(twin, indices)), twin(value), accumulate)
            assert found.tolist() == expected.tolist()
