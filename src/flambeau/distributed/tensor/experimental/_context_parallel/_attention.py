"""torch.distributed.tensor.experimental._context_parallel._attention: the names of `_attention`."""

from flambeau.distributed.tensor.experimental._attention import *
from flambeau.distributed.tensor.experimental._attention import __all__ as __all__
from flambeau.distributed.tensor.experimental._attention import _ContextParallel as _ContextParallel
