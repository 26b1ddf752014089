"""What programs see of making tensors: old constructors, the door, options, limits of dtypes, and the words of refusals."""

from __future__ import annotations

import inspect
import math
import operator

import numpy as np
import pytest
from making_oracle import INF, agree, questions

import flambeau

torch = pytest.importorskip("torch")


# -- old constructors ----------------------------------------------------------------------------------------------


@questions(
    lambda t: t.FloatTensor(2, 3).shape,
    lambda t: t.FloatTensor([1, 2]),
    lambda t: t.LongTensor([1.5]),
    lambda t: t.FloatTensor(),
    lambda t: t.FloatTensor((1, 2)),
    lambda t: t.FloatTensor(t.Size([1, 2])).shape,
    lambda t: t.FloatTensor(np.ones(2)),
    lambda t: t.FloatTensor(t.ones(2)),
    lambda t: t.FloatTensor(t.ones(2).double()),
    lambda t: t.FloatTensor(2.5),
    lambda t: t.Tensor("a"),
    lambda t: t.Tensor(2, "a"),
    lambda t: t.Tensor(None),
    lambda t: t.Tensor([1, 2]),
    lambda t: t.Tensor(2, 3).shape,
    lambda t: t.Tensor(t.ones(2, dtype=t.float64)),
    lambda t: t.Tensor([[1], [2, 3]]),
    lambda t: t.Tensor(device="meta"),
    lambda t: t.Tensor(-1),
    lambda t: t.Tensor(True),
    lambda t: t.Tensor(t.tensor(3)).shape,
    lambda t: t.ones(2).new(3).shape,
    lambda t: t.ones(2, dtype=t.int64).new([1.5]),
    lambda t: t.ones(2).new(),
    lambda t: isinstance(t.ones(2), t.FloatTensor),
    lambda t: isinstance(t.ones(2), t.LongTensor),
    lambda t: t.FloatTensor.dtype,
    lambda t: t.ones(2).type(),
    lambda t: t.ones(2, dtype=t.bfloat16).type(),
    lambda t: t.ones(2, device="meta").type(),
    lambda t: t.ones(2).type("torch.DoubleTensor"),
    lambda t: t.ones(2).type(t.int64),
    lambda t: t.ones(2).type(t.LongTensor),
    lambda t: t.ones(2).type("foo"),
    lambda t: t.ones(2).type(int),
    lambda t: t.typename(t.ones(1)),
    lambda t: t.typename(3),
)
def test_old_constructors(question):
    """torch.Tensor(...), torch.FloatTensor(...), tensor.new(...) and tensor.type(...) still mean what they meant."""
    agree(question)


# -- the door ------------------------------------------------------------------------------------------------------


def test_import_is_lazy():
    """Importing the package imports no room that is not needed: nn, optim, linalg and their like wait until they are asked for."""
    import subprocess
    import sys

    code = (
        "import sys, warnings; warnings.simplefilter('ignore'); import flambeau as t\n"
        "rooms = ('linalg', 'fft', 'special', 'nn', 'optim', 'signal', 'torch', 'ctypes.util', 'asyncio')\n"
        "loaded = [r for r in rooms if r in sys.modules or 'flambeau.' + r in sys.modules]\n"
        "assert not loaded, loaded\n"
        "assert 'fftfreq' in dir(t.fft) and 'show' in dir(t.__config__)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_are_not_python_builtins_by_accident():
    """torch.float, torch.int and torch.bool are dtypes, torch.range a function, and Python's own are untouched elsewhere."""
    assert (flambeau.float, flambeau.int, flambeau.bool, flambeau.long) == (flambeau.float32, flambeau.int32, flambeau.bool, flambeau.int64)
    assert flambeau.half is flambeau.float16 and flambeau.cdouble is flambeau.complex128
    assert flambeau.inf == INF and flambeau.newaxis is None and flambeau.pi == math.pi
    with pytest.raises(AttributeError):
        flambeau.no_such_name  # noqa: B018


def test_config_says_what_runs():
    """__config__.show() names the kernels, the CPU variant, the threads and the BLAS."""
    text = flambeau.__config__.show()
    assert all(word in text for word in ("Kernels", "CPU capability", "BLAS", "Threads"))


FACTORIES = (
    "zeros ones empty full eye arange linspace rand randn randint randperm zeros_like empty_like full_like rand_like hann_window".split()
)


@pytest.mark.parametrize("name", FACTORIES)
def test_a_factory_shows_its_options(name):
    """help() does not say which options a factory has."""
    shown = inspect.signature(getattr(flambeau, name)).parameters
    assert {"dtype", "layout", "device", "requires_grad", "pin_memory"} <= shown.keys()
    assert not any(p.kind is p.VAR_KEYWORD for p in shown.values())


@pytest.mark.parametrize("name", FACTORIES)
def test_an_unknown_option_is_told_by_the_name_the_user_called(name):
    """The error for an unknown keyword names a function the user has never heard of."""
    with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'colour'"):
        getattr(flambeau, name)(3, colour=1)


@questions(
    *[lambda t, p=p: t.tensor([1.5, 0.0]).to(p) for p in (float, int, bool, complex)],
    lambda t: t.ones(2).to("cpu", float),
    lambda t: t.ones(2).to(dtype=int),
    lambda t: t.ones(2).view(dtype=bool).shape,
    lambda t: t.ones(2).sum(dtype=int),
    lambda t: t.ones(2).cumsum(0, dtype=float),
    lambda t: t.ones(2).softmax(0, dtype=float),
    lambda t: t.linalg.vector_norm(t.ones(2), dtype=float),
    lambda t: t.nn.Linear(2, 2).to(float).weight.dtype,
    lambda t: (t.promote_types(int, t.float32), t.can_cast(float, t.int8), t.finfo(float).bits, t.iinfo(int).max),
)
def test_python_types_are_dtypes(question):
    """Wherever a dtype is asked for, float, int, bool and complex stand for float64, int64, bool and complex128."""
    agree(question)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_limits_of_floats(dtype):
    """finfo prints, and gives, PyTorch's numbers to the last bit."""
    ours, theirs = flambeau.finfo(getattr(flambeau, dtype)), torch.finfo(getattr(torch, dtype))
    assert repr(ours) == repr(theirs)
    for name in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution", "dtype"):
        assert getattr(ours, name) == getattr(theirs, name), name


def _with(t, dtype, index, value):
    x = t.ones(2, dtype=getattr(t, dtype))
    x[index] = value(t) if callable(value) else value
    return x


@questions(
    lambda t: t.tensor([1j, 0, 1]).bool(),
    lambda t: t.ones(2, dtype=t.bool).copy_(t.tensor([1j, 0])),
    lambda t: t.tensor([3, 1], dtype=t.uint8).clamp(min=-1),
    lambda t: t.tensor([3, 1], dtype=t.uint8).clamp(-1, 2),
    lambda t: t.tensor([3, 1], dtype=t.uint8).clamp(-256, 2),
    *[lambda t, i=i: _with(t, "float16", i, -1e9) for i in (0, slice(None), [0], True)],
    lambda t: _with(t, "bfloat16", t.tensor([True, False]), 1e39),
    lambda t: _with(t, "float32", 0, 1e39),
    lambda t: t.ones(2, dtype=t.float16).fill_(1e6),
    lambda t: t.ones(2).index_fill(0, t.tensor([0]), None),
)
def test_numbers_at_the_edge_of_a_dtype(question):
    """What a number becomes where its dtype changes, or that it does not fit."""
    agree(question)


def test_out_has_the_dtypes_that_pytorch_allows():
    """Sums are made in the dtype of out=, products and triangles want their own, ranges fill whatever has room for them."""

    def told(lib):
        x = lib.tensor([[1.5, 2.5], [3.5, 4.5]])
        found = []
        for dtype in (lib.float32, lib.float64, lib.int64):
            for make in (
                lambda out: lib.sum(x, 0, out=out), lambda out: lib.cumsum(x, 0, out=out), lambda out: lib.prod(x, 0, out=out),
                lambda out: lib.matmul(x, x, out=out), lambda out: lib.tril(x, out=out), lambda out: lib.where(x > 2, x, x, out=out),
                lambda out: lib.linalg.inv(x, out=out), lambda out: lib.bernoulli(x / x, out=out),
            ):  # fmt: skip
                out = lib.empty(0, dtype=dtype)
                try:
                    make(out)
                    found.append((out.tolist(), str(out.dtype)))
                except (RuntimeError, NotImplementedError) as error:
                    found.append(type(error))
        return found, lib.arange(4, out=lib.zeros(2, 2)).tolist(), lib.linspace(0, 1, 4, out=lib.zeros(2, 2)).tolist()

    assert _rounded(told(flambeau)) == _rounded(told(torch))


def _rounded(value):
    if isinstance(value, (list, tuple)):
        return [_rounded(v) for v in value]
    return round(value, 4) if isinstance(value, float) else value


# -- what programs match on, and what only looks the same ------------------------------------------------------------------


@questions(
    lambda t: t.asarray(memoryview(np.arange(3.0)), dtype=t.float64),
    lambda t: t.asarray(memoryview(np.ones(3, np.complex64)), dtype=t.complex64),
    lambda t: t.asarray(t.utils.dlpack.to_dlpack(t.arange(3.0))),
    lambda t: t.asarray(t.utils.dlpack.to_dlpack(t.arange(3.0)), copy=False),
    *[lambda t, o=o: t.asarray(t.ones(2, requires_grad=True) * 2, **o) for o in ({}, {"requires_grad": False}, {"requires_grad": True}, {"copy": True})],
    lambda t: (lambda x: (x.min() >= -5).item() and x.dtype)(t.zeros(50, dtype=t.int16).random_(-5, None)),
    lambda t: t.zeros(50, dtype=t.uint8).random_(3, None).min().item() >= 3,
    lambda t: t.zeros(3).new(size=(3, 4)).shape,
    lambda t: t.gradient(t.ones(2, 2), spacing=(2.0,)),
    lambda t: t.gradient(t.ones(2, 2), spacing=t.ones(2)),
    lambda t: t.Size(t.ones(3)),
    lambda t: t.Size([1, t.tensor(2)]),
    lambda t: operator.add(t.Size([1]), [2]),
    lambda t: operator.add(t.Size([1]), (2,)),
    lambda t: operator.add((0,), t.Size([1])),
    lambda t: t.Size([1.5]),
    lambda t: t.ones(2).apply_(lambda v: "one"),
    lambda t: t.index_select(t.ones(0, 3), 0, t.tensor([0])),
    lambda t: t.index_select(t.ones(0, 3), 1, t.tensor([5])),
    lambda t: t.index_select(t.ones(0, 3), 1, t.tensor([2, 0])),
    lambda t: t.empty(2, 1, 3, 4).dim_order(ambiguity_check=True),
    lambda t: t.empty(2, 2, 1, 2).dim_order(ambiguity_check=[t.contiguous_format, t.channels_last]),
    lambda t: t.empty(2, 1, 1, 2).dim_order(ambiguity_check=[t.contiguous_format, t.channels_last]),
    lambda t: t.empty(2, 3).dim_order(ambiguity_check="no"),
    lambda t: [getattr(t, n).abbr for n in "float32 bfloat16 float64 complex64 int8 uint16 bool float8_e4m3fn qint8".split()],
    lambda t: t.qint8.is_signed,
    *[
        lambda t, n=n, i=i, o=o: getattr(t, n)(t.ones(2).to(getattr(t, i)), out=t.empty(0, dtype=getattr(t, o)))
        for n in "neg floor abs sgn signbit sqrt logical_not isposinf".split()
        for i, o in (("float32", "float64"), ("float32", "float32"), ("int64", "int32"), ("float32", "bool"))
    ],
    lambda t: t.eye(3).to_sparse().dim_order(),
    lambda t: np.greater_equal(t.tensor([1, 2, 3]), 2),
    lambda t: [t.tensor(((7, np.array(5)), (np.array(9), last))) for last in (5, 5.0, np.array(5.0))],
    lambda t: [str(d.to_complex()) + str(t.complex32.to_real()) for d in (t.float16, t.bfloat16, t.float64, t.complex64)],
    lambda t: t.int64.to_complex(),
    lambda t: t.hash_tensor(t.zeros(0, 3), dim=1),
    lambda t: t.ones(3, 3).topk(1, True),
    lambda t: t.ones(3, 3).unsqueeze(True),
    lambda t: t.ones(3).__delitem__(0),
    lambda t: t.ones(3).flip(),
    lambda t: t.ones(3).flip(()),
    lambda t: t.tensor(10)[0],
    lambda t: t.unravel_index(t.tensor(0.5), (2, 2)),
    lambda t: t.set_num_interop_threads(2**65),
)  # fmt: skip
def test_small_things(question):
    """Each was accepted where PyTorch refuses it, or the other way round."""
    agree(question)


@pytest.mark.parametrize("words, question", [
    ("diff expects the shape of tensor to prepend or append to match", lambda t: t.ones(2, 3).diff(dim=0, prepend=t.ones(1, 2))),
    ("Storage size calculation overflowed", lambda t: t.empty([8, 8, 2**29, 2**29], dtype=t.float64)),
    ("Storage size calculation overflowed", lambda t: t.empty_strided([8, 8], [2**61, 1], dtype=t.float64)),
    ("Stride calculation overflowed", lambda t: t.empty([0, 4, 2**61], dtype=t.float32)),
    ("from is out of bounds for", lambda t: t.randint(-32769, 0, size=(2,), dtype=t.int16)),
    ("to - 1 is out of bounds", lambda t: t.zeros(3, dtype=t.int8).random_(0, 1000)),
    ("normal expects std >= 0.0, but found std", lambda t: t.normal(0, -1, (10,))),
    ("normal expects all elements of std >= 0.0", lambda t: t.normal(t.zeros(2), t.tensor(-1.0))),
    ("uniform_ expects to return", lambda t: t.zeros(3).uniform_(1, 0)),
    ("uniform_ expects to-from", lambda t: t.zeros(3).uniform_(-3e38, 3e38)),
    ("as_strided: Negative strides are not supported at the moment, got strides:", lambda t: t.ones(3).as_strided((1,), (-1,))),
    ("self-referential lists are incompatible", lambda t: (lambda z: t.tensor([*z, z]) if z.append(z) else t.tensor(z))([0])),
    ("not implemented for sparse types", lambda t: t.hann_window(3, layout=t.sparse_coo)),
    ("got Int and Int", lambda t: t.complex(t.ones(2).int(), t.ones(2).int())),
    ("Expected reduction dim -1 or 0 for scalar but got 100", lambda t: t.cummax(t.tensor(1.0), 100)),
    ("scalar type Long", lambda t: t.nonzero(t.ones(2), out=t.ones(2))),
    ("Expected object of scalar type ComplexFloat but got scalar type Float for argument 'out'", lambda t: t.complex(t.ones(2), t.ones(2), out=t.ones(2))),
    ("Expected object of scalar type ComplexFloat but got scalar type Float for argument 'out'", lambda t: t.polar(t.ones(2), t.ones(2), out=t.ones(2))),
    ("memory format option is only supported by strided tensors", lambda t: t.empty_like(t.eye(2).to_sparse(), memory_format=t.preserve_format)),
    ("memory format option is only supported by strided tensors", lambda t: t.zeros_like(t.eye(2).to_sparse(), memory_format=t.channels_last)),
    ("expected sequence of length 3 at dim 2", lambda t: t.tensor([np.zeros((3, 3)), np.zeros((3, 0))])),
    (r"Use Tensor\.to_dense\(\)", lambda t: t.eye(2).to_sparse().numpy()),
    *([] if torch.cuda.is_available() else [("dummy base class CUDAGraph", lambda t: t.cuda.graphs.CUDAGraph())]),
    ("Legacy tensor constructor of the form|Legacy tensor new of the form", lambda t: t.ones(1).new(t.ones(1), device="cpu")),
    ("movedim: Invalid source or destination dims", lambda t: t.ones(2, 2).movedim((1, 0), (0,))),
    ("all tensors to have the same device", lambda t: t.meshgrid(t.ones(1), t.ones(1, device="meta"), indexing="ij")),
    ("into dtype 'float64'|into dtype 'Double'", lambda t: t.asarray(t.ones(2), dtype=t.float64, copy=False)),
    ("inferred dtype", lambda t: t.linspace(0, 1j, 3, dtype=t.float32)),
    ("could not determine the shape", lambda t: t.tensor(type("Odd", (), {"__len__": lambda s: 3, "__getitem__": lambda s, i: {}[i]})())),
    ("complex Scalar", lambda t: t.ones(2).index_fill_(0, t.tensor([0]), 1j)),
    ("expected 'shape' to be int or sequence", lambda t: t.unravel_index(t.tensor([1]), t.tensor([1, 2]))),
    ("expected 'shape' sequence to only contain ints", lambda t: t.unravel_index(t.tensor([1]), (2, 2.0))),
    ("dtype of indices should be Long", lambda t: t.take_along_dim(t.ones(2), t.tensor([0]).int(), 0)),
    ("can't be cast to the desired output type Byte", lambda t: t.cat([t.ones(2), t.ones(2)], out=t.empty(0, dtype=t.uint8))),
    ("shape mismatch: value tensor of shape", lambda t: t.arange(4).__setitem__(t.arange(4) > 0, t.tensor([]))),
    ("shape mismatch: value tensor of shape", lambda t: t.arange(4).__setitem__(t.tensor([0, 1]), t.arange(3))),
    ("source and destination dtypes match", lambda t: t.arange(4).__setitem__(t.tensor([0, 1]), t.tensor([1.5]))),
    ("expected scalar_type Double but found Float", lambda t: t.logcumsumexp(t.ones(2).double(), 0, out=t.ones(2))),
    ("cond tensor must have dtype torch.bool", lambda t: t._check_tensor_all(t.ones(1))),
    ("Overflow when unpacking long long", lambda t: t.manual_seed(2**64)),
    ("is not an acceptable base type", lambda t: type("Own", (t.FloatTensor,), {})),
])  # fmt: skip
def test_words_that_programs_match(words, question):
    """The phrase of an error that programs look for is in ours too, and its type is PyTorch's."""
    kinds = []
    for t in (torch, flambeau):
        with pytest.raises((RuntimeError, TypeError, ValueError, IndexError), match=words) as raised:
            question(t)
        kinds.append(raised.type)
    assert issubclass(kinds[1], kinds[0])


@pytest.mark.parametrize("words, question", [
    ("does not match the computed number of elements 3", lambda t: t.arange(3, out=t.zeros(5))),
    ("will be required to pass the indexing arg", lambda t: t.meshgrid(t.arange(2))),
])  # fmt: skip
def test_warnings_that_programs_match(words, question):
    """The phrase of a warning that programs look for is in ours too."""
    for t in (torch, flambeau):
        t.set_warn_always(True)
        try:
            with pytest.warns(UserWarning, match=words):
                question(t)
        finally:
            t.set_warn_always(False)
