"""Parameters: tensors that a module registers as its own and an optimizer changes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from flambeau.interpreters.by_name import disabled_torch_function
from flambeau.tensor.making import pickling
from flambeau.tensor.making.factories import empty
from flambeau.tensor.tensor import PLAIN, Tensor


class _ParameterMeta(type):
    """A tensor of another class that carries `_is_param` counts as a Parameter too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if super().__instancecheck__(instance):
            return True
        return cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor to be learned. Assigned to an attribute of a Module, it appears among the module's `parameters()`.

    >>> Parameter(Tensor([1, 2]))
    Parameter containing:
    tensor([1., 2.], requires_grad=True)
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True):
        if data is None:
            data = empty(0)
        elif not isinstance(data, Tensor):
            raise TypeError(f"cannot make a {cls.__name__} of {type(data).__name__}: expected a Tensor. Try torch.tensor(...) on it first")
        if type(data) is Tensor or type(data) is Parameter:
            return Tensor._make_subclass(cls, data, requires_grad)
        # A tensor of the user's own class keeps it, and is marked instead.
        marked: Any = data.detach().requires_grad_(requires_grad)
        if type(marked) is not type(data):
            found = f"requires that detach() returns an instance of the same type, found {type(marked).__name__}"
            raise RuntimeError(f"a Parameter of a {type(data).__name__} {found}.")
        marked.__dict__["_is_param"] = True
        return marked

    def __deepcopy__(self, memo: dict) -> Parameter:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.data.clone(), self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        state, parts = pickling.attributes(self), (self.data, self.requires_grad, OrderedDict())
        return (_rebuild_parameter_with_state, (*parts, state)) if state else (_rebuild_parameter, parts)

    __torch_function__ = disabled_torch_function


PLAIN.add(Parameter)


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Parameter:
    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data: Tensor, requires_grad: bool, backward_hooks: Any, state: dict) -> Parameter:
    parameter = Parameter(data, requires_grad)
    vars(parameter).update(state)
    return parameter
