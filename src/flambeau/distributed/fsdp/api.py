"""What FullyShardedDataParallel can be told: small enumerations and records, without behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from flambeau.dtypes import dtype
from flambeau.nn.modules.batchnorm import _BatchNorm
from flambeau.nn.modules.module import Module

__all__ = [
    "BackwardPrefetch", "CPUOffload", "FullOptimStateDictConfig", "FullStateDictConfig", "LocalOptimStateDictConfig",
    "LocalStateDictConfig", "MixedPrecision", "OptimStateDictConfig", "ShardedOptimStateDictConfig", "ShardedStateDictConfig",
    "ShardingStrategy", "StateDictConfig", "StateDictSettings", "StateDictType",
]  # fmt: skip


class ShardingStrategy(Enum):
    """What each rank keeps only a part of, and when.

                          parameters between steps   parameters from forward to backward   gradients, optimizer state
    FULL_SHARD            part                       part                                  part
    SHARD_GRAD_OP         part                       whole                                 part
    NO_SHARD              whole                      whole                                 whole
    HYBRID_SHARD          as FULL_SHARD among the ranks of one group (a machine), with copies on the other groups
    _HYBRID_SHARD_ZERO2   as SHARD_GRAD_OP, likewise
    """

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()


class BackwardPrefetch(Enum):
    """When backward asks for the parameters it will need next: before the gradients of the present ones are computed (sooner there, more memory), or after."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


@dataclass
class MixedPrecision:
    """The dtypes of what is computed and sent; parameters and optimizer states keep theirs.

    param_dtype                 of parameters in forward and backward, and so of what is gathered
    reduce_dtype                of gradients while they are summed over ranks; param_dtype if None
    buffer_dtype                of buffers
    keep_low_precision_grads    leave gradients in reduce_dtype, for an optimizer that wants them so
    cast_forward_inputs         bring the inputs of each wrapped module to param_dtype
    cast_root_forward_inputs    the same for the outermost one
    _module_classes_to_ignore   modules that are wrapped by themselves, without mixed precision, under an auto_wrap_policy
    """

    param_dtype: dtype | None = None
    reduce_dtype: dtype | None = None
    buffer_dtype: dtype | None = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: Sequence[type[Module]] = (_BatchNorm,)


@dataclass
class CPUOffload:
    """Whether the parts that a rank keeps, and its gradients, stay in main memory; the optimizer's step is then made there."""

    offload_params: bool = False


class StateDictType(Enum):
    """What `state_dict` of a sharded model holds: whole tensors, this rank's part as it is kept, or DTensors of which each rank has a part."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


@dataclass
class StateDictConfig:
    """How a state of a model is made; `offload_to_cpu` puts its tensors into main memory."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """`rank0_only`: the others take part, and get an empty state."""

    rank0_only: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """For LOCAL_STATE_DICT."""


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """For SHARDED_STATE_DICT. The tensors are DTensors in any case: `_use_dtensor` is what PyTorch sets for models with a device_mesh."""

    _use_dtensor: bool = False


@dataclass
class OptimStateDictConfig:
    """How a state of an optimizer is made."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """`rank0_only`: the others take part, and get an empty state."""

    rank0_only: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """For LOCAL_STATE_DICT."""

    offload_to_cpu: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """For SHARDED_STATE_DICT."""

    _use_dtensor: bool = False


@dataclass
class StateDictSettings:
    """What `get_state_dict_type` says."""

    state_dict_type: StateDictType
    state_dict_config: StateDictConfig
    optim_state_dict_config: OptimStateDictConfig
