"""torch.ao.quantization: dynamic quantization of models. What PyTorch has for static quantization and training refuses, with a sentence."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from flambeau.errors import refusal

HOMES = {name: home for home, names in {
    "quantize": """DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS convert get_default_dynamic_quant_module_mappings propagate_qconfig_ quantize_dynamic
        swap_module""",
    "qconfig": "QConfig default_dynamic_qconfig float16_dynamic_qconfig get_default_qconfig per_channel_dynamic_qconfig",
    "observer": """MinMaxObserver ObserverBase PerChannelMinMaxObserver PlaceholderObserver UniformQuantizationObserverBase
        HistogramObserver MovingAverageMinMaxObserver MovingAveragePerChannelMinMaxObserver NoopObserver RecordingObserver
        default_dynamic_quant_observer default_per_channel_weight_observer default_placeholder_observer default_weight_observer""",
    "fake_quantize": "FakeQuantize FakeQuantizeBase FixedQParamsFakeQuantize FusedMovingAvgObsFakeQuantize",
    "stubs": "DeQuantStub QuantStub QuantWrapper",
}.items() for name in names.split()}  # fmt: skip
STATIC = frozenset(
    """add_quant_dequant fuse_modules fuse_modules_qat get_default_qat_qconfig get_default_qat_qconfig_mapping
    get_default_qconfig_mapping prepare prepare_qat quantize quantize_qat QConfigMapping default_qat_qconfig default_qconfig""".split()
)
MODULES = frozenset(("fake_quantize", "observer", "qconfig", "stubs"))  # `quantize` is the function here, as in PyTorch
__all__ = sorted(HOMES)


def __getattr__(name: str) -> Any:
    if name in HOMES:
        found = getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
        globals().pop("quantize", None)  # the import put the file of that name here; PyTorch has a function
    elif name in MODULES:
        found = import_module(f"{__name__}.{name}")
    elif name in STATIC:
        found = refusal(
            name, NotImplementedError, "belongs to static quantization or to training for it, which are not available: try quantize_dynamic"
        )
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: of quantization, only the dynamic kind is available")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *HOMES, *MODULES, *STATIC})
