"""Calling a module with other parameters and buffers than its own."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor
from flambeau.tensor.making.parameter import Parameter

__all__ = ["functional_call"]

_NONE = object()


def functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """The old place of `flambeau.func.functional_call`."""
    warnings.warn("`torch.nn.utils.stateless` is the old place. Please use `torch.func.functional_call`", FutureWarning, stacklevel=2)
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)


def _functional_call(
    module: Module, parameters_and_buffers: Any, args: Any = None, kwargs: Any = None, *, tie_weights: bool = True, strict: bool = False
) -> Any:
    """module(*args, **kwargs) with these tensors, by path, in the place of its own; afterwards everything is as before."""
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights=tie_weights, strict=strict):
        return module(*args, **(kwargs or {}))


@contextlib.contextmanager
def _reparametrize_module(
    module: Module, parameters_and_buffers: dict[str, Tensor], tie_weights: bool = False, strict: bool = False
) -> Iterator[None]:
    given = dict(parameters_and_buffers)
    if tie_weights:
        given = _untie_named_tensors_map(module, given)
    if strict:
        _check_keys(module, given)
    replaced: list[tuple[str, Any, str, Any]] = []
    try:
        for path, tensor in given.items():
            parent, _, name = path.rpartition(".")
            replaced.append((path, *_swap(module.get_submodule(parent), name, tensor)))
        yield
    finally:
        for path, home, name, before in reversed(replaced):
            after = home.get(name)
            if before is _NONE:
                home.pop(name, None)
            else:
                home[name] = before
            if path in parameters_and_buffers:  # a buffer that forward replaced by a new tensor is handed to the caller
                parameters_and_buffers[path] = after


def _swap(owner: Any, name: str, tensor: Any) -> tuple[Any, str, Any]:
    """Put a tensor in the place of a parameter, buffer or plain attribute; (dictionary, name, what was there)."""
    if tensor is not None and not isinstance(tensor, Tensor):
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    new = owner._parameters if isinstance(tensor, Parameter) else owner.__dict__
    home = next((home for home in (owner._parameters, owner._buffers, owner.__dict__) if name in home), new)
    before = home.get(name, _NONE)
    if before is not _NONE and before is not None and not isinstance(before, Tensor):
        raise TypeError(
            f"attribute `{name}`: {before} is not an instance of torch.Tensor: {owner._get_name()} cannot have one in its place"
        )
    home[name] = tensor
    return home, name, before


def _tied_groups(module: Module) -> list[set[str]]:
    """Paths that lead to one and the same tensor."""
    groups: dict[int, set[str]] = {}
    for path, tensor in (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)):
        groups.setdefault(id(tensor), set()).add(path)
    return [paths for paths in groups.values() if len(paths) > 1]


def _untie_named_tensors_map(module: Module, parameters_and_buffers: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, also under the other names of shared parameters."""
    given = dict(parameters_and_buffers)
    for paths in _tied_groups(module):
        found = {path: parameters_and_buffers[path] for path in sorted(paths) if path in parameters_and_buffers}
        if len({id(t) for t in found.values()}) > 1:
            raise ValueError(f"functional_call got multiple values for keys {sorted(found)} of one tensor. Try tie_weights=False")
        for path in paths:
            if found:
                given[path] = next(iter(found.values()))
    return given


def _check_keys(module: Module, given: dict[str, Tensor]) -> None:
    own = {path for path, _ in (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))}
    missing, unexpected = sorted(own - given.keys()), sorted(given.keys() - own)
    if missing or unexpected:
        parts = [
            f"{what} key(s): {', '.join(map(repr, keys))}." for what, keys in (("Unexpected", unexpected), ("Missing", missing)) if keys
        ]
        raise RuntimeError("Error(s) in reparametrizing:\n\t" + "\n\t".join(parts))
