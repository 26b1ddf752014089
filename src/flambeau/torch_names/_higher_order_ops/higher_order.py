"""Operations that take functions, as objects: `torch.ops.higher_order.cond`. A mode that wants a say in them says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import control_flow, modes
from flambeau.dispatch import stack

__all__ = ["HigherOrderOperator", "Namespace", "cond_op", "while_loop_op"]


class HigherOrderOperator:
    """An operation that takes functions. Without a mode below autograd it just runs."""

    namespace = "higher_order"

    def __init__(self, name: str, function: Callable):
        self.__name__ = self._name = name
        self.function = function

    def name(self) -> str:
        """cond"""
        return self._name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (modes.special and modes.state.dispatching and stack.current_modes()):
            return self.function(*args, **kwargs)
        mode = stack.current_modes()[-1]
        if not getattr(mode, "supports_higher_order_operators", False):
            raise NotImplementedError(
                f"There was no rule registered for HigherOrderOperator {self._name} and mode {mode}: a mode that sees functions, too, sets "
                "supports_higher_order_operators = True"
            )
        with stack.below_autograd(), stack.without_mode():
            result = mode.__torch_dispatch__(self, (), args, kwargs)
        if result is NotImplemented:
            raise TypeError(f"HigherOrderOperator {self._name}: {type(mode).__name__}.__torch_dispatch__ returned NotImplemented")
        return result

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<HigherOrderOperator(op='{self._name}')>"


cond_op = HigherOrderOperator("cond", control_flow.chosen)
while_loop_op = HigherOrderOperator("while_loop", control_flow.repeated)


class Namespace:
    """torch.ops.higher_order"""

    cond, while_loop = cond_op, while_loop_op
