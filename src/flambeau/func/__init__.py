"""flambeau.func: functions of functions. Derivatives (grad, vjp, jvp, Jacobians), batches (vmap), and modules as functions of their parameters.

They compose in any order: vmap(grad(loss), in_dims=(None, 0)) gives the gradient of every sample. See README.md.
"""

from __future__ import annotations

from typing import Any

from flambeau.batching.vmap import vmap
from flambeau.func.gradients import grad, grad_and_value, jvp, linearize, vjp
from flambeau.func.jacobians import hessian, jacfwd, jacrev
from flambeau.func.modules import functional_call, stack_module_state

__all__ = [
    "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "stack_module_state",
    "vjp", "vmap",
]  # fmt: skip


def functionalize(func: Any, *, remove: str = "mutations") -> Any:
    """Not here: what it prepares programs for, compilers that cannot see writes, does not exist here either."""
    raise NotImplementedError("functionalize is not implemented: in-place operations work under grad and vmap as they are")
