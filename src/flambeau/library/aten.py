"""How `torch.ops.aten.<name>` runs: our function of the same meaning, its arguments called as that function calls them.

Most operators are functions or methods here, under the same name; `parts.py` has those that are pieces of ours. What has neither raises
NotImplementedError with the operator's name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from flambeau.operators import calling
from flambeau.operators.overloads import OpOverload, defined
from flambeau.operators.schema import Argument, FunctionSchema
from flambeau.ops import ABOVE
from flambeau.ops.results import NamedResult
from flambeau.tensor import Tensor

__all__ = ["run", "runner"]

# What our functions call an argument, where a schema has another name for it.
CALLED = {"self": "input", "the_template": "other", "tensor": "input", "src": "source"}
ROOMS = {"linalg": "linalg", "fft": "fft", "special": "special"}
VARIADIC = ("size", "dims", "repeats", "sizes", "shape")  # what a program may also write as several arguments
ABSENT = (None, False)  # arguments that say nothing, and that a function need not have


def run(overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Carry out a call of an operator of PyTorch's."""
    bound = calling.bind(overload._schema, args, kwargs)
    return runner(overload)(**bound)


@cache
def runner(overload: OpOverload) -> Callable[..., Any]:
    """The function that does what an overload means, called with the arguments by their names in the schema."""
    from flambeau.library import parts

    found = parts.find(overload)
    if found is not None:
        return found
    function = named(overload)
    if function is None:
        function = _over_itself(overload)
        if function is not None:
            return function
        raise _nothing(overload)
    return Translated(overload._schema, function)


def _over_itself(overload: OpOverload) -> Callable | None:
    """An in-place form that is no method here: computed, and written over the first argument."""
    name = overload._opname
    packet = defined("aten", name.removesuffix("_")) if name.endswith("_") else None
    other = packet and packet._overloads.get(overload._overloadname)
    if other is None:
        return None
    compute, first = runner(other), overload._schema.arguments[0].name

    def run(**bound: Any) -> Any:
        return bound[first].copy_(compute(**bound))

    return run


def _nothing(overload: OpOverload) -> NotImplementedError:
    return NotImplementedError(
        f"torch.ops.{overload} is a name here, and cannot be called: it is part of another operation, or of a device or layout that Flambeau does not "
        "have. Try the public function that it belongs to"
    )


def named(overload: OpOverload) -> Callable | None:
    """The public function or method of an operator's name."""
    name = overload._opname
    if name.endswith("_") and not name.startswith("_foreach"):
        return getattr(Tensor, name, None)
    return public(name)


def public(name: str) -> Callable | None:
    """The public function of a name, wherever PyTorch has it; a method, if there is no function."""
    room, _, rest = name.partition("_")
    candidates = [(ROOMS[room], rest)] if room in ROOMS else []
    for home, short in [*candidates, ("", name), ("nn.functional", name)]:
        try:
            thing = ABOVE["named"](home.partition(".")[0]) if home else None
            if home == "nn.functional":
                thing = thing.functional
            found = getattr(thing, short) if home else ABOVE["named"](name)
        except AttributeError:
            continue
        if callable(found) and not isinstance(found, type):
            return found
    method = inspect.getattr_static(Tensor, name, None)
    if method is None:
        return None
    return method.fget if isinstance(method, property) else getattr(Tensor, name)


class Translated:
    """A function of ours, to be called as a schema has it."""

    def __init__(self, schema: FunctionSchema, function: Callable):
        self.schema, self.function = schema, function
        self.outs = [a.name for a in schema.arguments if a.is_out]
        self.parameters, self.takes_any, self.variadic = parameters(function)
        self.names = [(a, self.target(at, a)) for at, a in enumerate(schema.arguments) if a.name not in self.outs]
        self.listed = bool(schema.returns) and len(schema.returns) == 1 and schema.returns[0].real_type.word.endswith("[]")

    def target(self, at: int, argument: Argument) -> str | int | None:
        """What the function calls an argument: a name, a position, or None where it has no such argument."""
        for name in (argument.name, CALLED.get(argument.name, ""), "self" if at == 0 else ""):
            if name in self.parameters:
                return name if at else 0
        if at == 0:
            return 0
        taken = {a.name for a in self.schema.arguments} | {CALLED.get(a.name, a.name) for a in self.schema.arguments}
        if not argument.kwarg_only and at < len(self.parameters) and self.parameters[at] not in taken:
            return self.parameters[at]
        if self.variadic and argument.name in (self.variadic, *VARIADIC):
            return "*"
        return argument.name if self.takes_any else None

    def __call__(self, /, **bound: Any) -> Any:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument, target in self.names:
            value = bound[argument.name]
            if target == 0 or target == "*":
                args.append(value)
            elif target is not None:
                if not calling.is_default(argument, value):
                    kwargs[str(target)] = value
            elif value not in ABSENT and not calling.is_default(argument, value):
                raise NotImplementedError(
                    f"torch.ops.{self.schema.name.replace('::', '.')}: Flambeau has no {argument.name}= there, found {value!r}"
                )
        if self.outs:
            kwargs["out"] = bound[self.outs[0]] if len(self.outs) == 1 else tuple([bound[name] for name in self.outs])
        result = self.function(*args, **kwargs)
        if isinstance(result, NamedResult):
            return tuple(result)
        return list(result) if self.listed and isinstance(result, tuple) else result


def parameters(function: Callable) -> tuple[list[str], bool, str]:
    """The names of a function's parameters in order, whether it takes any other by name, and the name of those it takes by position."""
    op = getattr(function, "op", None)
    if op is not None and hasattr(op, "parameters"):
        return list(op.parameters), False, op.variadic or ""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return [], True, ""
    kinds = signature.parameters.values()
    names = [p.name for p in kinds if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return names, any(p.kind is p.VAR_KEYWORD for p in kinds), next((p.name for p in kinds if p.kind is p.VAR_POSITIONAL), "")
