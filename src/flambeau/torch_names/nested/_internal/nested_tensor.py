"""torch.nested._internal.nested_tensor: the class of nested tensors, of which there are none."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from flambeau import import_only
from flambeau.nested import WHY

(NestedTensor,) = import_only.classes("torch.nested._internal.nested_tensor", "NestedTensor", WHY)
(jagged_from_list,) = import_only.functions("torch.nested._internal.nested_tensor", "jagged_from_list", WHY)

_tensor_symint_registry: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # the lengths that have a symbol: none
