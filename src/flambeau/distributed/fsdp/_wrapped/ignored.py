"""What a wrapper leaves alone: modules and parameters that the program names, and what wrappers inside leave alone already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from warnings import warn

from flambeau.distributed.fsdp._wrapped.flat_parameter import FlatParameter
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter


def ignored(module: Module, modules: Iterable[Module] | None, states: Iterable[Any] | None) -> tuple[set[Module], set[Parameter]]:
    """(modules, parameters) in the tree of `module` that are not to be divided."""
    if modules is not None and states is not None:
        raise ValueError("Cannot pass both ignored_modules and ignored_states at the same time. Please just pass ignored_states.")
    given = list(states if states is not None else modules or ())
    are_parameters = bool(given) and all(isinstance(one, Parameter) for one in given)
    if not all(isinstance(one, Module) for one in given) and not (states is not None and are_parameters):
        kinds = sorted({type(one) for one in given}, key=repr)
        what = (
            "ignored_states expects all nn.Parameter or all nn.Module list"
            if states is not None
            else "ignored_modules expects nn.Module list"
        )
        raise ValueError(f"{what} elements but got types {kinds}")
    roots: list[Module] = [] if are_parameters else given
    if any(is_wrapper(one) for one in roots):
        raise ValueError("`ignored_modules` should not include FSDP modules: give the module inside, or the layers")
    left = {inner for one in roots for inner in one.modules() if not is_wrapper(inner)}
    if module in left:
        warn(
            f"Trying to ignore the top-level module passed into the FSDP constructor itself will result in all parameters being ignored: {module}",
            stacklevel=4,
        )
    parameters = {p for one in left for p in one.parameters() if not is_divided(p)}
    parameters |= {p for p in given if are_parameters and not is_divided(p)}
    for inner in module.modules():
        if is_wrapper(inner):
            left |= inner._ignored_modules
            parameters |= inner._ignored_params
    return left, parameters


def is_wrapper(module: Any) -> bool:
    """Whether a module is a FullyShardedDataParallel."""
    return getattr(type(module), "_is_fsdp_wrapper", False)


def is_divided(parameter: Any) -> bool:
    """Whether a wrapper has this parameter already."""
    return isinstance(parameter, FlatParameter) or getattr(parameter, "_fsdp_flattened", False)


def managed(module: Module, ignored_parameters: set[Parameter]) -> Iterator[Parameter]:
    """The parameters in a tree that nobody has yet, each once."""
    return (p for p in module.parameters() if p not in ignored_parameters and not is_divided(p))


def own_modules(module: Module, ignored_modules: set[Module] | frozenset[Module] = frozenset()) -> Iterator[Module]:
    """A module and those inside it, level by level, without wrappers and ignored ones and what is in them."""
    seen = {module}
    level = [module]
    while level:
        yield from level
        following: list[Module] = []
        for one in level:
            for child in one.children():
                if child not in seen and not is_wrapper(child) and child not in ignored_modules:
                    seen.add(child)
                    following.append(child)
        level = following
