"""What programs know as functorch, which became torch.func: its functions under their first names, and modules taken apart into functions.

>>> model, parameters = make_functional(nn.Linear(2, 3))
>>> tuple(model(parameters, torch.ones(4, 2)).shape)
(4, 3)
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.func import functionalize, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap
from flambeau.functorch.stateless_modules import (
    FunctionalModule,
    FunctionalModuleWithBuffers,
    combine_state_for_ensemble,
    make_functional,
    make_functional_with_buffers,
)

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
