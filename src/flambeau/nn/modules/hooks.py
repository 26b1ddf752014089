"""Hooks: functions that are called around every `forward` of a module, or around its part of `backward`.

A module keeps each kind in a dictionary of its own (`_forward_hooks`, ...), under numbers that its handle knows; hooks for all modules are
kept here. A module that has none never comes here: `Module.__call__` goes straight to `forward`.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from flambeau.nn.modules.backward_hooks import BackwardHook
from flambeau.tensor import Tensor
from flambeau.tensor.node import RemovableHandle

_global_forward_pre_hooks: dict[int, Callable] = OrderedDict()
_global_forward_hooks: dict[int, Callable] = OrderedDict()
_global_forward_hooks_always_called: dict[int, bool] = OrderedDict()
_global_forward_hooks_with_kwargs: dict[int, bool] = OrderedDict()
_global_backward_pre_hooks: dict[int, Callable] = OrderedDict()
_global_backward_hooks: dict[int, Callable] = OrderedDict()
_global_is_full_backward_hook: bool | None = None
_global_buffer_registration_hooks: dict[int, Callable] = OrderedDict()
_global_module_registration_hooks: dict[int, Callable] = OrderedDict()
_global_parameter_registration_hooks: dict[int, Callable] = OrderedDict()
# Where the dictionaries around calls are found: programs put others in their place, in `nn.modules.module`, to be rid of all hooks at once.
shared: dict[str, Any] = globals()
everywhere: dict[int, bool] = {}  # the numbers of all global hooks around calls: one question instead of four

MIXED = "Cannot use both regular and full backward hooks of one module: register_full_backward_hook is the kind to keep."
MIXED_GLOBALLY = "Cannot use both regular and full backward hooks of all modules: register_module_full_backward_hook is the kind to keep."


def _add(hooks: dict, hook: Callable, flags: tuple = (), prepend: bool = False) -> RemovableHandle:
    """Register a hook, and its number in every dictionary of `flags`."""
    handle = RemovableHandle(hooks, hook, extra_dict=list(flags) or None)
    for flag in flags:
        flag[handle.id] = True
    if prepend:
        hooks.move_to_end(handle.id, last=False)  # type: ignore[attr-defined]
    return handle


class Hooks:
    """The part of Module that is about hooks."""

    _forward_hooks: dict[int, Callable]
    _forward_pre_hooks: dict[int, Callable]
    _backward_hooks: dict[int, Callable]
    _backward_pre_hooks: dict[int, Callable]
    _is_full_backward_hook: bool | None

    def register_forward_pre_hook(self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """Call hook(module, args) before every forward; what it returns replaces the arguments.

        with_kwargs: call hook(module, args, kwargs), which may return (args, kwargs). prepend: before the hooks that are there already.
        """
        flags = (self._forward_pre_hooks_with_kwargs,) if with_kwargs else ()
        return _add(self._forward_pre_hooks, hook, flags, prepend)

    def register_forward_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call hook(module, args, output) after every forward; what it returns replaces the output.

        with_kwargs: call hook(module, args, kwargs, output). always_call: also when something was raised, with None for the output.
        """
        flags = [self._forward_hooks_with_kwargs] if with_kwargs else []
        return _add(self._forward_hooks, hook, (*flags, self._forward_hooks_always_called) if always_call else tuple(flags), prepend)

    def register_full_backward_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call hook(module, grad_output) when the gradients of the outputs are known; what it returns replaces them."""
        return _add(self._backward_pre_hooks, hook, (), prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call hook(module, grad_input, grad_output) when the gradients of the inputs are known; what it returns replaces grad_input."""
        self._choose_backward_hooks(full=True)
        return _add(self._backward_hooks, hook, (), prepend)

    def register_backward_hook(self, hook: Callable) -> RemovableHandle:
        """The old form, which sees the gradients of the module's last operation only: use `register_full_backward_hook`."""
        self._choose_backward_hooks(full=False)
        return _add(self._backward_hooks, hook)

    def _choose_backward_hooks(self, full: bool) -> None:
        if self._is_full_backward_hook is (not full):
            raise RuntimeError(MIXED)
        self._is_full_backward_hook = full

    def _get_backward_hooks(self) -> tuple[list, list]:
        """(full hooks, hooks of the old form), the global ones first."""
        full: list[Callable] = []
        old: list[Callable] = []
        if _global_is_full_backward_hook is not None:
            (full if _global_is_full_backward_hook else old).extend(shared["_global_backward_hooks"].values())
        if self._is_full_backward_hook is not None:
            (full if self._is_full_backward_hook else old).extend(self._backward_hooks.values())
        return full, old

    def _get_backward_pre_hooks(self) -> list:
        return [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]

    def _call_with_hooks(self, args: tuple, kwargs: dict) -> Any:
        """forward with everything that wants to be called around it."""
        done: set[int] = set()
        try:
            if shared["_global_forward_pre_hooks"] or self._forward_pre_hooks:
                args, kwargs = self._before_forward(args, kwargs)
            full, old = self._get_backward_hooks() if shared["_global_backward_hooks"] or self._backward_hooks else ((), ())
            before = self._get_backward_pre_hooks() if _global_backward_pre_hooks or self._backward_pre_hooks else ()
            around = BackwardHook(self, full, before) if full or before else None
            if around is not None:
                args = around.setup_input_hook(args)
            result = self.forward(*args, **kwargs)
            if shared["_global_forward_hooks"] or self._forward_hooks:
                result = self._after_forward(args, kwargs, result, done)
            if around is not None:
                if not isinstance(result, (Tensor, tuple)):
                    kind = type(result).__name__
                    wanted = "Backward hooks wait for gradients: output should be a Tensor or a tuple of Tensors"
                    warnings.warn(f"{wanted} but received {kind}", stacklevel=2)
                result = around.setup_output_hook(result)
            if old:
                self._register_old_hooks(old, args, result)
            return result
        except Exception:
            self._after_failure(args, kwargs, done)
            raise

    def _before_forward(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        for number, hook in (*shared["_global_forward_pre_hooks"].items(), *self._forward_pre_hooks.items()):
            if number in self._forward_pre_hooks_with_kwargs:
                answer = hook(self, args, kwargs)
                if answer is not None:
                    if not isinstance(answer, tuple) or len(answer) != 2:
                        wanted = "forward pre-hook is to return None or a pair of positional and named arguments"
                        raise RuntimeError(f"{wanted}, but got {answer}.")
                    args, kwargs = answer
            else:
                answer = hook(self, args)
                if answer is not None:
                    args = answer if isinstance(answer, tuple) else (answer,)
        return args, kwargs

    def _after_forward(self, args: tuple, kwargs: dict, result: Any, done: set[int]) -> Any:
        with_kwargs, always = self._forward_hooks_with_kwargs, self._forward_hooks_always_called
        for number, hook in (*shared["_global_forward_hooks"].items(), *self._forward_hooks.items()):
            if number in always or number in _global_forward_hooks_always_called:
                done.add(number)
            if number in with_kwargs or number in _global_forward_hooks_with_kwargs:
                answer = hook(self, args, kwargs, result)
            else:
                answer = hook(self, args, result)
            if answer is not None:
                result = answer
        return result

    def _after_failure(self, args: tuple, kwargs: dict, done: set[int]) -> None:
        """Something was raised: call the hooks that are always called and were not yet."""
        for hooks, always, with_kwargs, kind in (
            (
                shared["_global_forward_hooks"],
                _global_forward_hooks_always_called,
                _global_forward_hooks_with_kwargs,
                "global module forward hook",
            ),
            (self._forward_hooks, self._forward_hooks_always_called, self._forward_hooks_with_kwargs, "module forward hook"),
        ):
            for number, hook in list(hooks.items()):
                if number not in always or number in done:
                    continue
                try:
                    hook(self, args, kwargs, None) if number in with_kwargs else hook(self, args, None)
                except Exception as second:
                    said = f"{kind} with ``always_call=True`` raised an exception, too, that was silenced by the one before it"
                    warnings.warn(f"{said} in forward: {second}", stacklevel=2)

    def _register_old_hooks(self, hooks: Any, args: tuple, result: Any) -> None:
        first = result
        while not isinstance(first, Tensor):
            first = next(v for v in first.values() if isinstance(v, Tensor)) if isinstance(first, Mapping) else first[0]
        node = first.grad_fn
        if node is None:
            return
        for hook in hooks:
            node.register_hook(_WrappedHook(hook, self))
        self._maybe_warn_non_full_backward_hook(args, result, node)

    def _maybe_warn_non_full_backward_hook(self, inputs: Any, result: Any, grad_fn: Any) -> None:
        said = _old_hook_problem(inputs, result, grad_fn)
        if said:
            advice = "and should not be used: register_full_backward_hook sees those of the module's inputs."
            warnings.warn(f"Using a non-full backward hook when {said} is deprecated {advice}", FutureWarning, stacklevel=2)


def _old_hook_problem(inputs: Any, result: Any, grad_fn: Any) -> str:
    """Why a hook on the last node of a module sees too little."""
    if not isinstance(result, Tensor) and not (isinstance(result, tuple) and all(isinstance(r, Tensor) for r in result)):
        return "the forward does not return a single Tensor or a tuple of Tensors"
    if not isinstance(inputs, Tensor) and not (isinstance(inputs, tuple) and all(isinstance(i, Tensor) for i in inputs)):
        return "the forward does not take as input a single Tensor or a tuple of Tensors"
    results = (result,) if isinstance(result, Tensor) else result
    if any(r.grad_fn is not grad_fn for r in results):
        return "outputs are generated by different autograd Nodes"
    own = {id(i.grad_fn) for i in inputs if i.grad_fn is not None}
    beneath = {id(node) for node, _ in grad_fn.next_functions if node is not None and type(node).__name__ != "AccumulateGrad"}
    return "the forward contains multiple autograd Nodes" if beneath - own else ""


class _WrappedHook:
    """A hook that is called with its module in front; the module is held weakly, so that hooks do not keep it alive."""

    def __init__(self, hook: Callable, module: Any = None):
        self.hook = hook
        functools.update_wrapper(self, hook)
        self.with_module = module is not None
        self.module = weakref.ref(module) if module is not None else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.with_module:
            return self.hook(*args, **kwargs)
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call a hook of a module that no longer exists")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self) -> dict:
        state = {"hook": self.hook, "with_module": self.with_module}
        return {**state, "module": self.module()} if self.with_module else state

    def __setstate__(self, state: dict) -> None:
        self.hook, self.with_module = state["hook"], state["with_module"]
        if self.with_module:
            if state["module"] is None:
                raise RuntimeError("You are trying to load the hook of a module that no longer exists")
            self.module = weakref.ref(state["module"])


# -- hooks for all modules -----------------------------------------------------------------------------------------


def register_module_forward_pre_hook(hook: Callable) -> RemovableHandle:
    """Call hook(module, args) before the forward of every module."""
    return _add(shared["_global_forward_pre_hooks"], hook, (everywhere,))


def register_module_forward_hook(hook: Callable, *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """Call hook(module, args, output) after the forward of every module."""
    flags = [everywhere]
    flags += [_global_forward_hooks_with_kwargs] if with_kwargs else []
    flags += [_global_forward_hooks_always_called] if always_call else []
    return _add(shared["_global_forward_hooks"], hook, tuple(flags))


def register_module_full_backward_pre_hook(hook: Callable) -> RemovableHandle:
    """Call hook(module, grad_output) before the backward of every module."""
    return _add(_global_backward_pre_hooks, hook, (everywhere,))


def register_module_full_backward_hook(hook: Callable) -> RemovableHandle:
    """Call hook(module, grad_input, grad_output) after the backward of every module."""
    return _register_global_backward(hook, full=True)


def register_module_backward_hook(hook: Callable) -> RemovableHandle:
    """The old form of `register_module_full_backward_hook`."""
    return _register_global_backward(hook, full=False)


def _register_global_backward(hook: Callable, full: bool) -> RemovableHandle:
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook is (not full):
        raise RuntimeError(MIXED_GLOBALLY)
    _global_is_full_backward_hook = full
    return _add(shared["_global_backward_hooks"], hook, (everywhere,))


def register_module_buffer_registration_hook(hook: Callable) -> RemovableHandle:
    """Call hook(module, name, buffer) whenever a module gets a buffer; what it returns is registered instead."""
    return _add(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable) -> RemovableHandle:
    """Call hook(module, name, submodule) whenever a module gets a submodule; what it returns is registered instead."""
    return _add(_global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook: Callable) -> RemovableHandle:
    """Call hook(module, name, parameter) whenever a module gets a parameter; what it returns is registered instead."""
    return _add(_global_parameter_registration_hooks, hook)


def _has_any_global_hook() -> bool:
    return bool(everywhere)
