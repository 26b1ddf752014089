"""Pointwise arithmetic, comparison, rounding and transcendental operations: numbers, dtypes, gradients and errors are PyTorch's."""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pytest
from reduction_oracle import INF, LAYOUTS, NAN, REALS, array_of, assert_same, check, check_raises, functions, numbers, ours, torch

import flambeau

EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 1e-3, 20.0, -20.0, 100.0, INF, -INF, NAN, 0.999, 5.5, -7.25]
HALVES = (torch.float16, torch.bfloat16)
DTYPES = (*REALS, torch.bool, torch.uint8, torch.int32, torch.int64, torch.complex64, torch.complex128)

FOR_ALL = (
    "acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 log log10 log1p log2 reciprocal rsqrt sigmoid sin sinc sinh sqrt tan tanh "
    "square sgn angle conj conj_physical real isfinite isinf isnan isreal logical_not"
).split()
FOR_REALS = (
    "erf erfc erfinv lgamma digamma deg2rad rad2deg logit sign signbit nan_to_num isposinf isneginf i0 special.ndtr special.entr "
    "special.i0e special.i1 special.i1e"
).split()
FOR_NUMBERS = "abs neg positive ceil floor trunc round relu frac".split()
BINARY = (
    "add sub mul div true_divide rsub floor_divide remainder fmod pow float_power maximum minimum fmax fmin atan2 hypot copysign eq ne lt "
    "le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm "
    "heaviside logaddexp logaddexp2 nextafter xlogy special.xlog1py clamp_min clamp_max ldexp"
).split()
# Between dtypes PyTorch's derivatives are computed in the narrower one, or refused, here; ours are not.
OWN_WAY = {"ldexp", "atan2", "pow", "logaddexp", "logaddexp2"}
NO_DERIVATIVE = {"floor_divide", "heaviside"}
TOLERANT = {"digamma": {"rtol": 2e-3}}  # PyTorch's derivative of it is good to 1e-9 only, and is rounded twice in half precision


def attempt(function, *args, **kwargs):
    """(result, None) or (None, the exception)."""
    try:
        return function(*args, **kwargs), None
    except Exception as problem:
        return None, problem


def check_or_raise(name: str, *args, rtol=None, **kwargs) -> None:
    """Both give the same, or both raise; RuntimeError covers NotImplementedError, which is one."""
    theirs, mine = functions(name)
    expected, wanted = attempt(theirs, *args, **kwargs)
    if wanted is None and name in NO_DERIVATIVE:
        assert_same(mine(*[ours(a) for a in args], **kwargs), expected, name)
        return
    if wanted is None:
        check(name, *args, rtol=rtol, **kwargs)
        return
    _, got = attempt(mine, *[ours(a) for a in args], **kwargs)
    assert isinstance(got, type(wanted)) or isinstance(wanted, type(got)), f"{name}: PyTorch raises {wanted!r}, we {got!r}"


# -- one operand -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FOR_ALL + FOR_REALS + FOR_NUMBERS)
def test_dtypes_of_one_operand(name):
    """For every dtype PyTorch's result, dtype and gradient, or PyTorch's refusal."""
    for dtype in DTYPES:
        differentiable_there = not (name == "nan_to_num" and dtype.is_complex) and not (name.startswith("special.i1") and dtype in HALVES)
        if differentiable_there:
            check_or_raise(name, numbers(3, 4, dtype=dtype), **TOLERANT.get(name, {}))


@pytest.mark.parametrize("name", FOR_ALL + FOR_REALS + FOR_NUMBERS)
def test_layouts_of_one_operand(name):
    """0-d, empty, transposed, strided and expanded tensors are all the same to a formula."""
    x = numbers(3, 4).abs() / 8 + 0.1
    for layout in LAYOUTS.values():
        check(name, layout(x), **TOLERANT.get(name, {}))
    check(name, torch.tensor(0.25, dtype=torch.float64))
    check(name, numbers(0, 3))


@pytest.mark.parametrize("name", FOR_ALL + FOR_REALS + FOR_NUMBERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_edges_of_one_operand(name, dtype):
    """NaN, infinities, signed zeros and kinks give PyTorch's values and PyTorch's derivatives."""
    values = [v for v in EDGES if not (name == "logit" and v == 0)]  # the sign of an infinite slope at -0.0
    if dtype is torch.float32 and name in ("sinc", "special.i1e"):  # differences of nearly equal numbers
        values = [v for v in values if abs(v) != 1e-3 and abs(v) != 100]
    check(name, torch.tensor(values, dtype=dtype), rtol=2e-5 if dtype is torch.float32 else 1e-7)


TWICE = (
    "exp log log1p expm1 sin cos tan asin acos atan sinh cosh tanh asinh atanh sigmoid sqrt rsqrt reciprocal square erf erfc erfinv lgamma "
    "digamma logit sinc i0 special.i0e special.i1 special.i1e special.entr special.ndtr special.ndtri special.log_ndtr special.erfcx"
).split()


@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives_of_one_operand(name):
    """A derivative is made of operations: it can be differentiated again."""
    check(name, numbers(3, 4).abs() / 12 + 0.2, second=True, rtol=1e-6)


# -- two operands ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BINARY)
def test_dtypes_of_two_operands(name):
    """Mixed dtypes are promoted, or refused, as PyTorch does; gradients come back in the dtype of their operand."""
    kinds = (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64)
    for a in kinds:
        for b in kinds:
            if name in OWN_WAY and a is not b:
                continue
            x, y = numbers(3, 4, dtype=a), numbers(3, 4, dtype=b, seed=1)
            if name in ("floor_divide", "remainder", "fmod"):
                y = torch.where(y == 0, torch.ones_like(y), y)
            check_or_raise(name, x, y)


@pytest.mark.parametrize("name", BINARY)
def test_numbers_as_operands(name):
    """Python numbers take part where PyTorch lets them, and change the dtype only by their category."""
    for x in (numbers(3, 4), numbers(4, dtype=torch.int64), numbers(4, dtype=torch.bool)):
        for number in (2, 2.5, True):
            if number is True and name in ("pow", "float_power", "clamp_min", "clamp_max"):
                continue
            check_or_raise(name, x, number)
            if name not in ("remainder", "floor_divide"):
                check_or_raise(name, number, x)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_edges_of_two_operands(name, dtype):
    """All pairs of NaN, infinities, zeros, ties and ordinary numbers: values and both gradients."""
    a, b = torch.meshgrid(torch.tensor(EDGES, dtype=dtype), torch.tensor(EDGES, dtype=dtype), indexing="ij")
    check_or_raise(name, a.flatten(), b.flatten())


@pytest.mark.parametrize("name", ["add", "mul", "div", "pow", "maximum", "atan2", "where", "lerp", "addcmul", "addcdiv", "hypot"])
def test_broadcasting(name):
    """Shapes broadcast, and the gradient is summed back over what was repeated."""
    a, b, c = numbers(2, 1, 3).abs() + 0.5, numbers(4, 1, seed=1).abs() + 0.5, numbers(3, seed=2).abs() + 0.5
    if name == "where":
        check(name, a > 1, b, c)
    elif name in ("lerp", "addcmul", "addcdiv"):
        check(name, a, b, c, second=True)
    else:
        check(name, a, b, second=True)
        check(name, LAYOUTS["transposed"](numbers(3, 4).abs() + 1), LAYOUTS["every other"](numbers(3, 4, seed=1).abs() + 1))
        check(name, torch.tensor(2.0), numbers(0, 3).float())


OPERATORS = "add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift lt le gt ge eq ne".split()


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name):
    """x + y, x + 2, 2 + x and x += y do what PyTorch's do."""
    act = getattr(operator, name)
    bits = name in ("and_", "or_", "xor", "lshift", "rshift")
    x = numbers(5, dtype=torch.int64).abs() + 1 if bits else numbers(5).abs() + 0.5
    y = numbers(5, dtype=torch.int64, seed=1).abs() + 1 if bits else numbers(5, seed=1).abs() + 0.5
    for a, b in ((x, y), (x, 2), (2, y)):
        assert_same(act(ours(a), ours(b)), act(a, b), name)
    write = getattr(operator, "i" + name.rstrip("_"), None)
    if write is not None:
        mine, theirs = ours(x.clone()), x.clone()
        before = mine
        mine, theirs = write(mine, ours(y)), write(theirs, y)
        assert mine is before
        assert_same(mine, theirs, f"in-place {name}")


def test_operators_leave_strangers_to_the_other_side():
    """What is no operand gives NotImplemented, so that Python asks the other class, and then a TypeError."""

    class Stranger:
        def __radd__(self, other):
            return "mine"

    assert flambeau.tensor([1.0]) + Stranger() == "mine"
    with pytest.raises(TypeError):
        flambeau.tensor([1.0]) + "a"
    assert (flambeau.tensor([1.0]) == "a") is False


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 1.5, 2.0, 3.0, -3, 1j])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128, torch.int64, torch.bool, torch.bfloat16])
def test_powers_with_a_number(exponent, dtype):
    """The quick forms of x ** 2, x ** 0.5, ... agree with pow: value, dtype, gradient, and second derivative."""
    check_or_raise("pow", numbers(6, dtype=dtype), exponent)
    check_or_raise("pow", 2.5, numbers(6, dtype=dtype))
    if dtype is torch.float64 and exponent != 1j:
        check("pow", numbers(6).abs() + 0.1, exponent, second=True)
        # Not -inf: (-inf) ** 0.5 is inf to C and NumPy, and the root of -inf, NaN, to PyTorch.
        check("pow", torch.tensor([0.0, -0.0, 1.0, INF, NAN], dtype=dtype), exponent)


# -- complex numbers ---------------------------------------------------------------------------------------------------


COMPLEX = (
    "abs angle sgn exp log sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid reciprocal square sinc".split()
)
COMPLEX += "log2 log10 log1p expm1 exp2 conj real imag view_as_real neg".split()


def check_complex(name, *args) -> None:
    """As check, with a complex gradient coming in."""
    theirs, mine = functions(name)
    leaves = [a.clone().requires_grad_() for a in args]
    mirror = [ours(a.clone()).requires_grad_() for a in args]
    expected, found = theirs(*leaves), mine(*mirror)
    assert_same(found, expected, name)
    weight = numbers(*expected.shape, dtype=expected.dtype, seed=5)
    wanted = torch.autograd.grad(expected, leaves, weight)
    assert_same(list(flambeau.autograd.grad(found, mirror, ours(weight))), list(wanted), f"gradient of {name}", 1e-9)


@pytest.mark.parametrize("name", COMPLEX)
def test_gradients_of_complex_numbers(name):
    """The gradient is that of PyTorch: multiplied with the conjugate of the derivative."""
    check_complex(name, numbers(3, 4, dtype=torch.complex128))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "logaddexp", "float_power"])
def test_gradients_of_mixed_real_and_complex(name):
    """A real operand beside a complex one gets the real part of its gradient."""
    real, complex_ = numbers(4).abs() + 0.5, numbers(4, dtype=torch.complex128, seed=1)
    check_complex(name, complex_, complex_ + 1)
    if name != "logaddexp":
        check_complex(name, real, complex_)
        check_complex(name, complex_, real)


def test_parts_of_complex_numbers_are_views():
    """A write to the real part is a write to the number, and its history follows."""
    for write in (lambda z: z.real.mul_(3), lambda z: z.imag.copy_(z.real.detach()), lambda z: torch_or_ours(z).view_as_real(z).mul_(2)):
        theirs = numbers(4, dtype=torch.complex128).requires_grad_()
        mine = ours(theirs.detach().clone()).requires_grad_()
        z, w = theirs * 1, mine * 1
        write(z)
        write(w)
        assert_same(w, z, "written through a part")
        (z * z).abs().sum().backward()
        (w * w).abs().sum().backward()
        assert_same(mine.grad, theirs.grad, "gradient through a written part")
    z = flambeau.tensor([1 + 2j, 3j])
    z.real = flambeau.tensor([5.0, 6.0])
    assert z.tolist() == [5 + 2j, 6 + 3j]


def torch_or_ours(t):
    return torch if isinstance(t, torch.Tensor) else flambeau


def test_view_as_complex():
    """Pairs of real numbers are complex numbers over the same memory; what are no pairs is refused."""
    pairs = ours(numbers(3, 2))
    z = flambeau.view_as_complex(pairs)
    z.mul_(1j)
    assert_same(pairs, torch.view_as_real(torch.view_as_complex(numbers(3, 2)) * 1j), "pairs")
    check("view_as_complex", numbers(3, 2))
    check_raises("view_as_complex", numbers(3, 3))
    check_raises("view_as_complex", numbers(3, 2).t().contiguous().t())
    check_raises("view_as_real", numbers(3))
    check_raises("imag", numbers(3))
    check("polar", numbers(3).abs(), numbers(3, seed=1))
    check("complex", numbers(3), numbers(2, 1, seed=1))
    check_raises("complex", numbers(3), numbers(3).float())


# -- bounds, choices, rounding -----------------------------------------------------------------------------------------


def test_clamp():
    """Numbers and tensors as bounds, one or both; the gradient passes at the bounds, and goes to the bound that was chosen."""
    x = torch.tensor([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0, NAN, INF], dtype=torch.float64)
    for low, high in ((-1, 1), (-1, None), (None, 1), (1, -1), (-0.5, 0.5)):
        check("clamp", x, low, high)
        check("clamp", x, min=low, max=high)
    low, high = torch.full((8,), -1.0, dtype=torch.float64), torch.full((8,), 1.0, dtype=torch.float64)
    check("clamp", x, low, high)
    check("clamp", x, high, low)
    check("clamp", x, low)
    check("clamp", x, None, high)
    check("clip", numbers(5, dtype=torch.int64), 0, 2)
    check("clamp", numbers(5, dtype=torch.int64), 0.5, 2)
    check("clamp", numbers(5, dtype=torch.uint8), 3, 7)
    check_raises("clamp", x)
    check_raises("clamp", numbers(5, dtype=torch.uint8), -1, 300)
    check_raises("clamp", numbers(3, dtype=torch.complex64), 0, 1)


def test_where():
    """A choice between tensors and numbers; the one not chosen leaves no NaN in the gradient."""
    condition = torch.tensor([True, False, True])
    check("where", condition, numbers(3), numbers(3, seed=1))
    check("where", condition, numbers(3).float(), 2)
    check("where", condition, 1, numbers(3, dtype=torch.int32))
    check("where", condition, 1, 2.5)
    check("where", condition, numbers(2, 3), numbers(3).float())
    check_raises("where", numbers(3), 1, 2)
    x = flambeau.tensor([-1.0, 4.0], requires_grad=True)
    flambeau.where(x > 0, x.sqrt(), 0 * x).sum().backward()
    assert x.grad[1] == 0.25
    check("x.where", numbers(3), condition, numbers(3, seed=1))
    found = flambeau.where(ours(condition))
    assert [i.tolist() for i in found] == [[0, 2]]


@pytest.mark.parametrize("decimals", [0, 1, 3, -1, -2])
def test_round_with_decimals(decimals):
    """Halves go to the even digit."""
    x = torch.tensor([0.5, 1.5, -0.5, 2.345, 12.5, 149.9, -1234.5678, NAN, INF], dtype=torch.float64)
    check("round", x, decimals=decimals)
    check("round", x.float(), decimals=decimals)


def test_digits_of_numbers():
    """Mantissa, exponent and neighbours in the dtype itself, half precision included."""
    x = torch.tensor([0.0, 1.0, -1.5, 1e-3, 1e4, INF], dtype=torch.float64)
    check("frexp", x[:-1])
    for dtype in REALS:
        check("nextafter", x.to(dtype), torch.zeros(6, dtype=dtype))
    check_raises("frexp", numbers(3, dtype=torch.int64))


# -- integers ----------------------------------------------------------------------------------------------------------


def test_division_of_integers():
    """Every rounding of every sign of quotient; zero is refused, because the loops do not ask."""
    a = torch.arange(-7, 8)[:, None].expand(15, 14)
    b = torch.tensor([d for d in range(-7, 8) if d])[None].expand(15, 14)
    for name in ("floor_divide", "remainder", "fmod"):
        check(name, a, b)
        check(name, a, -3)
        check_raises(name, a, torch.zeros(1, dtype=torch.int64))
        check_raises(name, a, 0)
    for mode in ("floor", "trunc"):
        check("div", a, b, rounding_mode=mode)
        check("div", a.double(), b.double() / 3, rounding_mode=mode)
        check("div", a.bfloat16(), b.bfloat16() / 3, rounding_mode=mode)
        check_raises("div", a, 0, rounding_mode=mode)
    check_raises("div", a, b, rounding_mode="up")
    check("floor_divide", torch.tensor([-(2**63)]), torch.tensor([-1]))


def test_integers_wrap_around():
    """Sums and products beyond the dtype's range keep the low bits, as PyTorch's do."""
    small = torch.tensor([100, 127, -128, -1], dtype=torch.int8)
    check("add", small, small)
    check("mul", small, 3)
    check("add", torch.tensor([200, 255], dtype=torch.uint8), 100)
    check("abs", small)
    check("neg", torch.tensor([0, 1, 255], dtype=torch.uint8))


def test_comparison_with_numbers_that_do_not_fit():
    """A number is brought to the dtype of the tensor before: 300 is 44 to bytes, in PyTorch too."""
    x = torch.tensor([0, 44, 255], dtype=torch.uint8)
    for name in ("lt", "gt", "eq", "ne"):
        for number in (300, -1, 44):
            check(name, x, number)


def test_numbers_that_an_operation_cannot_mean():
    """A factor that is complex, or beyond an integer dtype, is refused instead of cut to what fits."""
    for x in (torch.ones(3), torch.ones(3, dtype=torch.int8), torch.ones(3, dtype=torch.uint8)):
        check("addcmul", x, x, x, value=2 + 0j)
        for number in (1 + 2j, *((300, -300, 1e50, float("nan"), 2**63) if x.dtype != torch.float32 else ())):
            check_raises("addcmul", x, x, x, value=number)
            with pytest.raises(RuntimeError, match="without overflow"):
                ours(x).addcmul_(ours(x), ours(x), value=number)
        check("add", x, x, alpha=100)
        if x.dtype != torch.float32:
            check_raises("add", x, x, alpha=300)
    mixed = torch.ones(2, 3) * 1j, torch.ones(2, 2) * 1j  # neither broadcast nor compared
    check_raises("clamp_min", *mixed)


def test_phrases_that_programs_match():
    """Complex numbers have no sign to step at; a power of doubles is not written over singles."""
    x = flambeau.ones(2)
    for other in (x * 1j, (x * 1j).to(flambeau.complex128)):
        with pytest.raises(RuntimeError, match="not yet implemented for complex tensors"):
            x.heaviside(other)
    with pytest.raises(RuntimeError, match="operation's result requires dtype"):
        x.float_power_(2)
    with pytest.raises(RuntimeError, match=r"Integers to negative integer powers are not allowed\."):
        flambeau.arange(3) ** -2
    for name in ("isposinf", "isneginf", "signbit"):
        with pytest.raises(RuntimeError, match=f"{name} does not support non-boolean outputs"):
            getattr(flambeau, name)(x, out=flambeau.ones(2))


def test_the_slope_of_sinc_near_zero():
    """Where the square of a number is zero, the slope is 0 / 0."""
    slopes = []
    for t in (torch, flambeau):
        x = t.tensor([0.0, 5e-324, -2.3e-308, 1e-200, 1e-100, 1.0], dtype=t.float64, requires_grad=True)
        t.sinc(x).sum().backward()
        slopes.append(x.grad.tolist())
    assert slopes[0] == slopes[1]


# -- forms -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "atan2", "lerp", "addcmul", "clamp", "exp", "sqrt", "sigmoid", "relu"])
def test_in_place_forms_keep_history(name):
    """x.name_() gives the values and the gradients of the out-of-place form, through views too."""
    more = {"lerp": 2, "addcmul": 2, "exp": 0, "sqrt": 0, "sigmoid": 0, "relu": 0, "clamp": 0}.get(name, 1)
    rest = [numbers(4, seed=i + 1).abs() + 0.5 for i in range(more)]
    numbers_ = (0.2, 1.2) if name == "clamp" else ()
    for narrow in (False, True):
        theirs = (numbers(6).abs() + 0.5).requires_grad_()
        mine = ours(theirs.detach().clone()).requires_grad_()
        others = [ours(r).requires_grad_() for r in rest]
        leaves = [r.clone().requires_grad_() for r in rest]
        z, w = theirs * 2, mine * 2
        getattr(z[1:5] if narrow else z.narrow(0, 0, 4), name + "_")(*leaves, *numbers_)
        getattr(w[1:5] if narrow else w.narrow(0, 0, 4), name + "_")(*others, *numbers_)
        assert_same(w, z, name + "_")
        (z * z).sum().backward()
        (w * w).sum().backward()
        assert_same(mine.grad, theirs.grad, f"gradient of {name}_")
        for o, t in zip(others, leaves, strict=True):
            assert_same(o.grad, t.grad, f"gradient of {name}_'s operand")


def test_in_place_forms_refuse_what_does_not_fit():
    """A float result has no place in an integer tensor, nor a large one in a small."""
    x = flambeau.tensor([1, 2])
    for write in (lambda: x.add_(1.5), lambda: x.div_(2), lambda: x.exp_(), lambda: x.add_(flambeau.tensor([[1, 2], [3, 4]]))):
        with pytest.raises(RuntimeError):
            write()
    leaf = flambeau.tensor([1.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        leaf.add_(1)
    with flambeau.no_grad():
        leaf.add_(1)
    assert leaf.item() == 2
    with pytest.raises(RuntimeError):
        flambeau.tensor([1.0]).expand(3).add_(1)


@pytest.mark.parametrize("name", ["add", "mul", "div", "pow", "atan2", "eq", "exp", "maximum", "logical_not", "square", "float_power"])
def test_out(name):
    """out= receives the result, is resized if it is empty, and keeps its dtype if the result can be cast to it."""
    theirs, mine = functions(name)
    args = [numbers(3, 4).abs() + 0.5] * (1 if name in ("exp", "logical_not", "square") else 2)
    for dtype in (
        torch.float64,
        torch.bool if name in ("eq", "logical_not") else torch.float64 if name == "float_power" else torch.float32,
    ):
        expected, found = torch.empty(0, dtype=dtype), flambeau.empty(0, dtype=ours(dtype))
        theirs(*args, out=expected)
        assert mine(*[ours(a) for a in args], out=found) is found
        assert_same(found, expected, f"{name} into {dtype}")
    if name not in ("eq", "logical_not"):
        with pytest.raises(RuntimeError):
            mine(*[ours(a) for a in args], out=flambeau.empty(3, 4, dtype=flambeau.int64))


def test_names_of_nodes():
    """grad_fn shows the names programs look for."""
    x, y = flambeau.tensor([1.5], requires_grad=True), flambeau.tensor([2.5], requires_grad=True)
    expressions = {
        "AddBackward0": x + y, "SubBackward0": x - 1, "RsubBackward1": 1 - x, "MulBackward0": 2 * x, "DivBackward0": x / y,
        "PowBackward0": x**2, "PowBackward1": x**y, "PowBackward2": 2**x, "NegBackward0": -x, "AbsBackward0": x.abs(),
        "ReluBackward0": x.relu(), "SigmoidBackward0": x.sigmoid(), "TanhBackward0": x.tanh(), "ExpBackward0": x.exp(),
        "MaximumBackward0": flambeau.maximum(x, y), "WhereBackward0": flambeau.where(x > 0, x, y), "ClampBackward1": x.clamp(0, 1),
        "ClampMinBackward0": x.clamp_min(0), "Atan2Backward0": flambeau.atan2(x, y), "Log1PBackward0": x.log1p(),
    }  # fmt: skip
    for name, value in expressions.items():
        assert value.grad_fn.name() == name
    assert (x < y).grad_fn is None and not (x < y).requires_grad


BOUNDED = [
    lambda t, x, y: t.clamp(x, min=0), lambda t, x, y: x.clamp(max=0.5), lambda t, x, y: x.clip(0), lambda t, x, y: x.clamp(0, 1),
    lambda t, x, y: x.clamp(min=y), lambda t, x, y: x.clamp(max=y), lambda t, x, y: x.clamp(y, y + 1), lambda t, x, y: x.clamp_min(0),
    lambda t, x, y: x.clamp_max(y), lambda t, x, y: t.clamp_min(x, y), lambda t, x, y: (x * 1).clamp_(min=0),
    lambda t, x, y: (x * 1).clip_(max=y), lambda t, x, y: (x * 1).clamp_min_(0),
]  # fmt: skip


@pytest.mark.parametrize("call", BOUNDED)
def test_names_of_bounds(call):
    """clamp is one operation for numbers and one for tensors, whichever bound is given; clamp_min and clamp_max are others."""
    names = []
    for package in (flambeau, torch):
        x, y = package.tensor([1.5, -2.0], requires_grad=True), package.tensor([2.5, -3.0], requires_grad=True)
        value = call(package, x, y)
        value.sum().backward()
        names.append((value.grad_fn.name(), value.tolist(), x.grad.tolist(), y.grad is not None and y.grad.tolist()))
    assert names[0] == names[1]


def test_derivatives_that_do_not_exist():
    """x // y can be computed while recording, and raises when differentiated."""
    x = flambeau.tensor([3.0], requires_grad=True)
    for value in (x // 2, flambeau.heaviside(x, x)):
        with pytest.raises(RuntimeError, match="not implemented"):
            value.backward()


# -- comparing tensors -------------------------------------------------------------------------------------------------


def test_comparing_tensors():
    """isclose, allclose and equal: infinities, NaN, tolerances, dtypes that do not match."""
    a = torch.tensor([1.0, 1.0 + 1e-9, NAN, INF, -INF, 100.0], dtype=torch.float64)
    b = torch.tensor([1.0, 1.0, NAN, INF, INF, 100.001], dtype=torch.float64)
    for options in ({}, {"equal_nan": True}, {"rtol": 1e-3}, {"atol": 0.1, "rtol": 0.0}, {"rtol": 0.0, "atol": 0.0}):
        check("isclose", a, b, **options)
        assert flambeau.allclose(ours(a), ours(b), **options) == torch.allclose(a, b, **options)
    check("isclose", torch.tensor([1, 2**62]), torch.tensor([1, 2**62 + 2]), rtol=0.0, atol=1.0)
    check_raises("isclose", a, b.float())
    check_raises("isclose", a, b, rtol=-1.0)
    assert flambeau.equal(ours(a[:2]), ours(a[:2])) and not flambeau.equal(ours(a), ours(a))
    assert not flambeau.equal(ours(a[:2]), ours(a[:1]))


def test_result_type():
    """Tensors with dimensions outrank 0-d ones, which outrank numbers."""
    operands = [torch.tensor([1]), torch.tensor(1.0), torch.tensor([1.0]), torch.tensor([True]), torch.tensor(1j, dtype=torch.complex128)]
    operands += [torch.tensor([1.0], dtype=torch.bfloat16), torch.tensor(2, dtype=torch.uint8), 1, 1.5, True, 1j]
    for a in operands:
        for b in operands:
            assert str(flambeau.result_type(ours(a), ours(b))) == str(torch.result_type(a, b)), (a, b)


def test_bool_is_refused_where_it_has_no_meaning():
    """-mask and mask - mask raise, and say what to write instead."""
    mask = flambeau.tensor([True, False])
    for act in (lambda: -mask, lambda: mask - mask, lambda: 1.5 - mask, lambda: flambeau.tensor([1.0]) - True):
        with pytest.raises(RuntimeError, match="logical_not"):
            act()


def test_alpha():
    """alpha scales the second operand; its kind must fit the result."""
    x, y = numbers(3), numbers(3, seed=1)
    for name in ("add", "sub", "rsub"):
        check(name, x, y, alpha=2.5)
        check(name, x, y, alpha=-1)
        check_raises(name, x.long(), y.long(), alpha=1.5)
        check_raises(name, x, y, alpha=True)
        check_raises(name, x, y, alpha=1j)
    mine = ours(x.clone())
    mine.add_(ours(y), alpha=-0.5)
    np.testing.assert_allclose(array_of(mine), array_of(x - 0.5 * y))


def test_lerp_and_addc():
    """Weights 0 and 1 are exact; dtypes must agree; integers cannot be divided into."""
    x, y = numbers(4), numbers(4, seed=1)
    for weight in (0.0, 0.3, 0.5, 0.8, 1.0, 2.0):
        check("lerp", x, y, weight, second=True)
    check("lerp", x, y, numbers(4, seed=2))
    check_complex("lerp", *(numbers(4, dtype=torch.complex128, seed=i) for i in range(3)))
    check_raises("lerp", x, y.float(), 0.5)
    check("addcmul", x, y, x, value=-0.5)
    check("addcmul", x.long(), y.long(), x.long(), value=2)
    check("addcdiv", x, y, x, value=2)
    check_raises("addcdiv", x.long(), y.long(), x.long())


def test_a_number_divided_by_a_tensor_is_pytorchs_to_the_last_bit():
    """PyTorch multiplies the reciprocal by the number, and shows the node of that product."""
    for dtype in (np.float32, np.float64):
        x = np.random.default_rng(0).random(1000).astype(dtype) + 0.1
        ours, theirs = flambeau.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        a, b = 3 / ours, 3 / theirs
        assert (a.detach().numpy() == b.detach().numpy()).all()
        assert a.grad_fn.name() == b.grad_fn.name()
        a.sum().backward()
        b.sum().backward()
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-6)
    assert repr(3 / flambeau.tensor([2, 4])) == repr(3 / torch.tensor([2, 4]))
    assert repr(flambeau.iinfo(flambeau.int32)) == repr(torch.iinfo(torch.int32))


@pytest.mark.parametrize("name", ["add", "mul", "div", "gt", "maximum", "atan2"])
def test_mixed_dtypes_meet_alike_every_time(name):
    """How operands of several dtypes are converted is remembered: the second call gives what the first gave, and what PyTorch gives."""
    kinds = ("bool", "uint8", "int64", "float16", "float32", "float64")
    makers = [lambda lib, d=d, v=v: lib.tensor(v).to(getattr(lib, d)) for d in kinds for v in ([0, 1, 3], 2)]
    makers += [lambda lib, v=v: v for v in (True, 3, 2.5)]
    for a, b in itertools.product(makers, repeat=2):
        try:
            expected = getattr(torch, name)(a(torch), b(torch))
        except (RuntimeError, TypeError, NotImplementedError):
            continue
        for _ in range(2):
            found = getattr(flambeau, name)(a(flambeau), b(flambeau))
            assert str(found.dtype) == str(expected.dtype)
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=2e-3 if expected.dtype == torch.float16 else 1e-5)


def test_clamp_at_bounds_that_are_not_numbers():
    """NaN as an element or as a bound, bounds the wrong way round, zeros of both signs."""
    edges = [0.0, -0.0, 1.0, -1.0, 0.5, INF, -INF, NAN]
    for low, high in itertools.product(edges, repeat=2):
        expected = torch.clamp(torch.tensor(edges), low, high)
        np.testing.assert_array_equal(flambeau.clamp(flambeau.tensor(edges), low, high).numpy(), expected.numpy())


@pytest.mark.parametrize("dtype, apart", [(torch.complex64, 0), (torch.complex128, 0.01)])
def test_lengths_of_complex_numbers_are_pytorchs_to_the_last_bit(dtype, apart):
    """abs of complex numbers differs from PyTorch's; of double precision, in more than one of a hundred."""
    x = torch.randn(2, 10000, dtype=dtype, generator=torch.Generator().manual_seed(0))
    assert (ours(x).abs().numpy() != x.abs().numpy()).mean() <= apart
    a, b = (torch.tensor([complex(-root, root)], dtype=dtype) for root in (2**0.5, 0.5**0.5))
    check("isclose", a, b, atol=0.5, rtol=0.5)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_logaddexp_of_complex_numbers_at_infinity(dtype):
    """Two numbers that end at one infinity are added as they are; NaN in any part is NaN in both."""
    values = [complex(INF, 1), complex(-INF, 1), complex(-INF, INF), complex(1, INF), complex(NAN, 1), complex(-INF, NAN), 1 + 2j, 0j]
    x = torch.tensor(values, dtype=dtype)
    check("logaddexp", x[:, None], x)


def test_areas_of_no_samples():
    """There is nothing between no samples, and that is not an error."""
    for shape in ((0,), (0, 2), (2, 0), (1,)):
        for dim in (0, -1):
            check("cumulative_trapezoid", torch.ones(shape), dim=dim)
            check("trapezoid", torch.ones(shape), torch.ones(shape), dim=dim)
            check("cumulative_trapezoid", torch.ones(shape), torch.ones(shape), dim=dim)
