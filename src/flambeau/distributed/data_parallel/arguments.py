"""What DistributedDataParallel is given, and whether that can work."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from flambeau.distributed.collectives.world import _get_default_group
from flambeau.distributed.data_parallel.grad_bucket import GradBucket
from flambeau.futures import Future
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import UninitializedParameter
from flambeau.tensor import Tensor


def default_group(process_group: Any, device_mesh: Any) -> Any:
    """The processes to train with: those given, those of a mesh of one dimension, or all."""
    if process_group is not None and device_mesh is not None:
        raise RuntimeError("Cannot specify both process_group and device_mesh arguments: a mesh brings its own group")
    if device_mesh is not None:
        if device_mesh.ndim != 1:
            raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}: try mesh['the name of one of its dimensions']")
        return device_mesh.get_group(mesh_dim=0)
    if process_group is not None:
        return process_group
    return _get_default_group()


def check_module(
    module: Any, parameters: Sequence[Tensor], delayed: Sequence[Tensor], device_ids: Sequence[Any] | None, output_device: Any
) -> None:
    """Refuse modules that cannot be trained so."""
    if not isinstance(module, Module):
        _refuse(TypeError, f"DistributedDataParallel takes a module, found {module!r}")
    if not any(p.requires_grad for p in (*parameters, *delayed)):
        if delayed:
            return
        _refuse(
            RuntimeError,
            "DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient: use the module itself, "
            "or set requires_grad on what is to be trained before wrapping it",
        )
    if any(isinstance(p, UninitializedParameter) for p in parameters):
        _refuse(
            RuntimeError,
            "Modules with uninitialized parameters can't be used with `DistributedDataParallel`. Run a dummy forward pass to correctly initialize "
            "the modules: lazy modules learn their sizes from it",
        )
    if device_ids is not None and len(device_ids) > 1:
        _refuse(ValueError, f"device_ids can only be None or contain a single element: one process for each GPU, found {list(device_ids)}")
    places = {p.device for p in parameters}
    kinds = {place.type for place in places}
    if len(kinds) > 1:
        _refuse(
            ValueError,
            f"DistributedDataParallel's input module must be on the same type of devices, but input module parameters locate in {sorted(kinds)}.",
        )
    if device_ids and (len(places) > 1 or "cpu" in kinds):
        where = ", ".join(sorted(map(str, places)))
        _refuse(
            ValueError,
            "DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-device GPU modules or CPU "
            f"modules, but got device_ids {list(device_ids)}, output_device {output_device}, and module parameters on {where}. "
            "For a model on the CPU leave device_ids out; for one on a GPU, model.to(device) comes first",
        )


def check_hook(hook: Any) -> None:
    """Refuse what is no communication hook."""
    if not callable(hook):
        _refuse(TypeError, f"Communication hook must be callable: hook(state, bucket) -> Future, found {hook!r}")
    signature = _signature(hook)
    if signature is None:
        return
    bucket = signature.parameters.get("bucket")
    if bucket is not None and not _fits(bucket.annotation, GradBucket):
        _refuse(ValueError, f"Communication hook: bucket annotation should be dist.GradBucket, found {bucket.annotation!r}.")
    returns = signature.return_annotation
    if returns is not inspect.Signature.empty and not _returns_future(returns):
        _refuse(
            ValueError,
            f"Communication hook: return annotation should be torch.futures.Future or torch.futures.Future[torch.Tensor], found {returns!r}.",
        )


def _signature(hook: Callable) -> inspect.Signature | None:
    try:
        return inspect.signature(hook)
    except (TypeError, ValueError):  # builtins do not tell
        return None


def _fits(annotation: Any, wanted: type) -> bool:
    return (
        annotation is inspect.Parameter.empty
        or annotation is wanted
        or (isinstance(annotation, str) and annotation.endswith(wanted.__name__))
    )


def _returns_future(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return "Future" in annotation
    origin = getattr(annotation, "__origin__", annotation)
    if origin is not Future:
        return False
    arguments = getattr(annotation, "__args__", ())
    return not arguments or all(argument is Tensor or argument is Any or not isinstance(argument, type) for argument in arguments)


def _refuse(kind: type[Exception], message: str) -> NoReturn:
    raise kind(message)
