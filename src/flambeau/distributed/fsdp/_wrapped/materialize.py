"""A module on its way into a wrapper: out of the meta device, to the device it computes on, and to what rank 0 has."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any
from warnings import warn

from flambeau import devices
from flambeau.distributed.data_parallel import replicas
from flambeau.distributed.fsdp._wrapped.ignored import managed, own_modules
from flambeau.distributed.tensor import DTensor
from flambeau.modes import no_grad
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Tensor
from flambeau.tensor.memory.host_memory import cuda_is_available


def compute_device(module: Module, ignored_params: set[Parameter], device_id: Any) -> devices.device:
    """Where forward and backward will run: what device_id says, or where the parameters are, or the current GPU, or main memory where there is none.

    PyTorch asks for a device_id where there is no GPU; here main memory is as good a place as any.
    """
    found = {p.device for p in managed(module, ignored_params) if not p.is_meta}
    elsewhere = [device for device in found if device.type != "cpu"]
    if len(elsewhere) > 1:
        raise RuntimeError(f"FSDP only supports single device modules but got params on {found}")
    if len(found) == 2 and device_id is None:
        raise RuntimeError("To support a module with both CPU and GPU params, please pass in device_id argument.")
    asked = None if device_id is None else _with_index(devices.device(device_id))
    if asked is not None and elsewhere and elsewhere[0] != asked:
        raise ValueError(f"Inconsistent compute device and `device_id`: {elsewhere[0]} vs {asked}")
    return asked or (elsewhere[0] if elsewhere else _with_index(devices.device("cuda")) if cuda_is_available() else devices.cpu)


def ranks_of_machine(device: devices.device) -> int:
    """How many ranks are taken to share a machine: as many as it has GPUs; where they compute in main memory, as many as the launcher says."""
    if device.type == "cuda":
        from flambeau import cuda

        return cuda.device_count()
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _with_index(device: devices.device) -> devices.device:
    if device.type != "cuda" or device.index is not None:
        return device
    from flambeau import cuda

    return devices.device("cuda", cuda.current_device())


def off_meta(module: Module, ignored_modules: set[Module], ignored_params: set[Parameter], init: Callable | None, device: Any) -> None:
    """Give memory and first values to what is on the meta device: by `init`, or by each module's reset_parameters."""
    inside = list(own_modules(module, ignored_modules))
    tensors = [*managed(module, ignored_params), *(buffer for one in inside for buffer in one.buffers(recurse=False))]
    if not any(tensor.is_meta for tensor in tensors):
        return
    if init is not None:
        if not callable(init):
            raise ValueError(f"Expected {init} to be callable but got {type(init)}")
        for one in inside:
            init(one)
        return
    with no_grad():
        for one in inside:
            if any(True for _ in (*one.parameters(recurse=False), *one.buffers(recurse=False))):
                _reset(one, device)


def _reset(module: Any, device: Any) -> None:
    if not hasattr(module, "reset_parameters"):
        raise AttributeError(
            f"{type(module).__name__} is on the meta device and has no reset_parameters() that would give its parameters values. Write one, or pass "
            "param_init_fn"
        )
    module.to_empty(device=device, recurse=False)
    module.reset_parameters()


def moved(module: Module, ignored_modules: set[Module], ignored_params: set[Parameter], device: devices.device) -> None:
    """Bring to `device` what is in main memory and belongs to this wrapper."""
    if device.type == "cpu":
        return
    left = {id(buffer) for one in ignored_modules for buffer in one.buffers()}
    with no_grad():
        for one in own_modules(module):
            for parameter in one.parameters(recurse=False):
                if parameter not in ignored_params and parameter.is_cpu:
                    parameter.data = parameter.data.to(device)
                    if parameter.grad is not None:
                        parameter.grad.data = parameter.grad.data.to(device)
            for buffer in one.buffers(recurse=False):
                if id(buffer) not in left and buffer.is_cpu:
                    buffer.data = buffer.data.to(device)


def same_everywhere(module: Module, parameters: Iterable[Parameter], groups: Iterable[Any]) -> None:
    """Give all ranks the parameters and buffers of the first. A buffer that a wrapper inside has sent already is not sent again."""
    states: list[Tensor] = [p.detach() for p in parameters]
    for buffer in module.buffers():
        if not getattr(buffer, "_fsdp_synced", False):
            buffer._fsdp_synced = True  # type: ignore[attr-defined]
            states.append(buffer.detach())
    for group in groups:  # across machines first: then the first rank of each has what it sends to the others
        replicas.broadcast(group, states)


def validate(module: Module, parameters: list[Parameter], use_orig_params: bool) -> None:
    """ValueError for parameters that cannot be laid end to end."""
    for parameter in parameters:
        if isinstance(parameter, DTensor):
            raise NotImplementedError(
                f"FullyShardedDataParallel of parameters that are DTensors, found one of shape {tuple(parameter.shape)}: tensor parallelism inside goes "
                "with fully_shard(module, mesh=...)"
            )
        if not parameter.dim():
            name = next(name for name, found in module.named_parameters() if found is parameter)
            raise ValueError(f"FSDP doesn't support scalar parameters. Change {name} to a 1D tensor with numel equal to 1.")
        if not parameter.is_floating_point():
            raise ValueError(f"Cannot flatten integer dtype tensors: a parameter has dtype {parameter.dtype}. Make it a buffer")
    kinds = sorted({str(p.dtype) for p in parameters})
    if len(kinds) > 1:
        raise ValueError(
            f"Must flatten tensors with uniform dtype but got {' and '.join(kinds)}. Wrap the modules of each dtype by themselves, with an auto_wrap_policy"
        )
    if len({p.requires_grad for p in parameters}) > 1 and not use_orig_params:
        raise ValueError(
            "Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`. Pass use_orig_params=True, or wrap the frozen modules by themselves"
        )


def warn_of_frozen(module: Module, chosen: set[Module], ignored_params: set[Parameter], use_orig_params: bool) -> None:
    """Say it before anything is wrapped: a unit with frozen and other parameters is an error, or a waste with use_orig_params."""
    for one in chosen:
        inside = {p for other in one.modules() for p in other.parameters(recurse=False)}
        inside -= {p for other in one.modules() if other in chosen and other is not one for p in other.parameters()}
        frozen = [not p.requires_grad for p in inside if p not in ignored_params]
        if any(frozen) and not all(frozen):
            name = next(name for name, found in module.named_modules() if found is one)
            said = f"{name} has both parameters with requires_grad=True and False. Wrap the frozen ones by themselves if possible"
            if not use_orig_params:
                raise ValueError(f"{said}: FSDP does not support wrapping such modules when use_orig_params=False.")
            warn(f"{said}: memory for gradients is taken for all of them.", stacklevel=4)
