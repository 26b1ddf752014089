"""Modules in a wrapper that does not keep their activations: it computes them again in backward, or keeps them in main memory.

    block = checkpoint_wrapper(block)
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))

A wrapper is invisible in names: parameters and state dicts are those of the module inside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import partial
from typing import Any

from flambeau.autograd.graph import save_on_cpu
from flambeau.distributed.fsdp.wrap import _recursive_wrap
from flambeau.distributed.utils import _pack_kwargs, _replace_by_prefix, _unpack_kwargs
from flambeau.nn.modules.module import Module
from flambeau.utils.checkpoint import checkpoint

_CHECKPOINT_WRAPPED_MODULE = "_checkpoint_wrapped_module"
_CHECKPOINT_PREFIX = _CHECKPOINT_WRAPPED_MODULE + "."


class CheckpointImpl(Enum):
    """The two forms of torch.utils.checkpoint."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class ActivationWrapper(Module, ABC):
    """A module around another, with the attributes, items and names of the one inside."""

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module: Any = mod
        self._register_state_dict_hook(self._post_state_dict_hook)
        self.register_load_state_dict_pre_hook(self._pre_load_state_dict_hook)

    @abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError("Subclasses should implement forward().")

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == _CHECKPOINT_WRAPPED_MODULE:
                raise
            return getattr(self._checkpoint_wrapped_module, name)

    def __getitem__(self, key: int) -> Any:
        return self._checkpoint_wrapped_module[key]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """The parameters by the names they would have without the wrapper."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_CHECKPOINT_PREFIX, ""), parameter

    @staticmethod
    def _post_state_dict_hook(module: Module, state_dict: dict[str, Any], prefix: str, *args: Any) -> dict[str, Any]:
        """Leave the wrapper out of the names."""
        _replace_by_prefix(state_dict, f"{prefix}{_CHECKPOINT_PREFIX}", prefix)
        return state_dict

    @staticmethod
    def _pre_load_state_dict_hook(module: Module, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Put it in again."""
        _replace_by_prefix(state_dict, prefix, prefix + _CHECKPOINT_PREFIX)


class OffloadWrapper(ActivationWrapper):
    """Keeps what backward needs in main memory."""

    def __init__(self, mod: Module) -> None:
        super().__init__(mod)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


class CheckpointWrapper(ActivationWrapper):
    """Runs forward again when backward needs what it computed.

    checkpoint_fn         another function of the kind of torch.utils.checkpoint.checkpoint
    checkpoint_fn_kwargs  its options, such as `preserve_rng_state`
    """

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable | None = None,
        **checkpoint_fn_kwargs: Any,
    ) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            checkpoint_fn = partial(checkpoint, use_reentrant=checkpoint_impl is CheckpointImpl.REENTRANT)
        self.checkpoint_fn = partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.checkpoint_impl is CheckpointImpl.REENTRANT and kwargs:  # that form takes positional arguments alone
            flat, names = _pack_kwargs(*args, **kwargs)

            def call(*flat: Any) -> Any:
                inputs, named = _unpack_kwargs(flat, names)
                return self._checkpoint_wrapped_module(*inputs, **named)

            return self.checkpoint_fn(call, *flat)
        return self.checkpoint_fn(self._checkpoint_wrapped_module, *args, **kwargs)


def offload_wrapper(module: Module) -> Module:
    """A module whose activations wait in main memory."""
    return OffloadWrapper(module)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable | None = None,
    **checkpoint_fn_kwargs: Any,
) -> Module:
    """A module whose activations are computed again."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda _: True,
    auto_wrap_policy: Any = None,
) -> None:
    """Wrap, in place, the modules inside of `model` for which `check_fn(module)` holds, or which a policy chooses; inner ones first.

    auto_wrap_policy  one of those of torch.distributed.fsdp.wrap, or policy(module=, recurse=, nonwrapped_numel=) -> bool, which is asked
                      whether to look inside of a module (recurse=True), and whether to wrap it, with the number of elements not wrapped yet
    """
    policy = auto_wrap_policy or (lambda module, recurse, nonwrapped_numel: recurse or check_fn(module))
    options: dict[Module, dict[str, Any]] = {}
    if not callable(policy):
        if not hasattr(policy, "_run_policy"):
            raise ValueError(f"Expected {policy} to be callable or be a pre-defined wrap policy of torch.distributed.fsdp.wrap")
        options = policy._run_policy(model, ignored_modules=set(), root_kwargs={})
        policy = lambda module, recurse, nonwrapped_numel: recurse or module in options  # noqa: E731
    wrap = lambda module: checkpoint_wrapper_fn(module, **options.get(module, {}))  # noqa: E731
    _recursive_wrap(model, policy, wrap, set(), set(), only_wrap_children=True)
