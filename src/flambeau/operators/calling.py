"""From the arguments of a call to those of a schema: which overload is meant, and what each of its arguments is.

>>> bind(parse("my::f(Tensor? x, int[2] size, *, float scale=2.) -> Tensor"), (None, 3), {})
{'x': None, 'size': [3, 3], 'scale': 2.0}
>>> bind(parse("my::f(Tensor x) -> Tensor"), (), {})
Traceback (most recent call last):
flambeau.operators.calling.Mismatch: my::f() is missing value for argument 'x'. Declaration: my::f(Tensor x) -> Tensor
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flambeau import devices, dtypes
from flambeau.dtypes import Constant
from flambeau.operators.schema import Argument, FunctionSchema, parse
from flambeau.operators.schema_types import ListType, OptionalType, Type, of_python

__all__ = ["Mismatch", "bind", "normalized", "parse"]

# Operators for which a number may stand where the schema wants a tensor.
NUMBERS_FOR_TENSORS = frozenset(
    f"aten::{name}{form}" for name in "add sub mul div subtract multiply divide true_divide floor_divide copy to".split() for form in ("", "_")
) | {"aten::_to_copy"}  # fmt: skip
WRONG: Any = object()


class Mismatch(RuntimeError):
    """The arguments are not those of the schema."""


def bind(schema: FunctionSchema, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Name -> value, for all arguments: those given, as the schema has them (an int becomes a float, a number a list), and defaults."""
    positional = [a for a in schema.arguments if not a.kwarg_only]
    if len(args) > len(positional) and not schema.is_vararg:
        raise Mismatch(_too_many(schema, positional, len(args)))
    loose = schema.name in NUMBERS_FOR_TENSORS
    found: dict[str, Any] = {}
    left = dict(kwargs)
    for at, argument in enumerate(schema.arguments):
        name = argument.name
        if at < len(args) and not argument.kwarg_only:
            if name in left:
                raise Mismatch(f"{schema.name}() got multiple values for argument {name!r}. Declaration: {schema}")
            found[name] = _checked(schema, argument, at, args[at], loose)
        elif name in left:
            found[name] = _checked(schema, argument, at, left.pop(name), loose)
        elif argument.has_default_value():
            found[name] = argument.default
        else:
            raise Mismatch(f"{schema.name}() is missing value for argument {name!r}. Declaration: {schema}")
    if left and not schema.is_vararg:
        raise Mismatch(f"Unknown keyword argument {next(iter(left))!r} for operator '{schema.name}'. Schema: {schema}")
    return found


def _too_many(schema: FunctionSchema, positional: list[Argument], given: int) -> str:
    if len(positional) == len(schema.arguments):
        return f"{schema.name}() expected at most {len(positional)} argument(s) but received {given} argument(s). Declaration: {schema}"
    return f"{schema.name}() takes {len(positional)} positional argument(s) but {given} was/were given.  Declaration: {schema}"


def _checked(schema: FunctionSchema, argument: Argument, at: int, value: Any, loose: bool) -> Any:
    found = convert(argument.real_type, value, loose)
    if found is WRONG:
        raise Mismatch(
            f"{schema.name}() Expected a value of type '{argument.type}' for argument '{argument.name}' but instead found type "
            f"'{of_python(value)}'.\nPosition: {at}\nValue: {_shown(value)}\nDeclaration: {schema}\n"
            f"Cast error details: Unable to cast {_shown(value)} to {argument.type}"
        )
    return found


def _shown(value: Any) -> str:
    """A value in a message: of a tensor, what it looks like."""
    if hasattr(value, "_array"):
        return f"tensor(shape={tuple(value.shape)}, dtype={value.dtype})"
    return repr(value)


def normalized(schema: FunctionSchema, bound: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Arguments as `__torch_dispatch__` receives them: by position where the schema says so, and without those at the end, and those by name,
    that are what would be there anyway."""
    positional = [a for a in schema.arguments if not a.kwarg_only]
    while positional and is_default(positional[-1], bound[positional[-1].name]):
        positional.pop()
    named = {a.name: bound[a.name] for a in schema.arguments if a.kwarg_only and not is_default(a, bound[a.name])}
    return tuple([bound[a.name] for a in positional]), named


def is_default(argument: Argument, value: Any) -> bool:
    """Whether a value is the default of an argument."""
    if not argument.has_default_value() or hasattr(value, "_array"):
        return False
    default = argument.default
    if value is default:
        return True
    if isinstance(value, list):
        return isinstance(default, list) and not any(hasattr(v, "_array") for v in value) and value == default
    return type(value) in (int, float, bool, str, complex) and type(default) in (int, float, bool, str, complex) and value == default


# -- values and types ----------------------------------------------------------------------------------------------------------------------


def convert(kind: Type, value: Any, loose: bool = False) -> Any:
    """The value as one of this type, or WRONG. With `loose`, a number may stand for a tensor."""
    if isinstance(kind, OptionalType):
        return None if value is None else convert(kind.element, value, loose)
    if isinstance(kind, ListType):
        return _list(kind, value, loose)
    what = kind.kind()
    if what == "TensorType":
        return value if hasattr(value, "_array") or (loose and _is_number(value)) else WRONG
    rule = RULES.get(what)
    return value if rule is None else rule(value)


def _list(kind: ListType, value: Any, loose: bool) -> Any:
    if isinstance(value, list | tuple) or (isinstance(value, Sequence) and not isinstance(value, str | bytes)):
        found = [convert(kind.element, v) for v in value]
        return WRONG if any(v is WRONG for v in found) else found
    if kind.size and kind.element.kind() in ("IntType", "SymIntType", "FloatType", "BoolType"):
        one = convert(kind.element, value)
        return WRONG if one is WRONG else [one] * kind.size
    return WRONG


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex | bool | np.number) or hasattr(value, "node")


def _int(value: Any) -> Any:
    if type(value) is int:
        return value
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if hasattr(value, "_array") and value.dim() == 0 and not (value.is_floating_point() or value.is_complex() or value.is_meta):
        return int(value)
    return value if hasattr(value, "node") else WRONG  # a number that a compiler stands for


def _float(value: Any) -> Any:
    if type(value) is float:
        return value
    if isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool):
        return float(value)
    if hasattr(value, "_array") and value.dim() == 0 and not (value.is_complex() or value.is_meta or value.requires_grad):
        return float(value)
    return value if hasattr(value, "node") else WRONG


def _bool(value: Any) -> Any:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    return value if hasattr(value, "node") else WRONG


def _number(value: Any) -> Any:
    if _is_number(value):
        return value
    if (
        hasattr(value, "_array")
        and value.dim() == 0
        and not value.requires_grad
        and not value.is_meta
        and value._array.__class__ is np.ndarray
    ):
        return value.item()
    return WRONG


def _of(*kinds: type) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, kinds) else WRONG


def _device(value: Any) -> Any:
    return (
        value
        if isinstance(value, devices.device)
        else devices.device(value)
        if isinstance(value, str | int) and value is not True
        else WRONG
    )


def _complex(value: Any) -> Any:
    return complex(value) if isinstance(value, int | float | complex) and not isinstance(value, bool) else WRONG


RULES: dict[str, Callable[[Any], Any]] = {
    "IntType": _int, "SymIntType": _int, "FloatType": _float, "SymFloatType": _float, "BoolType": _bool, "SymBoolType": _bool,
    "NumberType": _number, "ComplexType": _complex, "StringType": _of(str), "ScalarTypeType": _of(dtypes.dtype),
    "LayoutType": _of(Constant), "MemoryFormatType": _of(Constant), "DeviceObjType": _device,
    "GeneratorType": lambda value: value if hasattr(value, "manual_seed") else WRONG,
    "StorageType": lambda value: value if hasattr(value, "nbytes") and not hasattr(value, "_array") else WRONG,
}  # fmt: skip
