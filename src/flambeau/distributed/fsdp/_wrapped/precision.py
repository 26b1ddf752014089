"""Mixed precision of wrappers: which modules keep their own, and the dtypes of buffers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from warnings import warn
from weakref import WeakKeyDictionary

from flambeau import dtypes
from flambeau.distributed.data_parallel.moving import mapped
from flambeau.distributed.fsdp._fully_shard.policies import MixedPrecisionPolicy
from flambeau.distributed.fsdp._wrapped.layout import clean
from flambeau.distributed.fsdp.api import MixedPrecision
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor


def policy(chosen: MixedPrecision) -> MixedPrecisionPolicy:
    """The same for the shared machinery."""
    return MixedPrecisionPolicy(chosen.param_dtype, chosen.reduce_dtype, cast_forward_inputs=chosen.cast_forward_inputs)


def keep_full(root: Module, classes: Iterable[type[Module]]) -> None:
    """Let modules of these classes compute in float32: they will be wrapped by themselves, without mixed precision, and cast what goes in and comes out."""
    chosen = tuple(classes)
    found = [module for module in root.modules() if isinstance(module, chosen)]
    for module in found:
        module._wrap_overrides = {"mixed_precision": None}  # type: ignore[assignment]
        module.register_forward_pre_hook(_to_full)
        module.register_forward_hook(_back)
    if found:
        warn(
            f"Both mixed precision and an auto_wrap_policy were specified to FSDP, where the wrapped module has submodules of type:\n"
            f"{ {type(module) for module in found} }\nThese modules will be wrapped as separate FSDP instances with mixed precision disabled.",
            stacklevel=4,
        )


_given: WeakKeyDictionary[Module, Any] = WeakKeyDictionary()  # the dtype of what such a module was given


def _to_full(module: Module, args: Any) -> Any:
    def change(x: Tensor) -> Tensor:
        if not x.is_floating_point() or x.dtype == dtypes.float32:
            return x
        _given[module] = x.dtype
        return x.float()

    return mapped(change, args)


def _back(module: Module, args: Any, output: Any) -> Any:
    wanted = _given.get(module)
    return output if wanted is None else mapped(lambda x: x.to(wanted) if x.is_floating_point() else x, output)


def cast_buffers(module: Module, names: Iterable[str], wanted: Any) -> None:
    """Bring the floating-point buffers of these modules to a dtype."""
    chosen = set(names)
    for prefix, owner in module.named_modules():
        for name, buffer in owner._buffers.items():
            full = clean(f"{prefix}.{name}" if prefix else name)
            if buffer is not None and full in chosen and buffer.is_floating_point():
                owner._buffers[name] = buffer.to(wanted)
