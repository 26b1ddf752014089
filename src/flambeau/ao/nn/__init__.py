"""torch.ao.nn: layers of quantized models."""

from flambeau.ao.nn import qat as qat
from flambeau.ao.nn import quantized as quantized
