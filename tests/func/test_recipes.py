"""What people do with func: whole programs, digit by digit as PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
from test_grad import both, same

torch = pytest.importorskip("torch")
X = np.random.default_rng(0).standard_normal((4, 5, 3))
Y = np.random.default_rng(1).standard_normal((4, 5, 2))


def network(t):
    """A small network with weights that do not depend on the framework, and those weights."""
    model = t.nn.Sequential(t.nn.Linear(3, 6), t.nn.LayerNorm(6), t.nn.GELU(), t.nn.Linear(6, 2)).double()
    with t.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_((t.arange(p.numel()).double() * 0.7 + i).sin().reshape(p.shape))
    return model, {k: v.detach() for k, v in model.named_parameters()}


def maml(t, x, y):
    """A step of learning to learn: the gradient through two steps of gradient descent, of many tasks at once."""
    model, weights = network(t)

    def loss(w, x, y):
        return ((t.func.functional_call(model, w, (x,)) - y) ** 2).mean()

    def after_adapting(w, x, y):
        for _ in range(2):
            g = t.func.grad(loss)(w, x[:3], y[:3])
            w = {k: v - 0.1 * g[k] for k, v in w.items()}
        return loss(w, x[3:], y[3:])

    def total(w):
        if t is torch:  # PyTorch 2.13's vmap loses a part of layer_norm's second derivative; its loop does not
            return t.stack([after_adapting(w, *task) for task in zip(x, y, strict=True)]).mean()
        return t.vmap(after_adapting, in_dims=(None, 0, 0))(w, x, y).mean()

    return t.func.grad_and_value(total)(weights)


def tangent_kernel(t, x, y):
    """The empirical neural tangent kernel: products of the Jacobians by the weights."""
    model, weights = network(t)
    of_sample = lambda w, x: t.func.functional_call(model, w, (x.unsqueeze(0),)).squeeze(0)  # noqa: E731
    jac = lambda xs: t.vmap(t.func.jacrev(of_sample), in_dims=(None, 0))(weights, xs)  # noqa: E731
    one, other = jac(x[0]), jac(x[1])
    return sum(t.einsum("Naf,Mbf->NMab", one[k].flatten(2), other[k].flatten(2)) for k in one)


def hessian_vector(t, x, y):
    """Forward over reverse: H v without H."""
    model, weights = network(t)
    loss = lambda w: ((t.func.functional_call(model, w, (x[0],)) - y[0]) ** 2).mean()  # noqa: E731
    return t.func.jvp(t.func.grad(loss), (weights,), ({k: v.cos() for k, v in weights.items()},))


def ensemble(t, x, y):
    """Three steps of gradient descent for four networks at once, each on data of its own."""
    model, weights = network(t)
    many = {k: t.stack([v * (1 + 0.1 * i) for i in range(4)]) for k, v in weights.items()}
    step = t.vmap(t.func.grad_and_value(lambda w, x, y: ((t.func.functional_call(model, w, (x,)) - y) ** 2).mean()))
    losses = []
    for _ in range(3):
        g, value = step(many, x, y)
        many = {k: v - 0.05 * g[k] for k, v in many.items()}
        losses.append(value)
    return losses, many


def laplacian(t, x, y):
    """The trace of a Hessian at many points, as physics-informed networks ask for it."""
    model, weights = network(t)
    u = lambda p: t.func.functional_call(model, weights, (p,))[0]  # noqa: E731
    return t.vmap(lambda p: t.func.hessian(u)(p).diagonal().sum())(x[0])


def clipped(t, x, y):
    """Differentially private gradients: each sample's clipped to norm 1, then averaged."""
    model, weights = network(t)
    loss = lambda w, x, y: ((t.func.functional_call(model, w, (x,)) - y) ** 2).mean()  # noqa: E731

    def one(x, y):
        g = t.func.grad(loss)(weights, x, y)
        size = t.stack([v.square().sum() for v in g.values()]).sum().sqrt()
        return {k: v * (1 / size).clamp(max=1.0) for k, v in g.items()}

    return {k: v.mean(0) for k, v in t.vmap(one, chunk_size=2)(x[0], y[0]).items()}


def sorted_pairs(t, x, y):
    """A ranking of all pairs by two maps, one in the other."""
    distance = lambda a, b: (a - b).square().sum().sqrt()  # noqa: E731
    table = t.vmap(t.vmap(distance, in_dims=(None, 0)), in_dims=(0, None))(x[0], x[1])
    return table, t.vmap(lambda row: row.sort().indices)(table)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", [maml, tangent_kernel, hessian_vector, ensemble, laplacian, clipped, sorted_pairs])
def test_recipe(program):
    """The program gives the same numbers in both frameworks."""
    same(*both(program, X, Y))
