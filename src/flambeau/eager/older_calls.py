"""Calls in the argument order of PyTorch's first years, which programs of those years still make: a factor stood before the tensor it scales.

    p.data.add_(-lr, p.grad)            p.data.add_(p.grad, alpha=-lr)
    torch.addmm(beta, M, alpha, a, b)   torch.addmm(M, a, b, beta=beta, alpha=alpha)

Such a call has more positional arguments than today's signature allows, so telling them apart costs a comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from flambeau import errors
from flambeau.tensor import Tensor

PRODUCTS = ("addmm", "addmv", "addr", "addbmm", "baddbmm")
# operation -> its older orders, numbers standing for the tensors after `input`; called as a method, a product has `input` in front
ORDERS: dict[str, tuple[tuple, ...]] = {
    **dict.fromkeys(("add", "sub"), (("input", "alpha", 1),)),
    **dict.fromkeys(("addcmul", "addcdiv"), (("input", "value", 1, 2),)),
    **dict.fromkeys(PRODUCTS, (("beta", "input", 1, 2), ("beta", "input", "alpha", 1, 2))),
}


def accepting(op, front: Callable, name: str) -> Callable:
    """`front`, which runs `op` and is called `name`, taking calls in older orders too."""
    if op.name not in ORDERS or op.kind == "choice":  # a choice looks for them itself, being short of time
        return front
    most = op.n_positional

    @wraps(front)
    def with_older(*args, **kwargs):
        if len(args) > most:
            args, kwargs = reordered(op, name, args, kwargs)
        return front(*args, **kwargs)

    return with_older


def reordered(op, name: str, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Arguments of a call in today's order, with a warning; as they are if it follows no older order."""
    for order in ORDERS[op.name]:
        if order[0] == "beta" and isinstance(args[0], Tensor):
            order = ("input", "beta", *order[2:])
        if len(order) == len(args):
            break
    else:
        return args, kwargs
    tensors = op.parameters[: op.n_positional]
    names = [tensors[part] if isinstance(part, int) else part for part in order]
    given = dict(zip(names, args, strict=True))
    factors = {part: value for part, value in given.items() if part not in tensors}
    if any(isinstance(value, Tensor) and value.dim() for value in factors.values()):
        return args, kwargs
    today = ", ".join([*tensors, *(f"{part}={part}" for part in factors)])
    errors.warn(f"This overload of {name} is deprecated: {name}({', '.join(names)}). Write {name}({today}).")
    return tuple(given[part] for part in tensors), {**kwargs, **factors}
