"""torch.distributed.algorithms.ddp_comm_hooks: what happens to a bucket of gradients instead of the plain all-reduce, by name."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Any

from flambeau.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks, powerSGD_hook, quantization_hooks

__all__ = ["DDPCommHookType", "register_ddp_comm_hook"]


def _plain(hook: Any, model: Any, state: Any) -> None:
    model.register_comm_hook(state, hook)


def _power(hook: Any, rank: int, model: Any, state: Any) -> None:
    """PowerSGD of this rank, in the process group that is given as the state."""
    model.register_comm_hook(powerSGD_hook.PowerSGDState(state, matrix_approximation_rank=rank), hook)


class DDPCommHookType(Enum):
    """The hooks there are. A member's value is called with a model and a state."""

    ALLREDUCE = partial(_plain, default_hooks.allreduce_hook)
    FP16_COMPRESS = partial(_plain, default_hooks.fp16_compress_hook)
    BF16_COMPRESS = partial(_plain, default_hooks.bf16_compress_hook)
    QUANTIZE_PER_TENSOR = partial(_plain, quantization_hooks.quantization_pertensor_hook)
    QUANTIZE_PER_CHANNEL = partial(_plain, quantization_hooks.quantization_perchannel_hook)
    POWER_SGD = partial(_power, powerSGD_hook.powerSGD_hook, 1)
    POWER_SGD_RANK2 = partial(_power, powerSGD_hook.powerSGD_hook, 2)
    BATCHED_POWER_SGD = partial(_power, powerSGD_hook.batched_powerSGD_hook, 1)
    BATCHED_POWER_SGD_RANK2 = partial(_power, powerSGD_hook.batched_powerSGD_hook, 2)
    NOOP = partial(_plain, debugging_hooks.noop_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Let a model send its gradients so."""
    comm_hook_type.value(model=model, state=state)
