"""infer_schema: the schema of an operator, read from the annotations of a function.

>>> from flambeau import Tensor
>>> def scale_(x: Tensor, factor: float = 2.0, *, dims: "list[int] | None" = None) -> None: ...
>>> infer_schema(scale_, mutates_args={"x"}, op_name="scale_")
'scale_(Tensor(a0!) x, float factor=2.0, *, SymInt[]? dims=None) -> ()'
"""

# ruff: noqa: UP006, UP007, UP035, UP045 - the keys are the forms in which programs write annotations, old ones too

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, List, Optional, Sequence, Union

from flambeau import devices, dtypes
from flambeau.tensor import Tensor

__all__ = ["SUPPORTED_PARAM_TYPES", "SUPPORTED_RETURN_TYPES", "infer_schema", "tuple_to_list"]

Number = Union[int, float, bool]


def _forms(kind: Any, name: str, forms: str) -> dict[Any, str]:
    """A type, and what is made of it: "?" or None, "[]" a list, "?[]" a list of those, "[]?" a list or None."""
    found: dict[Any, str] = {kind: name}
    made: Any
    if "?" in forms.split():
        found[Optional[kind]] = f"{name}?"
    for form, element in (("[]", kind), ("?[]", Optional[kind])):
        for make in LISTS if form in forms.split() else ():
            made = make[element]
            found[made] = f"{name}{form}"
    for make in LISTS if "[]?" in forms.split() else ():
        made = make[kind]
        found[Optional[made]] = f"{name}[]?"
    return found


LISTS: tuple[Any, ...] = (Sequence, List, collections.abc.Sequence, list)  # typing's are others to Python
SUPPORTED_PARAM_TYPES: dict[Any, str] = {
    **_forms(Tensor, "Tensor", "? [] ?[]"),
    **_forms(int, "SymInt", "? [] []?"),
    **_forms(float, "float", "? [] []?"),
    **_forms(bool, "bool", "? [] []?"),
    **_forms(str, "str", "?"),
    **_forms(Number, "Scalar", "? []"),
    **_forms(dtypes.dtype, "ScalarType", "?"),
    **_forms(devices.device, "Device", "?"),
}
SUPPORTED_RETURN_TYPES: dict[Any, str] = {
    Tensor: "Tensor", List[Tensor]: "Tensor[]", list[Tensor]: "Tensor[]", int: "SymInt", float: "float", bool: "bool", Number: "Scalar",
}  # fmt: skip
ALSO: dict[Any, Any] = {Union[int, float]: Number, Union[int, float, None]: Optional[Number], Union[int, float, bool, complex]: Number}


def infer_schema(
    prototype_function: Callable, /, *, mutates_args: str | Iterable[str] = (), op_name: str | None = None, tags: Any = ()
) -> str:  # fmt: skip
    """The schema of a function, by its annotations. `mutates_args`: the names of arguments that it writes to, or "unknown" for all tensors."""
    return _Inference(prototype_function, mutates_args).schema(op_name)


class _Inference:
    """One function whose schema is sought."""

    def __init__(self, function: Callable, mutates_args: str | Iterable[str]):
        if isinstance(mutates_args, str) and mutates_args != "unknown":
            raise ValueError(
                "mutates_args must either be a sequence of the names of the arguments that are mutated or the string 'unknown'. "
                f"It is the string {mutates_args!r}: was ({mutates_args!r},) meant?"
            )
        self.function, self.signature = function, inspect.signature(function)
        self.unknown = mutates_args == "unknown"
        self.mutated = set() if self.unknown else set(mutates_args)

    def fail(self, problem: str) -> typing.NoReturn:
        raise ValueError(f"infer_schema(func): {problem} Got func with signature {self.signature})")

    def schema(self, op_name: str | None) -> str:
        parts: list[str] = []
        names = set()
        kinds = inspect.Parameter
        for index, (name, parameter) in enumerate(self.signature.parameters.items()):
            if parameter.kind not in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY):
                self.fail("We do not support positional-only args, varargs, or varkwargs.")
            if parameter.kind is kinds.KEYWORD_ONLY and "*" not in parts:
                parts.append("*")
            names.add(name)
            parts.append(self.parameter(index, name, parameter))
        if self.mutated - names:
            self.fail(f"{self.mutated - names} in mutates_args were not found in the custom op's signature.")
        return f"{op_name or ''}({', '.join(parts)}) -> {self.returned()}"

    def parameter(self, index: int, name: str, parameter: inspect.Parameter) -> str:
        if parameter.annotation is inspect.Parameter.empty:
            self.fail(f"Parameter {name} must have a type annotation.")
        kind = self.resolved(parameter.annotation)
        kind = ALSO.get(kind, kind)
        if kind not in SUPPORTED_PARAM_TYPES:
            self.unsupported(name, kind)
        text = SUPPORTED_PARAM_TYPES[kind]
        if name in self.mutated and not text.startswith("Tensor"):
            self.fail(f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated.")
        if text.startswith("Tensor") and (self.unknown or name in self.mutated):
            text = f"Tensor(a{index}!){text.removeprefix('Tensor')}"
        if parameter.default is inspect.Parameter.empty:
            return f"{text} {name}"
        return f"{text} {name}={self.default(name, parameter.default)}"

    def resolved(self, annotation: Any) -> Any:
        """An annotation that is a text, or has one inside, as the type it names."""
        text = annotation if isinstance(annotation, str) else None
        if text is not None:
            try:
                annotation = eval(text, self.names())
            except Exception:
                self.fail(f"Unsupported type annotation {text}. It is not a type.")
        try:
            return typing.get_type_hints(types.SimpleNamespace(__annotations__={"x": annotation}), self.names())["x"]
        except NameError:
            shown = text or str(annotation)
            self.fail(f"Unsupported type annotation {shown}. It is not a type.")
        except Exception:
            return annotation

    def names(self) -> dict[str, Any]:
        """The names that the function sees."""
        function = inspect.unwrap(self.function)
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)) if hasattr(function, "__code__") else {}
        inside = {}
        for name, cell in cells.items():
            try:
                inside[name] = cell.cell_contents
            except ValueError:  # not set yet
                continue
        return {**getattr(function, "__globals__", {}), **inside}

    def unsupported(self, name: str, kind: Any) -> typing.NoReturn:
        valid = ", ".join([_shown(k) for k in SUPPORTED_PARAM_TYPES])
        if typing.get_origin(kind) is tuple:
            instead = tuple_to_list(kind)
            example = f"For example, {_shown(instead)}. " if instead in SUPPORTED_PARAM_TYPES else ""
            self.fail(
                f"Parameter {name} has unsupported type {kind}. We do not support Tuple inputs in schema. As a workaround, please try to use List instead. "
                f"{example}\n\nThe valid types are: {valid}."
            )
        self.fail(f"Parameter {name} has unsupported type {kind}. The valid types are: {valid}.")

    def default(self, name: str, value: Any) -> str:
        if value is None or type(value) in (int, float, bool):
            return str(value)
        if isinstance(value, str):
            return f'"{value}"'
        if isinstance(value, dtypes.dtype):
            return value.name
        if isinstance(value, devices.device):
            return f'"{value}"'
        self.fail(
            f"Parameter {name} has an unsupported default value type {type(value)}. A default is None, a number, a text, a dtype or a device."
        )

    def returned(self) -> str:
        annotation = self.signature.return_annotation
        if annotation is inspect.Signature.empty:
            self.fail("No return type annotation was provided. Please add one.")
        kind = None if annotation is None else self.resolved(annotation)
        if kind is None or kind is type(None):
            return "()"
        if kind in SUPPORTED_RETURN_TYPES:
            return SUPPORTED_RETURN_TYPES[kind]
        parts = typing.get_args(kind) if typing.get_origin(kind) is tuple else ()
        if not parts or any(p not in SUPPORTED_RETURN_TYPES for p in parts):
            valid = ", ".join([_shown(k) for k in SUPPORTED_RETURN_TYPES])
            self.fail(f"Return has unsupported type {kind}. The valid types are: {valid}, and tuples of them.")
        return f"({', '.join([SUPPORTED_RETURN_TYPES[p] for p in parts])})"


def _shown(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and typing.get_origin(kind) is None else str(kind)


def tuple_to_list(kind: Any) -> Any:
    """The list type for a tuple type: list[int] for tuple[int, int]; list, where the elements have nothing in common.

    >>> tuple_to_list(tuple[int, int])
    list[int]
    """
    parts = typing.get_args(kind)
    if not parts:
        return list
    made: Any = list
    if len(set(parts)) == 1 or parts[1:] == (...,):
        return made[parts[0]]
    return made[Union[tuple(parts)]]
