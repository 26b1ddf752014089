"""torch.ao.quantization.fake_quantize: rounding during training. There is none: the types can be asked for, and nothing is of them."""

from __future__ import annotations

from flambeau import import_only
from flambeau.ao.quantization.observer import STATIC

import_only.fill(__name__, STATIC, classes="FakeQuantize FakeQuantizeBase FixedQParamsFakeQuantize FusedMovingAvgObsFakeQuantize")
