"""torch.quantization.stubs: the older name of torch.ao.quantization.stubs."""

from flambeau.ao.quantization.stubs import *
