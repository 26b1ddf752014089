"""Making tensors: values, dtypes, shapes, strides and errors are PyTorch's.

Most tests are one question asked twice: a function of the framework is run with real torch and with Flambeau, and what it gives must agree.
"""

from __future__ import annotations

import array
import collections
import fractions

import numpy as np
import pytest
from making_oracle import INF, NAN, agree, outcome, questions

import flambeau

torch = pytest.importorskip("torch")


# -- tensor --------------------------------------------------------------------------------------------------------


DATA = [
    1, 1.5, True, 2j, [], [[], []], (), [1, 2], [1, 2.5, True], [True, False], [True, 2], [1, 2j], [[1, 2], [3, 4]], range(3),
    collections.deque([1, 2]), array.array("i", [1, 2]), bytearray(b"abc"), memoryview(b"abc"), 2**63, [2**63], 2**64, 1e40, [1e40, -1e40],
    [[1, 2], [3]], [[1, 2], 3], [1, [2]], [[[1], [2]], [[3], 4]], "a", ["a"], None, [None], [1, None], [1, "a"], {1: 2}, {1, 2}, object(),
    b"abc", fractions.Fraction(1, 2), [NAN, INF, -INF], -0.0,
    np.float32(1), np.float64(1), np.float16(1), np.int32(1), np.uint16(1), np.bool_(True), np.complex64(1),
    [np.float32(1)], [np.float64(1)], [np.float64(1), 1.0], [np.float16(1), 1.0], [np.float16(1), 1], [np.int32(1), 1], [np.uint8(1), True],
    [np.bool_(True)], [np.complex128(1)], [np.array([1.0, 2.0])], [np.array(1.0)], [np.array([1.0, 2.0]), [1, 2]],
    [np.array([1, 2]), np.array([1, 2], np.float32)], np.arange(4).astype("i4"), np.ones((2, 3)).T, np.array(3.5), np.array(["a"]),
    np.array([1, 2], object), np.arange(4)[::-1], np.array([1, 2], ">i4"),
]  # fmt: skip


@pytest.mark.parametrize("data", DATA, ids=[f"{i}-{type(d).__name__}" for i, d in enumerate(DATA)])
def test_tensor_infers_what_torch_infers(data):
    """torch.tensor finds the dtype and shape of Python data, or refuses it with the same type of error."""
    agree(lambda t: t.tensor(data))


TARGETS = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "uint16", "uint64", "bool", "complex64"]


NUMBERS = [
    0, 1, -1, 127, 128, 255, 256, -128, -129, -255, -256, 65535, 70000, 2**31, 2**40, 2**63, 2**63 - 1, 2**64 - 1, 2**70, 1.7, -1.5, -0.5,
    127.5, 300.5, 65519.0, 65520.0, 1e5, 1e40, 3.4e38, NAN, INF, True, 1 + 0j, 1 + 2j, 0.1, 2049.0, 1.00146484375, [1, 2.5], [-1, 300],
    fractions.Fraction(5, 2), 10**400,
]  # fmt: skip


@pytest.mark.parametrize("dtype", TARGETS)
def test_numbers_are_stored_as_torch_stores_them(dtype):
    """torch.tensor(x, dtype=...), full and fill_ round, cut off, wrap or refuse a number exactly as PyTorch does."""
    for number in NUMBERS:
        agree(lambda t, x=number: t.tensor(x, dtype=getattr(t, dtype)))
        if not isinstance(number, (list, fractions.Fraction)):
            agree(lambda t, x=number: t.full((2,), x, dtype=getattr(t, dtype)))
            agree(lambda t, x=number: t.zeros(2, dtype=getattr(t, dtype)).fill_(x))


@questions(
    lambda t: t.tensor([1, 2], dtype=float),
    lambda t: t.tensor([1, 2], dtype=int),
    lambda t: t.tensor([1, 2], dtype=bool),
    lambda t: t.tensor([1, 2], dtype=complex),
    lambda t: t.tensor([1, 2], dtype="float"),
    lambda t: t.tensor([1, 2], device="meta"),
    lambda t: t.tensor([1, 2], device="nowhere"),
    lambda t: t.tensor([1, 2], pin_memory=True),
    lambda t: t.tensor([1, 2], device="cuda"),
    lambda t: t.tensor(),
    lambda t: t.tensor(1, 2),
    lambda t: t.tensor([1], unknown=3),
    lambda t: t.tensor(1, requires_grad=True),
    lambda t: t.tensor(1.0, requires_grad=True),
    lambda t: t.tensor(t.tensor([1, 2])),
    lambda t: t.tensor(t.ones(2, 3).t()),
    lambda t: t.tensor(t.ones(2, requires_grad=True)),
    lambda t: t.tensor([t.tensor(1), t.tensor(2.0)]),
    lambda t: t.tensor([t.tensor([1]), t.tensor([2])]),
    lambda t: t.tensor([t.tensor([1, 2]), t.tensor([2, 3])]),
    lambda t: t.tensor([t.tensor([1.0, 2.0])]),
    lambda t: t.tensor(t.Size([1, 2])),
)
def test_tensor_options(question):
    """dtype=, device=, requires_grad= and tensors among the data are understood as PyTorch understands them."""
    agree(question)


def test_tensor_copies_its_data():
    """A tensor made from an array or a tensor does not share its memory."""
    source = np.zeros(2)
    made = flambeau.tensor(source)
    made.fill_(1)
    assert source.tolist() == [0, 0]


@pytest.mark.parametrize("framework", [torch, flambeau], ids=["torch", "flambeau"])
def test_copy_construction_warns(framework):
    """torch.tensor(tensor) says that clone().detach() is the better spelling."""
    with pytest.warns(UserWarning, match="copy construct"):
        framework.tensor(framework.ones(2))


def test_the_default_dtype_decides_what_floats_become():
    """set_default_dtype changes the dtype of Python floats and of factories, and only that."""
    try:
        for t in (torch, flambeau):
            t.set_default_dtype(t.float64)
        for question in (
            lambda t: t.tensor([1.5]),
            lambda t: t.tensor(1j),
            lambda t: t.zeros(2),
            lambda t: t.arange(2.0),
            lambda t: t.full((2,), 1.0),
            lambda t: t.Tensor([1]),
            lambda t: t.linspace(0, 1, 3),
            lambda t: t.arange(2),
        ):
            agree(question)
    finally:
        for t in (torch, flambeau):
            t.set_default_dtype(t.float32)


# -- as_tensor, asarray, frombuffer ---------------------------------------------------------------------------------


@questions(
    lambda t: t.as_tensor([1, 2.0]),
    lambda t: t.as_tensor(np.arange(3)),
    lambda t: t.as_tensor(np.arange(3), dtype=t.float32),
    lambda t: t.as_tensor(np.float32(2)),
    lambda t: t.as_tensor(t.arange(3), dtype=t.float32),
    lambda t: t.as_tensor(np.arange(3)[::-1]),
    lambda t: t.as_tensor(t.ones(2, requires_grad=True)),
    lambda t: t.asarray([1, 2.0]),
    lambda t: t.asarray([1, 2], copy=False),
    lambda t: t.asarray(np.arange(3), copy=False, dtype=t.float32),
    lambda t: t.asarray(np.float32(3), copy=False),
    lambda t: t.asarray(t.arange(3.0), requires_grad=True),
    lambda t: t.asarray(t.arange(3.0).requires_grad_(), requires_grad=False),
    lambda t: t.asarray(t.arange(3.0).requires_grad_(), requires_grad=True),
    lambda t: t.asarray(b"abcd", dtype=t.uint8),
    lambda t: t.asarray(bytearray(b"abcd"), dtype=t.int16),
    lambda t: t.asarray(bytearray(b"abcd")),
    lambda t: t.asarray(3),
    lambda t: t.asarray(np.float64(3)),
    lambda t: t.frombuffer(bytearray(b"abcdefgh"), dtype=t.int32),
    lambda t: t.frombuffer(bytearray(b"abcdefgh"), dtype=t.int32, count=1, offset=4),
    lambda t: t.frombuffer(bytearray(b"abcdefgh"), dtype=t.int32, count=3),
    lambda t: t.frombuffer(bytearray(b"abcdefgh"), dtype=t.int32, offset=8),
    lambda t: t.frombuffer(bytearray(b"abcdefgh"), dtype=t.int32, offset=-1),
    lambda t: t.frombuffer(bytearray(b"abcdefgh"), dtype=t.int32, count=0),
    lambda t: t.frombuffer(bytearray(b"abcdefghi"), dtype=t.int32),
    lambda t: t.frombuffer(bytearray(b"abcdefghi"), dtype=t.int32, count=2),
    lambda t: t.frombuffer(bytearray(b""), dtype=t.int32),
    lambda t: t.frombuffer([1], dtype=t.int32),
    lambda t: t.frombuffer(bytearray(b"abcd")),
    lambda t: t.frombuffer(array.array("i", [1, 2]), dtype=t.int32),
    lambda t: t.frombuffer(np.arange(2), dtype=t.int64, requires_grad=True),
)
def test_data_that_may_be_shared(question):
    """as_tensor, asarray and frombuffer give PyTorch's tensors and errors."""
    agree(question)


def test_what_is_shared_is_shared():
    """as_tensor, asarray and frombuffer write through to their source."""
    for make in (flambeau.as_tensor, flambeau.asarray, flambeau.from_numpy, lambda a: flambeau.frombuffer(a, dtype=flambeau.float64)):
        source = np.zeros(2)
        make(source).fill_(1)
        assert source.tolist() == [1, 1]
    tensor = flambeau.ones(2)
    assert flambeau.as_tensor(tensor) is tensor
    assert flambeau.asarray(tensor, copy=True).data_ptr() != tensor.data_ptr()


def test_from_file(tmp_path):
    """A shared file mapping writes to the file; a private one does not."""
    path = str(tmp_path / "numbers")
    flambeau.from_file(path, shared=True, size=4, dtype=flambeau.int32).fill_(3)
    private = flambeau.from_file(path, size=4, dtype=flambeau.int32)
    private.fill_(1)
    assert torch.from_file(path, size=4, dtype=torch.int32).tolist() == [3, 3, 3, 3]


# -- constants -----------------------------------------------------------------------------------------------------


@questions(
    lambda t: t.zeros(2, 3),
    lambda t: t.zeros((2, 3)),
    lambda t: t.zeros([2, 3], dtype=t.int32),
    lambda t: t.zeros(size=(2, 3)),
    lambda t: t.zeros(np.int64(2), t.tensor(3)),
    lambda t: t.zeros(()),
    lambda t: t.zeros(0, 3),
    lambda t: t.zeros(),
    lambda t: t.zeros(True),
    lambda t: t.zeros(2.0),
    lambda t: t.zeros(-1),
    lambda t: t.zeros(2, -1),
    lambda t: t.zeros((2,), (3,)),
    lambda t: t.zeros("a"),
    lambda t: t.zeros(2, dtype="f"),
    lambda t: t.zeros(2, dtype=int),
    lambda t: t.zeros(2, layout="strided"),
    lambda t: t.zeros(2, layout=t.strided),
    lambda t: t.zeros(2, device="cuda"),
    lambda t: t.zeros(2, requires_grad=True),
    lambda t: t.zeros(2, requires_grad=True, dtype=t.int32),
    lambda t: t.zeros(2, pin_memory=True),
    lambda t: t.zeros(2**40, 2**40),
    lambda t: t.zeros(2, out=t.ones(3)),
    lambda t: t.zeros(2, out=t.ones(2, dtype=t.int32)),
    lambda t: t.zeros(2, out=t.ones(2), dtype=t.int32),
    lambda t: t.zeros(2, out=t.ones(2), device="meta"),
    lambda t: t.zeros(2, out=t.ones(2, requires_grad=True)),
    lambda t: t.ones(2, 3, dtype=t.bfloat16),
    lambda t: t.ones(2, dtype=t.complex64),
    lambda t: t.ones(2, device="meta"),
    lambda t: t.empty(2, 3).shape,
    lambda t: t.empty(1, 2, 3, 4, memory_format=t.channels_last).stride(),
    lambda t: t.empty(2, 3, memory_format=t.channels_last),
    lambda t: t.empty(2, memory_format=t.preserve_format),
    lambda t: t.full((2,), 1),
    lambda t: t.full((2,), True),
    lambda t: t.full((2,), 1.5),
    lambda t: t.full((2,), 1j),
    lambda t: t.full((2,), t.tensor(3)),
    lambda t: t.full((2,), t.tensor([3])),
    lambda t: t.full((2,), t.tensor(3.0, requires_grad=True)),
    lambda t: t.full((2,), "a"),
    lambda t: t.full(2, 3),
    lambda t: t.full((2,), np.float64(1.5)),
    lambda t: t.full((2,), np.int32(1)),
    lambda t: t.full((2,), 1, out=t.zeros(2)),
    lambda t: t.scalar_tensor(3),
    lambda t: t.scalar_tensor(True),
    lambda t: t.scalar_tensor(1j),
    lambda t: t.scalar_tensor(3, dtype=t.int32),
    lambda t: t.eye(2),
    lambda t: t.eye(2, 3, dtype=t.int32),
    lambda t: t.eye(3, 2, dtype=t.bool),
    lambda t: t.eye(0),
    lambda t: t.eye(-1),
    lambda t: t.eye(2, -3),
    lambda t: t.eye(2.5),
    lambda t: t.eye(2, out=t.zeros(3)),
    lambda t: t.empty_strided((2, 3), (1, 2)).stride(),
    lambda t: [(x.stride(), t.empty_like(x).stride()) for x in (t.empty_strided((2, 0), (0, 0)), t.empty_strided((1, 0), (0, 9)))],
    lambda t: t.empty_strided((2, 3), (1,)),
    lambda t: t.empty_strided((2, 3), (-1, 2)),
    lambda t: t.empty_permuted((2, 3, 4), (1, 2, 0)).stride(),
    lambda t: t.empty_permuted((2, 3, 4), (1, 2)),
    lambda t: t.empty_permuted((2, 3, 4), (1, 2, 2)),
    *[lambda t, x=x: x(t).is_contiguous(memory_format=t.preserve_format) for x in (lambda t: t.ones(2, 3), lambda t: t.ones(2, 3).t())],
    lambda t: t.fft.fftfreq(4, dtype=t.int64),
    lambda t: t.tril_indices(3, 3),
    lambda t: t.tril_indices(4, 2, -1, dtype=t.int32),
    lambda t: t.triu_indices(3, 2, 1),
    lambda t: t.triu_indices(0, 2),
    *[lambda t, k=k: (t.tril_indices(200, 300, k), t.triu_indices(300, 200, k, dtype=t.int32)) for k in (-250, -7, 0, 30, 250)],
    lambda t: t.tril_indices(-1, 3),
    lambda t: t.tril_indices(3, 3, dtype=t.float32),
)
def test_constant_tensors(question):
    """zeros, ones, empty, full, eye and their like: shapes, dtypes, strides and errors are PyTorch's."""
    agree(question)


@questions(
    lambda t: t.zeros_like(t.ones(2, 3).t()),
    lambda t: t.zeros_like(t.ones(2, 3).t(), memory_format=t.contiguous_format),
    lambda t: t.zeros_like(t.ones(1, 2, 3, 4), memory_format=t.channels_last),
    lambda t: t.zeros_like(t.ones(3).expand(2, 3)),
    lambda t: t.zeros_like(t.ones(2), dtype=t.int64),
    lambda t: t.zeros_like(t.ones(2), device="meta"),
    lambda t: t.zeros_like(3),
    lambda t: t.zeros_like(input=t.ones(2)),
    lambda t: t.ones_like(t.zeros(2, requires_grad=True)),
    lambda t: t.ones_like(t.zeros(2, dtype=t.int32), requires_grad=True),
    lambda t: t.empty_like(t.ones(2, 3)).shape,
    lambda t: t.full_like(t.ones(2), 3),
    lambda t: t.full_like(t.ones(2, dtype=t.int32), 3.5),
    lambda t: t.full_like(t.ones(2, dtype=t.uint8), 300),
    lambda t: t.ones(2).new_zeros(2, 3),
    lambda t: t.ones(2).new_zeros((2, 3), dtype=t.int32),
    lambda t: t.ones(2).new_zeros(size=(2,)),
    lambda t: t.ones(2, dtype=t.int8).new_ones(3),
    lambda t: t.ones(2).new_empty(2, 3).shape,
    lambda t: t.ones(2).new_empty_strided((2, 3), (1, 2)).stride(),
    lambda t: t.ones(2).new_full((2,), 3),
    lambda t: t.ones(2, dtype=t.int64).new_full((2,), 3.5),
    lambda t: t.ones(2).new_tensor([1, 2]),
    lambda t: t.ones(2, dtype=t.int64).new_tensor([1.5, 2]),
    lambda t: t.ones(2).new_tensor([1, 2], requires_grad=True),
    lambda t: t.ones(2, device="meta").new_ones(3),
)
def test_tensors_like_others(question):
    """The _like functions and new_ methods take over dtype, device and memory order as PyTorch's do."""
    agree(question)


def test_factories_follow_the_device_context():
    """Inside `with torch.device('meta')` and under set_default_device, factories without device= create their tensors there."""
    for t in (torch, flambeau):
        with t.device("meta"):
            kinds = [f(2).device.type for f in (t.zeros, t.rand, t.arange, t.eye)]
            assert [*kinds, t.tensor([1]).device.type, t.zeros(2, device="cpu").device.type] == ["meta"] * 5 + ["cpu"]
        assert t.zeros(2).device.type == "cpu"
    flambeau.set_default_device("meta")
    try:
        assert flambeau.ones(2).is_meta and flambeau.get_default_device() == flambeau.device("meta")
    finally:
        flambeau.set_default_device(None)


def test_inference_tensors():
    """What is made in inference mode is an inference tensor, and outside it is not."""
    with flambeau.inference_mode():
        assert flambeau.zeros(2).is_inference() and flambeau.tensor([1.0]).is_inference() and flambeau.rand(2).is_inference()
    assert not flambeau.zeros(2).is_inference()


# -- ranges --------------------------------------------------------------------------------------------------------


@questions(
    lambda t: t.arange(5),
    lambda t: t.arange(5.0),
    lambda t: t.arange(1, 5, 2),
    lambda t: t.arange(1, 5, 0.5),
    lambda t: t.arange(5, 1, -1),
    lambda t: t.arange(5, 1),
    lambda t: t.arange(1, 5, -1),
    lambda t: t.arange(1, 5, 0),
    lambda t: t.arange(0),
    lambda t: t.arange(t.tensor(3)),
    lambda t: t.arange(t.tensor(3.0)),
    lambda t: t.arange(0, INF),
    lambda t: t.arange(0, NAN),
    lambda t: t.arange(True),
    lambda t: t.arange(1, 2, dtype=t.bool),
    lambda t: t.arange(0, 10, 3, dtype=t.uint8),
    lambda t: t.arange(0, 1.5, dtype=t.int64),
    lambda t: t.arange(0.5, 4, dtype=t.int64),
    lambda t: t.arange(0.0, 4, 1.5, dtype=t.int64),
    lambda t: t.arange(0.0, 4, 1.5, dtype=t.int32),
    lambda t: t.arange(0, 64, 0.5, dtype=t.int64),
    lambda t: t.arange(1j),
    lambda t: t.arange("a"),
    lambda t: t.arange(),
    lambda t: t.arange(start=1, end=3),
    lambda t: t.arange(end=3),
    lambda t: t.arange(3, out=t.zeros(3)),
    lambda t: t.arange(3, out=t.zeros(0, dtype=t.int16)),
    lambda t: t.arange(2**40, 2**40 + 2),
    lambda t: t.arange(2**63 - 2, 2**63 - 1),
    lambda t: t.arange(-1, dtype=t.float32),
    lambda t: t.arange(3, dtype=t.complex64),
    lambda t: t.arange(3, requires_grad=True),
    lambda t: t.arange(3.0, requires_grad=True),
    lambda t: t.arange(0, 10, 3, dtype=t.bfloat16),
    lambda t: t.arange(0, 3, device="meta"),
    lambda t: t.range(1, 3),
    lambda t: t.range(1, 2.5, 0.5),
    lambda t: t.range(1, 3, dtype=t.int64),
    lambda t: t.range(3, 1),
    lambda t: t.range(3, 1, -1),
    lambda t: t.linspace(0, 1, 5),
    lambda t: t.linspace(0, 1, 1),
    lambda t: t.linspace(0, 1, 0),
    lambda t: t.linspace(0, 1, -1),
    lambda t: t.linspace(0, 1),
    lambda t: t.linspace(0, 10, 5, dtype=t.int64),
    lambda t: t.linspace(-3.7, 9.2, 6, dtype=t.int32),
    lambda t: t.linspace(0, 1j, 3),
    lambda t: t.linspace(0, 1j, 3, dtype=t.float32),
    lambda t: t.linspace(t.tensor(0.0), t.tensor(1.0), 3),
    lambda t: t.linspace(t.tensor([0.0, 1.0]), t.tensor(1.0), 3),
    lambda t: t.linspace(0, 1, 3, dtype=t.bool),
    lambda t: t.linspace(0, 1, steps=3, out=t.zeros(3)),
    lambda t: t.linspace(0, 1, 3.5),
    lambda t: t.linspace(0, 4, 9, dtype=t.float16),
    lambda t: t.logspace(0, 2, 3),
    lambda t: t.logspace(0, 2, 3, base=2),
    lambda t: t.logspace(0, 2.7, 4, base=2, dtype=t.int64),
    lambda t: t.logspace(0, 1, 1, base=3),
    lambda t: t.logspace(0, 1, 0),
    lambda t: t.logspace(0, 1, 3, base=1j),
)
def test_ranges(question):
    """arange, range, linspace and logspace: lengths, dtypes, values and errors are PyTorch's."""
    agree(question)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_ranges_are_accurate(dtype):
    """Long ranges agree with PyTorch to the last digit or two of the dtype, and linspace ends exactly at its end."""
    digits = dict(
        rtol={"float32": 1e-6, "float64": 1e-14, "float16": 2e-3, "bfloat16": 2e-2}[dtype], atol=1e-3 if dtype == "bfloat16" else 1e-4
    )
    for question in (
        lambda t: t.arange(0, 100, 0.1, dtype=getattr(t, dtype)),
        lambda t: t.linspace(-1, 7.3, 1001, dtype=getattr(t, dtype)),
        lambda t: t.logspace(-2, 3, 50, dtype=getattr(t, dtype)),
    ):
        expected, found = question(torch).double().numpy(), question(flambeau).double().numpy()
        np.testing.assert_allclose(found, expected, **digits)
    assert flambeau.linspace(0.1, 0.7, 13).tolist()[-1] == np.float32(0.7)


OLD_WINDOWS = ("hann_window", "hamming_window", "bartlett_window", "blackman_window", "kaiser_window")


@questions(
    *[lambda t, w=w, n=n, p=p: getattr(t, w)(n, periodic=p) for w in OLD_WINDOWS for n in (0, 1, 2, 7) for p in (True, False)],
    lambda t: t.signal.windows.gaussian(6, std=2.0, sym=False, dtype=t.float64),
    lambda t: t.signal.windows.exponential(5, center=1.0, tau=2.0, sym=False),
    lambda t: t.signal.windows.cosine(5),
)
def test_windows(question):
    """Window functions are PyTorch's, to rounding."""
    expected, found = question(torch), question(flambeau)
    assert str(found.dtype) == str(expected.dtype)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


# -- random --------------------------------------------------------------------------------------------------------


def draws(question):
    """The same question after the same seed, and one more number to see that the streams stand at the same place."""
    for t in (torch, flambeau):
        t.manual_seed(17)
    expected, found = outcome(question, torch), outcome(question, flambeau)
    assert found == expected
    assert flambeau.rand(1).item() == torch.rand(1).item()


@questions(
    lambda t: t.rand(3, 5),
    lambda t: t.rand((3, 5), dtype=t.float64),
    lambda t: t.rand(20, dtype=t.bfloat16),
    lambda t: t.rand(3, dtype=t.complex64),
    lambda t: t.rand(2, dtype=t.int64),
    lambda t: t.rand(2, out=t.zeros(3)),
    lambda t: t.rand(2, requires_grad=True),
    lambda t: t.rand(2, device="meta"),
    lambda t: t.rand(2, generator=3),
    lambda t: t.rand(5, generator=t.Generator().manual_seed(5)),
    lambda t: t.randn(3, 5),
    lambda t: t.randn(7, 9, dtype=t.float16),
    lambda t: t.randn(2, dtype=t.int64),
    lambda t: t.rand_like(t.zeros(4, 5).t()),
    lambda t: t.randn_like(t.zeros(4, 5).t()),
    lambda t: t.rand_like(t.ones(3, dtype=t.int32)),
    lambda t: t.randint(10, (3, 4)),
    lambda t: t.randint(-5, 5, (3, 4), dtype=t.float32),
    lambda t: t.randint(high=3, size=(2,)),
    lambda t: t.randint(5, 7, size=(2,)),
    lambda t: t.randint(low=5, high=7, size=(2,)),
    lambda t: t.randint(3, 2),
    lambda t: t.randint(3, 3, (2,)),
    lambda t: t.randint(0, 3.5, (2,)),
    lambda t: t.randint_like(t.ones(2, 3).t(), 3),
    lambda t: t.randint_like(t.ones(2), 3, 5),
    lambda t: t.randperm(20),
    lambda t: t.randperm(20, dtype=t.int32),
    lambda t: t.randperm(5, out=t.zeros(0, dtype=t.int16)),
    lambda t: t.randperm(0),
    lambda t: t.randperm(-1),
    lambda t: t.randperm(3.0),
    lambda t: t.normal(1.0, 2.0, (3, 4)),
    lambda t: t.normal(t.ones(2, 1), t.ones(3)),
    lambda t: t.normal(t.ones(3), 2.0),
    lambda t: t.normal(1, t.ones(3)),
    lambda t: t.normal(t.ones(3)),
    lambda t: t.normal(t.ones(3), -1),
    lambda t: t.normal(1, 2),
    lambda t: t.normal(t.ones(2), t.ones(3)),
    lambda t: t.normal(t.ones(2), 1.0, out=t.zeros(2)),
    lambda t: t.bernoulli(t.full((4, 5), 0.3).t()),
    lambda t: t.bernoulli(t.zeros(20), 0.3),
    lambda t: t.bernoulli(t.ones(2, dtype=t.int32)),
    lambda t: t.zeros(4, 5).t().bernoulli_(0.4),
    lambda t: t.zeros(4, 5).t().bernoulli_(t.linspace(0, 1, 4)),
    lambda t: t.zeros(2).bernoulli_(t.ones(3)),
    lambda t: t.multinomial(t.arange(1.0, 9.0), 3),
    lambda t: t.multinomial(t.arange(1.0, 9.0).reshape(2, 4), 9, replacement=True),
    lambda t: t.multinomial(t.arange(1.0, 9.0), 30),
    lambda t: t.poisson(t.linspace(0, 30, 40)),
    lambda t: t.poisson(t.full((3,), 1e4, dtype=t.float64)),
    lambda t: t.poisson(t.tensor([-1.0])),
    lambda t: t.poisson(t.ones(2, dtype=t.int32)),
    lambda t: t.binomial(t.full((40,), 50.0), t.linspace(0, 1, 40)),
    lambda t: t.zeros(4, 5).t().uniform_(-2, 3),
    lambda t: t.zeros(4, 5).t().normal_(1, 2),
    lambda t: t.zeros(4, 5).t().exponential_(2),
    lambda t: t.zeros(4, 5).t().cauchy_(1, 2),
    lambda t: t.zeros(4, 5).t().log_normal_(0.5, 0.25),
    lambda t: t.zeros(4, 5).t().geometric_(0.3),
    lambda t: t.zeros(4, 5, dtype=t.int64).t().random_(),
    lambda t: t.zeros(4, 5).random_(7),
    lambda t: t.zeros(4, 5).random_(-3, 9),
    lambda t: t.zeros(3).uniform_(**{"from": 2, "to": 3}),
    lambda t: t.zeros(3).uniform_(3, 2),
    lambda t: t.zeros(3).expand(2, 3).uniform_(),
    lambda t: t.ones(3, requires_grad=True).uniform_(),
)
def test_random_tensors(question):
    """After the same seed every random factory and in-place sampler gives PyTorch's numbers, and leaves the stream where PyTorch does."""
    draws(question)


def test_sampling_passes_no_gradient():
    """What is overwritten by random numbers, or only decides probabilities, gets a gradient of zeros."""
    for t in (torch, flambeau):
        x = t.full((3,), 0.5, requires_grad=True)
        (x * 2).uniform_().sum().backward()
        t.bernoulli(x).sum().backward()
        t.normal(x, 1.0).sum().backward()
        t.poisson(x).sum().backward()
        assert x.grad.tolist() == [0, 0, 0]


def test_generator_states_are_tensors():
    """get_state and set_state speak uint8 tensors in PyTorch's format, across the two frameworks."""
    ours, theirs = flambeau.Generator().manual_seed(9), torch.Generator().manual_seed(9)
    flambeau.rand(5, generator=ours)
    torch.rand(5, generator=theirs)
    state = ours.get_state()
    assert state.dtype is flambeau.uint8 and state.tolist() == theirs.get_state().tolist()
    again = flambeau.Generator()
    again.set_state(flambeau.tensor(theirs.get_state().numpy()))
    assert flambeau.rand(3, generator=again).tolist() == torch.rand(3, generator=theirs).tolist()
    with pytest.raises(TypeError):
        ours.set_state(flambeau.zeros(5056))
    with pytest.raises(RuntimeError):
        flambeau.set_rng_state(flambeau.zeros(3, dtype=flambeau.uint8))


def test_the_default_generator():
    """manual_seed, seed, initial_seed, get_rng_state and fork_rng are about one generator, which starts unpredictably."""
    assert flambeau.manual_seed(3.7) is flambeau.default_generator
    assert flambeau.initial_seed() == 3
    state = flambeau.get_rng_state()
    first = flambeau.rand(3).tolist()
    with flambeau.random.fork_rng():
        flambeau.manual_seed(99)
    second = flambeau.rand(3).tolist()
    flambeau.set_rng_state(state)
    assert flambeau.rand(6).tolist() == first + second
    assert flambeau.seed() == flambeau.initial_seed()


# -- filling and shapes made of numbers ------------------------------------------------------------------------------


@questions(
    lambda t: t.fill(t.ones(2, 3).t(), 3),
    lambda t: t.fill(t.ones(2), t.tensor([3.0])),
    lambda t: t.ones(2).fill_(t.tensor(2)),
    lambda t: t.ones(2).fill_("a"),
    lambda t: t.ones(2).expand(3, 2).fill_(4),
    lambda t: t.ones(2).expand(3, 2).zero_(),
    lambda t: t.ones(2, requires_grad=True).zero_(),
    lambda t: t.ones(2, 3).fill_diagonal_(5),
    lambda t: t.ones(7, 3).fill_diagonal_(5, wrap=True),
    lambda t: t.ones(7, 3).fill_diagonal_(5),
    lambda t: t.ones(2, 2, 2).fill_diagonal_(5),
    lambda t: t.ones(2).fill_diagonal_(5),
    lambda t: t.ones(2, 2, 3).fill_diagonal_(5),
    lambda t: t.arange(12.0).reshape(3, 4).t().tril(1),
    lambda t: t.arange(12).reshape(3, 4).triu(-1),
    lambda t: t.arange(12).reshape(3, 4).t().tril_(),
    lambda t: t.ones(2, 3).expand(2, 2, 3).triu(),
    lambda t: t.tril(t.ones(2)),
    lambda t: t.triu(t.ones(0, 3)),
    lambda t: t.diag(t.arange(3.0), 1),
    lambda t: t.diag(t.arange(6).reshape(2, 3), -1),
    lambda t: t.diag(t.ones(2, 2, 2)),
    lambda t: t.diagflat(t.tensor([[1, 2], [3, 4]]), -1),
    lambda t: t.diag_embed(t.arange(6.0).reshape(2, 3), 1, 0, 2),
    lambda t: t.diag_embed(t.ones(2, 3), dim1=0, dim2=0),
    lambda t: t.diag_embed(t.tensor(1.0)),
    lambda t: t.block_diag(t.ones(2), t.ones(1, 2), t.tensor(3), t.zeros(0, 2)),
    lambda t: t.block_diag(t.ones(2, 2, 2)),
    lambda t: t.cartesian_prod(t.tensor([1, 2]), t.tensor([3, 4, 5])),
    lambda t: t.cartesian_prod(t.tensor([1, 2])),
    lambda t: t.cartesian_prod(t.tensor([1, 2]), t.ones(2, 2)),
    lambda t: t.meshgrid(t.arange(2), t.arange(3), indexing="ij"),
    lambda t: t.meshgrid([t.arange(2), t.arange(3), t.tensor(5)], indexing="xy"),
    lambda t: t.meshgrid(t.ones(2), t.ones(3, 3)),
    lambda t: t.meshgrid(),
    lambda t: t.meshgrid(t.ones(2), t.ones(3, dtype=t.int32), indexing="ij"),
    lambda t: t.meshgrid(t.ones(2), indexing="other"),
    lambda t: t.broadcast_shapes((2, 1), 3, (1, 1, 1)),
    lambda t: t.broadcast_shapes((2,), (3,)),
)
def test_filling_and_grids(question):
    """fill_, triangles, diagonals and grids: values, strides and errors are PyTorch's."""
    agree(question)


@pytest.mark.parametrize("dtype", "bool uint8 int64 float16 bfloat16 float32 float64 complex64 complex128".split())
def test_filling_many_elements(dtype):
    """What is large enough for all threads holds one value everywhere, and nothing beside it is touched."""
    kind = getattr(flambeau, dtype)
    x = flambeau.zeros(300, 400, dtype=kind)
    assert not x.any()
    assert (flambeau.full((300, 400), 3, dtype=kind) == flambeau.tensor(3, dtype=kind)).all()
    x[:, 1::2].t().fill_(1)
    assert (x[:, 1::2] == 1).all() and not x[:, ::2].any()
    assert not x.zero_().any()


@questions(
    lambda t: t.combinations(t.tensor([1, 2, 3])),
    lambda t: t.combinations(t.tensor([1, 2, 3]), 3, with_replacement=True),
    lambda t: t.combinations(t.tensor([1, 2, 3]), 0),
    lambda t: t.combinations(t.tensor([1, 2, 3]), 5),
    lambda t: t.combinations(t.tensor([1, 2, 3]), -1),
    lambda t: t.vander(t.tensor([1, 2, 3])),
    lambda t: t.vander(t.tensor([1.0, 2.0]), 4, increasing=True),
    lambda t: t.vander(t.tensor([1, 2]), 0),
    lambda t: t.vander(t.ones(2, 2)),
)
def test_combinations_and_powers(question):
    """combinations and vander are PyTorch's."""
    agree(question)


@pytest.mark.parametrize("labels, classes", [([0, 2], -1), ([0, 2], 4), ([0, 2], 2), ([0, -2], 2), ([], 3), ([], -1), ([[1], [0]], -1)])
def test_one_hot(labels, classes):
    """one_hot gives PyTorch's rows, and refuses labels outside the classes."""
    from flambeau.ops.grids import one_hot

    def question(t):
        function = t.nn.functional.one_hot if t is torch else one_hot
        return function(t.tensor(labels, dtype=t.int64), classes)

    agree(question)


GRADIENTS = {
    "fill a row of a view": lambda t, x: (x * 2).t().select(0, 1).fill_(0),
    "zero a column": lambda t, x: (x * 2).narrow(1, 0, 1).zero_(),
    "tril": lambda t, x: x.tril(1),
    "triu_": lambda t, x: (x * 2).triu_(),
    "fill_diagonal_": lambda t, x: (x * 2).fill_diagonal_(0),
    "diag": lambda t, x: t.diag(x, 1),
    "diag_embed": lambda t, x: t.diag_embed(x, 1),
    "diagflat": lambda t, x: t.diagflat(x),
    "block_diag": lambda t, x: t.block_diag(x, x.t(), x.select(0, 0)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    """Gradients through filling, triangles and diagonals are PyTorch's, in place and on views too."""
    found = {}
    for t in (torch, flambeau):
        x = t.arange(9.0).reshape(3, 3).requires_grad_()
        y = GRADIENTS[name](t, x)
        y = y._base if y._is_view() and y._base is not None and y._base.requires_grad else y
        weights = t.arange(float(y.numel())).reshape(y.shape) + 1
        (y * y * weights).sum().backward()
        found[t] = x.grad.tolist()
    assert found[flambeau] == found[torch]


def test_the_value_that_fills_gets_the_gradient():
    """fill_ with a 0-d tensor sends it the sum of the gradients, and nothing to what was overwritten."""
    for t in (torch, flambeau):
        x, value = t.ones(2, 3, requires_grad=True), t.tensor(2.0, requires_grad=True)
        y = x * 3
        y.select(0, 1).fill_(value)
        (y * t.arange(6.0).reshape(2, 3)).sum().backward()
        assert value.grad.item() == 12
        assert x.grad.tolist() == [[0, 3, 6], [0, 0, 0]]
