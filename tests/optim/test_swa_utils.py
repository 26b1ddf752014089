"""Averaged models: means and moving averages are PyTorch's, in one launch for all parameters."""

from __future__ import annotations

import copy

import pytest
from optim_oracle import assert_equal

import flambeau

torch = pytest.importorskip("torch")


def models(f):
    """A model with parameters, a float buffer and an integer one."""

    class Model(f.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = f.nn.Parameter(f.tensor([[1.0, 2.0], [3.0, 4.0]]))
            self.wide = f.nn.Parameter(f.tensor([1.0, 2.0]).double())
            self.register_buffer("mean", f.tensor([0.5]))
            self.register_buffer("count", f.tensor(3))

        def forward(self, x):
            return x @ self.w

    return Model()


def changed(f, model, k):
    with f.no_grad():
        for i, t in enumerate([*model.parameters(), *model.buffers()]):
            t.mul_(2).add_(k + i)


WAYS = {
    "swa": lambda u: {},
    "ema": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.9)},
    "ema, one by one": lambda u: {"avg_fn": u.get_ema_avg_fn(0.9)},
    "swa, one by one": lambda u: {"avg_fn": u.get_swa_avg_fn()},
    "swa, by name": lambda u: {"multi_avg_fn": u.get_swa_multi_avg_fn()},
    "own": lambda u: {"avg_fn": lambda averaged, current, n: 0.5 * averaged + 0.5 * current},
}


@pytest.mark.parametrize("use_buffers", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_averages(way, use_buffers):
    """Parameters, and buffers if asked to, are averaged as PyTorch does."""
    if use_buffers and way in ("swa", "swa, by name"):
        pytest.skip("PyTorch cannot average integers so")
    states = []
    for f in (flambeau, torch):
        model = models(f)
        averaged = f.optim.swa_utils.AveragedModel(model, use_buffers=use_buffers, **WAYS[way](f.optim.swa_utils))
        for k in range(4):
            changed(f, model, k)
            averaged.update_parameters(model)
        states.append(dict(averaged.state_dict()))
        assert averaged(f.ones(1, 2)).shape == (1, 2)
    assert_equal(states[0], states[1], 1e-6)


def test_copy_and_state():
    """The average is a copy; its state dict goes on elsewhere."""
    model = models(flambeau)
    averaged = flambeau.optim.swa_utils.AveragedModel(model)
    averaged.update_parameters(model)
    changed(flambeau, model, 1)
    assert averaged.module.w[0, 0].item() == 1.0 and averaged.n_averaged.item() == 1
    other = flambeau.optim.swa_utils.AveragedModel(models(flambeau))
    other.load_state_dict(copy.deepcopy(averaged.state_dict()))
    for twin in (other, averaged):
        twin.update_parameters(model)
    assert flambeau.equal(other.module.w, averaged.module.w) and other.n_averaged.item() == 2


@pytest.mark.parametrize(
    "options", [{}, {"anneal_epochs": 3, "anneal_strategy": "linear"}, {"anneal_epochs": 0}, {"swa_lr": [0.5, 0.2]}], ids=str
)
def test_swalr(options):
    """The rate goes to swa_lr and stays there."""

    def rates(f):
        groups = [{"params": [f.ones(2, requires_grad=True)], "lr": lr} for lr in (0.1, 0.05)]
        o = f.optim.SGD(groups)
        scheduler = f.optim.swa_utils.SWALR(o, **{"swa_lr": 0.3} | options)
        found = []
        for _ in range(13):
            o.step()
            scheduler.step()
            found += scheduler.get_last_lr()
        return found, scheduler.state_dict().keys()

    (found, keys), (wanted, wanted_keys) = rates(flambeau), rates(torch)
    assert found == pytest.approx(wanted, rel=1e-9) and keys == wanted_keys


def test_errors():
    """Bad decays, strategies and two ways at once are refused as in PyTorch."""
    for f in (flambeau, torch):
        u = f.optim.swa_utils
        with pytest.raises(ValueError, match="Invalid decay"):
            u.get_ema_avg_fn(1.5)
        with pytest.raises(AssertionError):
            u.AveragedModel(models(f), avg_fn=u.get_ema_avg_fn(), multi_avg_fn=u.get_ema_multi_avg_fn())
        o = f.optim.SGD([f.ones(2, requires_grad=True)])
        with pytest.raises(ValueError, match="anneal_strategy"):
            u.SWALR(o, 0.1, anneal_strategy="no")
        with pytest.raises(ValueError, match="anneal_epochs"):
            u.SWALR(o, 0.1, anneal_epochs=-1)


def test_update_bn():
    """Batch norms get the statistics of the whole data, and their momentum back."""
    pytest.importorskip("flambeau.nn.modules.batchnorm")
    found = []
    data = [[[1.0, 2.0], [3.0, 5.0]], [[0.0, -2.0], [4.0, 4.0]]]
    for f in (flambeau, torch):
        model = f.nn.Sequential(f.nn.BatchNorm1d(2))
        model.eval()
        f.optim.swa_utils.update_bn([(f.tensor(x), 0) for x in data], model)
        assert not model.training and model[0].momentum == 0.1
        found.append(dict(model.state_dict()))
    assert_equal(found[0], found[1], 1e-6)
