"""torch.nn.quantized.dynamic: the older name of torch.ao.nn.quantized.dynamic."""

from flambeau.ao.nn.quantized.dynamic import *
