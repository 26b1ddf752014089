"""as_functional_optim: the functional form of an optimizer, by its class. The name of this file is PyTorch's."""

from __future__ import annotations

from typing import Any

from flambeau.distributed import optim

NAMES = "Adagrad Adam AdamW SGD Adadelta RMSprop Rprop Adamax".split()
functional_optim_map: dict[type, type] = {kind.optimizer_class: kind for kind in (getattr(optim, f"_Functional{name}") for name in NAMES)}


def register_functional_optim(key: type, optim: type) -> None:
    """Add a class, if there is none for that one yet."""
    functional_optim_map.setdefault(key, optim)


def as_functional_optim(optim_cls: type, *args: Any, **kwargs: Any) -> Any:
    """An object with `step_param(param, grad)` that moves parameters as `optim_cls` does."""
    if optim_cls not in functional_optim_map:
        known = ", ".join(sorted(cls.__name__ for cls in functional_optim_map))
        raise ValueError(
            f"Optimizer {optim_cls} does not have a functional counterpart! There are some for {known}; register_functional_optim adds one"
        )
    return _create_functional_optim(functional_optim_map[optim_cls], *args, **kwargs)


def _create_functional_optim(functional_optim_cls: type, *args: Any, **kwargs: Any) -> Any:
    return functional_optim_cls([], *args, **kwargs, _allow_empty_param_list=True)
