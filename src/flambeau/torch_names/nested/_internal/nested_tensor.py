"""torch.nested._internal.nested_tensor: the class of nested tensors, of which there are none."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from flambeau import import_only
from flambeau.nested import WHY

import_only.fill(__name__, WHY, classes="NestedTensor", functions="jagged_from_list")

_tensor_symint_registry: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # the lengths that have a symbol: none
