"""Copies, turned copies, triangles, sequences and places: the compiled loops give what PyTorch gives, in every dtype and layout."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import flambeau
from flambeau.kernels import arrays
from flambeau.kernels.indexing import nonzero, ranges, triangles
from flambeau.kernels.native import copies, native

torch = pytest.importorskip("torch")
DTYPES = ("f4", "f8", "i8", "u1", "f2", "c8", "c16", "?", "u4")
SHAPES = ((64, 64), (65, 130), (3, 70, 50), (2, 5, 33, 17), (7, 1000), (2, 3, 40, 50), (40, 50, 3), (3, 1, 64, 64))
compiled = pytest.mark.skipif(native.lib is None, reason="nothing was compiled")


def numbers(shape, dtype: str) -> np.ndarray:
    """Numbers of any dtype, a third of them zero."""
    draw = np.random.default_rng(len(shape))
    values = draw.standard_normal(shape) * 50 * (draw.random(shape) < 0.7)
    return (values * (1 + 2j) if dtype[0] == "c" else np.abs(values) if dtype[0] == "u" else values).astype(dtype)


def agree(question, *operands: np.ndarray) -> None:
    """The same values, dtype, shape and strides as PyTorch's."""
    expected, found = (question(t, *[t.from_numpy(a.copy()) for a in operands]) for t in (torch, flambeau))
    assert (str(found.dtype), tuple(found.shape), found.stride()) == (str(expected.dtype), tuple(expected.shape), expected.stride())
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_copies_of_any_order(shape, dtype):
    """However the dimensions are permuted, cut or stepped through, a copy has the elements and the strides PyTorch's has."""
    x = numbers(shape, dtype)
    for order in itertools.permutations(range(len(shape))):
        agree(lambda t, x, order=order: x.permute(order).contiguous(), x)
        agree(lambda t, x, order=order: x.permute(order)[1:, ..., 1::2].contiguous(), x)
    agree(lambda t, x: x.transpose(0, -1).clone(), x)
    agree(lambda t, x: x[:1].expand(9, *shape[1:]).contiguous(), x)
    agree(lambda t, x: x[..., :1].expand(shape).contiguous(), x)
    for dim in range(len(shape)):
        agree(lambda t, x, dim=dim: t.cat([x, x[:, :0] if dim == 1 else x, x.clone()], dim), x)
        agree(lambda t, x, dim=dim: t.stack([x, x], dim), x)


@pytest.mark.parametrize("dtype", ["f4", "u1", "f2", "c16"])
def test_flips_and_triangles(dtype):
    """flip, tril and triu, fresh and in place, for diagonals within and beyond the matrix, of matrices stored by rows or by columns."""
    for shape in ((65, 130), (2, 30, 40), (2, 30, 70)):
        x = numbers(shape, dtype)
        for dims in ((0,), (-1,), (0, -1)):
            agree(lambda t, x, dims=dims: x.flip(dims), x)
        for k, name in itertools.product((-100, -2, 0, 35), ("tril", "triu")):
            agree(lambda t, x, k=k, name=name: getattr(x, name)(k), x)
            agree(lambda t, x, k=k, name=name: getattr(x.mT, name)(k), x)
            agree(lambda t, x, k=k, name=name: getattr(x.clone(), name + "_")(k), x)
            agree(lambda t, x, k=k, name=name: getattr(x.clone().mT, name + "_")(k), x)


def test_a_copy_onto_itself_is_left_to_others():
    """Where a copy overlaps what it reads, nothing is written over elements that are still to be read."""
    x = np.arange(128.0 * 128).reshape(128, 128)
    assert not copies.made(x, x.T) and not copies.made(x[1:], x[:-1])
    assert x[0, 5] == 5 and x[5, 0] == 640


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "u4"])
def test_places_are_pytorchs(dtype):
    """nonzero, masks and nonzero_static of more than one row of the loop: places in row-major order, as many as there are."""
    for shape in ((5000,), (20000,), (100, 101), (3000, 1, 3), (9, 10, 11, 12), (8192,), (1, 8193)):
        x = numbers(shape, dtype)
        agree(lambda t, x: x.nonzero(), x)
        agree(lambda t, x: x[x != 0], x)
        agree(lambda t, x: t.nonzero_static(x, size=40), x)
        for expected, found in zip(torch.from_numpy(x).nonzero(as_tuple=True), flambeau.from_numpy(x).nonzero(as_tuple=True), strict=True):
            np.testing.assert_array_equal(found.numpy(), expected.numpy())
    nothing = flambeau.zeros(100, 100, dtype=getattr(flambeau, str(flambeau.from_numpy(x).dtype).split(".")[1])).nonzero()
    assert tuple(nothing.shape) == (0, 2)


def test_a_negative_zero_is_zero_and_a_nan_is_not():
    """What counts as zero is decided by value, not by bits, in half precision too."""
    x = np.array([0.0, -0.0, np.nan, np.inf, -1.0] * 1000)
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        agree(lambda t, x, dtype=dtype: x.to(getattr(t, dtype)).nonzero(), x)


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "uint8", "float32", "float64"])
def test_sequences_of_whole_numbers(dtype):
    """arange by whole steps gives PyTorch's numbers exactly, below, at and beyond a row of the loop, upward and downward."""
    for args in ((10,), (0,), (4096,), (5000,), (100003,), (3, 50000, 7), (100, -9000, -3)):
        agree(lambda t, args=args: t.arange(*args, dtype=getattr(t, dtype)))


def test_long_integers_keep_their_digits():
    """Beyond 2 ** 53, where a double skips integers, arange still counts every one."""
    agree(lambda t: t.arange(2**60, 2**60 + 5000))
    agree(lambda t: t.arange(-(2**62), -(2**62) + 9000, 3))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sequences_between_two_ends(dtype):
    """linspace ends where it should, is symmetric, and is PyTorch's to the last digit, if the CPU multiplies and adds at once as that one's did."""
    for args in (
        (0, 1, 5),
        (0, 1, 4096),
        (-3.3, 7.7, 10001),
        (0.1, 1e5, 8193),
        (5, 5, 10),
        (1, 0, 2),
        (0, 1, 1),
        (0, 1, 0),
        (-1e38, 1e38, 99),
    ):
        expected, found = (t.linspace(*args, dtype=getattr(t, dtype)).numpy() for t in (torch, flambeau))
        np.testing.assert_allclose(found, expected, rtol=2e-7 if dtype == "float32" else 3e-16, atol=abs(args[1] - args[0]) * 1e-16)
        if args[2] > 1:
            assert (found[0], found[-1]) == (expected[0], expected[-1])


@compiled
def test_threads_do_not_change_a_sequence():
    """Every element is computed from its own number, whoever does it."""
    before = flambeau.get_num_threads()
    try:
        results = []
        for n in (1, 3):
            flambeau.set_num_threads(n)
            results.append(
                (flambeau.arange(0, 1e5, 0.3).numpy(), flambeau.linspace(0, 1, 100001).numpy(), flambeau.ones(300, 300).nonzero().numpy())
            )
    finally:
        flambeau.set_num_threads(before)
    for one, three in zip(*results, strict=True):
        np.testing.assert_array_equal(one, three)


@compiled
def test_the_loops_are_taken():
    """Large work of the usual kinds goes through the compiled loops, not through NumPy on one thread."""
    x = np.random.default_rng(0).standard_normal((128, 96)).astype(np.float32)
    assert copies.made(np.empty_like(x), x.T.copy().T) and arrays.wrote(np.empty((9, 128, 96), np.float32), x)
    assert triangles.triangle(x, True, 0) is not None and triangles.clear(x.copy(), False, 3)
    assert nonzero.places(x, x.shape) is not None
    assert (
        ranges.arithmetic(0.0, 0.5, 9000, x.dtype, "float32") is not None
        and ranges.between(0.0, 1.0, 0.1, 11, x.dtype, "float32") is not None
    )


def test_without_loops_the_same(monkeypatch):
    """Where nothing was compiled, NumPy gives the same."""
    x = numbers((65, 130), "f4")
    expected = [f(arrays.contiguous(x)) for f in ASKED]
    for module in (copies, ranges, triangles, nonzero):
        monkeypatch.setattr(
            module,
            "native",
            type("Nothing", (), {"kernel": staticmethod(lambda name: native.not_compiled), "not_compiled": native.not_compiled}),
        )
    monkeypatch.setattr(copies, "made", lambda out, source: False)
    monkeypatch.setattr(copies, "fresh", lambda array: NotImplemented)
    for f, wanted in zip(ASKED, expected, strict=True):
        np.testing.assert_array_equal(f(x), wanted)


ASKED = [
    lambda x: flambeau.from_numpy(x).t().contiguous().numpy(),
    lambda x: flambeau.from_numpy(x).tril(2).numpy(),
    lambda x: flambeau.from_numpy(x).nonzero().numpy(),
    lambda x: flambeau.arange(0, 9000, 3).numpy(),
    lambda x: flambeau.linspace(0, 3, 10001).numpy(),
]
