"""Schedules: how the learning rates of an optimizer's groups change from step to step.

    scheduler = StepLR(optimizer, step_size=30)
    for epoch in range(100):
        train(...)            # calls optimizer.step()
        scheduler.step()      # afterwards

Most schedules are written as a recurrence, the next rate from the present one (`get_lr`), so that several can work on one optimizer; and
where there is one as a closed form, the rate of an epoch (`_get_closed_form_lr`), for `step(epoch)`. Rates may be tensors; these are written
in place.
"""

from __future__ import annotations

import functools
import math
import types
import warnings
import weakref
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau.optim.optimizer import Optimizer, _to_scalar
from flambeau.tensor import Tensor

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR", "LRScheduler",
    "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip

Rates = list[Any]  # of floats or Tensors, one for each group
EPOCH_DEPRECATION_WARNING = (
    "`scheduler.step()` needs no epoch parameter, which is deprecated: call it once per epoch. With one, the closed form of "
    "the schedule is used where there is one."
)


_ORDER = "See https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"


class LRScheduler:
    """The base of all schedules: counts the steps, and writes what `get_lr` says into the optimizer's groups."""

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = _checked(optimizer)
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _copied(group["lr"]))
            elif "initial_lr" not in group:
                words = f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with last_epoch >= 0"
                raise KeyError(f"{words}: load the optimizer's state dict first, or leave last_epoch at -1 for a fresh start")
        self.base_lrs: Rates = _rates(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        _note_steps(optimizer)
        self._initial_step()

    def get_lr(self) -> Rates:
        """The learning rates of `last_epoch`, from those before it."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr(): a schedule has to say how the rates go on")

    def get_last_lr(self) -> Rates:
        """The rates that were set last."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go on to the next epoch, or to a given one."""
        if self._step_count == 1:
            self._check_order()
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state_dict()."""
        self.__dict__.update(state_dict)

    def _initial_step(self) -> None:
        """Set the first rates."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def _update_lr(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed = None if epoch is None else getattr(self, "_get_closed_form_lr", None)
        with _within_step(self):
            self._set(self.get_lr() if closed is None else closed())

    def _set(self, rates: Iterable) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            _write(group, "lr", rate)
        self._last_lr: Rates = _rates(self.optimizer, "lr")

    def _scaled(self, factor: float) -> Rates:
        """All present rates times a factor."""
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def _check_order(self) -> None:
        """Warn if the schedule moved before the optimizer did: its first rate would go unused."""
        if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
            words = "`optimizer.step()` has been overridden since the learning rate scheduler was made"
            warnings.warn(f"{words}: make sure to call it before `lr_scheduler.step()`. {_ORDER}", UserWarning, stacklevel=3)
        elif not getattr(self.optimizer, "_opt_called", False):
            words = "Detected call of `lr_scheduler.step()` before `optimizer.step()`: call them in the opposite order"
            warnings.warn(f"{words}, or the schedule's first learning rate is never used. {_ORDER}", UserWarning, stacklevel=3)


class _LRScheduler(LRScheduler):
    """The old name, for classes derived from it."""


# -- schedules by formula ------------------------------------------------------------------------------------------------


class _ByFunction(LRScheduler):
    """A schedule by functions of the epoch, one for each group. Functions are not saved, objects that can be called are, by their state."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]], last_epoch: int = -1):
        self.optimizer = optimizer
        groups = len(optimizer.param_groups)
        if isinstance(lr_lambda, (list, tuple)):
            if len(lr_lambda) != groups:
                raise ValueError(f"Expected {groups} lr_lambdas, but got {len(lr_lambda)}")
            self.lr_lambdas = list(lr_lambda)
        else:
            self.lr_lambdas = [lr_lambda] * groups
        self._check_functions()
        super().__init__(optimizer, last_epoch)

    def _check_functions(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        found = super().state_dict()
        del found["lr_lambdas"]  # it comes last, as in PyTorch
        found["lr_lambdas"] = [None if isinstance(f, types.FunctionType) else f.__dict__.copy() for f in self.lr_lambdas]
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update({name: value for name, value in state_dict.items() if name != "lr_lambdas"})
        for function, saved in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=False):
            if saved is not None:
                function.__dict__.update(saved)


class LambdaLR(_ByFunction):
    """The initial rate times a function of the epoch."""

    def get_lr(self) -> Rates:
        _warn_outside_step(self)
        return [base * function(self.last_epoch) for function, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]


class MultiplicativeLR(_ByFunction):
    """The present rate times a function of the epoch."""

    def _check_functions(self) -> None:
        for function in self.lr_lambdas:
            if not callable(function):
                raise TypeError(f"lr_lambda should be a function, found {type(function).__name__}")

    def get_lr(self) -> Rates:
        _warn_outside_step(self)
        if self._is_initial:
            return _rates(self.optimizer, "lr")
        groups = self.optimizer.param_groups
        return [group["lr"] * function(self.last_epoch) for function, group in zip(self.lr_lambdas, groups, strict=True)]


class StepLR(LRScheduler):
    """Times gamma every step_size epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        _warn_outside_step(self)
        return self._scaled(self.gamma) if self.last_epoch and self.last_epoch % self.step_size == 0 else _rates(self.optimizer, "lr")

    def _get_closed_form_lr(self) -> Rates:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Times gamma at each of the milestones."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        _warn_outside_step(self)
        if self.last_epoch not in self.milestones:
            return _rates(self.optimizer, "lr")
        return self._scaled(self.gamma ** self.milestones[self.last_epoch])

    def _get_closed_form_lr(self) -> Rates:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """The initial rate times factor for total_iters epochs, then the initial rate."""

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1):
        if not 0 <= factor <= 1.0:
            raise ValueError(f"ConstantLR: factor is between 0 and 1, found {factor}.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        _warn_outside_step(self)
        if self.last_epoch == 0:
            return self._scaled(self.factor)
        return self._scaled(1.0 / self.factor) if self.last_epoch == self.total_iters else _rates(self.optimizer, "lr")

    def _get_closed_form_lr(self) -> Rates:
        return [base * (1.0 if self.last_epoch >= self.total_iters else self.factor) for base in self.base_lrs]


class LinearLR(LRScheduler):
    """From start_factor to end_factor times the initial rate, in total_iters equal steps."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5, last_epoch: int = -1
    ):
        if not 0 < start_factor <= 1.0:
            raise ValueError(f"LinearLR: start_factor is above 0, and 1 at most, found {start_factor}.")
        if not 0 <= end_factor <= 1.0:
            raise ValueError(f"LinearLR: end_factor is between 0 and 1, found {end_factor}.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        _warn_outside_step(self)
        if self.last_epoch == 0:
            return self._scaled(self.start_factor)
        if self._is_initial or self.last_epoch > self.total_iters:
            return _rates(self.optimizer, "lr")
        rise = self.end_factor - self.start_factor
        return self._scaled(1.0 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise))

    def _get_closed_form_lr(self) -> Rates:
        part = min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * (self.start_factor + (self.end_factor - self.start_factor) * part) for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Times gamma every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        _warn_outside_step(self)
        return _rates(self.optimizer, "lr") if self._is_initial else self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> Rates:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """The initial rate times (1 - epoch / total_iters)^power, down to 0."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        _warn_outside_step(self)
        if self._is_initial or self.last_epoch > self.total_iters:
            return _rates(self.optimizer, "lr")
        left, before = 1.0 - self.last_epoch / self.total_iters, 1.0 - (self.last_epoch - 1) / self.total_iters
        return self._scaled((left / before) ** self.power)

    def _get_closed_form_lr(self) -> Rates:
        return [base * (1.0 - min(self.total_iters, self.last_epoch) / self.total_iters) ** self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate down to eta_min in T_max epochs (and up again after them).

    Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts; here without the restarts.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        _warn_outside_step(self)
        groups, t, half = self.optimizer.param_groups, self.last_epoch, self.T_max
        if self._is_initial:
            return _rates(self.optimizer, "lr")
        if self._step_count == 1 and t > 0:
            return self._get_closed_form_lr()
        if (t - 1 - half) % (2 * half) == 0:  # the rate is eta_min, and no ratio leads away from that
            rise = (1 - math.cos(math.pi / half)) / 2
            return [group["lr"] + (base - self.eta_min) * rise for base, group in zip(self.base_lrs, groups, strict=True)]
        ratio = (1 + math.cos(math.pi * t / half)) / (1 + math.cos(math.pi * (t - 1) / half))
        return [ratio * (group["lr"] - self.eta_min) + self.eta_min for group in groups]

    def _get_closed_form_lr(self) -> Rates:
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine in T_0 epochs, then again from the initial rate, each time T_mult times as long. `step(epoch)` takes fractions, too."""

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1):
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"eta_min must be a number, found {eta_min} of type {type(eta_min)}")
        self.T_0, self.T_i, self.T_mult, self.eta_min = T_0, T_0, T_mult, eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        _warn_outside_step(self)
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:  # type: ignore[override]
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur, self.T_i = self.T_cur % self.T_i, self.T_i * self.T_mult
        else:
            epoch = 0 if epoch is None else epoch
            if epoch < 0:
                raise ValueError(f"Expected non-negative epoch, but got {epoch}")
            self.T_cur, self.T_i = self._position(epoch)
        self.last_epoch = math.floor(epoch)
        with _within_step(self):
            self._set(self.get_lr())

    def _position(self, epoch: float) -> tuple[float, int]:
        """(epochs since the last restart, length of this period)."""
        if epoch < self.T_0:
            return epoch, self.T_0
        if self.T_mult == 1:
            return epoch % self.T_0, self.T_i
        n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
        return epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1), self.T_0 * self.T_mult**n


# -- schedules that turn the momentum, too -------------------------------------------------------------------------------


class _WithMomentum(LRScheduler):
    """A schedule whose momentum falls while the rate rises: option "momentum", or the first of "betas"."""

    def _start_momentum(self, base_momentum, max_momentum, last_epoch: int) -> tuple[list, list]:
        options = self.optimizer.defaults
        if "momentum" not in options and "betas" not in options:
            raise ValueError("cycle_momentum: the optimizer has neither momentum nor beta1 to cycle")
        self.use_beta1 = "betas" in options
        bases = _format_param("base_momentum", self.optimizer, base_momentum)
        highest = _format_param("max_momentum", self.optimizer, max_momentum)
        if last_epoch == -1:
            for high, base, group in zip(highest, bases, self.optimizer.param_groups, strict=True):
                self._write_momentum(group, high)
                group["max_momentum"], group["base_momentum"] = high, base
        return bases, highest

    def _write_momentum(self, group: dict, value) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


class CyclicLR(_WithMomentum):
    """From base_lr up to max_lr in step_size_up steps, down in step_size_down, and again. For every batch, not every epoch.

    mode    "triangular", "triangular2" (half the height each cycle), "exp_range" (the height times gamma^step), or
            scale_fn(cycle, or step if scale_mode is "iterations") -> the height
    Smith, Cyclical Learning Rates for Training Neural Networks.
    """

    def __init__(
        self, optimizer: Optimizer, base_lr, max_lr, step_size_up: int = 2000, step_size_down: int | None = None, mode: str = "triangular",
        gamma: float = 1.0, scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
        base_momentum=0.8, max_momentum=0.9, last_epoch: int = -1,
    ):  # fmt: skip
        self.optimizer = _checked(optimizer)
        base_lrs = _format_param("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for rate, group in zip(base_lrs, optimizer.param_groups, strict=True):
                _write(group, "lr", rate)
        self.max_lrs = _format_param("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if mode not in _HEIGHTS and scale_fn is None:
            raise ValueError(f"mode is invalid and scale_fn is None: expected one of {list(_HEIGHTS)}, found {mode!r}")
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.base_momentums, self.max_momentums = self._start_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """The height of a cycle, or at a step."""
        return self._scale_fn_custom(x) if self._scale_fn_custom is not None else _HEIGHTS[self.mode](x, self.gamma)

    def get_lr(self) -> Rates:
        _warn_outside_step(self)
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        part = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        height = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            momentums = zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True)
            for group, base, high in momentums:
                self._write_momentum(group, high - (high - base) * part * height)
        return [base + (high - base) * part * height for base, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        found = super().state_dict()
        function = found.pop("_scale_fn_custom")  # it comes last, as in PyTorch
        found["_scale_fn_custom"] = None if function is None or isinstance(function, types.FunctionType) else function.__dict__.copy()
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        saved = state_dict["_scale_fn_custom"]
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "_scale_fn_custom"})
        if saved is not None:
            self._scale_fn_custom.__dict__.update(saved)


_HEIGHTS: dict[str, Callable[[float, float], float]] = {
    "triangular": lambda x, gamma: 1.0,
    "triangular2": lambda x, gamma: 1 / 2.0 ** (x - 1),
    "exp_range": lambda x, gamma: gamma**x,
}


class OneCycleLR(_WithMomentum):
    """One rise to max_lr and one fall far below the start, for a run of a known number of steps. For every batch, not every epoch.

    The rate starts at max_lr / div_factor, is highest after the part pct_start of the steps, and ends at the start / final_div_factor;
    with three_phase it comes back to the start first. Smith and Topin, Super-Convergence.
    """

    def __init__(
        self, optimizer: Optimizer, max_lr, total_steps: int | None = None, epochs: int | None = None, steps_per_epoch: int | None = None,
        pct_start: float = 0.3, anneal_strategy: str = "cos", cycle_momentum: bool = True, base_momentum=0.85, max_momentum=0.95,
        div_factor: float = 25.0, final_div_factor: float = 1e4, three_phase: bool = False, last_epoch: int = -1,
    ):  # fmt: skip
        self.optimizer = _checked(optimizer)
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ValueError("OneCycleLR: give total_steps, or both epochs and steps_per_epoch")
        counts = {"epochs": epochs, "steps_per_epoch": steps_per_epoch} if total_steps is None else {"total_steps": total_steps}
        for name, value in counts.items():
            if not isinstance(value, int) or value <= 0:
                raise ValueError(f"Expected positive integer {name}, but got {value}")
        self.total_steps: int = math.prod(counts.values())  # type: ignore[type-var, assignment]
        self._schedule_phases = _phases(pct_start, self.total_steps, three_phase)
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"pct_start is between 0 and 1, found {pct_start}")
        if anneal_strategy not in _ANNEALING:
            raise ValueError(f"anneal_strategy must be 'cos' or 'linear', found {anneal_strategy}")
        self._anneal_func_type = anneal_strategy
        if last_epoch == -1:
            for group, high in zip(optimizer.param_groups, _format_param("max_lr", optimizer, max_lr), strict=True):
                group["initial_lr"], group["max_lr"] = high / div_factor, high
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._start_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        _warn_outside_step(self)
        t = self.last_epoch
        if t > self.total_steps:
            raise ValueError(f"step {t} is beyond the {self.total_steps} steps of the schedule (total_steps)")
        start, phase = 0.0, self._schedule_phases[0]
        for phase in self._schedule_phases:
            if t <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            start = phase["end_step"]
        part, anneal = (t - start) / (phase["end_step"] - start), _ANNEALING[self._anneal_func_type]
        groups = self.optimizer.param_groups
        if self.cycle_momentum:
            for group in groups:
                self._write_momentum(group, anneal(group[phase["start_momentum"]], group[phase["end_momentum"]], part))
        return [anneal(group[phase["start_lr"]], group[phase["end_lr"]], part) for group in groups]


def _phases(pct_start: float, total: int, three_phase: bool) -> list[dict[str, Any]]:
    """Until which step, between which of a group's rates, and between which momentums."""
    names = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")
    rise = (float(pct_start * total) - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum")
    if three_phase:
        fall = (float(2 * pct_start * total) - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum")
        rows = [rise, fall, (total - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum")]
    else:
        rows = [rise, (total - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]
    return [dict(zip(names, row, strict=True)) for row in rows]


_ANNEALING: dict[str, Callable] = {
    "cos": lambda start, end, part: end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1),
    "linear": lambda start, end, part: (end - start) * part + start,
}


# -- schedules of schedules ----------------------------------------------------------------------------------------------


class _OfSchedules(LRScheduler):
    """What SequentialLR and ChainedScheduler share: the schedules they consist of, and how these are saved."""

    _schedulers: Sequence[Any]

    def _check_all(self, optimizer: Optimizer, schedulers: Sequence) -> None:
        name = type(self).__name__
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"{name}: number {i} is no scheduler, as it has no optimizer.")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(f"{name} does not support `ReduceLROnPlateau`, whose step needs a metric; found one at index {i}.")
            if optimizer is not scheduler.optimizer:
                found = f"that of {type(scheduler).__name__} at index {i} is another"
                raise ValueError(f"{name}: all schedulers must have one and the same optimizer; {found}.")

    def state_dict(self) -> dict[str, Any]:
        own = {name: value for name, value in super().state_dict().items() if name != "_schedulers"}
        return own | {"_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update({name: value for name, value in state_dict.items() if name != "_schedulers"})
        for scheduler, saved in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(saved)


class SequentialLR(_OfSchedules):
    """One schedule after the other, each from its milestone on."""

    def __init__(self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1):
        if not schedulers:
            raise ValueError(f"{type(self).__name__} needs at least one scheduler, found none.")
        self._check_all(optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            words = "SequentialLR: there must be a milestone between any two schedulers"
            raise ValueError(f"{words}, but got {len(schedulers)} schedulers and {len(milestones)} milestones")
        self._schedulers, self._milestones = schedulers, milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:  # all of them have set their first rates: only one of them counts
            _write(group, "lr", group["initial_lr"])
        self.recursive_undo()
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def recursive_undo(self, sched: Any = None) -> None:
        """Take the first step of every schedule back."""
        scheduler = self if sched is None else sched
        if hasattr(scheduler, "_schedulers"):
            for s in scheduler._schedulers:
                self.recursive_undo(s)
        elif hasattr(scheduler, "last_epoch"):
            scheduler.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override]
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[i]
        if i and self._milestones[i - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_OfSchedules):
    """Several schedules at once: each changes the rates the one before has left."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        if len(schedulers) < 1:
            raise ValueError(f"{type(self).__name__} needs at least one scheduler, found none.")
        optimizer = optimizer or schedulers[0].optimizer
        self._check_all(optimizer, schedulers)
        self._schedulers, self.optimizer = schedulers, optimizer
        self._last_lr = _rates(optimizer, "lr")

    def step(self) -> None:  # type: ignore[override]
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = _rates(self._schedulers[-1].optimizer, "lr")


class ReduceLROnPlateau(LRScheduler):
    """Times factor once a metric has not improved for more than `patience` epochs; then a pause of `cooldown` epochs.

    mode            "min": the metric should fall, "max": rise
    threshold       what counts as better, relative to the best ("rel") or absolute ("abs")
    min_lr, eps     no rate below min_lr, and no change smaller than eps
    """

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
        threshold_mode: str = "rel", cooldown: int = 0, min_lr=0, eps: float = 1e-8,
    ):  # fmt: skip
        if factor >= 1.0:
            raise ValueError(f"Factor should be < 1.0, found {factor}.")
        self.factor, self.optimizer = factor, _checked(optimizer)
        groups = len(optimizer.param_groups)
        if isinstance(min_lr, (list, tuple)):
            if len(min_lr) != groups:
                raise ValueError(f"expected {groups} min_lrs, got {len(min_lr)}")
            self.default_min_lr, self.min_lrs = None, list(min_lr)
        else:
            self.default_min_lr, self.min_lrs = min_lr, [min_lr] * groups
        self.patience, self.cooldown, self.eps, self.last_epoch = patience, cooldown, eps, 0
        self._last_lr = _rates(optimizer, "lr")
        self._init_is_better(mode, threshold, threshold_mode)
        self._reset()

    def _reset(self) -> None:
        self.best, self.cooldown_counter, self.num_bad_epochs = self.mode_worse, 0, 0

    def step(self, metrics, epoch: int | None = None) -> None:  # type: ignore[override]
        """Tell the metric of an epoch."""
        current = float(metrics)
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(self.last_epoch)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = _rates(self.optimizer, "lr")

    def _reduce_lr(self, epoch: int) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                found = f"is {len(groups)}, and was {len(self.min_lrs)} when `ReduceLROnPlateau` was initialized"
                raise RuntimeError(f"The number of param groups in the optimizer {found}. Set `min_lrs`.")
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs, strict=True):
            old = float(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                _write(group, "lr", new)

    @property
    def in_cooldown(self) -> bool:
        """Whether the pause after a reduction is still on."""
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        """Whether a metric is an improvement."""
        return self._is_better(a, best)

    def _is_better(self, a: float, best: float) -> bool:
        if self.mode == "min":
            return a < (best * (1.0 - self.threshold) if self.threshold_mode == "rel" else best - self.threshold)
        return a > (best * (self.threshold + 1.0) if self.threshold_mode == "rel" else best + self.threshold)

    def _init_is_better(self, mode: str, threshold: float, threshold_mode: str) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update(state_dict)
        self._init_is_better(self.mode, self.threshold, self.threshold_mode)


# -- what they are made of -----------------------------------------------------------------------------------------------


def _checked(optimizer: Any) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
    return optimizer


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _rates(optimizer: Optimizer, key: str) -> Rates:
    """An option of all groups; tensors are copied, because they are written in place."""
    return [_copied(group[key]) for group in optimizer.param_groups]


def _write(group: dict[str, Any], key: str, value: Any) -> None:
    if isinstance(group[key], Tensor):
        group[key].fill_(_to_scalar(value))
    else:
        group[key] = value


def _format_param(name: str, optimizer: Optimizer, param: Any) -> list:
    """One value for each group."""
    groups = len(optimizer.param_groups)
    if isinstance(param, (list, tuple)):
        if len(param) != groups:
            raise ValueError(f"{name} must have the same length as optimizer.param_groups: {len(param)} values for {groups} groups")
        return [_copied(p) for p in param]
    return [_copied(param) for _ in range(groups)]


@contextmanager
def _within_step(scheduler: LRScheduler):
    """Within it `get_lr` knows that it is asked for the next rates, not by someone who wants to know the last ones."""
    scheduler._get_lr_called_within_step = True
    try:
        yield
    finally:
        scheduler._get_lr_called_within_step = False


def _warn_outside_step(scheduler: LRScheduler) -> None:
    if not scheduler._get_lr_called_within_step:
        words = "get_lr() computes the next step; `get_last_lr()` is what the scheduler has set."
        warnings.warn(words, UserWarning, stacklevel=3)


def _note_steps(optimizer: Optimizer) -> None:
    """Have the optimizer note that it was stepped, to see whether the order is right."""
    if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        return
    function, known = optimizer.step.__func__, weakref.ref(optimizer)  # type: ignore[attr-defined]

    @functools.wraps(function)
    def step(*args, **kwargs):
        self = known()
        self._opt_called = True
        return function(self, *args, **kwargs)

    step._wrapped_by_lr_sched = True
    optimizer.step = step  # type: ignore[method-assign]
