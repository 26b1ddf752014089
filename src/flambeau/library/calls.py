"""How a call of an overload goes: who is asked, and what runs.

torch.ops.aten.add.Tensor(x, y)
    intercept          whoever carries operations out in another way (`__torch_dispatch__`), while a mode is active or a class overrides
    __torch_function__ modes and classes, which see the overload
    kernels            what programs registered for it, see kernels.py
    aten.run           our function of the same meaning
"""

from __future__ import annotations

from typing import Any

from flambeau import modes
from flambeau.interpreters import by_name, stack
from flambeau.library import aten, kernels
from flambeau.operators import overloads
from flambeau.operators.overloads import OpOverload, OpOverloadPacket
from flambeau.tensor import PLAIN, Tensor
from flambeau.tracing.kinds import FUNCTION

__all__ = ["run"]
BUILT_IN = ("aten", "prim")


def run(op: OpOverload | OpOverloadPacket, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Carry out a call."""
    relevant = (*args, *kwargs.values()) if kwargs else args
    special = modes.special or special_arguments(relevant)
    if special and by_name.knows_by_name(relevant):
        return by_name.call(op, relevant, args, kwargs)
    overload = op if isinstance(op, OpOverload) else op._meant(args, kwargs)
    if special and overloads.intercept is not None and overload not in kernels.registered:
        result = overloads.intercept(overload, args, kwargs)
        if result is not NotImplemented:
            return result
    recorder = stack.at(stack.PROFILE) if modes.special and overload.namespace not in BUILT_IN else None
    if recorder is not None:
        with recorder.range(overload._schema.name, FUNCTION):
            return kernels.run(overload, args, kwargs)
    if kernels.registered or overload.namespace not in BUILT_IN:
        result = kernels.run(overload, args, kwargs)
        if result is not NotImplemented:
            return result
    return aten.run(overload, args, kwargs)


def special_arguments(values: tuple) -> bool:
    """Whether an argument is a tensor of a class of its own."""
    for value in values:
        kind = type(value)
        if kind not in PLAIN:
            if isinstance(value, list | tuple):
                if special_arguments(tuple(value)):
                    return True
            elif isinstance(value, Tensor) or hasattr(kind, "__torch_function__"):
                return True
    return False


overloads.run, overloads.has_kernel, overloads.redispatch = run, kernels.has, kernels.redispatch
