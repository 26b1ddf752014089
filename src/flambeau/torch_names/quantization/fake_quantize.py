"""torch.quantization.fake_quantize: the older name of torch.ao.quantization.fake_quantize."""

from flambeau.ao.quantization.fake_quantize import *
