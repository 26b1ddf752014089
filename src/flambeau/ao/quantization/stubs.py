"""torch.ao.quantization.stubs: marks where integers begin and end in a model. There are none: the types can be asked for."""

from __future__ import annotations

from flambeau import import_only
from flambeau.ao.quantization.observer import STATIC

DeQuantStub, QuantStub, QuantWrapper = import_only.classes("torch.ao.quantization.stubs", "DeQuantStub QuantStub QuantWrapper", STATIC)
