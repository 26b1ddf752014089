"""torch.distributed._tensor: the old name of torch.distributed.tensor."""

from flambeau.distributed._tensor import placement_types as placement_types
from flambeau.distributed.tensor import *
from flambeau.distributed.tensor import __all__ as __all__
