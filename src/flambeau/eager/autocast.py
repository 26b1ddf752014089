"""Autocast at work: the operands of an operation are cast before it runs, by the column `autocast=` of its declaration, see `ops/autocast.py`.

While a region is active in a thread, that thread's `Casting` is on the stack of interpreters. An operation either runs with cast operands, and with
autocast taken off for whatever it is made of; or, if its declaration has no rule, as it is. During a composite without one autocast stays, so that its
parts are looked up.

Note [the cache of casts]: a float32 parameter used five times in a region is cast once, and the gradients of its five uses meet before the
cast's backward. The cache holds until the outermost region ends; a parameter that was written to meanwhile is cast anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import dtypes, modes
from flambeau.interpreters import stack
from flambeau.ops import autocast as lists
from flambeau.tensor import PLAIN, Tensor

state = modes.state


class Casting(stack.Interpreter):
    """One thread's settings: which devices cast, to which dtype, and the casts that are remembered."""

    level, stays, operations, by_operations = stack.AUTOCAST, True, True, False

    def __init__(self) -> None:
        self.enabled: dict[str, bool] = {}
        self.dtype: dict[str, dtypes.dtype] = {"cpu": dtypes.bfloat16, "xla": dtypes.bfloat16}  # the others start with float16
        self.cache_enabled = True
        self.nesting = 0
        self.cache: dict[tuple, tuple] = {}  # (id, grad mode, inference mode) -> (parameter, its version, its cast)
        self.active: tuple[str, ...] = ()

    def enable(self, device: str, enabled: bool) -> None:
        """Switch a device on or off, and the thread's mode with it."""
        self.enabled[device] = enabled
        before, self.active = self.active, tuple(d for d in ("cuda", "cpu") if self.enabled.get(d))
        if bool(before) != bool(self.active):
            stack.push(self) if self.active else stack.remove(self)

    def handle(self, function: Any, args: tuple, kwargs: dict, next: Callable) -> Any:
        """Run an operation as autocast has it."""
        op = function.op
        device, rule = self._rule(op, args, kwargs) if function is op.call and kwargs.get("out") is None else ("", lists.GIVEN)
        if rule is None:
            return next(*args, **kwargs)  # and then this question again for each of its parts
        before = state.stack
        without = state.stack = before[1:] if before[0] is self else stack.left_out(before, self)
        modes.special -= 1
        try:
            if rule == lists.GIVEN:
                return next(*args, **kwargs)
            to = self._target(op, rule, device, (*args, *kwargs.values()))
            args = tuple([self._cast(v, to, device) for v in args])
            kwargs = {name: self._cast(v, to, device) for name, v in kwargs.items()} if kwargs else kwargs
            return function(*args, **kwargs)  # not `next`: on a time line the casts, and this call, are parts of the one that was made
        finally:
            stack.back(self, before, without)

    def _rule(self, op, args: tuple, kwargs: dict) -> tuple[str, str | None]:
        device = self.active[0]
        if len(self.active) > 1 and not any(t.is_cuda for t in _tensors((*args, *kwargs.values()))):
            device = "cpu"
        return device, lists.rule(op, device, args, kwargs)

    def _target(self, op, rule: str, device: str, values: tuple) -> dtypes.dtype:
        """The dtype that floating operands are cast to."""
        low = self.dtype.get(device, dtypes.float16)
        if rule == "half":
            return low
        if rule == "float32":
            return dtypes.float32
        found = [t.dtype for t in _tensors(values[1:2] if rule == "state" else values) if _eligible(t, device)]
        if rule == "widest":
            if any(d not in (low, dtypes.float32) for d in found):
                kinds = ", ".join(sorted({str(d) for d in found}))
                what = f"Unexpected floating ScalarType in autocast: {op.short} of {kinds} in a region of {low}"
                raise RuntimeError(f"{what}. Choose one of the half precisions, or cast the operands by hand.")
            return dtypes.float32 if dtypes.float32 in found else low
        if rule == "state":
            return low if all(d is low for d in found) else dtypes.float32
        if any(_eligible(t, device) for t in _tensors(values)):
            what = "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast"
            why = "half precision rounds probabilities to 0 and 1, whose logarithms are infinite"
            raise RuntimeError(
                f"{what}: {why}. Use binary_cross_entropy_with_logits or BCEWithLogitsLoss on the logits, without the sigmoid."
            )
        return low

    def _cast(self, value: Any, to: dtypes.dtype, device: str) -> Any:
        if isinstance(value, Tensor):
            if not _eligible(value, device) or value.dtype is to:
                return value
            cached = self.cache_enabled and value._needs and value._node is None and value._base is None and type(value) in PLAIN
            return self._remembered(value, to) if cached and value.dtype is dtypes.float32 else value.to(to)
        if type(value) in (list, tuple):
            return type(value)([self._cast(v, to, device) for v in value])
        return value

    def _remembered(self, parameter: Tensor, to: dtypes.dtype) -> Tensor:
        key = id(parameter), state.grad, state.inference
        version = 0 if parameter._inference else parameter._version
        found = self.cache.get(key)
        if found is None or found[1] != version or found[2].dtype is not to:
            found = self.cache[key] = parameter, version, parameter.to(to)
        return found[2]


def _eligible(t: Tensor, device: str) -> bool:
    d = t.dtype
    return d.is_floating_point and d is not dtypes.float64 and t.device.type == device


def _tensors(values):
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif type(value) in (list, tuple):
            yield from _tensors(value)


def casting() -> Casting:
    """The settings of this thread."""
    if state.casting is None:
        state.casting = Casting()
    return state.casting


def active() -> Casting | None:
    """The same where a region is active, and not suspended."""
    return stack.at(stack.AUTOCAST)


def suspended() -> stack.off:
    """A context in which autocast is off."""
    return stack.off(casting())
