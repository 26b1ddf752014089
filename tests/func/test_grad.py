"""func.grad, vjp, jvp, linearize against PyTorch's: values, nesting, trees, aux, errors."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
X = np.random.default_rng(0).standard_normal((3, 4))
Y = np.random.default_rng(1).standard_normal((3, 4))
Point = namedtuple("Point", "a b")


def both(call, *data):
    """call(framework, *tensors) in both frameworks, as nested lists of arrays."""
    ours = call(flambeau, *[flambeau.tensor(d) for d in data])
    theirs = call(torch, *[torch.tensor(d) for d in data])
    return ours, theirs


def same(ours, theirs):
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, flambeau.Tensor)
        assert tuple(ours.shape) == tuple(theirs.shape)
        assert ours.requires_grad == theirs.requires_grad
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-9, atol=1e-10)
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            same(ours[key], theirs[key])
    elif isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)
    else:
        assert ours == theirs


PROGRAMS = {
    "grad": lambda t, x, y: t.func.grad(lambda x: (x.sin() * y).sum())(x),
    "second argument": lambda t, x, y: t.func.grad(lambda x, y: (x.sin() * y**2).sum(), argnums=1)(x, y),
    "negative argnum": lambda t, x, y: t.func.grad(lambda x, y: (x.sin() * y**2).sum(), argnums=-1)(x, y),
    "two arguments": lambda t, x, y: t.func.grad(lambda x, y: (x.sin() * y**2).sum(), argnums=(0, 1))(x, y),
    "one in a tuple": lambda t, x, y: t.func.grad(lambda x, y: (x.sin() * y**2).sum(), argnums=(1,))(x, y),
    "aux": lambda t, x, y: t.func.grad(lambda x: ((x * y).sum(), {"y": x * 2}), has_aux=True)(x),
    "and value": lambda t, x, y: t.func.grad_and_value(lambda x: (x**3).sum())(x),
    "and value, aux": lambda t, x, y: t.func.grad_and_value(lambda x: ((x**3).sum(), x.exp()), has_aux=True)(x),
    "keyword": lambda t, x, y: t.func.grad(lambda x, *, scale: (x**3).sum() * scale)(x, scale=2.0),
    "dictionary": lambda t, x, y: t.func.grad(lambda p: (p["a"] * p["b"][0]).sum())({"a": x, "b": [y]}),
    "named tuple": lambda t, x, y: t.func.grad(lambda p: (p.a * p.b).sum())(Point(x, y)),
    "unused": lambda t, x, y: t.func.grad(lambda x, y: x.sum(), argnums=(0, 1))(x, y),
    "constant": lambda t, x, y: t.func.grad(lambda x: y.sum())(x),
    "grad of grad": lambda t, x, y: t.func.grad(lambda x: t.func.grad(lambda x: (x**4).sum())(x).sum())(x),
    "three times": lambda t, x, y: t.func.grad(t.func.grad(t.func.grad(lambda x: x.sin() * x**3)))(x[0, 0]),
    "inner sees outer": lambda t, x, y: t.func.grad(lambda x: (x * t.func.grad(lambda y: (x * y**2).sum())(x)).sum())(x),
    "perturbation": lambda t, x, y: t.func.grad(lambda x: x * t.func.grad(lambda y: x + y)(x))(x[0, 0]),
    "perturbation by jvp": lambda t, x, y: t.func.jvp(
        lambda x: x * t.func.jvp(lambda y: x + y, (t.ones_like(x),), (t.ones_like(x),))[1], (x,), (t.ones_like(x),)
    ),
    "closure": lambda t, x, y: t.func.grad(lambda y: t.func.grad(lambda x: (x**2 * y).sum())(x).sum())(y),
    "vjp": lambda t, x, y: (lambda out, back: (out, back(y)))(*t.func.vjp(lambda x: x.exp(), x)),
    "vjp of two": lambda t, x, y: (lambda out, back: (out, back((x, y))))(*t.func.vjp(lambda x, y: (x * y, x.sin()), x, y)),
    "vjp twice": lambda t, x, y: (lambda out, back: (back(y), back(x)))(*t.func.vjp(lambda x: x.exp(), x)),
    "vjp aux": lambda t, x, y: (lambda out, back, aux: (out, back(y), aux))(*t.func.vjp(lambda x: (x.exp(), x * 3), x, has_aux=True)),
    "vjp of dictionary": lambda t, x, y: (lambda out, back: (out, back({"s": x})))(*t.func.vjp(lambda d: {"s": d["x"] * y}, {"x": x})),
    "grad of vjp": lambda t, x, y: t.func.grad(lambda x: t.func.vjp(lambda z: z**3, x)[1](y)[0].sum())(x),
    "jvp": lambda t, x, y: t.func.jvp(lambda x: x.exp() * x, (x,), (y,)),
    "jvp of two": lambda t, x, y: t.func.jvp(lambda x, y: (x * y, x.sum()), (x, y), (y, x)),
    "jvp aux": lambda t, x, y: t.func.jvp(lambda x: (x.exp(), x * 2), (x,), (y,), has_aux=True),
    "jvp of constant": lambda t, x, y: t.func.jvp(lambda x: y * 2, (x,), (y,)),
    "jvp of jvp": lambda t, x, y: t.func.jvp(lambda x: t.func.jvp(lambda z: z**3, (x,), (y,))[1], (x,), (y,)),
    "jvp of grad": lambda t, x, y: t.func.jvp(t.func.grad(lambda x: (x**3).sum()), (x,), (y,)),
    "grad of jvp": lambda t, x, y: t.func.grad(lambda x: t.func.jvp(lambda z: z.sin(), (x,), (y,))[1].sum())(x),
    "linearize": lambda t, x, y: (lambda out, push: (out, push(y), push(x)))(*t.func.linearize(lambda x: x.sin() * x, x)),
    "in place": lambda t, x, y: t.func.grad(lambda x: _squared_in_place(x).sum())(x),
    "no_grad inside": lambda t, x, y: t.func.grad(lambda x: (x * _without(t, x)).sum())(x),
    "detach inside": lambda t, x, y: t.func.grad(lambda x: (x * x.detach()).sum())(x),
    "inside no_grad": lambda t, x, y: _in_no_grad(t, lambda: t.func.grad(lambda x: (x**2).sum())(x)),
}


def _squared_in_place(x):
    z = x * 1
    z.mul_(x)
    z[0] += x[1]
    return z


def _without(t, x):
    with t.no_grad():
        return x * 2


def _in_no_grad(t, function):
    with t.no_grad():
        return function()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    """The same transforms of the same functions give what PyTorch's give."""
    same(*both(PROGRAMS[name], X, Y))


def test_results_of_tracked_inputs_can_be_differentiated():
    """A gradient of tensors that require grad has a history that leads back to them, and to what the function closed over."""

    def run(t, x, w):
        x, w = x.requires_grad_(), w.requires_grad_()
        found = t.func.grad(lambda z: (z**3 * w).sum())(x)
        found.sum().backward()
        return found.detach(), x.grad, w.grad

    same(*both(run, X, Y))


def test_results_inside_no_grad_have_no_history():
    """grad works where nothing is recorded, and its results are not recorded either."""

    def run(t, x, _):
        x = x.requires_grad_()
        with t.no_grad():
            return t.func.grad_and_value(lambda z: (z**3).sum())(x), t.func.jvp(lambda z: z**3, (x,), (x,))

    same(*both(run, X, Y))


def test_vjp_made_inside_no_grad():
    """The function that vjp gave inside of no_grad is called outside of it: its result has a history, as in PyTorch."""
    x = flambeau.tensor(3.0, requires_grad=True)
    with flambeau.no_grad():
        out, back = flambeau.func.vjp(lambda x: x**2, x)
    (y,) = back(flambeau.tensor(1.0))
    assert not out.requires_grad and y.item() == 6 and flambeau.autograd.grad(y, x)[0].item() == 2


@pytest.mark.filterwarnings("ignore")
def test_ensembles_of_modules_with_shared_parameters():
    """functorch's ensembles leave the second name of a shared parameter without a tensor."""

    def models():
        flambeau.manual_seed(0)
        made = [flambeau.nn.Sequential(flambeau.nn.Linear(3, 3), flambeau.nn.Linear(3, 3)) for _ in range(2)]
        for model in made:
            model[1].weight = model[0].weight
        return made

    from flambeau import functorch

    x = flambeau.randn(2, 4, 3)
    model, params, buffers = functorch.combine_state_for_ensemble(models())
    expected = flambeau.stack([m(row) for m, row in zip(models(), x, strict=True)])
    flambeau.testing.assert_close(flambeau.vmap(model)(params, buffers, x), expected)


def test_results_of_plain_inputs_have_no_history():
    """What a grad has differentiated inside does not show outside."""
    x = flambeau.ones(3)
    g, (value, aux) = flambeau.func.grad_and_value(lambda x: ((x**2).sum(), x * 2), has_aux=True)(x)
    assert not (g.requires_grad or value.requires_grad or aux.requires_grad or x.requires_grad)
    assert x.grad is None


ERRORS = {
    "not a scalar": (RuntimeError, lambda t, x: t.func.grad(lambda x: x * 2)(x)),
    "not a tensor": (RuntimeError, lambda t, x: t.func.grad(lambda x: 2.0)(x)),
    "no aux": (RuntimeError, lambda t, x: t.func.grad(lambda x: x.sum(), has_aux=True)(x)),
    "argnums": (RuntimeError, lambda t, x: t.func.grad(lambda x: x.sum(), argnums=2)(x)),
    "argnums twice": (RuntimeError, lambda t, x: t.func.grad(lambda x: x.sum(), argnums=(0, 0))(x)),
    "argnums empty": (RuntimeError, lambda t, x: t.func.grad(lambda x: x.sum(), argnums=())(x)),
    "argnums float": (RuntimeError, lambda t, x: t.func.grad(lambda x: x.sum(), argnums=0.0)(x)),
    "integers": (RuntimeError, lambda t, x: t.func.grad(lambda x: x.sum())(x.long())),
    "cotangents": (RuntimeError, lambda t, x: t.func.vjp(lambda x: (x, x), x)[1](x)),
    "tangents": (RuntimeError, lambda t, x: t.func.jvp(lambda x: x, (x,), (x, x))),
    "tangents no tuple": (RuntimeError, lambda t, x: t.func.jvp(lambda x: x, (x,), x)),
    "output of vjp": (RuntimeError, lambda t, x: t.func.vjp(lambda x: 3, x)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    """What makes no sense is refused with PyTorch's type of exception."""
    kind, call = ERRORS[name]
    with pytest.raises(kind):
        call(torch, torch.ones(3))
    with pytest.raises(kind):
        call(flambeau, flambeau.ones(3))


def test_per_sample_gradients_of_a_module():
    """vmap(grad(loss)) over functional_call: one gradient for each sample, as a loop finds them."""

    def run(t, x, target):
        model = t.nn.Sequential(t.nn.Linear(4, 5), t.nn.Tanh(), t.nn.Linear(5, 2)).double()
        count = 0
        with t.no_grad():
            for p in model.parameters():
                p.copy_((t.arange(p.numel()) + count).reshape(p.shape).double().sin())
                count += 1
        weights = {k: v.detach() for k, v in model.named_parameters()}

        def loss(weights, x, y):
            out = t.func.functional_call(model, weights, (x.unsqueeze(0),))
            return ((out.squeeze(0) - y[:2]) ** 2).mean()

        return t.func.vmap(t.func.grad(loss), in_dims=(None, 0, 0))(weights, x, target)

    same(*both(run, X, Y))


def test_ensembles():
    """vmap over stacked modules is one call for all of them."""

    def run(t, x, _):
        models = [t.nn.Linear(4, 2).double() for _ in range(3)]
        with t.no_grad():
            for i, m in enumerate(models):
                m.weight.copy_((t.arange(8).double() + i).reshape(2, 4).sin())
                m.bias.copy_(t.arange(2).double() * i)
        params, buffers = t.func.stack_module_state(models)
        assert params["weight"].requires_grad
        assert params["weight"].is_leaf
        call = lambda p, b, x: t.func.functional_call(models[0], (p, b), (x,))  # noqa: E731
        return t.vmap(call, in_dims=(0, 0, None))(params, buffers, x)

    same(*both(run, X, Y))


def test_stack_module_state_refuses():
    """Nothing to stack, or modules of different kinds or modes."""
    nn = flambeau.nn
    for models in ([], [nn.Linear(1, 1), nn.Linear(1, 1).eval()], [nn.Linear(1, 1), nn.Tanh()]):
        with pytest.raises(RuntimeError):
            flambeau.func.stack_module_state(models)


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views", "nothing"])
def test_functionalize(remove):
    """A function that writes gives another result, or leaves its argument otherwise than PyTorch does."""

    def question(f):
        def write(x):
            x[0].mul_(3)
            return x.add_(1).sum()

        x = f.arange(4.0).reshape(2, 2)
        try:
            return f.func.functionalize(write, remove=remove)(x).item(), x.tolist()
        except RuntimeError:
            return "refused"

    assert question(flambeau) == question(torch)
