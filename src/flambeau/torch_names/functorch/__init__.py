"""What programs know as functorch, which became torch.func: its functions under their first names, and modules taken apart into functions.

>>> model, parameters = make_functional(nn.Linear(2, 3))
>>> tuple(model(parameters, torch.ones(4, 2)).shape)
(4, 3)
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from flambeau import func
from flambeau.functorch.stateless_modules import (
    FunctionalModule,
    FunctionalModuleWithBuffers,
    combine_state_for_ensemble,
    make_functional,
    make_functional_with_buffers,
)


def _renamed(function: Callable, name: str) -> Callable:
    """A function under its first name, which says what it is called now."""

    @functools.wraps(function)
    def older(*args: Any, **kwargs: Any) -> Any:
        words = f"`functorch.{function.__name__}` is deprecated. Please use `{name}` instead, which is the same"
        warnings.warn(words, FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    return older


functionalize = _renamed(func.functionalize, "torch.func.functionalize")
grad = _renamed(func.grad, "torch.func.grad")
grad_and_value = _renamed(func.grad_and_value, "torch.func.grad_and_value")
hessian = _renamed(func.hessian, "torch.func.hessian")
jacfwd = _renamed(func.jacfwd, "torch.func.jacfwd")
jacrev = _renamed(func.jacrev, "torch.func.jacrev")
jvp = _renamed(func.jvp, "torch.func.jvp")
vjp = _renamed(func.vjp, "torch.func.vjp")
vmap = _renamed(func.vmap, "torch.vmap")

__all__: Sequence[str] = [
    "FunctionalModule",
    "FunctionalModuleWithBuffers",
    "combine_state_for_ensemble",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "make_functional",
    "make_functional_with_buffers",
    "vjp",
    "vmap",
]
