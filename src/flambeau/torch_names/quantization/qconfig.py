"""torch.quantization.qconfig: the older name of torch.ao.quantization.qconfig."""

from flambeau.ao.quantization.qconfig import *
