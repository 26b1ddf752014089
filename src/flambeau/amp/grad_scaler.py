"""`GradScaler`: float16 gradients kept from vanishing, by scaling the loss.

    scaler.scale(loss).backward()       # all gradients are `scale` times as large: none is rounded to zero
    scaler.unscale_(optimizer)          # optional: to clip them, say
    scaler.step(optimizer)              # skipped if a gradient is infinite or NaN: the scale was too large
    scaler.update()                     # the scale shrinks after such a step, and grows after many without one

The scale, and whether an infinity was found, stay on the device of the gradients: a GPU is asked once per step, in `step`.
"""

from __future__ import annotations

import inspect
import warnings
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from math import inf
from typing import Any

from flambeau import dtypes, modes
from flambeau.eager import bind, updates
from flambeau.optim import Optimizer
from flambeau.tensor import Tensor
from flambeau.tensor.making import factories
from flambeau.tensor.memory.host_memory import cuda_is_available

__all__ = ["GradScaler", "OptState"]


class OptState(Enum):
    """Where an optimizer stands between two updates of the scale."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _refresh_per_optimizer_state() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """Scales losses, unscales gradients, skips steps with infinite ones, and adapts the scale.

    device           the type of device the scale lives on
    init_scale       what the first loss is multiplied by
    growth_factor    what the scale is multiplied by after growth_interval steps without an infinity
    backoff_factor   what it is multiplied by after a step with one
    enabled          False: `scale` returns its argument, `step` is the optimizer's, and the rest does nothing
    """

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        self._device = device
        self._enabled = enabled
        if device == "cuda" and enabled and not cuda_is_available():
            warnings.warn("GradScaler is for CUDA, and CUDA is not available here: it does nothing.", stacklevel=2)
            self._enabled = False
        if not self._enabled:
            return
        assert growth_factor > 1.0, "The growth factor must be > 1.0."
        assert backoff_factor < 1.0, "The backoff factor must be < 1.0."
        self._init_scale, self._init_growth_tracker = init_scale, 0
        self._scale: Tensor | None = None  # made with the first loss, where that is
        self._growth_tracker: Tensor | None = None  # steps without an infinity since the scale last changed
        self._growth_factor, self._backoff_factor, self._growth_interval = growth_factor, backoff_factor, growth_interval
        self._per_optimizer_states: dict[int, dict[str, Any]] = defaultdict(_refresh_per_optimizer_state)

    def _lazy_init_scale_growth_tracker(self, dev) -> None:
        assert self._growth_tracker is None, "_growth_tracker initialized before _scale"
        self._scale = factories.full((), self._init_scale, dtype=dtypes.float32, device=dev)
        self._growth_tracker = factories.full((), self._init_growth_tracker, dtype=dtypes.int32, device=dev)

    def _check_scale_growth_tracker(self, funcname: str) -> tuple[Tensor, Tensor]:
        fix = "Perhaps the program did not use scaler.scale(loss) in this iteration."
        assert self._scale is not None, f"Attempted {funcname} but _scale is None.  {fix}"
        assert self._growth_tracker is not None, f"Attempted {funcname} but _growth_tracker is None.  {fix}"
        return self._scale, self._growth_tracker

    # -- what users call in a training loop

    def scale(self, outputs: Any) -> Any:
        """A tensor, or tensors in lists, tuples or other iterables, multiplied by the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if self._scale is None:
                self._lazy_init_scale_growth_tracker(outputs.device)
            assert self._scale is not None
            return outputs * self._scale.to(device=outputs.device)
        if isinstance(outputs, Iterable):
            scaled = map(self.scale, outputs)
            if not isinstance(outputs, (list, tuple)):
                return scaled
            return type(outputs)(*scaled) if hasattr(outputs, "_fields") else type(outputs)(scaled)
        raise ValueError("scale() takes a Tensor or an iterable of them")

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, in place. `step` does it, if you have not."""
        if not self._enabled:
            return
        self._check_scale_growth_tracker("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        assert self._scale is not None
        # In double precision, and then rounded: the reciprocal of a float32 is not always the nearest float32.
        inv_scale = self._scale.double().reciprocal().float()
        found_inf = factories.full((), 0.0, dtype=dtypes.float32, device=self._scale.device)
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, inv_scale, found_inf, False)
        state["stage"] = OptState.UNSCALED

    @modes.no_grad()
    def _unscale_grads_(self, optimizer: Optimizer, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool) -> dict:
        """Multiply all gradients by `inv_scale`; {device: 1.0 if one of its gradients was not finite, else 0.0}."""
        params = [param for group in optimizer.param_groups for param in group["params"] if param.grad is not None]
        for param in params:
            if param.grad.is_sparse and param.grad.dtype is dtypes.float16:
                param.grad = param.grad.coalesce()  # elements of one place may be finite each, and their sum not
        grads = [param.grad for param in params]
        if not allow_fp16 and dtypes.float16 in [g.dtype for g in grads]:
            raise ValueError("Attempting to unscale FP16 gradients. Keep the parameters in float32 and run the model in autocast.")
        if grads and inv_scale.is_cpu and updates.on_cpu(grads):  # all of one kind: nothing to ask of each
            return {inv_scale.device: _unscale(grads, inv_scale, found_inf)}
        by_device: dict[Any, list[Tensor]] = {}
        for grad in grads:
            by_device.setdefault(grad.device, []).append(grad._values() if grad.is_sparse else grad)
        return {device: _unscale(grads, inv_scale.to(device), found_inf.to(device)) for device, grads in by_device.items()}

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> float | None:
        """optimizer.step(*args, **kwargs), with unscaled gradients, unless one of them is infinite or NaN. What it returns, or None."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError(
                "Closure use in GradScaler.step: it would compute gradients without their scale. Leave it out, or make GradScaler(enabled=False)."
            )
        self._check_scale_growth_tracker("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._step_of_its_own(optimizer, state, args, kwargs)
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        assert len(state["found_inf_per_device"]) > 0, "No inf checks were done for this optimizer."
        result = self._maybe_opt_step(optimizer, state, *args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def _maybe_opt_step(self, optimizer: Optimizer, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any) -> float | None:
        if sum(v.item() for v in optimizer_state["found_inf_per_device"].values()):
            return None
        return optimizer.step(*args, **kwargs)

    def _step_of_its_own(self, optimizer: Any, state: dict[str, Any], args: tuple, kwargs: dict) -> float | None:
        """An optimizer that unscales by itself: it finds `grad_scale` and `found_inf` on itself, or takes the scaler."""
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
            words = "GradScaler will not pass itself to the optimizer any more as a keyword argument: it finds `grad_scale` and"
            warnings.warn(f"{words} `found_inf` as attributes of itself instead.", FutureWarning, stacklevel=3)
            result = optimizer.step(*args, **kwargs | {"grad_scaler": self})
        else:
            if state["stage"] is OptState.READY:
                self._check_inf_per_device(optimizer)
            scale = self._get_scale_async()
            assert scale is not None
            found = [v.to(scale.device) for v in state["found_inf_per_device"].values()]
            optimizer.grad_scale = None if state["stage"] is OptState.UNSCALED else scale * getattr(optimizer, "grad_scale", 1)
            optimizer.found_inf = sum(found[1:], found[0]) if found else factories.full((), 0.0, device=scale.device)
            result = optimizer.step(*args, **kwargs)
            del optimizer.grad_scale
            del optimizer.found_inf
        state["stage"] = OptState.STEPPED
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapt the scale to what the steps since the last update have found; or set it."""
        if not self._enabled:
            return
        scale, tracker = self._check_scale_growth_tracker("update")
        if new_scale is not None:
            self._set_scale(scale, new_scale)
        else:
            found = [v for state in self._per_optimizer_states.values() for v in state["found_inf_per_device"].values()]
            assert len(found) > 0, "No inf checks were done before update()."
            adapt = self._adapt if scale.is_cpu else self._adapt_on_gpu
            adapt(scale, tracker, sum(v.to(scale.device) for v in found))
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)

    def _adapt(self, scale: Tensor, tracker: Tensor, found_inf: Any) -> None:
        overflowed = bool(found_inf)
        steps = 0 if overflowed else int(tracker.item()) + 1
        if overflowed:
            scale.mul_(self._backoff_factor)
        elif steps == self._growth_interval:
            steps = 0
            grown = scale * self._growth_factor
            scale.copy_(grown if grown.item() < inf else scale)
        tracker.fill_(steps)

    @modes.no_grad()
    def _adapt_on_gpu(self, scale: Tensor, tracker: Tensor, found_inf: Any) -> None:
        """The same without a question to the GPU."""
        where, overflowed = bind.functions["where"], found_inf > 0
        steps = (tracker + 1).masked_fill(overflowed, 0)
        grows, grown = steps == self._growth_interval, scale * self._growth_factor
        larger = where(grows & grown.isfinite(), grown, scale)
        scale.copy_(where(overflowed, scale * self._backoff_factor, larger))
        tracker.copy_(steps.masked_fill(grows, 0))

    @staticmethod
    def _set_scale(scale: Tensor, new: float | Tensor) -> None:
        if isinstance(new, float):
            scale.fill_(new)
            return
        why = "new_scale is a number, or a tensor of one float32 that does not require grad."
        assert isinstance(new, Tensor) and new.device.type == scale.device.type, why
        assert new.numel() == 1 and not new.requires_grad, why
        scale.copy_(new)

    # -- asking and setting

    def _get_scale_async(self) -> Tensor | None:
        return self._scale

    def get_scale(self) -> float:
        """The scale; 1.0 if it is not enabled. On a GPU this waits for it."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

    def get_growth_factor(self) -> float:
        """What the scale is multiplied by when it grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set what the scale is multiplied by when it grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the scale is multiplied by when it shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set what the scale is multiplied by when it shrinks."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """How many steps without an infinity let the scale grow."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set how many steps without an infinity let the scale grow."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else int(self._growth_tracker.item())

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    # -- saving

    def state_dict(self) -> dict[str, Any]:
        """The scale and what makes it change; empty if not enabled. Between `update` and the next `scale` it is complete."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval, "_growth_tracker": self._get_growth_tracker(),
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave; nothing if not enabled."""
        if not self._enabled:
            return
        if len(state_dict) == 0:
            raise RuntimeError("The source state dict is empty, as a GradScaler saves it that is not enabled.")
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(state_dict["_growth_tracker"])

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            when = "at the beginning of an iteration, that is after scaler.update()."
            assert len(self._per_optimizer_states) == 0, f"A GradScaler instance may only be pickled {when}"
            # Numbers instead of tensors: whoever unpickles it may have no GPU.
            state["_init_scale"], state["_init_growth_tracker"] = self.get_scale(), self._get_growth_tracker()
            state["_scale"] = state["_growth_tracker"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def _check_inf_per_device(self, optimizer: Optimizer) -> dict:
        """Look for infinities without unscaling."""
        scale, _ = self._check_scale_growth_tracker("_check_inf_per_device")
        one, none = factories.full((), 1.0, device=scale.device), factories.full((), 0.0, device=scale.device)
        found = self._unscale_grads_(optimizer, one, none, True)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = found
        return found

    def _found_inf_per_device(self, optimizer: Optimizer) -> dict:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]


class OldSpelling(GradScaler):
    """`torch.<device>.amp.GradScaler(...)`, which takes no device: a subclass says which."""

    device: str

    def __init__(
        self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:  # fmt: skip
        old, new = f"torch.{self.device}.amp.GradScaler(args...)", f"torch.amp.GradScaler('{self.device}', args...)"
        warnings.warn(f"`{old}` is deprecated. Please use `{new}` instead.", FutureWarning, stacklevel=2)
        super().__init__(self.device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def _unscale(grads: list[Tensor], inv_scale: Tensor, found_inf: Tensor) -> Tensor:
    """Multiply the gradients of one device in place; 1.0 if one was infinite or NaN, else `found_inf`."""
    if not inv_scale.is_cpu:
        return _unscale_on_gpu([g for g in grads if g.numel()], inv_scale, found_inf)
    return found_inf.new_ones(()) if updates.unscale(grads, inv_scale.item()) else found_inf


def _unscale_on_gpu(grads: list[Tensor], inv_scale: Tensor, found_inf: Tensor) -> Tensor:
    """The same without a question to the GPU: the largest element is infinite or NaN if one is."""
    norm = bind.functions["linalg.vector_norm"]
    largest = [norm(g, inf).float() for g in grads]
    for g in grads:
        g.mul_(inv_scale)
    infinite = (~bind.functions["stack"]([found_inf, *largest]).isfinite()).any()
    return bind.functions["maximum"](found_inf, infinite.float())
