"""torch.nn.quantized: the older name of torch.ao.nn.quantized."""

from flambeau.ao.nn.quantized import LinearPackedParams as LinearPackedParams
from flambeau.nn.quantized import dynamic as dynamic
