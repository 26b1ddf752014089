"""torch.distributed.fsdp.fully_sharded_data_parallel: names of torch.distributed.fsdp under the name of PyTorch's file."""

from flambeau.distributed.fsdp import *
from flambeau.distributed.fsdp import __all__ as __all__
