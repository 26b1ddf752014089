"""torch.utils._python_dispatch: tensors made of tensors, and modes below autograd. The question works; there is no such mode here."""

from __future__ import annotations

from typing import Any

from flambeau import import_only
from flambeau.tensor import Tensor

__all__ = ["TorchDispatchMode", "is_traceable_wrapper_subclass", "is_traceable_wrapper_subclass_type"]

(TorchDispatchMode,) = import_only.classes(
    "torch.utils._python_dispatch",
    "TorchDispatchMode",
    "Flambeau has no dispatcher to stand in front of. torch.overrides.TorchFunctionMode sees every call of torch's functions",
)


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether a tensor says, by __tensor_flatten__ and __tensor_unflatten__, of which tensors it is made."""
    return isinstance(t, Tensor) and is_traceable_wrapper_subclass_type(type(t))


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """Whether tensors of this type say of which tensors they are made."""
    return issubclass(t, Tensor) and t is not Tensor and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")
