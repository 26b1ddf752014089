"""What all optimizers share: groups of parameters with their options, a state for each parameter, saving, loading and hooks.

A subclass says with `step` how parameters move. Those in this room that move every element by itself are described in `elementwise.py`.
"""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from time import perf_counter_ns as now
from typing import Any

from flambeau import dtypes, errors
from flambeau.eager import updates
from flambeau.interpreters import stack
from flambeau.modes import no_grad, recording
from flambeau.optim.mistakes import Watch
from flambeau.optim.own_rules import (  # noqa: F401  (copies of PyTorch's optimizers import them from here)
    _capturable_doc,
    _default_to_fused_or_foreach,
    _device_dtype_check_for_fused,
    _differentiable_doc,
    _disable_dynamo_if_unsupported,
    _foreach_doc,
    _fused_doc,
    _get_capturable_supported_devices,
    _get_foreach_kernels_supported_devices,
    _get_fused_kernels_supported_devices,
    _get_scalar_dtype,
    _get_value,
    _group_tensors_by_device_and_dtype,
    _maximize_doc,
    _params_doc,
    _stack_if_compiling,
    _use_grad_for_differentiable,
    _view_as_real,
)
from flambeau.tensor import Tensor
from flambeau.tensor.making.legacy import typename
from flambeau.tensor.node import RemovableHandle

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]

ParamsT = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
StateDict = dict[str, Any]
_HOOKS = tuple(f"_optimizer_{when}_hooks" for when in (
    "step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post",
))  # fmt: skip
_global_optimizer_pre_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_optimizer_post_hooks: OrderedDict[int, Callable] = OrderedDict()


class _Required:
    """Stands for an option that every group has to give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


class Optimizer:
    """The base of all optimizers.

    params    tensors, (name, tensor) pairs, or dicts with "params" and options of their own: the parameter groups
    defaults  the options of groups that do not give them

    param_groups    a list of dicts: "params", and the options
    state           parameter -> dict, what the optimizer remembers about it
    """

    OptimizerPreHook = Callable[..., "tuple[tuple, dict] | None"]
    OptimizerPostHook = Callable[..., None]
    _watch: Watch | None = None  # a copy has none: it does not know whose parameters it moves
    _group_tensors_by_device_and_dtype = staticmethod(_group_tensors_by_device_and_dtype)

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        for name in _HOOKS:
            setattr(self, name, OrderedDict())
        self._patch_step_function()
        if isinstance(params, Tensor):
            found = f"but got {typename(params)}"
            raise TypeError(f"params argument given to the optimizer should be an iterable of Tensors or dicts, {found}: try [tensor]")
        self.state: defaultdict[Any, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        owners = [_owner(params)]
        groups: list = list(params)
        if not groups:
            _warn_of_left_out(owners)
            raise ValueError("optimizer got an empty parameter list: are the layers attributes of the module, and not in a plain list?")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            owners.append(_owner(group.get("params")) if isinstance(group, dict) else None)
            self.add_param_group(group)
        _warn_of_left_out(owners)
        self._watch = Watch(owners)

    # -- what users call in a training loop

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move all parameters once, by the gradients in their `.grad`; with a closure, by those it computes."""
        raise NotImplementedError(f"{type(self).__name__} has no step(): a subclass of Optimizer has to say how parameters move")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or set them to zero."""
        recorder = stack.at(stack.PROFILE)
        if recorder is None:
            return self._forget(set_to_none)
        start = now()
        try:
            return self._forget(set_to_none)
        finally:
            recorder.ended(start, f"Optimizer.zero_grad#{type(self).__name__}.zero_grad")

    def _forget(self, set_to_none: bool) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                if set_to_none:
                    p.grad = None
                else:
                    grad.detach_() if grad.grad_fn is not None else grad.requires_grad_(False)
                    grad.zero_()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group {"params": ..., option: value, ...}: when the layers of a frozen model are to learn after all, say."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, found {type(param_group)}")
        _take_params(param_group)
        params = param_group["params"]
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizers move tensors, and one of the params is {typename(p)}")
            if not self.defaults.get("differentiable") and not (p.is_leaf or p.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor: it was computed from others. Optimize those, or its detach()")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"a parameter group must say {name}, for which there is no default")
            param_group.setdefault(name, default)
        if len(params) != len(set(params)):
            words = "a parameter group with duplicate parameters; some day this will be an error"
            warnings.warn(f"{words}: each of them moves several times per step", stacklevel=3)
        named = "param_names" in param_group
        if any(("param_names" in group) != named for group in self.param_groups):
            found = f"cannot add param group {'with' if named else 'without'} names to the optimizer"
            raise ValueError(f"all optimizer param groups should be with/without names. {found}")
        if not {p for group in self.param_groups for p in group["params"]}.isdisjoint(params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    # -- saving and loading

    def state_dict(self) -> StateDict:
        """{"state": ..., "param_groups": ...}, parameters being numbered in the order of their groups. Tensors are not copied."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        groups, start = [], 0
        for group in self.param_groups:
            params = group["params"]
            new = {id(p): i for i, p in enumerate(params, start) if id(p) not in numbers}  # one given twice has its last number
            numbers |= new
            start += len(params)
            options = {name: value for name, value in group.items() if name != "params"}
            groups.append(options | {"params": [numbers[id(p)] for p in params]})
        state = {numbers[id(key)] if isinstance(key, Tensor) else key: value for key, value in self.state.items()}
        found: StateDict = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            found = _kept(hook(self, found), found)
        return found

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on from a state_dict(): groups and parameters have to be as many as when it was made, and in the same order."""
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = _kept(hook(self, state_dict), state_dict)
        saved = deepcopy(state_dict["param_groups"])
        sizes, saved_sizes = ([len(g["params"]) for g in groups] for groups in (self.param_groups, saved))
        if len(sizes) != len(saved_sizes):
            found = f"the optimizer has {len(sizes)}, the state dict {len(saved_sizes)}"
            raise ValueError(f"load_state_dict: another number of parameter groups: {found}")
        if sizes != saved_sizes:
            words = "load_state_dict: a parameter group doesn't match the size of the optimizer's"
            raise ValueError(f"{words}: {sizes} parameters are here, {saved_sizes} in the state dict")
        by_number = dict(zip(
            chain.from_iterable(g["params"] for g in saved), chain.from_iterable(g["params"] for g in self.param_groups), strict=True
        ))  # fmt: skip
        on_device = {i for g in state_dict["param_groups"] if g.get("fused") or g.get("capturable") for i in g["params"]}
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in by_number:
                state[by_number[key]] = _fitted(by_number[key], value, None, key in on_device)
            else:
                state[key] = value
        for group, new in zip(self.param_groups, saved, strict=True):
            new["params"] = group["params"]
            if "param_names" in group:
                new.setdefault("param_names", group["param_names"])
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    @staticmethod
    def _process_value_according_to_param_policy(param, value, param_id, param_groups, key=None) -> Tensor:
        group: dict = next((g for g in param_groups if param_id in g["params"]), {})
        return _fitted(param, value, key, bool(group.get("fused") or group.get("capturable")))

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in _HOOKS:
            self.__dict__.setdefault(name, OrderedDict())
        self._patch_step_function()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        groups = [
            "\n".join([f"Parameter Group {i}", *[f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]])
            for i, group in enumerate(self.param_groups)
        ]
        return f"{type(self).__name__} (\n" + "\n\n".join(groups) + "\n)"

    # -- hooks

    def register_step_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Call hook(optimizer, args, kwargs) before each step; it may return other (args, kwargs)."""
        return RemovableHandle(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable) -> RemovableHandle:
        """Call hook(optimizer, args, kwargs) after each step."""
        return RemovableHandle(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call hook(optimizer) before state_dict()."""
        return _registered(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call hook(optimizer, state_dict) after state_dict(); it may return another."""
        return _registered(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call hook(optimizer, state_dict) before it is loaded; it may return another."""
        return _registered(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call hook(optimizer) after load_state_dict()."""
        return _registered(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    def _cuda_graph_capture_health_check(self) -> None:
        """RuntimeError while a CUDA graph is captured, unless all groups are capturable: the captured step would always be the same one."""
        unready = [p for g in self.param_groups if not g["capturable"] for p in g["params"]]
        if updates.being_captured(unready):
            name = type(self).__name__
            raise RuntimeError(f"Attempting CUDA graph capture of {name}.step(), but of a parameter group capturable is False.")

    _accelerator_graph_capture_health_check = _cuda_graph_capture_health_check

    @staticmethod
    def profile_hook_step(func: Callable) -> Callable:
        """`step` with the hooks around it."""

        @functools.wraps(func)
        def step(*args, **kwargs):
            self = args[0]
            recorder = stack.at(stack.PROFILE)
            if recorder is None:
                return hooked(self, args, kwargs)
            start = now()
            try:
                return hooked(self, args, kwargs)
            finally:
                recorder.ended(start, f"Optimizer.step#{type(self).__name__}.step")

        def hooked(self, args, kwargs):
            before, after = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks
            if before or _global_optimizer_pre_hooks:
                for hook in [*_global_optimizer_pre_hooks.values(), *before.values()]:
                    changed = hook(self, args, kwargs)
                    if changed is not None:
                        if not isinstance(changed, tuple) or len(changed) != 2:
                            raise RuntimeError(f"{func} must return None or a tuple (args, kwargs), found {changed}.")
                        args, kwargs = changed
            watch = self._watch
            if watch is not None and len(args) == 1 and not kwargs:
                watch.before_step(self.param_groups)
            result = func(*args, **kwargs)
            if watch is not None:
                watch.after_step(self.param_groups)
            self._optimizer_step_code()
            if after or _global_optimizer_post_hooks:
                for hook in [*after.values(), *_global_optimizer_post_hooks.values()]:
                    hook(self, args, kwargs)
            return result

        return step

    def _optimizer_step_code(self) -> None:
        """Called after each step: a place for profilers to look at."""

    def _patch_step_function(self) -> None:
        """Put the hooks around the step of this class, once."""
        cls = type(self)
        if not getattr(cls.step, "hooked", False):
            cls.step = self.profile_hook_step(cls.step)  # type: ignore[method-assign]
            cls.step.hooked = True  # type: ignore[attr-defined]


def register_optimizer_step_pre_hook(hook: Callable) -> RemovableHandle:
    """Call hook(optimizer, args, kwargs) before each step of every optimizer."""
    return RemovableHandle(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable) -> RemovableHandle:
    """Call hook(optimizer, args, kwargs) after each step of every optimizer."""
    return RemovableHandle(_global_optimizer_post_hooks, hook)


def evaluated(closure: Callable[[], Any] | None) -> Any:
    """What the closure returns, with gradients recorded; None without one."""
    if closure is None:
        return None
    with recording(True):
        return closure()


class OneByOne(Optimizer):
    """An optimizer that moves one parameter at a time, dense and real: `_move(p, grad, group)`."""

    @no_grad()
    def step(self, closure=None):
        """Move all parameters once."""
        loss = evaluated(closure)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                for kind, found in (("sparse gradients", p.grad.is_sparse), ("complex parameters", p.is_complex())):
                    if found:
                        raise RuntimeError(f"{type(self).__name__} does not support {kind}")
                self._move(p, p.grad, group)
        return loss

    def _move(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        """Move one."""
        raise NotImplementedError


def one_element(value, name: str = "lr") -> None:
    """Refuse a tensor of several elements where a number is expected."""
    if isinstance(value, Tensor) and value.numel() != 1:
        raise ValueError(f"Tensor {name} must be 1-element, found shape {tuple(value.shape)}")


def _to_scalar(x):
    """A number, or a tensor of one element without dimensions."""
    return x.squeeze() if isinstance(x, Tensor) and x.dim() else x


def _owner(params: Any) -> Any:
    """The module whose parameters() or named_parameters() this is, before anything was taken from it; None if it is something else."""
    frame = getattr(params, "gi_frame", None)
    return frame.f_locals.get("self") if frame is not None else None


def _warn_of_left_out(owners: list) -> None:
    """Layers in a plain list would silently never learn."""
    for owner in owners:
        for path, what in getattr(owner, "_left_out", tuple)():
            cure = "so the optimizer will not move its parameters. Keep modules in nn.ModuleList or nn.ModuleDict, parameters in nn.ParameterList"
            errors.warn(f"{type(owner).__name__}.{path} holds a {what}, which is not registered, {cure}")


def _take_params(group: dict[str, Any]) -> None:
    """Make group["params"] a list of tensors, and "param_names" that of their names if they came with names."""
    params = group["params"]
    if isinstance(params, set):
        raise TypeError("optimizer parameters need to be in ordered collections, but the order of a set changes between runs: use a list")
    given = [params] if isinstance(params, Tensor) else list(params)
    names = [p[0] for p in given if isinstance(p, tuple)]
    group["params"] = [p[1] if isinstance(p, tuple) else p for p in given]
    if names:
        if len(names) != len(given):
            raise ValueError("all optimizer params should be with/without names. Some param names are missing")
        group["param_names"] = names


def _fitted(param: Tensor, value: Any, key: Any, on_device: bool) -> Any:
    """A loaded state as the parameter wants it: on its device and in its dtype, but the step as it was saved."""
    if isinstance(value, Tensor):
        if key == "step":
            return value.to(dtype=dtypes.float32, device=param.device) if on_device else value
        return value.to(dtype=param.dtype, device=param.device) if param.is_floating_point() else value.to(device=param.device)
    if isinstance(value, dict):
        return {k: _fitted(param, v, k, on_device) for k, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return type(value)(_fitted(param, v, None, on_device) for v in value)  # type: ignore[call-arg]
    return value


def _kept(new: Any, old: Any) -> Any:
    return old if new is None else new


def _registered(hooks: OrderedDict, hook: Callable, prepend: bool) -> RemovableHandle:
    handle = RemovableHandle(hooks, hook)
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle
