"""Lazy modules: layers whose first input says how large their parameters are.

class LazyScale(LazyModuleMixin, Scale):
    cls_to_become = Scale

    def __init__(self):
        super().__init__(0)
        self.weight = UninitializedParameter()

    def initialize_parameters(self, input):
        if self.has_uninitialized_params():
            self.weight.materialize(input.shape[-1:])
"""

from __future__ import annotations

from typing import Any

from flambeau.nn.parameter import is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin:
    """The lazy form of a module. Before its first forward, `initialize_parameters` gets the same arguments and gives every parameter its
    shape; from then on the module is a `cls_to_become`, if there is one. Loading a state_dict gives shapes, too."""

    cls_to_become: type | None = None

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.register_forward_pre_hook(_before_first_forward, with_kwargs=True)

    def has_uninitialized_params(self) -> bool:
        """Whether some parameter or buffer is still without a shape."""
        return any(map(is_lazy, (*self._parameters.values(), *self._buffers.values())))

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """To be written by each lazy class: materialize what has no shape, by the arguments of forward."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, tensor in self._saved().items():
            as_it_is = keep_vars or is_lazy(tensor)  # what has no shape cannot be detached
            destination[prefix + name] = tensor if as_it_is else tensor.detach()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *more: Any) -> None:
        for name, tensor in self._saved().items():
            saved = state_dict.get(prefix + name)
            if is_lazy(tensor) and saved is not None and not is_lazy(saved):
                tensor.materialize(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *more)  # type: ignore[misc]

    def _replicate_for_data_parallel(self) -> Any:
        raise RuntimeError(
            "a module with uninitialized parameters cannot be copied to several devices: call it once, on one of them, first"
        )


def _before_first_forward(module: Any, args: tuple, kwargs: dict) -> None:
    """The hook that makes a lazy module an ordinary one."""
    module.initialize_parameters(*args, **kwargs)
    if module.has_uninitialized_params():
        left = [name for name, tensor in (*module._parameters.items(), *module._buffers.items()) if is_lazy(tensor)]
        raise RuntimeError(
            f"{module._get_name()} has not been fully initialized: initialize_parameters left {', '.join(left)} without a shape"
        )
    for number, hook in list(module._forward_pre_hooks.items()):
        if hook is _before_first_forward:
            del module._forward_pre_hooks[number], module._forward_pre_hooks_with_kwargs[number]
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become
