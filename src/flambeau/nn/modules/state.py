"""state_dict and load_state_dict: a model's parameters and persistent buffers as one flat dictionary, and back."""

from __future__ import annotations

import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

from flambeau import modes
from flambeau.nn.modules import conversion
from flambeau.nn.modules.hooks import _WrappedHook
from flambeau.nn.parameter import is_lazy
from flambeau.tensor import Tensor
from flambeau.tensor.making.parameter import Parameter
from flambeau.tensor.node import RemovableHandle
from flambeau.tensor.swapping import swap_tensors

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What `load_state_dict` returns: the keys the model wanted and did not find, and those it found and did not want."""

    __slots__ = ()

    def __repr__(self) -> str:
        return super().__repr__() if self.missing_keys or self.unexpected_keys else "<All keys matched successfully>"

    __str__ = __repr__


class State:
    """The part of Module that is about saving and loading."""

    _version = 1  # of what a class saves: a subclass that changes its keys counts up, and mends old ones in _load_from_state_dict

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """All parameters and persistent buffers by their path, sharing memory with the module.

        destination  where to put them, instead of a new OrderedDict        prefix     put before every key
        keep_vars    keep tensors with their history, instead of detaching
        """
        if args:
            said = "Positional args are being deprecated: name them, destination=, prefix=, keep_vars="
            warnings.warn(f"{said}: state_dict(destination=..., prefix=..., keep_vars=...)", FutureWarning, stacklevel=2)
            given = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False))
            destination = given.get("destination") if destination is None else destination
            prefix = given.get("prefix", prefix) if prefix == "" else prefix
            keep_vars = given.get("keep_vars", keep_vars) if keep_vars is False else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        if self._state_dict_pre_hooks:
            for hook in self._state_dict_pre_hooks.values():
                hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        if self._modules:
            for name, module in self._modules.items():
                if module is not None:
                    module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        if not self._state_dict_hooks:
            return destination
        for hook in self._state_dict_hooks.values():
            answer = hook(self, destination, prefix, metadata)
            if answer is not None:
                if getattr(hook, "_from_public_api", False):
                    raise RuntimeError("state_dict post-hook must return None")
                destination = answer
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Write what this module itself has. Override it to save something else."""
        for name, parameter in self._parameters.items():
            if parameter is not None:
                destination[prefix + name] = parameter if keep_vars else parameter.detach()
        for name, buffer in self._buffers.items() if self._buffers else ():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = buffer if keep_vars else buffer.detach()
        if type(self).get_extra_state is not State.get_extra_state:
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def _saved(self) -> dict[str, Tensor]:
        """The parameters and persistent buffers of this module itself."""
        buffers = [entry for entry in self._buffers.items() if entry[0] not in self._non_persistent_buffers_set]
        return {name: tensor for name, tensor in (*self._parameters.items(), *buffers) if tensor is not None}

    def get_extra_state(self) -> Any:
        """Override it to save more than tensors; `set_extra_state` gets it back."""
        wanted = "Reached a code path in Module.get_extra_state(): a class that saves extra state overrides it."
        raise RuntimeError(wanted)

    def set_extra_state(self, state: Any) -> None:
        """Override it to take back what `get_extra_state` gave."""
        wanted = "Reached a code path in Module.set_extra_state(): a class that loads extra state overrides it."
        raise RuntimeError(wanted)

    # -- loading

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> _IncompatibleKeys:
        """Copy tensors into the parameters and buffers of the same path; returns the keys that had no counterpart.

        strict  such keys are an error        assign  take the tensors themselves instead of copying their values
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        found = _IncompatibleKeys([], [])
        problems: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        state: Any = OrderedDict(state_dict)
        if metadata is not None:
            state._metadata = metadata
        _load(self, state, "", metadata or {}, assign, found, problems)
        if strict:
            problems[:0] = _key_problems(found, state_dict)
        if problems:
            listed = "\n\t".join(problems)
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listed}")
        return found

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) -> None:
        """Take what this module itself has. Override it to read what an older version saved."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        own = self._saved()
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, tensor in own.items():
            key = prefix + name
            if key in state_dict:
                problem = self._load_one(name, key, tensor, state_dict[key], assign)
                if problem:
                    error_msgs.append(problem)
            elif strict:
                missing_keys.append(key)
        self._load_extra(state_dict, prefix + _EXTRA_STATE_KEY_SUFFIX, strict, missing_keys, unexpected_keys)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != prefix + _EXTRA_STATE_KEY_SUFFIX:
                    name, dot, _ = key[len(prefix) :].partition(".")
                    if name not in (self._modules if dot else own):
                        unexpected_keys.append(key)

    def _load_extra(self, state_dict: Any, key: str, strict: bool, missing_keys: list, unexpected_keys: list) -> None:
        if type(self).set_extra_state is not State.set_extra_state:
            if key in state_dict:
                self.set_extra_state(state_dict[key])
            elif strict:
                missing_keys.append(key)
        elif strict and key in state_dict:
            unexpected_keys.append(key)

    def _load_one(self, name: str, key: str, tensor: Tensor, saved: Any, assign: bool) -> str:
        """Take one tensor; returns what is wrong with it."""
        if not isinstance(saved, Tensor) and not hasattr(type(saved), "__torch_function__"):
            wanted = "expected torch.Tensor or Tensor-like object from checkpoint"
            return f'While copying the parameter named "{key}", {wanted} but received {type(saved)}'
        if not is_lazy(tensor):
            if tensor.dim() == 0 and tuple(saved.shape) == (1,):
                saved = saved[0]  # in very old checkpoints a scalar had one dimension
            if saved.shape != tensor.shape:
                there, here = saved.shape, tensor.shape
                return f"size mismatch for {key}: copying a param with shape {there} from checkpoint, the shape in current model is {here}."
            if tensor.is_meta and not saved.is_meta and not assign:
                said = f"for {key}: copying from a non-meta parameter in the checkpoint to a meta one, which has no memory for it"
                warnings.warn(f"{said}, is a no-op. load_state_dict(..., assign=True) takes the tensor itself", stacklevel=5)
                return ""
        try:
            with modes.no_grad():
                if conversion.get_swap_module_params_on_conversion():
                    _become(tensor, saved, assign)
                elif assign:
                    setattr(self, name, _as_parameter(saved, tensor) if isinstance(tensor, Parameter) else saved)
                else:
                    tensor.copy_(saved)
        except Exception as problem:
            shapes = f"whose dimensions in the model are {tensor.size()} and {saved.size()} in the checkpoint"
            way = "swapping" if conversion.get_swap_module_params_on_conversion() else "copying"
            return f'While {way} the parameter named "{key}", {shapes}, an exception occurred : {problem.args}.'
        return ""

    # -- hooks

    def register_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Call hook(module, prefix, keep_vars) before this module is saved."""
        return RemovableHandle(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Call hook(module, state_dict, prefix, local_metadata) after this module was saved; it may change the dictionary in place."""
        hook._from_public_api = True  # type: ignore[attr-defined]
        return RemovableHandle(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook: Callable) -> RemovableHandle:
        if getattr(hook, "_from_public_api", False):
            known = "that was previously registered via register_state_dict_post_hook"
            raise RuntimeError(f"Cannot register the same function as both kinds of hooks {known}")
        return RemovableHandle(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Before loading, call `hook` with the module and what its _load_from_state_dict is given."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable, with_module: bool = False) -> RemovableHandle:
        return RemovableHandle(self._load_state_dict_pre_hooks, _WrappedHook(hook, self if with_module else None))

    def register_load_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Call hook(module, incompatible_keys) after loading; it may change the two lists in place."""
        return RemovableHandle(self._load_state_dict_post_hooks, hook)


def _become(tensor: Tensor, saved: Any, assign: bool) -> None:
    """Swap a parameter or buffer for what its class makes of the saved tensor."""
    found = tensor.module_load(saved, assign=assign)
    if found is saved or found is tensor:
        raise RuntimeError("module_load returned one of self or other: return .detach() of it, which can be swapped")
    swap_tensors(tensor, _as_parameter(found, tensor) if isinstance(tensor, Parameter) else found)


def _as_parameter(saved: Any, tensor: Tensor) -> Parameter:
    """The saved tensor as a parameter, to be learned if the one it replaces is."""
    return saved.requires_grad_(tensor.requires_grad) if isinstance(saved, Parameter) else Parameter(saved, tensor.requires_grad)


def _load(module: Any, state: Any, prefix: str, metadata: dict, assign: bool, found: _IncompatibleKeys, problems: list) -> None:
    """Load a module from the entries that start with `prefix`, then those inside it."""
    local = metadata.get(prefix[:-1], {})
    if assign:
        local["assign_to_params_buffers"] = assign
    module._load_from_state_dict(state, prefix, local, True, found.missing_keys, found.unexpected_keys, problems)
    for name, child in module._modules.items():
        if child is not None:
            start = f"{prefix}{name}."
            inside = {key: value for key, value in state.items() if key.startswith(start)}
            _load(child, inside, start, metadata, assign, found, problems)
    for hook in module._load_state_dict_post_hooks.values():
        answer = hook(module, found)
        assert answer is None, (
            "Hooks registered with ``register_load_state_dict_post_hook`` are asked for nothing: change the lists they are given"
        )


def _key_problems(found: _IncompatibleKeys, state_dict: Mapping) -> list[str]:
    problems = []
    if found.missing_keys:
        problems.append("Missing key(s) in state_dict: {}. ".format(", ".join(f'"{k}"' for k in found.missing_keys)))
    if found.unexpected_keys:
        problems.append("Unexpected key(s) in state_dict: {}. ".format(", ".join(f'"{k}"' for k in found.unexpected_keys)))
    return problems + _renaming(found)


def _renaming(found: _IncompatibleKeys) -> list[str]:
    """If the two lists differ by a prefix alone (a model saved inside DistributedDataParallel or torch.compile): say so."""
    missing, unexpected = found
    if not missing or len(missing) != len(unexpected):
        return []
    for longer, shorter, what in ((unexpected, missing, "the checkpoint"), (missing, unexpected, "the model")):
        prefix = longer[0].removesuffix(shorter[0])
        if prefix != longer[0] and all(a == prefix + b for a, b in zip(longer, shorter, strict=True)):
            cure = f"{{k.removeprefix({prefix!r}): v ...}}" if what == "the checkpoint" else f"{{{prefix!r} + k: v ...}}"
            return [f"The keys of {what} all start with {prefix!r}. Try load_state_dict({cure})"]
    return []
