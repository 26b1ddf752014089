"""flambeau.func: functions of functions. Derivatives (grad, vjp, jvp, Jacobians), batches (vmap), and modules as functions of their parameters.

They compose in any order: vmap(grad(loss), in_dims=(None, 0)) gives the gradient of every sample. See README.md.
"""

from __future__ import annotations

import functools
from typing import Any

from flambeau import modes
from flambeau.batching.batched import Batched
from flambeau.batching.vmap import vmap
from flambeau.func.gradients import grad, grad_and_value, jvp, linearize, vjp
from flambeau.func.jacobians import hessian, jacfwd, jacrev
from flambeau.func.modules import functional_call, replace_all_batch_norm_modules_, stack_module_state
from flambeau.func.rearranging import rearrange

__all__ = [
    "debug_unwrap", "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "rearrange",
    "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip


def functionalize(func: Any, *, remove: str = "mutations") -> Any:
    """A function with the same results, and the same changes to its arguments.

    In PyTorch it computes them without in-place operations, for compilers that cannot see writes. Nobody here needs that: in-place operations
    work under grad and vmap as they are, so the function itself is run.
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(f"functionalize: received invalid argument remove={remove}. Try 'mutations' or 'mutations_and_views'")

    @functools.wraps(func)
    def same(*args: Any, **kwargs: Any) -> Any:
        modes.state.transforms += 1
        try:
            return func(*args, **kwargs)
        finally:
            modes.state.transforms -= 1

    return same


def debug_unwrap(tensor: Any, *, recurse: bool = True) -> Any:
    """What stands behind a tensor inside vmap: all samples at once, for looking at in a debugger. Other tensors as they are."""
    while isinstance(tensor, Batched):
        tensor = tensor.value
        if not recurse:
            break
    return tensor
