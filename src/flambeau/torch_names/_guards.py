"""torch._guards: what a compiler knows while it captures a program, as far as programs ask: the fakes that it works on."""

from __future__ import annotations

from typing import Any

from flambeau.dispatch import stack
from flambeau.dispatch.fake import FakeTensorMode, maybe_get_fake_mode
from flambeau.eager.arguments import tensors_in

__all__ = ["active_fake_mode", "detect_fake_mode"]


def active_fake_mode() -> FakeTensorMode | None:
    """The innermost FakeTensorMode that is active; None outside of any."""
    return next((mode for mode in reversed(stack.current_modes()) if isinstance(mode, FakeTensorMode)), None)


def detect_fake_mode(inputs: Any = None) -> FakeTensorMode | None:
    """The FakeTensorMode that is active, or that of the fakes among the inputs; None if there is neither. AssertionError if there are several."""
    found = {id(mode): mode for mode in (active_fake_mode(), *map(maybe_get_fake_mode, tensors_in(inputs))) if mode is not None}
    if len(found) > 1:
        raise AssertionError("the fakes belong to several FakeTensorModes, and one was expected")
    return next(iter(found.values()), None)
