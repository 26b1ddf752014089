"""Arguments of operations: binding them to names, and the NumPy spellings PyTorch accepts too (axis for dim, ...)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from flambeau.tensor import Tensor

NUMPY_NAMES = {"axis": "dim", "axes": "dims", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other"}
NUMPY_NAMES["from"] = "from_"  # a keyword in Python, a parameter of uniform_ and random_ in PyTorch


class Arguments:
    """The signature of an operation: Python itself does the parsing, through a function with the same parameters."""

    def __init__(self, op):
        self.op = op
        self.parameters = op.parameters
        self.variadic: str | None = op.variadic
        self.names = frozenset(op.parameters)

    @cached_property
    def bind(self):
        """A function with the operation's own signature that returns its arguments in order."""
        defaults = self.op.defaults
        n = self.op.n_positional
        shown = [f"{p}=_d[{p!r}]" if p in defaults else p for p in self.parameters]
        middle = [f"*{self.variadic}"] if self.variadic else ["*"] if len(shown) > n else []
        signature = ", ".join(shown[:n] + middle + shown[n:])
        names = [*self.parameters, *([self.variadic] if self.variadic else [])]
        return eval(f"lambda {signature}: ({', '.join(names)},)", {"_d": defaults})

    def known(self, kwargs: dict) -> dict:
        """Keywords with NumPy's spellings turned into PyTorch's; what is still unknown is left for Python to complain about."""
        if self.names.issuperset(kwargs):
            return kwargs
        return {(NUMPY_NAMES[k] if k not in self.names and NUMPY_NAMES.get(k) in self.names else k): v for k, v in kwargs.items()}

    def values(self, args: tuple, kwargs: dict) -> tuple:
        """The arguments in the order of the parameters."""
        try:
            return self.bind(*args, **(kwargs and self.known(kwargs)))
        except TypeError as problem:
            raise TypeError(str(problem).replace("Arguments.bind.<locals>.", "").replace("<lambda>", self.op.short)) from None


def check_tensors(op, problem: AttributeError, values) -> None:
    """TypeError if what was asked for an attribute in vain is one of the arguments itself: it stands where a tensor belongs."""
    if problem.name is None:
        return
    for place, (name, value) in enumerate(zip(op.parameters, values, strict=False), 1):
        if value is problem.obj and not hasattr(value, "_array"):
            raise TypeError(f"{op.short}(): argument '{name}' (position {place}) must be Tensor, not {type(value).__name__}") from None


def not_a_tensor(op, value) -> TypeError:
    """The error for something else where the first argument, a tensor, belongs."""
    return TypeError(f"{op.short}(): argument '{op.parameters[0]}' (position 1) must be Tensor, not {type(value).__name__}")


def tensors_in(values: Any) -> Iterator[Tensor]:
    """All tensors in arguments, or results: in lists, tuples and dictionaries of any depth."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, dict):
        yield from tensors_in(tuple(values.values()))
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from tensors_in(value)
