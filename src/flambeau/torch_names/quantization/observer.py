"""torch.quantization.observer: the older name of torch.ao.quantization.observer."""

from flambeau.ao.quantization.observer import *
