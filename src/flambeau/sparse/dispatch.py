"""What happens when an operation meets a sparse tensor: it finds its rule here, or raises NotImplementedError.

A rule is a function with the arguments of the operation. `@rule("mm")` declares it for the operation of that name (a building block's name
begins with an underscore), `@rule("zero_")` for its in-place form. Rules live in the files beside this one, by subject.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.eager import inplace
from flambeau.eager.indexing import getitem
from flambeau.sparse.parts import SparseTensor
from flambeau.tensor import Tensor

RULES: dict[str, Callable] = {}
# Operations made of others, all of which have rules, or look at nothing but shape and dtype.
COMPOSED = frozenset(
    "t stack swapaxes swapdims movedim moveaxis float double half bfloat16 int long short bool char byte cfloat cdouble cpu cuda type_as adjoint "
    "result_type nn.functional.relu svd_lowrank pca_lowrank".split()
)


TENSORS: dict[str, int] = {}  # how many of an operation's first arguments have to be tensors


_NUMBER_FIRST = frozenset("add _add _add_scaled sub _sub _sub_scaled mul div _div pow _pow".split())


def rule(*names: str, tensors: int = 1) -> Callable:
    """Declares the function as what these operations do with sparse tensors; as many of its first arguments are tensors."""

    def declare(function: Callable) -> Callable:
        for name in names:
            RULES[name], TENSORS[name] = function, tensors
        return function

    return declare


def dispatch(cls, function: Callable, types, args: tuple = (), kwargs: dict | None = None) -> Any:
    """Run any function of tensors, some of which are sparse."""
    kwargs = {k: v for k, v in (kwargs or {}).items() if k != "out" or v is not None}
    op = getattr(function, "op", None)
    if op is None:
        name = "getitem" if function is getitem else getattr(function, "__name__", str(function))
    else:
        name = f"{op.name}_" if function is getattr(op, "call_inplace", None) else op.name
    if "out" in kwargs:
        out = kwargs.pop("out")
        result = dispatch(cls, function, types, args, kwargs)
        return inplace.deliver(op, result, [v for v in args if isinstance(v, Tensor)], out)
    found = RULES.get(name)
    if found is not None:
        for value in args[: TENSORS[name]]:
            if not isinstance(value, (Tensor, list, tuple)) and name not in _NUMBER_FIRST:
                raise TypeError(f"{name}(): expected a Tensor, found {type(value).__name__}")
        return found(*args, **kwargs)
    if op is not None and op.kind == "choice":
        chosen, *operands = op.forward(*args, **kwargs)
        if name.endswith("_") and not op.name.endswith("_"):
            return chosen.call_inplace(*operands)
        return chosen.call(*operands)
    if name in COMPOSED:
        return op.forward(*args, **kwargs)
    raise refusal(name if op is None else op.name.lstrip("_"), args)


def take_over(out: Tensor, result: Tensor) -> None:
    """Give `out`, the tensor of an out= argument, the elements of `result`: both are sparse, and of one layout."""
    if out.layout is not result.layout:
        raise RuntimeError(f"out= expected a tensor of layout {result.layout}, found {out.layout}")
    out._array = result.to(out.device, out.dtype)._array


def refusal(name: str, args: tuple) -> NotImplementedError:
    """The error for an operation without a rule, naming it and the layouts it met."""
    tensors = [v for a in args for v in (a if isinstance(a, (list, tuple)) else (a,)) if isinstance(v, Tensor)]
    found = ", ".join(f"{t.layout} {tuple(t.shape)}" for t in tensors)
    return NotImplementedError(f"{name} is not implemented for sparse tensors, found {found}. Try it on .to_dense(), or on .values()")


SparseTensor.__torch_function__ = classmethod(dispatch)  # type: ignore[assignment, method-assign]
