"""jacrev, jacfwd, hessian and what autograd does with vmap, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from test_grad import both, same

import flambeau

torch = pytest.importorskip("torch")
X = np.random.default_rng(0).standard_normal((2, 3))
Y = np.random.default_rng(1).standard_normal((3,))

PROGRAMS = {
    "jacrev": lambda t, x, y: t.func.jacrev(lambda x: x.sin() @ y)(x),
    "jacfwd": lambda t, x, y: t.func.jacfwd(lambda x: x.sin() @ y)(x),
    "jacrev of two": lambda t, x, y: t.func.jacrev(lambda x, y: (x * y, x.sum()), argnums=(0, 1))(x, y),
    "jacfwd of two": lambda t, x, y: t.func.jacfwd(lambda x, y: (x * y, x.sum()), argnums=(0, 1))(x, y),
    "jacrev second": lambda t, x, y: t.func.jacrev(lambda x, y: x @ y**2, argnums=1)(x, y),
    "jacfwd second": lambda t, x, y: t.func.jacfwd(lambda x, y: x @ y**2, argnums=1)(x, y),
    "jacrev one in a tuple": lambda t, x, y: t.func.jacrev(lambda x, y: x @ y**2, argnums=(1,))(x, y),
    "jacfwd one in a tuple": lambda t, x, y: t.func.jacfwd(lambda x, y: x @ y**2, argnums=(1,))(x, y),
    "jacrev dictionary": lambda t, x, y: t.func.jacrev(lambda p: {"o": p["x"] @ p["y"], "s": p["y"].exp()})({"x": x, "y": y}),
    "jacfwd dictionary": lambda t, x, y: t.func.jacfwd(lambda p: {"o": p["x"] @ p["y"], "s": p["y"].exp()})({"x": x, "y": y}),
    "jacrev aux": lambda t, x, y: t.func.jacrev(lambda x: (x @ y, x * 2), has_aux=True)(x),
    "jacfwd aux": lambda t, x, y: t.func.jacfwd(lambda x: (x @ y, x * 2), has_aux=True)(x),
    "jacrev chunks": lambda t, x, y: t.func.jacrev(lambda x: x.sin() * y, chunk_size=4)(x),
    "jacrev one row at a time": lambda t, x, y: t.func.jacrev(lambda x: x.sin() * y, chunk_size=1)(x),
    "jacrev of a number": lambda t, x, y: t.func.jacrev(lambda x: x.sin())(x[0, 0]),
    "jacrev of nothing used": lambda t, x, y: t.func.jacrev(lambda x: y * 2)(x),
    "jacfwd of nothing used": lambda t, x, y: t.func.jacfwd(lambda x: y * 2)(x),
    "hessian": lambda t, x, y: t.func.hessian(lambda x: (x.sin() @ y).exp().sum())(x),
    "hessian of two": lambda t, x, y: t.func.hessian(lambda x, y: (x.sin() @ y).exp().sum(), argnums=(0, 1))(x, y),
    "jacrev of jacrev": lambda t, x, y: t.func.jacrev(t.func.jacrev(lambda y: (x @ y.exp()).prod()))(y),
    "jacfwd of jacfwd": lambda t, x, y: t.func.jacfwd(t.func.jacfwd(lambda y: (x @ y.exp()).prod()))(y),
    "jacrev of jacfwd": lambda t, x, y: t.func.jacrev(t.func.jacfwd(lambda y: (x @ y.exp()).prod()))(y),
    "vmap of jacrev": lambda t, x, y: t.vmap(t.func.jacrev(lambda r: r.sin() * y))(x),
    "vmap of jacfwd": lambda t, x, y: t.vmap(t.func.jacfwd(lambda r: r.sin() * y))(x),
    "vmap of hessian": lambda t, x, y: t.vmap(t.func.hessian(lambda r: (r.sin() * y).prod()))(x),
    "jacrev of vmap": lambda t, x, y: t.func.jacrev(t.vmap(lambda r: (r.sin() * y).prod()))(x),
    "vmap of jvp": lambda t, x, y: t.vmap(lambda r: t.func.jvp(lambda z: z**3, (r,), (y,)))(x),
    "vmap of vjp": lambda t, x, y: t.vmap(lambda r: t.func.vjp(lambda z: z**3, r)[1](y))(x),
    "softmax hessian": lambda t, x, y: t.func.hessian(lambda x: (x.softmax(-1) @ y).sum())(x),
    "mlp jacobian": lambda t, x, y: t.func.jacrev(lambda x: t.nn.functional.linear(x, x * 2, y[:2]).tanh())(x),
    "in place": lambda t, x, y: t.func.jacrev(lambda y: _written(y))(y),
    "view and write": lambda t, x, y: t.vmap(t.func.grad(lambda r: _written(r).prod()))(x),
}


def _written(y):
    z = y.clone()
    z[1] *= y[0]
    z[:2].mul_(2)
    return z.mul(z.sum())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    """The same Jacobians of the same functions are PyTorch's."""
    same(*both(PROGRAMS[name], X, Y))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
@pytest.mark.parametrize("vectorize", [False, True])
def test_autograd_functional(strategy, vectorize):
    """autograd.functional takes vectorize and strategy, with the same result."""
    if strategy == "forward-mode" and not vectorize:
        with pytest.raises(NotImplementedError):
            flambeau.autograd.functional.jacobian(lambda x: x, flambeau.ones(2), strategy=strategy)
        return

    def run(t, x, y):
        f = lambda x, y: (x.sin() @ y, x * 2)  # noqa: E731
        scalar = lambda x, y: (x.sin() @ y).prod()  # noqa: E731
        jac = t.autograd.functional.jacobian(f, (x, y), strategy=strategy, vectorize=vectorize)
        found = t.autograd.functional.hessian(scalar, (x, y), outer_jacobian_strategy=strategy, vectorize=vectorize)
        return jac, [[h.detach() for h in row] for row in found]

    same(*both(run, X, Y))


def test_vectorized_jacobian_can_be_differentiated():
    """create_graph and vectorize together."""

    def run(t, x, y):
        y = y.requires_grad_()
        found = t.autograd.functional.jacobian(lambda y: y.exp() * y.sum(), y, create_graph=True, vectorize=True)
        found.sum().backward()
        return found.detach(), y.grad

    same(*both(run, X, Y))


def test_one_row_at_a_time_without_vmap():
    """With chunk_size=1 jacrev makes a loop, in which backward may do what vmap cannot."""

    def jacobian(t):
        class Looks(t.autograd.Function):
            @staticmethod
            def forward(x):
                return x * 2

            @staticmethod
            def setup_context(ctx, inputs, output):
                pass

            @staticmethod
            def backward(ctx, grad):
                return grad.nonzero().shape[0] * grad * 2

        return t.func.jacrev(lambda x: {"a": Looks.apply(x)}, chunk_size=1)(t.ones(2, 3))["a"]

    np.testing.assert_array_equal(jacobian(flambeau).numpy(), jacobian(torch).numpy())


def test_batched_gradients():
    """autograd.grad(is_grads_batched=True) is one backward pass for each row."""

    def run(t, x, y):
        x = x.requires_grad_()
        out = x.sin() * y
        seeds = t.arange(24).reshape(4, 2, 3).double()
        found = t.autograd.grad(out, x, seeds, is_grads_batched=True, create_graph=True)[0]
        second = t.autograd.grad(found.sum(), x)[0]
        return found.detach(), second

    same(*both(run, X, Y))
