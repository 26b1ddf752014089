"""Averages of a model's weights over the course of training: stochastic weight averaging (SWA) and exponential moving averages (EMA).

    swa_model = AveragedModel(model)                      # or multi_avg_fn=get_ema_multi_avg_fn(0.999)
    for epoch in range(300):
        train(...)
        if epoch > 160:
            swa_model.update_parameters(model)
            swa_scheduler.step()                          # SWALR: to a constant rate, at which the weights wander around
    update_bn(loader, swa_model)                          # batch norms have not seen the averaged weights yet

Izmailov et al., Averaging Weights Leads to Wider Optima and Better Generalization.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any

from flambeau import dtypes
from flambeau.eager.updates import move
from flambeau.modes import no_grad
from flambeau.nn import Module
from flambeau.ops import updates
from flambeau.optim.lr_scheduler import LRScheduler, Rates, _format_param, _warn_outside_step
from flambeau.optim.optimizer import Optimizer
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import tensor

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn", "update_bn",
]  # fmt: skip

Tensors = tuple[Tensor, ...] | list[Tensor]


class AveragedModel(Module):
    """A copy of a model whose parameters are averages; calling it calls the copy.

    avg_fn        (averaged, current, number averaged so far) -> the new average, for each parameter
    multi_avg_fn  the same for lists, in place; without either, all models count alike (SWA)
    use_buffers   whether buffers are averaged, too; otherwise those of the latest model are kept
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable | None = None,
        multi_avg_fn: Callable | None = None,
        use_buffers: bool = False,
    ):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("AveragedModel: avg_fn or multi_avg_fn can be given, one of them")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=dtypes.int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args, **kwargs):
        """The averaged model's."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the present parameters of a model into the average."""
        pairs = [
            (own.detach(), new.detach().to(own.device))
            for own, new in zip(self._averaged(), _tensors(model, self.use_buffers), strict=False)
        ]
        if self.n_averaged.item() == 0:
            for own, new in pairs:
                own.copy_(new)
        elif self.avg_fn is not None:
            for own, new in pairs:
                own.copy_(self.avg_fn(own, new, self.n_averaged.to(own.device)))
        else:
            average = self.multi_avg_fn or get_swa_multi_avg_fn()
            for group in _by_device_and_dtype(pairs):
                average([own for own, _ in group], [new for _, new in group], self.n_averaged.to(group[0][0].device))
        if not self.use_buffers:
            for own, new in zip(self.module.buffers(), model.buffers(), strict=True):
                own.detach().copy_(new.detach().to(own.device))
        self.n_averaged.add_(1)

    def _averaged(self) -> Iterable[Tensor]:
        return _tensors(self.module, True) if self.use_buffers else self.parameters()


def _tensors(model: Module, with_buffers: bool) -> Iterable[Tensor]:
    return chain(model.parameters(), model.buffers()) if with_buffers else model.parameters()


def _by_device_and_dtype(pairs: list[tuple[Tensor, Tensor]]) -> Iterable[list[tuple[Tensor, Tensor]]]:
    found: dict[tuple, list] = {}
    for pair in pairs:
        found.setdefault((pair[0].device, pair[0].dtype), []).append(pair)
    return found.values()


# -- ways to average -----------------------------------------------------------------------------------------------------


def get_ema_avg_fn(decay: float = 0.999) -> Callable:
    """decay * averaged + (1 - decay) * current."""
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged):
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Callable:
    """The mean of all so far: averaged + (current - averaged) / (n + 1)."""

    @no_grad()
    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged):
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable:
    """decay * averaged + (1 - decay) * current, for lists in one launch."""
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param_list: Tensors, current_param_list: Tensors, num_averaged) -> None:
        _average(ema_param_list, current_param_list, 1 - decay)

    return ema_update


def get_swa_multi_avg_fn() -> Callable:
    """The mean of all so far, for lists in one launch."""

    @no_grad()
    def swa_update(averaged_param_list: Tensors, current_param_list: Tensors, num_averaged) -> None:
        _average(averaged_param_list, current_param_list, 1 / (float(num_averaged) + 1))

    return swa_update


def _average(averaged: Tensors, current: Tensors, weight: float) -> None:
    """A step of this weight from the averaged tensors to the current ones. Integers are rounded towards zero."""
    if averaged[0].is_floating_point() or averaged[0].is_complex():
        move(updates.average, (), [list(averaged), list(current)], {"weight": weight})
        return
    for own, new in zip(averaged, current, strict=True):
        own.copy_(own * (1 - weight) + new * weight)


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay}: it is a weight, in [0, 1].")


# -- around it -----------------------------------------------------------------------------------------------------------


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the running statistics of all batch norms anew, by one pass over the data: inputs, or tuples that begin with them."""
    from flambeau.nn.modules.batchnorm import _BatchNorm

    norms = {module: module.momentum for module in model.modules() if isinstance(module, _BatchNorm)}
    if not norms:
        return
    training = model.training
    model.train()
    for module in norms:
        module.reset_running_stats()
        module.momentum = None  # the mean of all batches
    for batch in loader:
        inputs = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(inputs if device is None else inputs.to(device))
    for module, momentum in norms.items():
        module.momentum = momentum
    model.train(training)


class SWALR(LRScheduler):
    """From the present rate to swa_lr in anneal_epochs epochs, along a cosine or a line; then constant."""

    def __init__(self, optimizer: Optimizer, swa_lr, anneal_epochs: int = 10, anneal_strategy: str = "cos", last_epoch: int = -1):
        for rate, group in zip(_format_param("swa_lr", optimizer, swa_lr), optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be 'cos' or 'linear', found {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must not be negative, found {anneal_epochs}")
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def anneal_func(self, t: float) -> float:
        """How much of the way is gone after the part t of the epochs."""
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> Rates:
        _warn_outside_step(self)
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = (self.anneal_func(max(0, min(1, s / max(1, self.anneal_epochs)))) for s in (step - 1, step))
        rates = []
        for group in self.optimizer.param_groups:
            end = group["swa_lr"]
            start = end if before == 1 else (group["lr"] - before * end) / (1 - before)
            rates.append(end * now + start * (1 - now))
        return rates
