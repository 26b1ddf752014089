"""Which learning rate? Train with rates that grow exponentially, and look where the loss falls, and where it climbs.

    finder = LRFinder(model, optimizer, nn.CrossEntropyLoss())
    finder.range_test(loader)                       # 1e-7 to 1, 100 steps; model and optimizer are afterwards what they were before
    finder.plot(path="lr.png")
    for group in optimizer.param_groups:
        group["lr"] = finder.suggestion()

Smith, Cyclical Learning Rates for Training Neural Networks.
"""

from __future__ import annotations

import math
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from itertools import chain
from typing import Any

import numpy as np

from flambeau.modes import enable_grad, no_grad
from flambeau.nn.modules.module import Module
from flambeau.optim.lbfgs import LBFGS
from flambeau.optim.optimizer import Optimizer
from flambeau.random import fork_rng
from flambeau.tensor import Tensor
from flambeau.utils.data import DataLoader


class LRFinder:
    """A sweep over learning rates. For batches that are not (inputs, targets), override `loss`."""

    def __init__(self, model: Module, optimizer: Optimizer, criterion: Callable[[Any, Any], Tensor]):
        self.model, self.optimizer, self.criterion = model, optimizer, criterion
        self.history: dict[str, list[float]] = {"lr": [], "loss": [], "raw_loss": []}

    def loss(self, batch: Any) -> Tensor:
        """The loss of one batch: criterion(model(inputs), targets)."""
        inputs, targets = batch
        return self.criterion(self.model(inputs), targets)

    def range_test(
        self,
        loader: Iterable[Any],
        start_lr: float = 1e-7,
        end_lr: float = 1.0,
        num_iter: int = 100,
        smooth: float = 0.05,
        diverge: float = 5.0,
    ) -> LRFinder:
        """Take a step with each of `num_iter` rates from `start_lr` to `end_lr`, evenly spaced on a logarithmic scale.

        The recorded loss is averaged: smooth * loss + (1 - smooth) * average. The sweep ends early when that exceeds `diverge` times the
        lowest, or is no number any more. Groups keep the proportions of their rates to the first group's. Afterwards parameters, buffers, gradients,
        training modes, the optimizer and all random generators stand where they stood before.
        """
        if not 0 < start_lr < end_lr:
            raise ValueError(f"rates grow from start_lr to end_lr, both above 0: found {start_lr} and {end_lr}")
        if num_iter < 2 or not 0 < smooth <= 1:
            raise ValueError(f"num_iter is at least 2 and smooth between 0 and 1: found {num_iter} and {smooth}")
        self.history = {"lr": [], "loss": [], "raw_loss": []}
        rates = [start_lr * (end_lr / start_lr) ** (i / (num_iter - 1)) for i in range(num_iter)]
        with unchanged(self.model, self.optimizer, loader):
            self.model.train()
            self._sweep(rates, _endless(_twin(loader)), smooth, diverge)
        return self

    def _sweep(self, rates: list[float], batches: Iterator[Any], smooth: float, diverge: float) -> None:
        average = lowest = math.inf
        place = next((p.device for p in self.model.parameters()), None)
        shares = _shares(self.optimizer)
        for rate, batch in zip(rates, batches, strict=False):
            for group, share in zip(self.optimizer.param_groups, shares, strict=True):
                _set_rate(group, rate * share)
            loss = self._step(_moved(batch, place))
            average = loss if math.isinf(average) else smooth * loss + (1 - smooth) * average
            if not math.isfinite(average):
                break
            for name, value in (("lr", rate), ("loss", average), ("raw_loss", loss)):
                self.history[name].append(value)
            lowest = min(lowest, average)
            if average > diverge * lowest:
                break

    def _step(self, batch: Any) -> float:
        def closure() -> Tensor:
            self.optimizer.zero_grad()
            with enable_grad():
                loss = self.loss(batch)
            loss.backward()
            return loss

        loss = closure()  # with the weights before the step; optimizers that search along a line ask for more
        value = float(loss.item())
        if math.isfinite(value):
            self.optimizer.step(closure) if isinstance(self.optimizer, LBFGS) else self.optimizer.step()
        return value

    def suggestion(self, method: str = "steepest", skip_start: int = 10, skip_end: int = 5) -> float:
        """A learning rate to start with.

        steepest    where the averaged loss falls fastest
        minimum     a tenth of the rate at which it is lowest, well before it climbs

        The first and last points, where the average has not settled or the loss already climbs, are left out.
        """
        rates, losses = self._points(skip_start, skip_end)
        if method == "minimum":
            return float(rates[np.argmin(losses)] / 10)
        if method != "steepest":
            raise ValueError(f"method is 'steepest' or 'minimum', not {method!r}")
        slopes = np.gradient(losses, np.log(rates))
        if slopes.min() >= 0:
            raise RuntimeError(
                f"the loss does not fall anywhere between {rates[0]:.1e} and {rates[-1]:.1e}: try other bounds, or more steps"
            )
        return float(rates[np.argmin(slopes)])

    def _points(self, skip_start: int, skip_end: int) -> tuple[np.ndarray, np.ndarray]:
        rates, losses = np.array(self.history["lr"]), np.array(self.history["loss"])
        if len(rates) < 3:
            raise RuntimeError(f"there are {len(rates)} points: call range_test first, with three batches or more")
        if len(rates) - skip_start - skip_end < 3:
            return rates, losses
        return rates[skip_start : len(rates) - skip_end], losses[skip_start : len(rates) - skip_end]

    def plot(self, ax: Any = None, path: str | os.PathLike | None = None, skip_start: int = 10, skip_end: int = 5) -> Any:
        """Loss over learning rate, the suggestion marked, with matplotlib; into a file if `path` is given. Returns the axes."""
        rates, losses = self._points(skip_start, skip_end)
        ax = _axes(alone=path is not None) if ax is None else ax
        ax.plot(self.history["lr"], self.history["raw_loss"], color="0.8", linewidth=1, label="each batch")
        ax.plot(rates, losses, linewidth=2, label="average")
        try:
            best = self.suggestion(skip_start=skip_start, skip_end=skip_end)
        except RuntimeError:  # the loss falls nowhere: there is nothing to mark
            best = None
        if best is not None:
            ax.plot([best], [np.interp(np.log(best), np.log(rates), losses)], "o", color="tab:red", label=f"steepest: {best:.1e}")
        ax.set(xscale="log", xlabel="learning rate", ylabel="loss", ylim=_heights(losses, self.history["raw_loss"]))
        ax.legend(frameon=False)
        if path is not None:
            ax.figure.savefig(path, dpi=120, bbox_inches="tight")
        return ax


def _axes(alone: bool) -> Any:
    """Axes of a new figure: one that pyplot shows, or one of its own that is only saved."""
    try:
        if alone:
            from matplotlib.figure import Figure

            return Figure(figsize=(6.4, 4.0)).add_subplot()
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ImportError("LRFinder.plot draws with matplotlib: pip install 'flambeau[plot]'") from None
    return plt.subplots(figsize=(6.4, 4.0))[1]


def _heights(losses: np.ndarray, raw: list[float]) -> tuple[float, float]:
    """The part of the axis in which the average moves: a loss that explodes would flatten everything else."""
    low, high = min(losses.min(), min(raw)), max(losses.max(), losses[0])
    margin = 0.1 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + 3 * margin


# -- one step ------------------------------------------------------------------------------------------------------


def _endless(loader: Iterable[Any]) -> Iterator[Any]:
    """Batches, over and over. What can be iterated only once ends where it ends."""
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            return


def _twin(loader: Iterable[Any]) -> Iterable[Any]:
    """A loader like this one: its workers, and its place in an epoch, are not touched."""
    if not isinstance(loader, DataLoader):
        return loader
    twin = copy(loader)
    twin._iterator = None
    return twin


def _shares(optimizer: Optimizer) -> list[float]:
    """The rate of each group, in terms of the first group's."""
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    return [rate / rates[0] if rates[0] else 1.0 for rate in rates]


def _set_rate(group: dict[str, Any], rate: float) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def _moved(batch: Any, device: Any) -> Any:
    """Every tensor of a batch on the device of the model."""
    if isinstance(batch, Tensor):
        return batch if device is None else batch.to(device)
    if isinstance(batch, dict):
        return {key: _moved(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)) and not hasattr(batch, "_fields"):
        return type(batch)(_moved(value, device) for value in batch)
    return batch


# -- as if nothing had happened ------------------------------------------------------------------------------------


@contextmanager
def unchanged(model: Module, optimizer: Optimizer, loader: Any = None) -> Iterator[None]:
    """Train within it; afterwards the model, the optimizer and all random generators are what they were, bit for bit."""
    groups = [p for group in optimizer.param_groups for p in group["params"]]
    parameters = list({id(p): p for p in chain(model.parameters(), groups)}.values())
    values = [(p, p.detach().clone(), p.grad) for p in parameters]
    buffers = [
        (module._buffers, name, buffer, None if buffer is None else buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
    ]
    modes = [(module, module.training) for module in model.modules()]
    state = deepcopy(optimizer.state_dict())
    for p in parameters:
        p.grad = None  # a fresh one is made: the old one is kept as it is
    try:
        with fork_rng(), _other_generators(loader):
            yield
    finally:
        with no_grad():
            for p, value, grad in values:
                p.copy_(value)
                p.grad = grad
            for home, name, buffer, value in buffers:
                home[name] = buffer
                if buffer is not None:
                    buffer.copy_(value)
        for module, training in modes:
            module.training = training
        _put_back(optimizer, state)


def _put_back(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Load a state; rates that are tensors stay the objects they were, as a schedule may hold them."""
    rates = [group["lr"] for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(rate, Tensor):
            rate.fill_(float(group["lr"]))
            group["lr"] = rate


@contextmanager
def _other_generators(loader: Any) -> Iterator[None]:
    """Python's generator, NumPy's, and those the loader and its sampler were given."""
    python = random.getstate()
    numpy = np.random.get_state() if "numpy.random" in sys.modules else None
    own = [getattr(owner, "generator", None) for owner in (loader, getattr(loader, "sampler", None))]
    states = [(g, g.get_state()) for g in own if hasattr(g, "get_state")]
    try:
        yield
    finally:
        random.setstate(python)
        if numpy is not None:
            np.random.set_state(numpy)
        for generator, position in states:
            generator.set_state(position)
