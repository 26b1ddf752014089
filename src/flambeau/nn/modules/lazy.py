"""Lazy modules: layers that find out the shape of their parameters from their first input.

    class LazyThing(LazyModuleMixin, Thing):
        cls_to_become = Thing
        def __init__(self, ...): ...; self.weight = UninitializedParameter()
        def initialize_parameters(self, input): self.weight.materialize((..., input.shape[-1]))
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

from flambeau.nn.parameter import is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin:
    """Makes a module lazy: before the first forward `initialize_parameters` is called with its arguments, then the class changes to
    `cls_to_become`."""

    cls_to_become: type | None = None

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)
        said = "Lazy modules are a new feature under heavy development so changes to the API or functionality can happen at any moment."
        warnings.warn(said, stacklevel=3)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        # What has no shape cannot be detached.
        for name, tensor in self._saved().items():
            destination[prefix + name] = tensor if keep_vars or is_lazy(tensor) else tensor.detach()

    def _lazy_load_hook(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) -> None:
        """Take the shapes of what is loaded."""
        for name, tensor in itertools.chain(self._parameters.items(), self._buffers.items()):
            key = prefix + name
            if key in state_dict and tensor is not None and is_lazy(tensor) and not is_lazy(state_dict[key]):
                tensor.materialize(state_dict[key].shape)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give every uninitialized parameter its shape; called with the arguments of the first forward."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether some parameter or buffer has no shape yet."""
        return any(is_lazy(t) for t in itertools.chain(self._parameters.values(), self._buffers.values()))

    def _infer_parameters(self, module: Any, args: tuple, kwargs: dict | None = None) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized: initialize_parameters must materialize everything")
        module._initialize_hook.remove()
        module._load_hook.remove()
        delattr(module, "_initialize_hook")
        delattr(module, "_load_hook")
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _replicate_for_data_parallel(self) -> Any:
        raise RuntimeError("Modules with uninitialized parameters can't be used with `DataParallel`. Run a dummy forward pass first.")

