"""Modules under vmap and jacrev: each sample by itself gives the same outputs, gradients and Jacobians."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import flambeau
from flambeau import nn
from flambeau.func import functional_call, grad, jacfwd, jacrev, vmap

SIZE = 3
# name: (module, shape of one sample)
MODULES = {
    "Linear": (lambda: nn.Linear(4, 3), (2, 4)),
    "MLP": (lambda: nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 2), nn.Softmax(-1)), (4,)),
    "Conv1d": (lambda: nn.Conv1d(2, 3, 2), (1, 2, 4)),
    "Conv2d": (lambda: nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), (1, 2, 5, 4)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(2, 3, 2, stride=2), (1, 2, 2, 2)),
    "LayerNorm": (lambda: nn.LayerNorm(4), (2, 4)),
    "LayerNorm of two": (lambda: nn.LayerNorm((2, 4)), (3, 2, 4)),
    "RMSNorm": (lambda: nn.RMSNorm(4), (2, 4)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (2, 4, 3)),
    "BatchNorm eval": (lambda: nn.BatchNorm1d(4).eval(), (2, 4)),
    "BatchNorm without statistics": (lambda: nn.BatchNorm1d(4, track_running_stats=False), (3, 4)),
    "InstanceNorm": (lambda: nn.InstanceNorm1d(2, affine=True), (2, 2, 4)),
    "MaxPool2d": (lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.MaxPool2d(2)), (1, 1, 5, 5)),
    "AvgPool2d": (lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.AvgPool2d(2), nn.Flatten()), (1, 1, 5, 5)),
    "MultiheadAttention": (lambda: _Attention(), (3, 4)),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True), (1, 3, 4)),
    "LSTM": (lambda: _First(nn.LSTM(3, 2)), (4, 3)),
    "GRU": (lambda: _First(nn.GRU(3, 2, bidirectional=True)), (4, 3)),
    "RNN": (lambda: _First(nn.RNN(3, 2, num_layers=2)), (4, 1, 3)),
    "Bilinear": (lambda: _Twice(nn.Bilinear(3, 3, 2)), (2, 3)),
    "PReLU": (lambda: nn.PReLU(3), (2, 3)),
    "Dropout eval": (lambda: nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).eval(), (3,)),
}


class _First(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)[0]


class _Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(4, 2)

    def forward(self, x):
        return self.inner(x, x, x)[0]


class _Twice(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x, x.cos())


@pytest.fixture(params=MODULES)
def case(request):
    """(function of parameters and a sample, parameters, samples)."""
    flambeau.manual_seed(0)
    make, shape = MODULES[request.param]
    module = make().double()
    params = {k: v.detach() for k, v in module.named_parameters()}
    x = flambeau.randn(SIZE, *shape, dtype=flambeau.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*[Nn]ested|.*enable_nested")
        yield (lambda p, x: functional_call(module, p, (x,))), params, x


def close(a, b):
    assert tuple(a.shape) == tuple(b.shape)
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-8, atol=1e-9)


def test_outputs(case):
    """vmap of the module is the module of each sample, and needs no loop."""
    f, params, x = case
    close(vmap(f, in_dims=(None, 0))(params, x), flambeau.stack([f(params, s) for s in x]))


def test_per_sample_gradients(case):
    """vmap(grad) gives each sample's own gradient of every parameter."""
    f, params, x = case
    loss = lambda p, s: f(p, s).sin().sum()  # noqa: E731
    found = vmap(grad(loss), in_dims=(None, 0))(params, x)
    each = [grad(loss)(params, s) for s in x]
    for name, g in found.items():
        close(g, flambeau.stack([e[name] for e in each]))


def test_many_sets_of_parameters(case):
    """vmap over parameters is one call for a whole ensemble."""
    f, params, x = case
    many = {k: flambeau.stack([v * (1 + 0.1 * i) for i in range(SIZE)]) for k, v in params.items()}
    if not many:
        return
    expected = flambeau.stack([f({k: v[i] for k, v in many.items()}, x[0]) for i in range(SIZE)])
    close(vmap(f, in_dims=(0, None))(many, x[0]), expected)


def test_jacobians(case):
    """jacrev and jacfwd agree with one backward pass for each output."""
    f, params, x = case
    expected = flambeau.autograd.functional.jacobian(lambda s: f(params, s), x[0])
    close(jacrev(f, argnums=1)(params, x[0]), expected)
    close(jacfwd(f, argnums=1)(params, x[0]), expected)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_functorch():
    """Modules taken apart into functions, as programs of 2022 have it: values, gradients, ensembles, shared weights, errors."""
    torch, theirs = pytest.importorskip("torch"), pytest.importorskip("functorch")

    import flambeau.functorch as ours

    found = []
    for package, functorch in ((flambeau, ours), (torch, theirs)):
        nn = package.nn
        package.manual_seed(0)
        net, x = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)), package.randn(5, 2)
        model, params = functorch.make_functional(net)
        per_sample = functorch.vmap(functorch.grad(lambda params, x, model=model: model(params, x).sum()), (None, 0))(params, x)
        norm, weights, buffers = functorch.make_functional_with_buffers(nn.BatchNorm1d(2))
        many, stacked, _ = functorch.combine_state_for_ensemble([nn.Linear(2, 3) for _ in range(3)])
        answers = [model(params, x), *per_sample, norm(weights, buffers, x), functorch.vmap(many, (0, 0, None))(stacked, (), x), *params]
        net[2] = nn.Linear(4, 4)
        net.append(nn.Linear(4, 4))
        net[3].weight = net[2].weight
        shared, few = functorch.make_functional(net, disable_autograd_tracking=True)
        answers.append(shared(few, x))
        found.append([a.detach().numpy() for a in answers] + [len(few), few[0].requires_grad, repr(model), repr(norm).split()[0]])
        for mistake in (lambda f=functorch, nn=nn: f.make_functional(nn.BatchNorm1d(2)), lambda m=model, p=params, x=x: m(p[:2], x)):
            with pytest.raises(RuntimeError):
                mistake()
    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6) if isinstance(mine, np.ndarray) else None
        assert isinstance(mine, np.ndarray) or mine == other
