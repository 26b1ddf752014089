"""torch._C: the few names of PyTorch's compiled part that libraries ask for by name. There is no such part here: each is Python."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

from flambeau import _VF, cpu, cuda, import_only, overrides
from flambeau.devices import device as Device
from flambeau.eager import bind
from flambeau.eager.overrides import on_memory, overridable, plain_dispatch
from flambeau.interpreters import stack
from flambeau.interpreters.by_name import DisableTorchFunction, DisableTorchFunctionSubclass, disabled_torch_function, innermost
from flambeau.modes import state
from flambeau.ops.copying import parse_to
from flambeau.random import Generator
from flambeau.tensor import DISPATCHED, Size, Tensor

__all__ = ["DisableTorchFunction", "DisableTorchFunctionSubclass", "Generator", "Size", "TensorBase"]

TensorBase = Tensor
_VariableFunctions = _VF
_TensorMeta = type(Tensor)
_DisableTorchDispatch = on_memory
_disabled_torch_dispatch_impl = plain_dispatch
_disabled_torch_function_impl = disabled_torch_function  # what a subclass of Tensor says that wants results to be plain tensors


def _log_api_usage_once(event: str) -> None:
    """PyTorch counts which of its interfaces are used, for its own builders. Nothing is counted here."""


@overridable
def _parse_to(*args: Any, **kwargs: Any) -> tuple:
    """What the arguments of `to` say: (device, dtype, non_blocking, memory format)."""
    dtype, device, _, layout, non_blocking = parse_to(*args, **kwargs)
    return None if device is None else Device(device), dtype, non_blocking, layout


class _EnableTorchFunction:
    """As long as this object lives, `__torch_function__` is asked again, in the midst of what said that it is not to be."""

    def __init__(self) -> None:
        self.within = overrides.enable_reentrant_dispatch()
        self.within.__enter__()

    def __del__(self) -> None:
        self.within.__exit__(None, None, None)


def _is_torch_function_enabled() -> bool:
    return not state.function_disabled


def _is_torch_function_mode_enabled() -> bool:
    """Whether a TorchFunctionMode is active."""
    return innermost() is not None


def _is_alias_of(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are of the same memory."""
    return a._shared_storage() is b._shared_storage()


def _is_torch_function_all_disabled() -> bool:
    return state.function_disabled and state.modes_disabled


class _EnablePythonDispatcher:
    """PyTorch's operations find their Python forms while this object lives. Here they have no other."""


class _Tracebacks:
    """torch._C._profiler: where a program is."""

    @staticmethod
    def gather_traceback(python: bool = True, script: bool = False, cpp: bool = False) -> traceback.StackSummary:
        """The lines that are running."""
        return traceback.extract_stack()

    @staticmethod
    def symbolize_tracebacks(tracebacks: list) -> list[list[dict[str, Any]]]:
        """Lines as dictionaries, innermost first."""
        return [[{"name": f.name, "filename": f.filename, "line": f.lineno} for f in reversed(lines)] for lines in tracebacks]


_profiler = _Tracebacks()


class _Functional:
    """torch._C._nn: the operations of torch.nn.functional, under the names that they have there."""

    _parse_to = staticmethod(_parse_to)

    def __getattr__(self, name: str) -> Callable:
        found = bind.functions.get(f"nn.functional.{name}")
        if found is None:
            raise AttributeError(f"torch._C._nn has no {name!r}: there is no such operation in torch.nn.functional")
        return found


_nn = _Functional()
_cpu = cpu  # what the processor can do


def _get_accelerator(check: Any = None) -> Device:
    """The device that work is moved to: a GPU where there is one, else the CPU."""
    return Device("cuda" if cuda.is_available() else "cpu")


PyTorchFileReader, PyTorchFileWriter = import_only.classes(
    "torch",
    "PyTorchFileReader PyTorchFileWriter",
    "checkpoints are read by torch.load and written by torch.save, whose files are PyTorch's",
)
Block, Graph, Node, ScriptMethod, Value = import_only.classes(
    "torch._C", "Block Graph Node ScriptMethod Value", "there are no graphs of TorchScript in Flambeau"
)


def _dispatch_isTensorSubclassLike(tensor: Tensor) -> bool:
    """Whether a class or a mode carries out what is done with this tensor."""
    return type(tensor) in DISPATCHED or bool(stack.of(stack.DISPATCH))


def _len_torch_dispatch_stack() -> int:
    return len(stack.of(stack.DISPATCH))


def _get_tracing_state() -> None:
    """What is being recorded: nothing."""


def _are_functorch_transforms_active() -> bool:
    """Whether a vmap is running, in which values cannot be read. (Within torch.func.grad they can, here: its tensors are like any others.)"""
    return bool(state.levels)


def __getattr__(name: str) -> Any:
    """What there is about operators, schemas, types in schemas, dispatch keys, and about vmap. Imported when it is asked for."""
    if name.startswith("__"):
        raise AttributeError(f"module 'flambeau._C' has no attribute {name!r}")
    if name == "_functorch":
        return import_module("flambeau._C._functorch")
    from flambeau.library import compiled

    found = vars(compiled).get(name)
    if found is None or name not in compiled.NAMES:
        raise AttributeError(f"module 'flambeau._C' has no attribute {name!r}: there is no compiled part here, and few of its names")
    globals()[name] = found
    return found
