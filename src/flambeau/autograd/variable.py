"""`Variable`, which was what required a gradient when tensors could not. `Variable(tensor, requires_grad)` gives a tensor."""

from __future__ import annotations

from typing import Any

from flambeau import errors
from flambeau.autograd import engine
from flambeau.tensor import Tensor

__all__ = ["Variable", "VariableMeta"]


class VariableMeta(type):
    """So that `isinstance(x, Variable)` is true of every tensor."""

    def __instancecheck__(cls, other: Any) -> bool:
        return isinstance(other, Tensor)


class ExecutionEngine:
    """What hooks ask of the engine that runs them."""

    queue_callback = staticmethod(engine.queue_callback)


class Variable(metaclass=VariableMeta):
    """An old name of Tensor.

    >>> Variable(Tensor([1.0]), requires_grad=True)
    tensor([1.], requires_grad=True)

    `_execution_engine.queue_callback(function)`, called while backward runs, has `function()` called at its end.
    """

    _execution_engine = ExecutionEngine

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = False, volatile: Any = None) -> Tensor:  # type: ignore[misc]
        if volatile:
            errors.warn("volatile has no effect any more. `with torch.no_grad():` does what it did.")
        found = Tensor([]) if data is None else data.detach()
        return found.requires_grad_(requires_grad)
