"""Functions that make tensors, as those who carry operations out see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import devices, modes
from flambeau.dispatch import names, stack
from flambeau.tensor import Tensor
from flambeau.tensor.arguments import shape_of

# Where PyTorch's kernel takes other arguments than the function, or has another name.
SIZED = frozenset("zeros ones empty rand randn new_zeros new_ones new_empty".split())
LIKE = frozenset("zeros_like ones_like empty_like full_like rand_like randn_like randint_like".split())
LISTS = frozenset("randint full new_full empty_strided new_empty_strided".split())  # of which some argument is a size


def made(function: Callable, args: tuple, kwargs: dict) -> Any:
    """A function that is no operation: one that makes tensors is asked for by the name of PyTorch's kernel, others just run."""
    name = function.__name__
    packet = names.packet_of(name)
    if name == "tensor":
        made = _run(function, args, {k: v for k, v in kwargs.items() if k != "requires_grad"})
        found = stack.ask(*names.resolved(names.packet_of("lift_fresh"), (made,), {}))
        return found.requires_grad_() if kwargs.get("requires_grad") else found
    if packet is None or not hasattr(function, "__signature__") or name in ("as_tensor", "asarray"):
        return _run(function, args, kwargs)
    wanted = dict(kwargs)
    requires_grad, out = wanted.pop("requires_grad", False), wanted.pop("out", None)
    wanted = {k: v for k, v in wanted.items() if v is not None}
    if name in SIZED:
        own = args[:1] if name.startswith("new_") else ()
        size = wanted.pop("size", None)
        given: tuple = (*own, list(shape_of(name, args[len(own) :] if size is None else (size,))))
    else:
        given = args
    if not name.startswith("new_") and name not in LIKE:
        wanted["device"] = devices.device(wanted["device"]) if "device" in wanted else devices.get_default_device()
    if "pin_memory" in function.__signature__.parameters:
        wanted["pin_memory"] = bool(wanted.get("pin_memory", False))
    if out is not None:
        wanted = {"out": out}
    try:
        overload, given, wanted = names.resolved(packet, given, wanted)
    except (TypeError, RuntimeError):
        return _run(function, args, kwargs)
    result = stack.ask(overload, given, wanted)
    return result.requires_grad_() if requires_grad and isinstance(result, Tensor) else result


def _run(function: Callable, args: tuple, kwargs: dict) -> Any:
    with stack.not_dispatching():
        result = function(*args, **kwargs)
    return result


state = modes.state
