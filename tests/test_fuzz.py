"""Whatever one does to shapes, strides, dtypes and memory: PyTorch's result, or PyTorch's exception, and never a crash.

hypothesis draws the programs. FLAMBEAU_FUZZ=5000 draws that many for each test, at random; otherwise they are few and always the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import assert_same, assert_same_outcome, assert_same_problem, carried, dtype_of, outcome, torch

import flambeau
from flambeau.kernels.native import native

MANY = int(os.environ.get("FLAMBEAU_FUZZ", "0"))
fuzz = settings(
    max_examples=MANY or 120, derandomize=not MANY, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False
)
FLOATS = ["float32", "float64", "bfloat16", "float16"]
DTYPES = [*FLOATS, "int64", "int32", "uint8", "int8", "int16", "bool"]
SIZES = st.sampled_from([0, 1, 1, 2, 3, 4, 5])
SHAPES = st.lists(SIZES, max_size=4).map(tuple)

pytestmark = pytest.mark.filterwarnings("ignore")


# -- drawing tensors -------------------------------------------------------------------------------------------------------


def filled(shape, dtype: str) -> torch.Tensor:
    """Small numbers of both signs, the same for every draw of the same shape."""
    _, theirs = dtype_of(dtype)
    count = 1
    for n in shape:
        count *= n
    numbers = (torch.arange(count, dtype=torch.int64) * 7) % 23 - (0 if dtype in ("uint8", "bool") else 9)
    values = numbers % 2 == 0 if dtype == "bool" else numbers.to(theirs) / (4 if theirs.is_floating_point else 1)
    return values.to(theirs).reshape(shape)


class Views:
    """View operations with arguments drawn for a tensor at hand: mostly valid, sometimes not."""

    def __init__(self, draw):
        self.draw = draw

    def int(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, max(low, high)))

    def dim(self, x) -> int:
        return self.int(-x.dim() - 1, x.dim()) if self.int(0, 9) == 0 else self.int(-x.dim(), x.dim() - 1) if x.dim() else 0

    def transpose(self, x):
        return "transpose", (self.dim(x), self.dim(x))

    def permute(self, x):
        return "permute", (tuple(self.draw(st.permutations(range(x.dim())))),)

    def slice(self, x):
        return "__getitem__", (tuple(self.one_slice(n) for n in x.shape[: self.int(0, x.dim())]),)

    def one_slice(self, n: int):
        if self.int(0, 5) == 0:
            return self.int(-n, n - 1) if n else slice(None)
        bounds = st.none() | st.integers(-n - 2, n + 2)
        return slice(self.draw(bounds), self.draw(bounds), self.draw(st.sampled_from([None, 1, 2, 3])))

    def unsqueeze(self, x):
        return "unsqueeze", (self.int(-x.dim() - 1, x.dim()),)

    def squeeze(self, x):
        return "squeeze", self.draw(st.sampled_from([(), (self.dim(x),)]))

    def expand(self, x):
        sizes = [self.draw(st.sampled_from([-1, n, 3 if n == 1 else n])) for n in x.shape]
        return "expand", (tuple([2] * self.int(0, 1) + sizes),)

    def narrow(self, x):
        d = self.dim(x)
        n = x.shape[d] if x.dim() and -x.dim() <= d < x.dim() else 3
        start = self.int(0, n)
        return "narrow", (d, start, self.int(0, n - start + (self.int(0, 9) == 0)))

    def view(self, x):
        return "view", (self.draw(st.sampled_from([(-1,), tuple(x.shape), (x.numel(),), (1, -1), (-1, 2), (0, -1)])),)

    def reshape(self, x):
        return "reshape", self.view(x)[1]

    def flatten(self, x):
        return "flatten", (self.dim(x), self.dim(x))

    def unfold(self, x):
        return "unfold", (self.dim(x), self.int(0, 3), self.int(1, 3))

    def diagonal(self, x):
        return "diagonal", (self.int(-2, 2), self.dim(x), self.dim(x))

    def select(self, x):
        return "select", (self.dim(x), self.int(-3, 3))

    def movedim(self, x):
        return "movedim", (self.dim(x), self.dim(x))

    def as_strided(self, x):
        ndim = self.int(0, 3)
        return "as_strided", (
            tuple(self.int(0, 3) for _ in range(ndim)),
            tuple(self.int(-1 if self.int(0, 9) == 0 else 0, 4) for _ in range(ndim)),
            self.int(0, 5),
        )

    NAMES = (
        "transpose", "permute", "slice", "slice", "unsqueeze", "squeeze", "expand", "narrow", "view", "reshape", "flatten", "unfold",
        "diagonal", "select", "movedim", "as_strided",
    )  # fmt: skip

    def any(self, x):
        """(method, arguments) of one view operation."""
        return getattr(self, self.draw(st.sampled_from(self.NAMES)))(x)


@st.composite
def tensors(draw, dtypes=tuple(DTYPES), most_views=3):
    """A pair (ours, theirs) with the same values, shape, strides and offset, reached through a few views."""
    theirs = filled(draw(SHAPES), draw(st.sampled_from(dtypes)))
    views = Views(draw)
    for _ in range(draw(st.integers(0, most_views))):
        name, arguments = views.any(theirs)
        found, problem = outcome(lambda name=name, arguments=arguments, x=theirs: getattr(x, name)(*arguments))
        if problem is None and found.numel() < 2000:
            theirs = found
    return carried(theirs), theirs


# -- views -----------------------------------------------------------------------------------------------------------------


@fuzz
@given(st.data())
def test_chains_of_views_have_pytorchs_geometry(data):
    """After some view operations the shape, the strides, the offset or the values differ, or another exception is raised."""
    theirs = filled(data.draw(SHAPES), "float32")
    ours = carried(theirs)
    base_ours, base_theirs = ours, theirs
    views = Views(data.draw)
    for _ in range(data.draw(st.integers(1, 4))):
        name, arguments = views.any(theirs)
        found, expected = assert_same_outcome(lambda: getattr(ours, name)(*arguments), lambda: getattr(theirs, name)(*arguments))  # noqa: B023
        if expected is None:
            continue
        if expected.numel():
            assert found.storage_offset() == expected.storage_offset()
        assert found.is_contiguous() == expected.is_contiguous()
        ours, theirs = found, expected
    # Writing through the view must reach the same places of the first tensor.
    assert_same_outcome(lambda: ours.fill_(100.0), lambda: theirs.fill_(100.0))
    assert_same(base_ours, base_theirs)


# -- arithmetic ------------------------------------------------------------------------------------------------------------

BINARY = [
    "add", "sub", "mul", "div", "true_divide", "floor_divide", "remainder", "fmod", "maximum", "minimum", "fmax", "eq", "ne", "lt", "ge",
    "logical_and", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_left_shift", "atan2", "hypot", "copysign", "xlogy", "gcd",
]  # fmt: skip


@fuzz
@given(tensors(), tensors(), st.sampled_from(BINARY))
def test_binary_operations(a, b, name):
    """An operation of two tensors of any dtypes and layouts gives another value, dtype or order of memory, or another exception."""
    assert_same_outcome(lambda: getattr(flambeau, name)(a[0], b[0]), lambda: getattr(torch, name)(a[1], b[1]))


NUMBERS = st.sampled_from([0, 1, -1, 2, 3, 300, -300, 2**40, True, 0.5, -2.0, 0.0, 1e10, float("inf"), float("nan")])


@fuzz
@given(tensors(), NUMBERS, st.sampled_from(["add", "sub", "mul", "div", "floor_divide", "remainder", "pow", "lt", "eq", "maximum"]))
def test_operations_with_a_number(a, number, name):
    """A Python number beside a tensor gives another value or dtype, or another exception."""
    strides = name != "maximum"
    assert_same_outcome(lambda: getattr(flambeau, name)(a[0], number), lambda: getattr(torch, name)(a[1], number), strides)


@fuzz
@given(tensors(), tensors(), st.sampled_from(["add_", "sub_", "mul_", "div_", "copy_", "remainder_", "eq_", "logical_or_"]))
def test_in_place_operations(a, b, name):
    """An in-place operation gives another result or another exception."""
    assert_same_outcome(lambda: getattr(a[0].clone(), name)(b[0]), lambda: getattr(a[1].clone(), name)(b[1]))


UNARY = [
    "neg",
    "abs",
    "exp",
    "sqrt",
    "sigmoid",
    "floor",
    "round",
    "sign",
    "logical_not",
    "bitwise_not",
    "isnan",
    "square",
    "reciprocal",
    "tanh",
    "clone",
]


@fuzz
@given(tensors(), st.sampled_from(UNARY))
def test_unary_operations(a, name):
    """An operation of one tensor gives another value, dtype or order of memory, or another exception."""
    assert_same_outcome(lambda: getattr(flambeau, name)(a[0]), lambda: getattr(torch, name)(a[1]))


@fuzz
@given(tensors(), st.sampled_from(DTYPES))
def test_conversions(a, name):
    """x.to(dtype) gives another value or order of memory."""
    ours, theirs = dtype_of(name)
    assert_same_outcome(lambda: a[0].to(ours), lambda: a[1].to(theirs))


# -- reductions ------------------------------------------------------------------------------------------------------------

REDUCTIONS = [
    "sum",
    "mean",
    "prod",
    "amax",
    "amin",
    "any",
    "all",
    "var",
    "std",
    "logsumexp",
    "nansum",
    "count_nonzero",
    "argmax",
    "max",
    "min",
    "median",
]
ROWS = ["softmax", "log_softmax", "cumsum", "cumprod", "sort", "flip", "cummax", "argsort"]


@fuzz
@given(tensors(), st.sampled_from(REDUCTIONS), st.data())
def test_reductions(a, name, data):
    """A reduction over drawn dimensions gives another value or shape, or another exception."""
    ndim = a[1].dim()
    one = st.integers(-ndim - 1, ndim) if ndim else st.integers(-2, 1)
    several = st.lists(st.integers(-ndim, max(ndim - 1, 0)), max_size=3, unique_by=lambda d: d % max(ndim, 1)).map(tuple)
    single = name in ("argmax", "max", "min", "median", "prod")
    dim = data.draw(one if single else one | several)
    arguments = data.draw(st.sampled_from([(), (dim,)]))
    if name in ("logsumexp", "amax", "amin") and not arguments:
        arguments = (dim,)
    if name == "logsumexp" and dim == ():
        return  # PyTorch fails over it for shape (1,)
    keep = data.draw(st.sampled_from([{}, {"keepdim": True}])) if arguments and name != "count_nonzero" else {}

    def run(x):
        result = getattr(x, name)(*arguments, **keep)
        return result[0] if name == "median" and arguments else result  # of equal elements either may be named

    assert_same_outcome(lambda: run(a[0]), lambda: run(a[1]), strides=False, empty=not a[1].numel())


@fuzz
@given(tensors(dtypes=("float32", "float64", "int64", "bool")), st.sampled_from(ROWS), st.data())
def test_operations_along_a_dimension(a, name, data):
    """An operation along a dimension gives another value or order of memory, or another exception."""
    dim = data.draw(st.integers(-a[1].dim() - 1, a[1].dim()))

    def run(x):
        if name in ("sort", "argsort"):
            return getattr(x, name)(dim=dim, stable=True)
        return getattr(x, name)((dim,) if name == "flip" else dim)

    assert_same_outcome(lambda: run(a[0]), lambda: run(a[1]), strides=False, empty=not a[1].numel())


# -- joining ---------------------------------------------------------------------------------------------------------------


@fuzz
@given(st.lists(tensors(most_views=2), min_size=0, max_size=3), st.integers(-5, 4), st.sampled_from(["cat", "stack"]), st.booleans())
def test_joining(parts, dim, name, alike):
    """cat or stack of tensors of drawn shapes and dtypes gives another result, or another exception."""
    if alike and parts:
        parts = [(parts[0][0].to(ours.dtype), parts[0][1].to(theirs.dtype)) for ours, theirs in parts]
    ours, theirs = [p[0] for p in parts], [p[1] for p in parts]
    assert_same_outcome(
        lambda: getattr(flambeau, name)(ours, dim), lambda: getattr(torch, name)(theirs, dim), empty=not any(t.numel() for t in theirs)
    )


# -- indexing --------------------------------------------------------------------------------------------------------------


@st.composite
def indices(draw, shape):
    """An index in every form, as (ours, theirs): ints, slices, None, Ellipsis, masks, integer tensors and lists."""
    parts, at = [], 0
    while at < len(shape) + 1 and draw(st.integers(0, 6)):
        n = shape[at] if at < len(shape) else 1
        kind = draw(st.sampled_from(["int", "slice", "slice", "None", "Ellipsis", "mask", "integers", "list", "bool"]))
        if kind == "None":
            parts.append((None, None))
            continue
        if kind == "Ellipsis":
            parts.append((Ellipsis, Ellipsis))
            at += draw(st.integers(0, len(shape)))
            continue
        if kind == "int":
            part = draw(st.integers(-n - 1, n))
            parts.append((part, part))
        elif kind == "slice":
            bounds = st.none() | st.integers(-n - 1, n + 1)
            part = slice(draw(bounds), draw(bounds), draw(st.sampled_from([None, 1, 2])))
            parts.append((part, part))
        elif kind == "list":
            part = draw(st.lists(st.integers(-n, max(n - 1, 0)), min_size=1, max_size=3))
            parts.append((part, part))
        elif kind == "bool":
            part = draw(st.booleans())
            parts.append((part, part))
            continue
        elif kind == "mask":
            theirs = torch.tensor(draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=torch.bool)
            parts.append((carried(theirs), theirs))
        else:
            numbers = draw(st.lists(st.integers(-n - (draw(st.integers(0, 9)) == 0), n - 1 if n else 0), max_size=3))
            theirs = torch.tensor(
                numbers,
                dtype=draw(st.sampled_from([torch.int64, torch.int32, torch.uint8])) if min(numbers, default=0) >= 0 else torch.int64,
            )
            theirs = theirs.unsqueeze(0) if draw(st.booleans()) else theirs
            parts.append((carried(theirs), theirs))
        at += 1
    if len(parts) == 1 and draw(st.booleans()):
        return parts[0]
    return tuple(p[0] for p in parts), tuple(p[1] for p in parts)


@fuzz
@given(st.data())
def test_indexing(data):
    """x[index] gives another value, view or exception."""
    ours, theirs = data.draw(tensors(dtypes=("float32", "int64")))
    mine, other = data.draw(indices(tuple(theirs.shape)))
    found, expected = assert_same_outcome(lambda: ours[mine], lambda: theirs[other])
    if expected is not None and expected.numel():
        shares = expected.untyped_storage().data_ptr() == theirs.untyped_storage().data_ptr()
        assert (found.untyped_storage().data_ptr() == ours.untyped_storage().data_ptr()) == shares, "a view in one, a copy in the other"


@fuzz
@given(st.data())
def test_writing_through_an_index(data):
    """x[index] = value changes other elements, or raises another exception."""
    ours, theirs = data.draw(tensors(dtypes=("float32", "int64", "bool"), most_views=2))
    ours, theirs = ours.clone(), theirs.clone()
    mine, other = data.draw(indices(tuple(theirs.shape)))
    selected, problem = outcome(lambda: theirs[other])
    if problem is None and selected.numel() and data.draw(st.booleans()):
        value = filled(tuple(selected.shape), data.draw(st.sampled_from(["float32", "int64"])))
        if value.numel() == 1:
            value = value.to(theirs.dtype)  # PyTorch takes a single value as a number in some of the forms
        if not written_once(theirs, other):
            value.fill_(3)  # which of several values for one place wins is nobody's promise
        pair = carried(value), value
    else:
        number = data.draw(st.sampled_from([7, -1.5, True]))
        pair = number, number
    _, refused = outcome(lambda: theirs.__setitem__(other, pair[1]))
    _, raised = outcome(lambda: ours.__setitem__(mine, pair[0]))
    assert_same_problem(raised, refused)
    assert_same(ours, theirs)


def written_once(x, index) -> bool:
    """Whether an index names no element twice."""
    places = torch.arange(x.numel()).reshape(x.shape)[index]
    return places.unique().numel() == places.numel()


@fuzz
@given(
    st.data(), st.sampled_from(["gather", "scatter", "scatter_add", "index_select", "index_add", "take", "masked_select", "masked_fill"])
)
def test_gathering_and_scattering(data, name):
    """An operation that reads or writes at given places gives another result or exception, for places in and out of range too."""
    ours, theirs = data.draw(tensors(dtypes=("float32", "int64"), most_views=2))
    dim = data.draw(st.integers(-theirs.dim(), max(theirs.dim() - 1, 0)))
    n = theirs.shape[dim] if theirs.dim() else 1
    if name.startswith("masked"):
        places = filled(tuple(theirs.shape) if data.draw(st.booleans()) else data.draw(SHAPES), "bool")
        arguments = (2.0,) if name == "masked_fill" else ()
        assert_same_outcome(
            lambda: getattr(ours, name)(carried(places), *arguments), lambda: getattr(theirs, name)(places, *arguments), strides=False
        )
        return
    shape = data.draw(st.lists(SIZES, max_size=2).map(tuple) if name == "take" else st.lists(SIZES, min_size=1, max_size=1).map(tuple))
    if name in ("gather", "scatter", "scatter_add"):
        shape = tuple(data.draw(st.integers(0, k)) for k in theirs.shape)
    high = (theirs.numel() if name == "take" else n) - 1 + (data.draw(st.integers(0, 9)) == 0)
    count = 1
    for k in shape:
        count *= k
    places = torch.tensor(data.draw(st.lists(st.integers(0, max(high, 0)), min_size=count, max_size=count)), dtype=torch.int64).reshape(
        shape
    )
    source = filled(shape, str(theirs.dtype).removeprefix("torch."))
    if name == "scatter":
        source.fill_(5)
    if name == "index_add":
        source = filled(
            tuple(shape[0] if d == dim % max(theirs.dim(), 1) else k for d, k in enumerate(theirs.shape)),
            str(theirs.dtype).removeprefix("torch."),
        )

    def run(x, index, values):
        if name == "take":
            return x.take(index)
        if name in ("gather", "index_select"):
            return getattr(x, name)(dim, index)
        return getattr(x, name)(dim, index, values)

    assert_same_outcome(
        lambda: run(ours, carried(places), carried(source)),
        lambda: run(theirs, places, source),
        strides=False,
        empty=not source.numel() or not theirs.numel(),
    )


# -- overlapping memory ----------------------------------------------------------------------------------------------------


def addresses(x) -> list[int]:
    """Where each element of a tensor lies in its storage."""
    base = torch.arange(x.untyped_storage().nbytes() // x.element_size())
    return base.as_strided(x.shape, x.stride(), x.storage_offset()).flatten().tolist()


@fuzz
@given(st.data(), st.sampled_from(["copy_", "add_", "mul_", "exp out", "add out"]))
def test_overlapping_memory(data, name):
    """Reading and writing the same memory through two views gives another result or exception (where PyTorch's result is defined)."""
    memory = filled((12,), "float32")
    views = Views(data.draw)
    geometry = [views.as_strided(memory)[1] for _ in range(2)]
    ours_memory = carried(memory)
    pairs = []
    for arguments in geometry:
        found, expected = assert_same_outcome(lambda: ours_memory.as_strided(*arguments), lambda: memory.as_strided(*arguments))  # noqa: B023
        if expected is None:
            return
        pairs.append((found, expected))

    def run(module, out, source):
        if name.endswith("_"):
            return getattr(out, name)(source)
        if name == "exp out":
            return module.exp(source, out=out)
        return module.add(source, 1, out=out)

    _, refused = outcome(lambda: run(torch, pairs[0][1], pairs[1][1]))
    if "not resizable" in str(refused):
        return  # NumPy has seen that memory in the comparison above
    _, problem = outcome(lambda: run(flambeau, pairs[0][0], pairs[1][0]))
    assert_same_problem(problem, refused)
    written, read = (addresses(p[1]) for p in pairs)
    if refused is None and len(set(written)) == len(written) and not set(written) & set(read):
        assert_same(ours_memory, memory)


# -- sizes beyond all memory -----------------------------------------------------------------------------------------------

HUGE = {
    "empty": "torch.empty((2**40,))",
    "a product beyond 64 bits": "torch.empty((2**31, 2**31, 2**31))",
    "a size beyond 64 bits": "torch.empty((2**70,))",
    "zeros": "torch.zeros(2**45)",
    "full": "torch.full((2**45,), 1.5)",
    "rand": "torch.rand(2**45)",
    "randn": "torch.randn(2**31, 2**31)",
    "randperm": "torch.randperm(2**45)",
    "arange": "torch.arange(2**50)",
    "arange beyond 64 bits": "torch.arange(0, 1e30, 1e-3)",
    "linspace": "torch.linspace(0, 1, 2**50)",
    "eye": "torch.eye(2**30)",
    "empty_strided": "torch.empty_strided((2,), (2**60,))",
    "as_strided": "one.as_strided((2**40,), (1,))",
    "as_strided, far": "one.as_strided((2,), (2**62,))",
    "as_strided, offset": "one.as_strided((1,), (1,), 2**62)",
    "as_strided, stride 0": "one.as_strided((2**40, 2**40), (0, 0))",
    "expand": "one.expand(2**40, 2**40)",
    "unfold": "one.expand(2**40).unfold(0, 2**39, 1)",
    "clone": "big.clone()",
    "contiguous": "big.contiguous()",
    "cast": "big.to(torch.float64)",
    "add": "big + big",
    "add a number": "big + 1",
    "compare": "big > 0",
    "broadcast": "one.expand(2**30, 1) + one.expand(1, 2**30)",
    "cat": "torch.cat([big, big])",
    "stack": "torch.stack([big, big])",
    "repeat": "one.repeat(2**50)",
    "repeat_interleave": "one.repeat_interleave(2**50)",
    "outer": "torch.outer(one.expand(2**30), one.expand(2**30))",
    "matmul": "one.expand(2**30, 1) @ one.expand(1, 2**30)",
    "bmm": "torch.bmm(one.expand(2**30, 2**10, 1), one.expand(2**30, 1, 2**10))",
    "cumsum": "big.cumsum(0)",
    "sort": "big.sort()",
    "softmax": "big.softmax(0)",
    "flip": "big.flip(0)",
    "bincount": "torch.bincount(torch.tensor([2**50]))",
    "histc": "torch.histc(one, bins=2**50)",
    "resize_": "torch.ones(3).resize_(2**50)",
    "storage": "torch.ones(3).untyped_storage().resize_(2**60)",
    "empty_like": "torch.empty_like(big)",
    "diag": "torch.diag(one.expand(2**30))",
    "kron": "torch.kron(one.expand(2**25), one.expand(2**25))",
    "fft": "torch.fft.fft(one, n=2**50)",
    "gradient": "one.clone().requires_grad_().expand(2**50).clone()",
}
TRY_ALL = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))  # should one of them succeed after all, it must not take the machine with it
import flambeau as torch
one = torch.ones(1)
big = one.expand(2**50)
for name, text in json.load(sys.stdin).items():
    print(name, flush=True, end=": ")
    try:
        eval(text)
        print("nothing raised", flush=True)
    except (MemoryError, RuntimeError):
        print("fine", flush=True)
    except Exception as problem:
        print(repr(problem), flush=True)
assert (one + 1).item() == 2
print("end: fine")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is Linux's")
def test_what_no_memory_can_hold_is_refused():
    """A size that cannot be allocated crashes, hangs, or raises something else than MemoryError or RuntimeError."""
    done = subprocess.run([sys.executable, "-c", TRY_ALL], input=json.dumps(HUGE), capture_output=True, text=True, timeout=60)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"stopped at {lines[-1:]}: {done.stderr[-1000:]}"
    assert [line for line in lines if not line.endswith(": fine")] == []
    assert len(lines) == len(HUGE) + 1


SORT_IN_LITTLE_MEMORY = """
import resource
import flambeau as torch
from flambeau.kernels.native import native
x = torch.randn(2_000_000)
assert x[:100_000].sort().values[0] == x[:100_000].min()  # the threads and what they need are there now
native.lib.pool_trim()
room = 45_000_000  # for the values and the places, not for 32 MB to sort in
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + room
resource.setrlimit(resource.RLIMIT_AS, (size, size))
try:
    x.sort()
except MemoryError as problem:
    print("refused:", problem)
"""


@pytest.mark.skipif(sys.platform != "linux" or native.lib is None, reason="the limit of memory is Linux's, the loop compiled")
def test_a_sort_that_finds_no_memory_to_work_in_is_refused():
    """A compiled sort whose working memory cannot be allocated ends the process, or gives a wrong order."""
    done = subprocess.run([sys.executable, "-c", SORT_IN_LITTLE_MEMORY], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-1000:]
    assert done.stdout.startswith("refused: sort: a line of 2000000 elements"), done.stdout
