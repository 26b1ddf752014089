"""torch.nested._internal.ops: what nested tensors are made with."""

from __future__ import annotations

from flambeau import import_only
from flambeau.nested import WHY

(extract_kwargs,) = import_only.functions("torch.nested._internal.ops", "extract_kwargs", WHY)
