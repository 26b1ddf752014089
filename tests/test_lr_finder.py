"""The learning-rate finder: what it sweeps, what it suggests, and that nothing has changed afterwards."""

from __future__ import annotations

import copy
import random
import sys

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.utils.data import DataLoader, TensorDataset
from flambeau.utils.lr_finder import LRFinder


def problem(seed: int = 0, optimizer=torch.optim.Adam, **options):
    """A small classifier with a norm and dropout, its optimizer after some steps, and batches that can be learned."""
    torch.manual_seed(seed)
    x = torch.randn(256, 8)
    y = (x[:, 0] + 0.5 * x[:, 1] > 0).long()
    batches = [(x[i : i + 32], y[i : i + 32]) for i in range(0, 256, 32)]
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
    return model, optimizer(model.parameters(), **options), batches


def train(model, optimizer, batches) -> list[float]:
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_rates_grow_exponentially_and_the_loss_is_averaged():
    """The rates are evenly spaced on a logarithmic scale, from the first to the last; the average is exponential."""
    finder = LRFinder(*problem()[:2], nn.CrossEntropyLoss())
    finder.range_test(problem()[2], 1e-5, 1e-1, num_iter=41, smooth=0.2)
    rates, losses, raw = (np.array(finder.history[name]) for name in ("lr", "loss", "raw_loss"))
    assert np.allclose(rates, np.logspace(-5, -1, 41)) and len(losses) == len(raw) == 41
    expected = raw[0]
    for i, loss in enumerate(raw[1:], 1):
        expected = 0.2 * loss + 0.8 * expected
        assert np.isclose(losses[i], expected)


def test_the_defaults_are_the_exercises():
    """Without options the sweep goes from 1e-7 to 1.0 in 100 steps, starting the batches again as often as needed."""
    model, optimizer, batches = problem()
    finder = LRFinder(model, optimizer, nn.CrossEntropyLoss()).range_test(batches, diverge=1e9)
    assert len(finder.history["lr"]) == 100 and finder.history["lr"][0] == 1e-7 and finder.history["lr"][-1] == 1.0


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (torch.optim.Adam, {}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}),
        (torch.optim.AdamW, {"lr": 0.01, "amsgrad": True}),
        (torch.optim.RMSprop, {"centered": True}),
        (torch.optim.LBFGS, {"max_iter": 2}),
    ],
)
def test_training_goes_on_as_if_nothing_had_happened(optimizer, options):
    """A run with a sweep in the middle gives the losses and weights of one without, bit for bit."""
    if optimizer is torch.optim.LBFGS:
        model, made, batches = problem(optimizer=optimizer, **options)
        before = copy.deepcopy(model.state_dict())
        LRFinder(model, made, nn.CrossEntropyLoss()).range_test(batches, num_iter=4)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items()) and not made.state
        return
    results = []
    for with_sweep in (False, True):
        model, made, batches = problem(optimizer=optimizer, **options)
        losses = train(model, made, batches)
        if with_sweep:
            LRFinder(model, made, nn.CrossEntropyLoss()).range_test(batches, end_lr=10.0, num_iter=30)
        losses += train(model, made, batches)
        results.append((losses, [p.tolist() for p in model.parameters()], [b.tolist() for b in model.buffers()], torch.rand(3).tolist()))
    assert results[0] == results[1]


def test_gradients_modes_and_generators_are_put_back():
    """Gradients that are being accumulated, eval mode, Python's and NumPy's generators and the loader's own stay where they were."""
    model, optimizer, batches = problem()
    model.eval()
    model[4].train()
    nn.functional.cross_entropy(model(batches[0][0]), batches[0][1]).backward()
    gradients = [(p.grad, p.grad.clone()) for p in model.parameters()]

    class Loader:
        generator = torch.Generator().manual_seed(3)

        def __iter__(self):
            for i in torch.randperm(len(batches), generator=self.generator).tolist():
                random.random(), np.random.rand()
                yield batches[i]

    random.seed(1), np.random.seed(1)
    states = random.getstate(), np.random.get_state()[1].tolist(), Loader.generator.get_state().tolist(), torch.get_rng_state().tolist()
    LRFinder(model, optimizer, nn.CrossEntropyLoss()).range_test(Loader(), num_iter=12)
    assert states == (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        Loader.generator.get_state().tolist(),
        torch.get_rng_state().tolist(),
    )
    assert all(p.grad is grad and torch.equal(grad, value) for p, (grad, value) in zip(model.parameters(), gradients, strict=True))
    assert [module.training for module in model] == [False, False, False, False, True]


@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "persistent_workers": True}, {"generator": torch.Generator()}], ids=str)
def test_a_loader_goes_on_as_if_nothing_had_happened(options):
    """Shuffled epochs after a sweep are those without one, with workers that stay and with a generator of the loader's own too."""
    epochs = []
    for with_sweep in (False, True):
        torch.manual_seed(4)
        if "generator" in options:
            options["generator"].manual_seed(8)
        loader = DataLoader(TensorDataset(torch.arange(40.0).view(40, 1), torch.arange(40) % 2), 8, shuffle=True, **options)
        model = nn.Linear(1, 2)
        if with_sweep:
            LRFinder(model, torch.optim.SGD(model.parameters(), lr=0.1), nn.CrossEntropyLoss()).range_test(loader, num_iter=7)
        epochs.append([x.flatten().tolist() for _ in range(2) for x, _ in loader])
    assert epochs[0] == epochs[1]


def test_an_error_in_the_middle_puts_everything_back_too():
    """A batch that fails, or Ctrl-C, must not leave a half-swept model."""
    model, optimizer, batches = problem()
    before = copy.deepcopy(model.state_dict())

    def failing():
        yield from batches[:4]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LRFinder(model, optimizer, nn.CrossEntropyLoss()).range_test(failing(), start_lr=0.1, end_lr=10.0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert optimizer.param_groups[0]["lr"] == 1e-3


def test_a_loss_that_explodes_ends_the_sweep():
    """The sweep stops where the average exceeds `diverge` times the lowest, or is no number; the history stays finite."""
    model, optimizer, batches = problem(optimizer=torch.optim.SGD, lr=0.1)
    finder = LRFinder(model, optimizer, nn.CrossEntropyLoss()).range_test(batches, 1e-3, 1e8, num_iter=60, diverge=3.0)
    assert len(finder.history["lr"]) < 60 and np.isfinite(finder.history["loss"]).all()
    assert finder.history["loss"][-1] > 3.0 * min(finder.history["loss"])
    nan = LRFinder(model, optimizer, lambda output, target: output.sum() * float("nan")).range_test(batches)
    assert nan.history["lr"] == []


def test_groups_keep_their_proportions():
    """A group with a tenth of the first group's rate is swept at a tenth."""
    model, _, batches = problem()
    optimizer = torch.optim.SGD([{"params": model[0].parameters()}, {"params": model[4].parameters(), "lr": 0.01}], lr=0.1)
    seen = []

    class Watching(LRFinder):
        def loss(self, batch):
            seen.append([group["lr"] for group in self.optimizer.param_groups])
            return super().loss(batch)

    Watching(model, optimizer, nn.CrossEntropyLoss()).range_test(batches, 1e-4, 1e-2, num_iter=5)
    assert np.allclose(seen, [[rate, rate / 10] for rate in np.logspace(-4, -2, 5)])
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.01]


def test_a_rate_that_is_a_tensor_stays_that_tensor():
    """Schedules hold the tensor: it is swept in place, and has its old value afterwards."""
    model, _, batches = problem()
    rate = torch.tensor(0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    LRFinder(model, optimizer, nn.CrossEntropyLoss()).range_test(batches, num_iter=10)
    assert optimizer.param_groups[0]["lr"] is rate and rate.item() == 0.5


def test_suggestions():
    """steepest is where the curve falls fastest, minimum a tenth of where it is lowest; both need a curve."""
    finder = LRFinder(*problem()[:2], nn.CrossEntropyLoss())
    with pytest.raises(RuntimeError, match="range_test first"):
        finder.suggestion()
    rates = np.logspace(-7, 0, 100)
    falling = 2 - np.tanh(2 * (np.log10(rates) + 3)) + np.maximum(0, np.log10(rates) + 1) * 5
    finder.history = {"lr": rates.tolist(), "loss": falling.tolist(), "raw_loss": falling.tolist()}
    assert 0.5e-3 < finder.suggestion() < 2e-3
    assert np.isclose(finder.suggestion("minimum"), rates[10:95][np.argmin(falling[10:95])] / 10)
    with pytest.raises(ValueError, match="steepest"):
        finder.suggestion("valley")
    finder.history["loss"] = np.linspace(1, 2, 100).tolist()
    with pytest.raises(RuntimeError, match="does not fall"):
        finder.suggestion()


def test_the_suggestion_trains_well():
    """On a problem that can be learned, a run with the suggested rate learns it."""
    model, optimizer, batches = problem()
    finder = LRFinder(model, optimizer, nn.CrossEntropyLoss()).range_test(batches)
    optimizer.param_groups[0]["lr"] = finder.suggestion()
    losses = [np.mean(train(model, optimizer, batches)) for _ in range(12)]
    assert losses[-1] < 0.5 * losses[0], (finder.suggestion(), losses)


def test_wrong_bounds_are_refused():
    """Rates must grow, and above zero."""
    finder = LRFinder(*problem()[:2], nn.CrossEntropyLoss())
    for bounds in ((1.0, 0.1), (0.0, 1.0)):
        with pytest.raises(ValueError, match="start_lr"):
            finder.range_test(problem()[2], *bounds)
    with pytest.raises(ValueError, match="num_iter"):
        finder.range_test(problem()[2], num_iter=1)


def test_the_plot(tmp_path, monkeypatch):
    """A PNG with both curves and the suggestion, on a logarithmic axis; without matplotlib an error that says how to get it."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    model, optimizer, batches = problem()
    finder = LRFinder(model, optimizer, nn.CrossEntropyLoss()).range_test(batches)
    axes = finder.plot(path=tmp_path / "lr.png")
    assert (tmp_path / "lr.png").stat().st_size > 5000 and axes.get_xscale() == "log" and len(axes.lines) == 3
    assert pyplot.get_fignums() == []
    figure, given = pyplot.subplots()
    assert finder.plot(ax=given) is given
    pyplot.close(figure)
    pyplot.close(finder.plot().figure)
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'flambeau\[plot\]'"):
        finder.plot(path=tmp_path / "other.png")
