"""Derivatives as functions: Jacobians, Hessians, derivatives of derivatives, complex derivatives, and the checks against differences."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from history_oracle import agree, complex_leaf, leaf, plain, questions, weigh

import flambeau
from flambeau.autograd.gradcheck import GradcheckError

torch = pytest.importorskip("torch")


# -- second and third derivatives ------------------------------------------------------------------------------------------

FUNCTIONS = {
    "sin": lambda T, x, y: x.sin(),
    "exp": lambda T, x, y: x.exp(),
    "log": lambda T, x, y: x.log(),
    "sqrt": lambda T, x, y: x.sqrt(),
    "rsqrt": lambda T, x, y: x.rsqrt(),
    "reciprocal": lambda T, x, y: 1 / x,
    "tanh": lambda T, x, y: x.tanh(),
    "sigmoid": lambda T, x, y: x.sigmoid(),
    "relu of sin": lambda T, x, y: (x.sin() - 0.5).relu() ** 2,
    "softplus": lambda T, x, y: T.logaddexp(x, T.zeros_like(x)),
    "erf": lambda T, x, y: x.erf(),
    "atan": lambda T, x, y: x.atan(),
    "asin": lambda T, x, y: (x / 2).asin(),
    "cosh": lambda T, x, y: x.cosh(),
    "log1p": lambda T, x, y: x.log1p(),
    "expm1": lambda T, x, y: x.expm1(),
    "lgamma": lambda T, x, y: x.lgamma(),
    "abs": lambda T, x, y: (x - 0.8).abs() ** 3,
    "square": lambda T, x, y: x.square(),
    "power of a number": lambda T, x, y: x**3.5,
    "number to the power": lambda T, x, y: 2.5**x,
    "power": lambda T, x, y: x**y,
    "product": lambda T, x, y: x * y * x,
    "quotient": lambda T, x, y: x / (y + x),
    "atan2": lambda T, x, y: T.atan2(x, y),
    "hypot": lambda T, x, y: T.hypot(x, y),
    "lerp": lambda T, x, y: T.lerp(x, y, x),
    "addcmul": lambda T, x, y: T.addcmul(x, y, x, value=2),
    "addcdiv": lambda T, x, y: T.addcdiv(x, y, x, value=2),
    "where": lambda T, x, y: T.where(x > y, x**3, y**3),
    "maximum": lambda T, x, y: T.maximum(x**3, y**3),
    "clamp": lambda T, x, y: x.clamp(0.5, 1.0) ** 3,
    "sum": lambda T, x, y: x.sum(0) ** 3,
    "mean": lambda T, x, y: x.mean(1) ** 3,
    "prod": lambda T, x, y: x.prod(1),
    "var": lambda T, x, y: x.var(1),
    "std": lambda T, x, y: x.std(1),
    "norm": lambda T, x, y: x.norm(),
    "norm of rows": lambda T, x, y: T.linalg.vector_norm(x, 3, dim=1),
    "logsumexp": lambda T, x, y: x.logsumexp(1),
    "softmax": lambda T, x, y: x.softmax(1),
    "log_softmax": lambda T, x, y: x.log_softmax(1),
    "amax": lambda T, x, y: x.amax(1) ** 3,
    "max": lambda T, x, y: x.max(1)[0] ** 3,
    "cumsum": lambda T, x, y: x.cumsum(1) ** 3,
    "cumprod": lambda T, x, y: x.cumprod(1),
    "matmul": lambda T, x, y: x @ y.t() @ x,
    "batched matmul": lambda T, x, y: (x[None] @ y.t()[None]) ** 2,
    "einsum": lambda T, x, y: T.einsum("ij,kj,ij->ik", x, y, x),
    "outer": lambda T, x, y: T.outer(x[0], y[0]) ** 2,
    "det": lambda T, x, y: T.linalg.det(x @ y.t() + 3 * T.eye(3, dtype=x.dtype)),
    "inverse": lambda T, x, y: T.linalg.inv(x @ y.t() + 3 * T.eye(3, dtype=x.dtype)),
    "solve": lambda T, x, y: T.linalg.solve(x @ x.t() + 3 * T.eye(3, dtype=x.dtype), y),
    "cholesky": lambda T, x, y: T.linalg.cholesky(x @ x.t() + 3 * T.eye(3, dtype=x.dtype)),
    "index": lambda T, x, y: x[T.tensor([0, 2, 0])] ** 3,
    "slice": lambda T, x, y: x[1:, ::2] ** 3,
    "gather": lambda T, x, y: x.gather(1, T.tensor([[0, 1], [2, 2], [3, 0]])) ** 3,
    "scatter_add": lambda T, x, y: (x * 0).scatter_add(1, T.tensor([[0, 1, 1, 2]] * 3), y) ** 3,
    "masked_fill": lambda T, x, y: x.masked_fill(y > 0.7, 0.0) ** 3,
    "cat": lambda T, x, y: T.cat([x, y, x]) ** 3,
    "stack": lambda T, x, y: T.stack([x, y]) ** 3,
    "split": lambda T, x, y: x.split(2, 1)[0] * y.split(2, 1)[1] ** 2,
    "expand": lambda T, x, y: x[:1].expand(3, 4) * y**2,
    "repeat": lambda T, x, y: x.repeat(1, 2) ** 3,
    "diagonal": lambda T, x, y: x.diagonal() ** 3,
    "tril": lambda T, x, y: x.tril() ** 3,
    "flip": lambda T, x, y: x.flip(0) * y**2,
    "roll": lambda T, x, y: x.roll(1, 0) * y**2,
    "unfold": lambda T, x, y: x.unfold(1, 2, 1) ** 3,
    "sort": lambda T, x, y: x.sort(1)[0] ** 3,
    "reshape": lambda T, x, y: x.t().reshape(2, 6) ** 3,
    "in place": lambda T, x, y: (x * 1).mul_(y).sin_().pow_(3),
    "in place through a view": lambda T, x, y: _row_written(x, y) ** 2,
}


def _row_written(x, y):
    z = x * x
    z[1].mul_(y[0])
    z[:, 2] = y[:, 1] ** 2
    return z


@pytest.mark.parametrize("function", FUNCTIONS)
def test_derivatives_of_derivatives(function):
    """First, second and third derivatives agree with PyTorch's."""

    def question(T):
        x, y = leaf(T, 3, 4), leaf(T, 3, 4, seed=1)
        found = []
        total = weigh(T, FUNCTIONS[function](T, x, y).sin())
        for order in range(3):
            grads = T.autograd.grad(total, (x, y), create_graph=order < 2, allow_unused=True)
            found.append([None if g is None else g.detach() for g in grads])
            alive = [g for g in grads if g is not None and g.requires_grad]
            if not alive:
                break
            total = weigh(T, *alive)
        return found

    agree(question, rtol=1e-5, atol=1e-7)


# -- complex numbers -------------------------------------------------------------------------------------------------------

COMPLEX = {
    "mul": lambda T, z, w: z * w,
    "div": lambda T, z, w: z / w,
    "mul by a real": lambda T, z, w: z * w.real,
    "conj": lambda T, z, w: z.conj() * z,
    "abs": lambda T, z, w: z.abs(),
    "angle": lambda T, z, w: z.angle(),
    "real and imag": lambda T, z, w: z.real * w.imag,
    "view_as_real": lambda T, z, w: T.view_as_real(z * w),
    "complex": lambda T, z, w: T.complex(z.real, w.real) * z,
    "polar": lambda T, z, w: T.polar(z.abs(), w.angle()),
    "exp": lambda T, z, w: z.exp(),
    "log": lambda T, z, w: z.log(),
    "sin": lambda T, z, w: z.sin(),
    "tanh": lambda T, z, w: z.tanh(),
    "sqrt": lambda T, z, w: z.sqrt(),
    "pow": lambda T, z, w: z**2,
    "pow of both": lambda T, z, w: z**w,
    "reciprocal": lambda T, z, w: 1 / z,
    "sum": lambda T, z, w: (z * w).sum(0),
    "mean": lambda T, z, w: z.mean(),
    "prod": lambda T, z, w: z.prod(1),
    "matmul": lambda T, z, w: z @ w.mH,
    "norm": lambda T, z, w: z.norm(),
    "sgn": lambda T, z, w: z.sgn(),
    "index": lambda T, z, w: z[0] * w[:, 1:2],
    "where": lambda T, z, w: T.where(z.abs() > 0.9, z, w),
    "cat": lambda T, z, w: T.cat([z, w]) * 1j,
    "plus a real leaf": lambda T, z, w: z + 1.5,
}


@pytest.mark.parametrize("function", COMPLEX)
def test_complex_derivatives(function):
    """Gradients of complex tensors follow PyTorch's convention, also the second time."""

    def question(T):
        z, w = complex_leaf(T, 2, 3), complex_leaf(T, 2, 3, seed=2)
        first = T.autograd.grad(weigh(T, COMPLEX[function](T, z, w)), (z, w), create_graph=True, allow_unused=True)
        alive = [g for g in first if g is not None and g.requires_grad]
        second = T.autograd.grad(weigh(T, *alive), (z, w), allow_unused=True) if alive else ()
        return [None if g is None else g.detach() for g in first], second

    agree(question, rtol=1e-5, atol=1e-7)


def real_leaf_in_complex_graph(T):
    x = leaf(T, 3)
    weigh(T, (x * 1j).exp()).backward()
    return x.grad


def complex_gradient_for_real_output(T):
    z = complex_leaf(T, 3)
    z.abs().backward(plain(T, 3))
    return z.grad


# -- autograd.functional ---------------------------------------------------------------------------------------------------


def _f(T):
    return lambda x, y: (x.sin() * y).sum(1)


def _g(T):
    return lambda x, y: (x**3 * y).sum()


def _two(T):
    return lambda x: (x.sin(), (x**2).sum(0))


def _unused(T):
    return lambda x, y: x**2


def _constant(T):
    return lambda x: T.ones(3, dtype=T.float64)


FUNCTIONAL = {
    "jacobian": lambda T, F: F.jacobian(_f(T), (plain(T, 2, 3), plain(T, 3, seed=1))),
    "jacobian of one input": lambda T, F: F.jacobian(lambda x: x.exp(), plain(T, 3)),
    "jacobian of a tuple of one": lambda T, F: F.jacobian(lambda x: x.exp(), (plain(T, 3),)),
    "jacobian of two outputs": lambda T, F: F.jacobian(_two(T), plain(T, 2, 3)),
    "jacobian of a scalar": lambda T, F: F.jacobian(lambda x: (x * x).sum(), plain(T, 3)),
    "jacobian with unused input": lambda T, F: F.jacobian(_unused(T), (plain(T, 3), plain(T, 2))),
    "jacobian, strict, with unused input": lambda T, F: F.jacobian(_unused(T), (plain(T, 3), plain(T, 2)), strict=True),
    "jacobian of a constant": lambda T, F: F.jacobian(_constant(T), plain(T, 2)),
    "jacobian of a constant, strict": lambda T, F: F.jacobian(_constant(T), plain(T, 2), strict=True),
    "jacobian, vectorized": lambda T, F: F.jacobian(_f(T), (plain(T, 2, 3), plain(T, 3, seed=1)), vectorize=True),
    "jacobian, forward mode": lambda T, F: F.jacobian(
        _f(T), (plain(T, 2, 3), plain(T, 3, seed=1)), vectorize=True, strategy="forward-mode"
    ),
    "jacobian, bad strategy": lambda T, F: F.jacobian(_f(T), (plain(T, 2, 3), plain(T, 3)), strategy="sideways"),
    "jacobian of no tensor": lambda T, F: F.jacobian(lambda x: x * 2, 3.0),
    "jacobian giving no tensor": lambda T, F: F.jacobian(lambda x: 3.0, plain(T, 2)),
    "jacobian leaves its inputs alone": lambda T, F: _untouched(T, F),
    "jacobian, create_graph": lambda T, F: _jacobian_graph(T, F),
    "hessian": lambda T, F: F.hessian(_g(T), (plain(T, 2, 3), plain(T, 3, seed=1))),
    "hessian of one input": lambda T, F: F.hessian(lambda x: (x**3).sum(), plain(T, 3)),
    "hessian of a vector function": lambda T, F: F.hessian(lambda x: x**3, plain(T, 3)),
    "hessian, vectorized": lambda T, F: F.hessian(_g(T), (plain(T, 2, 3), plain(T, 3, seed=1)), vectorize=True),
    "hessian with unused input": lambda T, F: F.hessian(lambda x, y: (x**3).sum(), (plain(T, 2), plain(T, 3))),
    "hessian of a linear function": lambda T, F: F.hessian(lambda x: (2 * x).sum(), plain(T, 2)),
    "vjp": lambda T, F: F.vjp(_f(T), (plain(T, 2, 3), plain(T, 3, seed=1)), plain(T, 2, seed=2)),
    "vjp of a scalar": lambda T, F: F.vjp(_g(T), (plain(T, 2, 3), plain(T, 3, seed=1))),
    "vjp without a vector": lambda T, F: F.vjp(_f(T), (plain(T, 2, 3), plain(T, 3, seed=1))),
    "vjp with a wrong vector": lambda T, F: F.vjp(_f(T), (plain(T, 2, 3), plain(T, 3, seed=1)), plain(T, 3)),
    "vjp of two outputs": lambda T, F: F.vjp(_two(T), plain(T, 2, 3), (plain(T, 2, 3, seed=1), plain(T, 3, seed=2))),
    "vjp with unused input": lambda T, F: F.vjp(_unused(T), (plain(T, 3), plain(T, 2)), plain(T, 3)),
    "vjp, strict, with unused input": lambda T, F: F.vjp(_unused(T), (plain(T, 3), plain(T, 2)), plain(T, 3), strict=True),
    "vjp, create_graph": lambda T, F: [
        g.requires_grad for g in F.vjp(_f(T), (leaf(T, 2, 3), leaf(T, 3)), plain(T, 2), create_graph=True)[1]
    ],
    "jvp": lambda T, F: F.jvp(_f(T), (plain(T, 2, 3), plain(T, 3, seed=1)), (plain(T, 2, 3, seed=2), plain(T, 3, seed=3))),
    "jvp of a scalar": lambda T, F: F.jvp(lambda x: x**3, plain(T)),
    "jvp without a vector": lambda T, F: F.jvp(lambda x: x**3, plain(T, 3)),
    "jvp of two outputs": lambda T, F: F.jvp(_two(T), plain(T, 2, 3), plain(T, 2, 3, seed=1)),
    "jvp of a constant": lambda T, F: F.jvp(_constant(T), plain(T, 2), plain(T, 2)),
    "jvp, strict, of a constant": lambda T, F: F.jvp(_constant(T), plain(T, 2), plain(T, 2), strict=True),
    "hvp": lambda T, F: F.hvp(_g(T), (plain(T, 2, 3), plain(T, 3, seed=1)), (plain(T, 2, 3, seed=2), plain(T, 3, seed=3))),
    "vhp": lambda T, F: F.vhp(_g(T), (plain(T, 2, 3), plain(T, 3, seed=1)), (plain(T, 2, 3, seed=2), plain(T, 3, seed=3))),
    "vhp of a vector function": lambda T, F: F.vhp(lambda x: x**3, plain(T, 3), plain(T, 3)),
    "vhp of a scalar": lambda T, F: F.vhp(lambda x: x**3, plain(T)),
    "vhp with unused input": lambda T, F: F.vhp(lambda x, y: (x**3).sum(), (plain(T, 2), plain(T, 3)), (plain(T, 2), plain(T, 3))),
    "vhp of a linear function": lambda T, F: F.vhp(lambda x: (2 * x).sum(), plain(T, 2), plain(T, 2)),
    "hvp without a vector": lambda T, F: F.hvp(_g(T), (plain(T, 2, 3), plain(T, 3))),
}


def _untouched(T, F):
    x = leaf(T, 3)
    found = F.jacobian(lambda x: x.exp(), x)
    return found, x.grad, found.requires_grad


def _jacobian_graph(T, F):
    x = leaf(T, 3)
    found = F.jacobian(lambda x: x**3, x, create_graph=True)
    weigh(T, found).backward()
    return found, x.grad


@pytest.mark.parametrize("what", FUNCTIONAL)
def test_functional(what):
    """autograd.functional gives PyTorch's Jacobians, Hessians and products."""
    agree(lambda T: FUNCTIONAL[what](T, T.autograd.functional))


# -- gradcheck -------------------------------------------------------------------------------------------------------------


def _wrong(T, answer):
    """x * x with another derivative."""

    class Wrong(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return answer(grad, ctx.saved_tensors[0])

    return Wrong.apply


CHECKS = {
    "right": lambda T, a: a.gradcheck(lambda x, y: (x * y).sin(), (leaf(T, 3), leaf(T, 2, 3))),
    "right, one input": lambda T, a: a.gradcheck(T.sin, leaf(T, 3)),
    "right, several outputs": lambda T, a: a.gradcheck(lambda x: (x.sin(), x.exp()), (leaf(T, 3),)),
    "right, integer output beside": lambda T, a: a.gradcheck(lambda x: x.sort(), (leaf(T, 3),)),
    "right, complex": lambda T, a: a.gradcheck(lambda z: z * z.conj() + z**2, (complex_leaf(T, 3),)),
    "right, complex to real": lambda T, a: a.gradcheck(lambda z: z.abs(), (complex_leaf(T, 3),)),
    "right, real to complex": lambda T, a: a.gradcheck(lambda x: T.complex(x, x**2), (leaf(T, 3),)),
    "right, with a constant": lambda T, a: a.gradcheck(lambda x, c: x * c, (leaf(T, 3), plain(T, 3))),
    "right, with a number": lambda T, a: a.gradcheck(lambda x, n: x * n, (leaf(T, 3), 2)),
    "right, strided": lambda T, a: a.gradcheck(T.sin, (plain(T, 3, 4).t().requires_grad_(),)),
    "right, fast": lambda T, a: a.gradcheck(lambda x, y: (x * y).sin(), (leaf(T, 3), leaf(T, 2, 3)), fast_mode=True),
    "right, fast, complex": lambda T, a: a.gradcheck(lambda z: z * z, (complex_leaf(T, 3),), fast_mode=True),
    "right, grad dtypes": lambda T, a: a.gradcheck(T.sin, (leaf(T, 3),), check_grad_dtypes=True),
    "right, batched": lambda T, a: a.gradcheck(T.sin, (leaf(T, 3),), check_batched_grad=True),
    "right, empty": lambda T, a: a.gradcheck(T.sin, (T.zeros(0, dtype=T.float64).requires_grad_(),)),
    "wrong": lambda T, a: a.gradcheck(_wrong(T, lambda g, x: g * x), (leaf(T, 3),)),
    "wrong, asked kindly": lambda T, a: a.gradcheck(_wrong(T, lambda g, x: g * x), (leaf(T, 3),), raise_exception=False),
    "wrong, fast": lambda T, a: a.gradcheck(_wrong(T, lambda g, x: g * x), (leaf(T, 3),), fast_mode=True),
    "wrong, complex": lambda T, a: a.gradcheck(_wrong(T, lambda g, x: g * 2 * x), (complex_leaf(T, 3),)),
    "wrong by little": lambda T, a: a.gradcheck(_wrong(T, lambda g, x: g * 2.0000001 * x), (leaf(T, 3),)),
    "none where there is one": lambda T, a: a.gradcheck(_wrong(T, lambda g, x: None), (leaf(T, 3),)),
    "not the same twice": lambda T, a: a.gradcheck(_wrong(T, lambda g, x: g * 2 * x + 0.1 * T.rand(3, dtype=T.float64)), (leaf(T, 3),)),
    "nothing requires grad": lambda T, a: a.gradcheck(T.sin, (plain(T, 3),)),
    "constant function": lambda T, a: a.gradcheck(lambda x: x.detach() * 0 + 1, (leaf(T, 3),)),
    "lost history": lambda T, a: a.gradcheck(lambda x: x.detach() * 2, (leaf(T, 3),)),
    "single precision": lambda T, a: a.gradcheck(T.sin, (plain(T, 3).float().requires_grad_(),)),
    "single precision, tolerant": lambda T, a: a.gradcheck(T.sin, (plain(T, 3).float().requires_grad_(),), eps=1e-2, atol=1e-2),
    "second, right": lambda T, a: a.gradgradcheck(lambda x, y: (x * y).sin(), (leaf(T, 3), leaf(T, 2, 3))),
    "second, complex": lambda T, a: a.gradgradcheck(lambda z: z**3, (complex_leaf(T, 2),)),
    "second, with weights": lambda T, a: a.gradgradcheck(T.sin, (leaf(T, 3),), (leaf(T, 3, seed=1),)),
    "second, strided weights": lambda T, a: a.gradgradcheck(T.sin, (leaf(T, 2, 3),), gen_non_contig_grad_outputs=True),
    "second, linear": lambda T, a: a.gradgradcheck(lambda x: x * 2, (leaf(T, 3),)),
    "second, wrong": lambda T, a: a.gradgradcheck(_wrong(T, lambda g, x: g * 2 * x.detach()), (leaf(T, 3),)),
    "second, wrong, asked kindly": lambda T, a: a.gradgradcheck(
        _wrong(T, lambda g, x: g * 2 * x.detach()), (leaf(T, 3),), raise_exception=False
    ),
    "second, fast": lambda T, a: a.gradgradcheck(lambda x, y: (x * y).sin(), (leaf(T, 3), leaf(T, 2, 3)), fast_mode=True),
}


@pytest.mark.parametrize("what", CHECKS)
def test_gradcheck(what):
    """gradcheck accepts right derivatives and refuses wrong ones, as PyTorch's does."""
    agree(lambda T: CHECKS[what](T, T.autograd))


def test_gradcheck_says_what_differs():
    """The message shows both Jacobians."""
    with pytest.raises(RuntimeError) as caught:
        flambeau.autograd.gradcheck(_wrong(flambeau, lambda g, x: g * x), (leaf(flambeau, 2),))
    text = str(caught.value)
    assert "Jacobian mismatch" in text and "numerical" in text and "analytical" in text


def test_gradcheck_warns_about_single_precision():
    """float32 is too coarse for differences of 1e-6."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        flambeau.autograd.gradcheck(lambda x: x * 2, (plain(flambeau, 2).float().requires_grad_(),), eps=1e-2, atol=1e-1)
    assert any("double precision" in str(c.message) for c in caught)


@questions(real_leaf_in_complex_graph, complex_gradient_for_real_output)
def test_complex_and_real_meet(question):
    """A real leaf gets a real gradient out of a complex graph, and the reverse."""
    agree(question)


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "hardtanh", "relu6", "hardshrink", "softshrink", "prelu", "threshold"])
def test_straight_lines_have_a_second_derivative(name):
    """The curvature of a network of straight lines is zero: it can be asked for, and is not an error."""

    def question(T):
        x, w = leaf(T, 3, 4), leaf(T, 4, 2)
        more = {"prelu": (leaf(T, 1),), "threshold": (0.1, 2.0)}.get(name, ())
        slope = T.autograd.grad((getattr(T.nn.functional, name)(x, *more) @ w).sum(), x, create_graph=True)[0]
        return T.autograd.grad(slope.square().sum(), (x, w))

    agree(question)


@pytest.mark.parametrize("power", [2, 3])
def test_powers_run_out_of_derivatives_where_pytorchs_do(power):
    """The derivative after the last that is not zero is zero, with no graph behind it."""

    def question(T):
        x, answers = leaf(T, 3), []
        g = x**power
        for _ in range(power + 1):
            (g,) = T.autograd.grad(g.sum(), x, create_graph=True)
            answers += [g.detach(), T.tensor(g.requires_grad)]
        return answers

    agree(question)


def test_tangents_of_gradients_of_logcumsumexp():
    """Forward over reverse goes through weights of zero, where a formula in logarithms of the gradient would be NaN."""
    agree(lambda T: T.func.jvp(T.func.grad(lambda x: x.logcumsumexp(0).sin().sum()), (plain(T, 4),), (plain(T, 4),)))


def test_duals_where_nothing_is_recorded():
    """Tangents are carried along under no_grad, too, and leave no history."""

    def question(T):
        ad, x = T.autograd.forward_ad, leaf(T, 3)
        with T.no_grad(), ad.dual_level():
            primal, tangent = ad.unpack_dual(ad.make_dual(x, T.ones_like(x)).sin())
        return primal, tangent, T.tensor([primal.requires_grad, tangent.requires_grad, T.is_grad_enabled()])

    agree(question)


STRAIGHT = {
    "max_pool2d": lambda T, x: T.nn.functional.max_pool2d(x, 2),
    "avg_pool1d": lambda T, x: T.nn.functional.avg_pool1d(x[0], 2),
    "adaptive_avg_pool2d": lambda T, x: T.nn.functional.adaptive_avg_pool2d(x, 2),
    "nll_loss": lambda T, x: T.nn.functional.nll_loss(x, T.zeros(1, 4, 4, dtype=T.int64)),
    "replicate": lambda T, x: T.nn.functional.pad(x, (1, 1, 1, 1), mode="replicate"),
    "conv2d": lambda T, x: T.nn.functional.conv2d(x, T.ones(1, 2, 2, 2)),
}


@pytest.mark.parametrize("name", STRAIGHT)
def test_gradients_that_do_not_read_the_input_still_belong_to_its_graph(name):
    """A penalty on the gradient of a pool can be differentiated: the answer is zero, or nothing where PyTorch says nothing, but no error."""

    def question(T):
        x = T.arange(32.0).reshape(1, 2, 4, 4).requires_grad_()
        slope = T.autograd.grad(STRAIGHT[name](T, x).sum(), x, create_graph=True)[0]
        again = T.autograd.grad(slope.square().sum(), x, allow_unused=True)[0]
        return slope.detach(), T.tensor(slope.requires_grad), T.tensor([]) if again is None else again

    agree(question)


@pytest.mark.parametrize("options", [{}, {"gen_non_contig_grad_outputs": True}], ids=str)
def test_gradgradcheck_draws_what_pytorch_draws(options):
    """The random numbers of a program go on as they would after PyTorch's check."""
    oracle = pytest.importorskip("torch")
    for dtype in ("float64", "complex128"):
        found = []
        for t in (flambeau, oracle):
            t.manual_seed(3)
            x = t.ones(2, 2, dtype=getattr(t, dtype), requires_grad=True)
            assert t.autograd.gradgradcheck(lambda x: x**3, x, **options)
            found.append(t.rand(3).tolist())
        assert found[0] == found[1]


# -- gradcheck -----------------------------------------------------------------------------------------------------------------


class Threefold(flambeau.autograd.Function):
    """x -> 3 x, with what backward, jvp and vmap do to it as arguments."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, backward, jvp):
        return x * 3

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.by_backward, ctx.by_jvp = inputs

    @staticmethod
    def backward(ctx, grad):
        return ctx.by_backward(grad), None, None

    @staticmethod
    def jvp(ctx, tangent, *rest):
        return ctx.by_jvp(tangent)


def right(g):
    return 3 * g


def in_turn(*factors):
    turns = itertools.cycle(factors)
    return lambda g: g * next(turns)


# what is wrong -> (backward, jvp, words, options)
WRONG = {
    "backward": (lambda g: 2 * g, right, "Jacobian mismatch for output 0 with respect to input 0", {}),
    "forward mode": (right, lambda t: 2 * t, "Jacobian computed with forward mode mismatch for output 0", {"check_forward_ad": True}),
    "not linear": (lambda g: 3 * g + 1e-4, right, "backward not multiplied by grad_output", {"atol": 1e-2}),
    "not the same twice": (in_turn(3, 3 + 1e-7), right, "Backward is not reentrant", {}),
    "inside vmap": (lambda g: 3 * g + (1 if hasattr(g, "level") else 0), right, "testing batched gradient", {"check_batched_grad": True}),
    "dtype": (lambda g: right(g).to(flambeau.float32), right, None, {"check_grad_dtypes": True}),
}


@pytest.mark.parametrize("fast", [False, True], ids=["full", "fast"])
@pytest.mark.parametrize("case", WRONG)
def test_gradcheck_finds_what_is_wrong(case, fast):
    """gradcheck passes a derivative that is wrong, or names another fault."""
    backward, jvp, words, options = WRONG[case]
    x = flambeau.tensor([[0.5, 1.5]], dtype=flambeau.float64, requires_grad=True)
    check = lambda **more: flambeau.autograd.gradcheck(lambda x: Threefold.apply(x, backward, jvp), x, fast_mode=fast, **options, **more)  # noqa: E731
    if words is None:  # the engine casts what backward returned
        assert check()
        return
    with pytest.raises(GradcheckError, match=words):
        check()
    assert not check(raise_exception=False)


GOOD = {
    "real": lambda T, x: (x.sin() * x.sum(), x.exp()),
    "an input as it came": lambda T, x: (x, x * 2),
    "to complex": lambda T, x: T.complex(x, x * x),
    "a part": lambda T, x: x[:0],
}


@pytest.mark.parametrize("fast", [False, True], ids=["full", "fast"])
@pytest.mark.parametrize("case", GOOD)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_gradcheck_in_both_directions(case, dtype, fast):
    """A right derivative fails one of the checks: by backward, by forward mode, inside vmap, of the second derivative."""
    if case == "to complex" and dtype == "complex128":
        pytest.skip("of real numbers")
    x = flambeau.rand(2, 3, dtype=getattr(flambeau, dtype), requires_grad=True)
    function = lambda x: GOOD[case](flambeau, x)  # noqa: E731
    everything = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
    assert flambeau.autograd.gradcheck(function, x, fast_mode=fast, **everything)
    assert flambeau.autograd.gradgradcheck(function, x, fast_mode=fast, check_fwd_over_rev=True, check_batched_grad=True)


def test_gradcheck_of_functions_that_keep_gradients():
    """What a tensor inside the function keeps of a gradient inside vmap is met again outside."""

    def function(x):
        y = x * x
        y.retain_grad()
        return y.sin(), y.exp()

    x = flambeau.rand(3, dtype=flambeau.float64, requires_grad=True)
    assert flambeau.autograd.gradcheck(function, x, check_batched_grad=True)


def test_gradcheck_refuses():
    """A misuse of gradcheck passes, or is refused with other words than PyTorch's."""
    x = flambeau.rand(2, dtype=flambeau.float64, requires_grad=True)
    gradcheck = flambeau.autograd.gradcheck
    with pytest.raises(RuntimeError, match="The 0th input has a dimension with stride 0"):
        gradcheck(lambda x: x, x.expand(2, 2))
    with pytest.raises(AssertionError, match="Expected at least one of"):
        gradcheck(lambda x: x, x, check_backward_ad=False)
    with pytest.raises(AssertionError, match="same shape when inputs are perturbed"):
        gradcheck(lambda y: flambeau.cat([y, y]) if (y == x0).all() else y * 1, x, check_undefined_grad=(x0 := x.detach().clone()) is None)
    with pytest.raises(ValueError, match="Sparse output is not supported"):
        gradcheck(lambda x: x.to_sparse(), x)
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(lambda x: x, x.detach())


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
@pytest.mark.parametrize("fast", [False, True], ids=["full", "fast"])
def test_gradcheck_of_sparse_inputs(layout, fast):
    """The derivative by the stored elements of a sparse input is not checked, or compared element with the wrong element."""
    values = flambeau.tensor([[0.0, 2.0, 3.0], [4.0, 0.0, 5.0]], dtype=flambeau.float64)
    x = values.to_sparse(layout=getattr(flambeau, layout)).requires_grad_()
    weights = flambeau.arange(6.0, dtype=flambeau.float64).reshape(2, 3)
    assert flambeau.autograd.gradcheck(lambda x: x.to_dense() * weights, x, masked=True, fast_mode=fast)


def test_single_jacobians():
    """get_numerical_jacobian and get_analytical_jacobian give other matrices than PyTorch's."""

    def run(T):
        a, b = (T.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=T.float64, requires_grad=True) for _ in range(2))
        module = __import__(f"{T.__name__}.autograd.gradcheck", fromlist=["x"])
        with pytest.warns(FutureWarning, match="was part of PyTorch's private API"):
            numerical = module.get_numerical_jacobian(lambda xs: (2 * xs[0] * xs[1], xs[0]), (a, b), eps=1e-6)
            analytical, *facts = module.get_analytical_jacobian((a, b), 2 * a * b)
        return [j.detach().numpy() for j in (*numerical, *analytical)], facts

    found, expected = run(flambeau), run(torch)
    assert found[1] == expected[1]
    for ours, theirs in zip(found[0], expected[0], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_gradgradcheck_runs_the_function_as_it_is():
    """gradgradcheck runs the function where nothing is recorded, so that one that looks at its own history fails."""

    def function(r):
        x = flambeau.ones(5, dtype=flambeau.float64)
        view = x.select(0, 1)
        x.add_(r)
        assert view.requires_grad
        return view

    assert flambeau.autograd.gradgradcheck(function, flambeau.ones(1, dtype=flambeau.float64, requires_grad=True))
