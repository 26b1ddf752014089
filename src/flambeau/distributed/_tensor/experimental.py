"""torch.distributed._tensor.experimental: the old path of torch.distributed.tensor.experimental."""

from flambeau.distributed.tensor.experimental import *
from flambeau.distributed.tensor.experimental import __all__ as __all__
