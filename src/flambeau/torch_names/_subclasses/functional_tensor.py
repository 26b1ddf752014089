"""torch._subclasses.functional_tensor: tensors of a compiler that does without writes. None is made here."""

from __future__ import annotations

from typing import Any

from flambeau import import_only

WHY = "programs run as they are, and no compiler takes the writes out of them. torch.func.functionalize runs a function that way"

FunctionalTensor, FunctionalTensorMode = import_only.classes(
    "torch._subclasses.functional_tensor", "FunctionalTensor FunctionalTensorMode", WHY
)

__all__ = ["FunctionalTensor", "FunctionalTensorMode", "mb_unwrap_functional_tensor"]


def mb_unwrap_functional_tensor(tensor: Any) -> Any:
    """What a FunctionalTensor stands for; any other tensor, so every one, itself."""
    return tensor
