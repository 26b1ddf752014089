"""torch.ao.nn.quantized: layers with weights of 8-bit integers. Those that quantize their input as it comes are in `dynamic`."""

from __future__ import annotations

from flambeau import import_only
from flambeau.ao.nn.quantized import dynamic as dynamic
from flambeau.ao.nn.quantized.functional_modules import FloatFunctional as FloatFunctional
from flambeau.ao.nn.quantized.packed import LinearPackedParams as LinearPackedParams

STATIC = frozenset(
    """BatchNorm2d BatchNorm3d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d DeQuantize Dropout ELU Embedding
    EmbeddingBag FXFloatFunctional GroupNorm Hardswish InstanceNorm1d InstanceNorm2d InstanceNorm3d LSTM LayerNorm LeakyReLU
    Linear MaxPool2d MultiheadAttention PReLU QFunctional Quantize ReLU6 Sigmoid Softmax""".split()
)


def __getattr__(name: str):
    if name in STATIC:
        why = "layers of static quantization are not available, those of torch.ao.nn.quantized.dynamic are"
        (globals()[name],) = import_only.classes("torch.ao.nn.quantized", name, why)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
