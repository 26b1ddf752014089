"""torch._foreach_*: one operation on each tensor of a list, as optimizers and averages in libraries write it.

>>> _foreach_add([torch.ones(2), torch.ones(1)], [1.0, 2.0])
(tensor([2., 2.]), tensor([3.]))

Further arguments are lists of as many tensors or numbers, or one for all. With an underscore behind its name the tensors are changed in place.
The names are made when they are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from flambeau import modes
from flambeau.eager import bind, updates
from flambeau.tensor import Tensor

BOTH = frozenset("""
abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min cos cosh div erf erfc exp expm1 floor frac lerp lgamma log log10 log1p log2
maximum minimum mul neg pow reciprocal round rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc
""".split())  # fmt: skip
NEW = frozenset({"clone", "max", "mm", "norm"})  # only as results of their own
INPLACE = frozenset({"copy", "zero"})  # only in place
ALSO = {"maximum": "clamp_min", "minimum": "clamp_max", "norm": "linalg.vector_norm"}  # other names of these, which take numbers, too
NAMES = frozenset({f"_foreach_{n}" for n in BOTH | NEW} | {f"_foreach_{n}_" for n in BOTH | INPLACE})


def __getattr__(name: str) -> Callable:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made = _made(name)
    return made


def _made(name: str) -> Callable:
    base = name.removeprefix("_foreach_")
    in_place = base.endswith("_")
    base = base.rstrip("_")

    def function(self: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = args[0] if base == "pow" and not isinstance(self, (list, tuple)) else self  # a number to the power of each
        _check(tensors)
        if base == "max" and not all([t.numel() for t in tensors]):
            raise RuntimeError("_foreach_max cannot compute the maximum of an empty tensor; max over zero elements is undefined.")
        each = [_shared_out(value, len(tensors), base) for value in (self, *args)]
        named = {key: _shared_out(value, len(tensors), base) for key, value in _in_pytorchs_names(base, kwargs).items()}
        run = _writer(base) if in_place else bind.functions[ALSO.get(base, base)]
        found = [run(*values, **{k: v[i] for k, v in named.items()}) for i, values in enumerate(zip(*each, strict=True))]
        return self if in_place else tuple(found)

    def addc(self: Any, tensor1: Any, tensor2: Any, value: Any = 1, *, scalars: Any = None) -> Any:
        given = value if scalars is None else scalars
        return function(self, tensor1, tensor2, value=_unpacked(given, len(self)) if isinstance(given, Tensor) else given)

    def norm(self: Any, ord: Any = 2, dtype: Any = None) -> Any:
        _check(self)
        if ord == math.inf and not all([t.numel() for t in self]):
            why = "because the operation does not have an identity"
            raise RuntimeError(f"_foreach_norm cannot compute the infinity norm on an empty tensor {why}: no element is the largest")
        plain = dtype is None and not (modes.state.grad and any(t.requires_grad for t in self))
        found = updates.norms(self, float(ord)) if plain else None
        return function(self, ord, dtype=dtype) if found is None else tuple(found)

    made = addc if base in ("addcdiv", "addcmul") else norm if base == "norm" else function
    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"{base}{'_' * in_place} of each tensor of a list."
    return made


def _writer(base: str) -> Callable:
    method = f"{ALSO.get(base, base)}_"
    return lambda tensor, *args, **kwargs: getattr(tensor, method)(*args, **kwargs)


def _in_pytorchs_names(base: str, kwargs: dict) -> dict:
    """The lists have names that say so: `other` is one tensor of `others`."""
    names = {"others": "other", "exponents": "exponent", "tensors1": "end", "scalars": "other"}
    return {names.get(key, key): value for key, value in kwargs.items()}


def _check(tensors: Sequence) -> None:
    if not len(tensors):
        raise RuntimeError("Tensor list must have at least one tensor.")
    for i, value in enumerate(tensors):
        if not isinstance(value, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(value).__name__}")


def _unpacked(scalars: Tensor, count: int) -> list:
    """Numbers that lie in a tensor."""
    if scalars.device.type != "cpu":
        raise RuntimeError(f"Expected scalars to be on CPU, got {scalars.device} instead.")
    if not scalars.is_contiguous():
        raise RuntimeError("Expected scalars to be contiguous.")
    if scalars.dim() != 1:
        raise RuntimeError(f"Expected packed scalar Tensor to be of dimension 1. Got {scalars.dim()} instead.")
    if len(scalars) != count:
        raise RuntimeError(f"Expected length of scalars to match input of length {count} but got {len(scalars)} instead.")
    return scalars.tolist()


def _shared_out(value: Any, count: int, base: str) -> Sequence:
    """A value for each tensor."""
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        if value and isinstance(value[0], Tensor):
            raise RuntimeError(f"Tensor lists must have the same number of tensors, got {count} and {len(value)}")
        raise RuntimeError(f"Tensor list must have same number of elements as scalar list: {count} tensors, {len(value)} numbers.")
    return value
