"""as_functional_optim: the functional form of an optimizer, by its class. The name of this file is PyTorch's."""

from __future__ import annotations

from typing import Any

from flambeau import optim
from flambeau.distributed.optim.functional_adadelta import _FunctionalAdadelta
from flambeau.distributed.optim.functional_adagrad import _FunctionalAdagrad
from flambeau.distributed.optim.functional_adam import _FunctionalAdam
from flambeau.distributed.optim.functional_adamax import _FunctionalAdamax
from flambeau.distributed.optim.functional_adamw import _FunctionalAdamW
from flambeau.distributed.optim.functional_rmsprop import _FunctionalRMSprop
from flambeau.distributed.optim.functional_rprop import _FunctionalRprop
from flambeau.distributed.optim.functional_sgd import _FunctionalSGD

functional_optim_map: dict[type, type] = {
    optim.Adagrad: _FunctionalAdagrad,
    optim.Adam: _FunctionalAdam,
    optim.AdamW: _FunctionalAdamW,
    optim.SGD: _FunctionalSGD,
    optim.Adadelta: _FunctionalAdadelta,
    optim.RMSprop: _FunctionalRMSprop,
    optim.Rprop: _FunctionalRprop,
    optim.Adamax: _FunctionalAdamax,
}


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
