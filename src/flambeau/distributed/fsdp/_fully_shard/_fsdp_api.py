"""torch.distributed.fsdp._fully_shard._fsdp_api: the policies under the name of PyTorch's file, where programs look for AllGather and ReduceScatter."""

from flambeau.distributed.fsdp._fully_shard.policies import AllGather as AllGather
from flambeau.distributed.fsdp._fully_shard.policies import Comm as Comm
from flambeau.distributed.fsdp._fully_shard.policies import CPUOffloadPolicy as CPUOffloadPolicy
from flambeau.distributed.fsdp._fully_shard.policies import DataParallelMeshDims as DataParallelMeshDims
from flambeau.distributed.fsdp._fully_shard.policies import MixedPrecisionPolicy as MixedPrecisionPolicy
from flambeau.distributed.fsdp._fully_shard.policies import OffloadPolicy as OffloadPolicy
from flambeau.distributed.fsdp._fully_shard.policies import ReduceScatter as ReduceScatter
