"""A printed tensor is PyTorch's, to the character.

Every torch tensor is dressed as a small object with the attributes that `flambeau.tensor.printing` reads; its text must be the
text torch gives. So these tests need no Tensor class, and would hold for any.
"""

from __future__ import annotations

import contextlib
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flambeau.tensor import printing

torch = pytest.importorskip("torch")
torch_printing = pytest.importorskip("torch._tensor_str")

NAN, INF = math.nan, math.inf

# numpy() refuses these; their bits travel as integers.
BITS = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e4m3fnuz: (torch.uint8, ml_dtypes.float8_e4m3fnuz),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
    torch.float8_e5m2fnuz: (torch.uint8, ml_dtypes.float8_e5m2fnuz),
    torch.float8_e8m0fnu: (torch.uint8, ml_dtypes.float8_e8m0fnu),
}
FLOATS = [torch.float64, torch.float32, torch.float16, *BITS]
FLOATS.remove(torch.float8_e8m0fnu)  # has a test of its own: torch misreads two of its 256 values
EXACT = [
    torch.bool, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64,
]  # fmt: skip
COMPLEX = [torch.complex64, torch.complex128]


class Tensor:
    """The facts of a torch tensor, and nothing else of it."""

    def __init__(self, source):
        self.source = source
        self.shape, self.dtype, self.device = source.shape, source.dtype, source.device
        self.requires_grad = source.requires_grad

    @property
    def grad_fn(self):
        return self.source.grad_fn

    @property
    def _array(self):
        plain = self.source.detach()
        if plain.dtype in BITS:
            carrier, scalar = BITS[plain.dtype]
            return plain.view(carrier).numpy().view(scalar)
        return plain.numpy()

    def __repr__(self):
        return printing.tensor_repr(self, default_dtype=torch.get_default_dtype())

    def __format__(self, spec):
        return printing.tensor_format(self, spec)


class Parameter(Tensor):
    pass


@contextlib.contextmanager
def options(**kwargs):
    """The same print options in both houses."""
    with torch_printing.printoptions(**kwargs), printing.printoptions(**kwargs):
        yield


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def assert_prints_alike(source):
    dress = Parameter if isinstance(source, torch.nn.Parameter) else Tensor
    assert repr(dress(source)) == repr(source)


# ------------------------------------------------------------------------------------------------ what is printed

NUMBERS = {
    "whole": [1, 2, 3],
    "negative": [-1, 20, -300],
    "fraction": [0.5, 1.25, -3],
    "zeros": [0.0, -0.0, 0.0],
    "nan": [NAN, NAN],
    "infinite": [INF, -INF],
    "whole and nan": [1, NAN, -INF],
    "fraction and inf": [0.25, INF, -INF, NAN, -0.0],
    "small": [1e-5, 1],
    "at 1e-4": [1e-4, 1e-3],
    "below 1e-4": [9.9e-5, 9.8e-5],
    "at 1e8": [1e8, 1e8],
    "above 1e8": [1.5e8, 1e8],
    "ratio of 1000": [1, 1000],
    "ratio above 1000": [1, 1001],
    "scientific with zero": [1e-6, 0, -0.0, NAN, -INF, 1],
    "scientific and whole": [1e12, 1, -1e10],
    "rounds up": [0.99999, 9.99996, 99.99999],
    "three digit exponent": [1e300, 1e-10, 1e-320],
    "whole range": [1.7e308, 5e-324],
    "denormal": [1e-45, 3e-8],
    "one": [1],
    "none": [],
}


@pytest.mark.parametrize("dtype", FLOATS + EXACT + COMPLEX, ids=str)
def test_every_kind_of_number_in_every_dtype(dtype):
    """Notation, width and padding of a row, a scalar and a matrix are torch's for every dtype."""
    for name, numbers in NUMBERS.items():
        row = torch.tensor(numbers, dtype=torch.float64).to(dtype)
        for source in [row, row.reshape(1, -1, 1), *row[:1].unbind()]:
            assert repr(Tensor(source)) == repr(source), name


def test_float8_of_exponents_alone_prints_its_smallest_value_and_nan():
    """e8m0 prints as in torch, except that 2^-127 is not 0 (torch rounds 0 to it) and nan is not a fraction."""
    every_value = torch.arange(256, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    for source in [every_value[1:255], every_value[120:134], every_value[127:136], every_value[120], every_value[:0]]:
        assert_prints_alike(source)
    suffix = "dtype=torch.float8_e8m0fnu"
    assert repr(Tensor(every_value[:2])) == f"tensor([5.8775e-39, 1.1755e-38], {suffix})"
    assert repr(Tensor(every_value[[127, 255]])) == f"tensor([1., nan], {suffix})"


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_complex_parts_choose_their_notation_apart(dtype):
    """Real and imaginary parts have a notation each; only the real part is padded; signs join them."""
    parts = [0.0, -0.0, 1, -2, 0.5, 1e-6, -1e9, NAN, INF, -INF]
    for real in parts:
        for imag in parts:
            assert_prints_alike(torch.tensor([complex(real, imag), 1 + 1j], dtype=dtype))
            assert_prints_alike(torch.tensor(complex(real, imag), dtype=dtype))
    assert_prints_alike(torch.complex(torch.arange(40.0), -torch.arange(40.0) / 7).reshape(2, 20).to(dtype))
    assert_prints_alike(torch.tensor([1 + 2j, 3 - 4j], dtype=dtype).conj().resolve_conj())


@pytest.mark.parametrize("dtype", EXACT, ids=str)
def test_the_largest_and_smallest_integers(dtype):
    """Integers print all their digits, whatever their size."""
    if dtype is torch.bool:
        assert_prints_alike(torch.tensor([[True, False], [False, False]]))
        assert_prints_alike(torch.tensor([False]))
    else:
        info = torch.iinfo(dtype)
        assert_prints_alike(torch.tensor([info.min, 0, info.max], dtype=dtype))


SHAPES = [
    (), (1,), (5,), (30,), (1000,), (1001,), (1, 1), (3, 4), (4, 30), (2, 3, 4), (2, 1, 3, 2), (1, 1, 1, 1, 2),
    (7, 1, 200), (1001, 1), (1, 1001), (10, 200), (6, 7, 40), (7, 6, 5, 8), (2,) * 10,
    (1,) * 40 + (3,), (1,) * 40 + (1001,),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_brackets_blank_lines_and_dots(shape):
    """Brackets, line wraps, blank lines between matrices and the dots of a summary stand where torch puts them."""
    count = math.prod(shape)
    assert_prints_alike(torch.arange(count).reshape(shape))
    assert_prints_alike((torch.arange(float(count)) / 3 - 2).reshape(shape))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0), (1, 0, 2), (0,) * 5], ids=str)
def test_empty_tensors_say_their_size_and_dtype(shape):
    """An empty tensor shows a size other than (0,), and any dtype but the default, int64 and bool included."""
    for dtype in [torch.float32, torch.int64, torch.bool, torch.float16, torch.complex64]:
        assert_prints_alike(torch.empty(shape, dtype=dtype))
        assert_prints_alike(torch.empty(shape, dtype=dtype, device="meta"))


def test_layout_in_memory_does_not_show():
    """Transposed, strided and expanded tensors print their elements in logical order."""
    base = torch.arange(2400.0).reshape(40, 60)
    permuted = base.reshape(2, 3, 4, 100).permute(3, 1, 0, 2)
    for source in [base.T, base[::3, ::7], base[1].expand(5, 60), base.T[5:9, 1:30:4], permuted]:
        assert_prints_alike(source)


# ---------------------------------------------------------------------------------------------------- suffixes


@pytest.mark.parametrize("default", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_only_an_unexpected_dtype_is_named(default):
    """The default dtype, its complex partner, int64 and bool go without saying."""
    with default_dtype(default):
        for dtype in FLOATS + EXACT + COMPLEX:
            assert_prints_alike(torch.ones(2).to(dtype))
            assert_prints_alike(torch.ones(2, device="meta").to(dtype))


def test_autograd_facts():
    """A leaf says requires_grad=True, a result names its node, a broken history says Invalid."""

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    leaf = torch.arange(4.0, requires_grad=True)
    with torch.no_grad():
        rewritten_view = leaf.view(2, 2)
        rewritten_view.mul_(1)
    results = [leaf + 1, leaf.sum(), leaf.detach(), Twice.apply(leaf), leaf[:0], leaf.to("meta")]
    for source in [leaf, *results, rewritten_view]:
        assert_prints_alike(source)
    assert "Invalid" in repr(Tensor(rewritten_view))


@pytest.mark.parametrize("length", range(1, 40))
def test_suffixes_wrap_at_the_line_width(length):
    """A suffix moves to the next line at exactly the length where torch moves it."""
    for linewidth in [40, 80]:
        with options(linewidth=linewidth):
            leaf = torch.ones(length, dtype=torch.float64, requires_grad=True)
            assert_prints_alike(leaf)
            assert_prints_alike(leaf.reshape(1, -1) * 1.5)
            assert_prints_alike(torch.ones((1,) * length, dtype=torch.float16, device="meta"))


def test_meta_tensors_show_dots_and_never_read_data():
    """A meta tensor prints its facts; there is no array to look at."""
    for shape in [(), (3,), (2, 3), (0, 2)]:
        for dtype in [torch.float32, torch.int64, torch.complex64]:
            source = torch.empty(shape, dtype=dtype, device="meta")
            assert_prints_alike(source)
            assert_prints_alike(torch.nn.Parameter(source, requires_grad=False))


def test_a_device_other_than_the_default_is_named(monkeypatch):
    """The device shows unless the reader would guess it."""
    source = torch.tensor([1.0, 2.5])
    monkeypatch.setattr(torch._C, "_get_default_device", lambda: "cuda")
    assert printing.tensor_repr(Tensor(source), default_device="cuda:0") == repr(source)
    assert "device='cpu'" in repr(source)
    on_gpu = Tensor(source)
    for name, default, shown in [
        ("cuda:0", "cpu", True),
        ("cuda:1", "cuda:0", True),
        ("cuda:1", "cuda:1", False),
        ("cpu:0", "cpu", False),
    ]:
        on_gpu.device = torch.device(name)
        suffix = f", device='{name}'" if shown else ""
        assert printing.tensor_repr(on_gpu, default_device=default) == f"tensor([1.0000, 2.5000]{suffix})"


def test_only_the_corners_leave_a_gpu():
    """Of an array in GPU memory, no more than what is shown is copied to the host."""
    copied = []

    class OnGpu:
        __cuda_array_interface__ = None

        def __init__(self, host):
            self.host, self.shape = host, host.shape

        def __getitem__(self, index):
            return OnGpu(self.host[index])

        def get(self):
            copied.append(self.host.size)
            return self.host

    source = torch.arange(10_000.0).reshape(50, 200)
    assert "tensor(" + printing.format_array(OnGpu(source.numpy()), "float", indent=7) + ")" == repr(source)
    assert copied == [36]


def test_parameters_and_subclasses_print_their_class():
    """Parameter has its headline; a subclass prints under its own name; a Parameter of a subclass shows both."""

    class Mask(torch.Tensor):
        pass

    class Scale(torch.nn.Parameter):
        pass

    class Dressed(Tensor):
        pass

    class DressedParameter(Parameter):
        pass

    Dressed.__name__, DressedParameter.__name__ = "Mask", "Scale"
    values = torch.arange(200.0).reshape(4, 50)
    assert_prints_alike(torch.nn.Parameter(values))
    assert_prints_alike(torch.nn.Parameter(values.int(), requires_grad=False))
    assert repr(Dressed(values.as_subclass(Mask))) == repr(values.as_subclass(Mask))
    assert repr(DressedParameter(Scale(values))) == repr(Scale(values))

    flagged = torch.nn.Parameter(values.as_subclass(Mask))
    dressed = Dressed(flagged)
    dressed._is_param = True
    assert repr(dressed) == repr(flagged)

    namesake = type("Tensor", (torch.Tensor,), {})
    assert repr(type("Tensor", (Tensor,), {})(values)) == repr(values.as_subclass(namesake))


def test_contents_given_by_the_caller_replace_the_body():
    """tensor_contents stands where the elements would, and suffixes follow as ever."""
    for source in [torch.ones(3), torch.ones(0, 3), torch.ones(2, dtype=torch.half), torch.ones(2, device="meta")]:
        for contents in ["[hello]", "<" + "x" * 90 + ">", "two\nlines"]:
            theirs = source.__repr__(tensor_contents=contents)
            assert printing.tensor_repr(Tensor(source), tensor_contents=contents) == theirs


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own, on first use
def test_a_tangent_ends_the_line():
    """Suffixes of the caller's come last, as torch's forward-mode tangent does."""
    with torch.autograd.forward_ad.dual_level():
        primal, tangent = torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.5])
        theirs = repr(torch.autograd.forward_ad.make_dual(primal, tangent))
        assert printing.tensor_repr(Tensor(primal), extra_suffixes=[f"tangent={tangent}"]) == theirs


# ----------------------------------------------------------------------------------------------------- options


@pytest.fixture
def fresh_options():
    with options(profile="default"):
        yield


@pytest.mark.parametrize("profile", ["default", "short", "full"])
def test_profiles(profile):
    """Each profile prints as torch's does, alone and refined by another option."""
    for extra in [{}, {"precision": 6}, {"linewidth": 120}, {"sci_mode": True}, {"threshold": 10, "edgeitems": 1}]:
        with options(profile=profile, **extra):
            assert printing.get_printoptions() == torch_printing.get_printoptions()
            assert_prints_alike(torch.arange(1100.0).reshape(11, 100) / 7)


def test_no_edge_items_leave_only_dots():
    """edgeitems=0 shows dots and the size, of every tensor that is not empty."""
    with options(edgeitems=0, threshold=5):
        for source in [torch.arange(10), torch.ones(3, 4) / 3, torch.ones(2, 3, 4) * 1j, torch.ones(2)]:
            assert_prints_alike(source)
        assert_prints_alike(torch.tensor(3.0))
        assert_prints_alike(torch.ones(0))
    with options(edgeitems=0, threshold=0):
        assert_prints_alike(torch.tensor(0.5))


def test_options_change_as_torchs_do(fresh_options):
    """None leaves an option alone, except sci_mode, which every call sets anew."""
    for call in [
        {"precision": 2, "sci_mode": True},
        {"threshold": 5},
        {"edgeitems": 1, "sci_mode": False},
        {"profile": "short"},
        {"linewidth": 33.5},
        {"profile": "full", "threshold": 7},
        {"sci_mode": True},
        {"precision": np.int64(3), "sci_mode": True},
        {},
    ]:
        torch.set_printoptions(**call)
        printing.set_printoptions(**call)
        assert printing.get_printoptions() == torch_printing.get_printoptions()
        assert_prints_alike(torch.arange(12.0).reshape(2, 6) / 3)


def test_printoptions_ends_with_its_block(fresh_options):
    """The options before a with block return after it, an exception or not."""
    before = printing.get_printoptions()
    with pytest.raises(KeyError), printing.printoptions(precision=1, sci_mode=True):
        assert printing.get_printoptions()["precision"] == 1
        raise KeyError
    assert printing.get_printoptions() == before


def test_options_that_cannot_print_are_refused_at_once(fresh_options):
    """A precision or edgeitems that no print could use raises where it is set, and changes nothing."""
    before = printing.get_printoptions()
    for name in ["precision", "edgeitems"]:
        with pytest.raises(ValueError, match=name):
            printing.set_printoptions(**{name: -1})
        with pytest.raises(TypeError, match=name):
            printing.set_printoptions(**{name: 2.5})
    assert printing.get_printoptions() == before
    with pytest.warns(UserWarning, match="shrot"):
        printing.set_printoptions(profile="shrot")
    assert printing.get_printoptions() == before


# ------------------------------------------------------------------------------------------------ f-strings, size


@pytest.mark.parametrize("spec", ["", ".6f", ".2e", ">12", "d", "05d", "%", "s", "g", "r", ",.1f"])
def test_format_treats_a_0d_tensor_as_its_number(spec):
    """f"{t:.6f}" formats the number in a 0-d tensor; whatever torch refuses raises the same type."""
    scalars = [torch.tensor(3.14159), torch.tensor(7), torch.tensor(True), torch.tensor(1 + 2j)]
    scalars += [torch.tensor(0.1, dtype=dtype) for dtype in (torch.float16, torch.bfloat16, torch.float64)]
    others = [torch.ones(1), torch.ones(2, 2), torch.tensor(1.0, device="meta"), torch.tensor(2.5, requires_grad=True)]
    for source in [*scalars, *others]:
        assert _outcome(Tensor(source), spec) == _outcome(source, spec)
    parameter = torch.nn.Parameter(torch.tensor(1.5))
    assert _outcome(Parameter(parameter), spec) == _outcome(parameter, spec)


def _outcome(value, spec):
    try:
        return format(value, spec)
    except (TypeError, ValueError) as error:
        return type(error)


@pytest.mark.parametrize("shape", [(10_000_000,), (10**9, 10**4), (5, 10**6, 2, 10**5)], ids=str)
def test_a_huge_tensor_costs_its_edges_only(shape):
    """Printing reads nothing but the edges: these shapes would take hours, or all memory, otherwise."""
    assert_prints_alike(torch.tensor(1.5).expand(shape))


# ------------------------------------------------------------------------------------------------------ anything

plain_numbers = st.one_of(
    st.sampled_from([0.0, -0.0, NAN, INF, -INF, 1.0, -1.0]),
    st.integers(-2000, 2000).map(float),
    st.builds(lambda digits, power: digits * 10.0**power, st.floats(-10, 10, width=32), st.integers(-8, 12)),
)
print_options = st.fixed_dictionaries(
    {},
    optional={
        "profile": st.sampled_from(["default", "short", "full"]),
        "precision": st.integers(0, 9),
        "threshold": st.sampled_from([0, 3, 20, 60, 1000, INF]),
        "edgeitems": st.integers(0, 4),
        "linewidth": st.integers(8, 200),
        "sci_mode": st.sampled_from([None, True, False]),
    },
)


@st.composite
def tensors(draw):
    """A few numbers of wild magnitudes, repeated to fill any small shape, in any dtype, perhaps part of a graph."""
    dtype = draw(st.sampled_from(FLOATS + EXACT + COMPLEX))
    shape = draw(st.lists(st.integers(0, 9), max_size=4).filter(lambda sizes: math.prod(sizes) <= 120))
    numbers = np.resize(draw(st.lists(plain_numbers, min_size=1, max_size=9)), shape)
    values = torch.tensor(numbers, dtype=torch.float64)
    if dtype.is_complex:
        values = torch.complex(values, values.flip(tuple(range(values.dim()))))
    values = values.to(dtype)
    if dtype in (torch.float32, torch.float64, torch.bfloat16) and draw(st.booleans()):
        values.requires_grad_()
        return draw(st.sampled_from([values, values.view(values.shape), torch.nn.Parameter(values.detach())]))
    return values


@settings(max_examples=500, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(tensors(), print_options)
def test_any_tensor_under_any_options(source, chosen):
    """Whatever the shape, dtype, magnitudes and options, the text is torch's."""
    with options(**chosen):
        assert_prints_alike(source)


def test_a_class_that_prints_itself():
    """torch._tensor_str: a library's subclass puts its text together from the same parts, and reads the options."""
    import flambeau._tensor_str

    import flambeau

    def program(t):
        parts = t._tensor_str
        x = t.arange(12.0).reshape(3, 4) / 7
        body = parts._tensor_str(x, 6)
        found = [parts._add_suffixes("Index(" + body, ["dim_size=3", "is_sorted=True" * 5], 6, new_line) for new_line in (False, True)]
        found += [parts._str(x, tensor_contents="..."), parts._tensor_str(x.to(t.int64), 0), parts._str_intern(x[0])]
        before = parts.PRINT_OPTS.threshold
        parts.PRINT_OPTS.threshold = 4
        found += [str(x), parts.PRINT_OPTS.edgeitems, parts.PRINT_OPTS.precision, before]
        parts.PRINT_OPTS.threshold = before
        return found

    assert program(flambeau) == program(torch)
