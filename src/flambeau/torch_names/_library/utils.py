"""torch._library.utils: questions about operators and their schemas."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from flambeau.library import kernels
from flambeau.library.autograd import filled
from flambeau.library.libraries import lookup
from flambeau.library.registering import is_tensors
from flambeau.operators.overloads import OpOverload, namespace_of
from flambeau.operators.schema import FunctionSchema, parse
from flambeau.operators.schema_types import ListType, OptionalType, Type
from flambeau.operators.tags import Tag

__all__ = ["fill_defaults", "is_functional_schema", "lookup_op", "mutated_args_kwargs", "parse_namespace", "zip_schema"]


def parse_namespace(qualname: str) -> tuple[str, str]:
    """(namespace, name) of "namespace::name"."""
    parts = qualname.split("::")
    if len(parts) != 2:
        raise ValueError(
            f"Expected `qualname` to be of the form 'namespace::name', but got {qualname}. The qualname passed has no namespace"
        )
    return parts[0], parts[1]


def lookup_op(qualname: str) -> OpOverload:
    """The operator of a name, "namespace::name.overload"."""
    found = lookup(qualname)
    if found is None:
        namespace, name = parse_namespace(qualname)
        raise AttributeError(f"{namespace_of(namespace)!r} has no operator {name!r}")
    return found


def is_builtin(op: OpOverload) -> bool:
    """Whether it is one of PyTorch's operators."""
    return op.namespace in {"aten", "prim", "prims"}


def is_functional_schema(schema: Any, *, allow_valid_view: bool = False) -> bool:
    """Whether an operator only makes new results: it writes to nothing, returns something, and no result is a view."""
    read = parse(str(schema)) if not isinstance(schema, FunctionSchema) else schema
    if read.is_mutable or not read.returns:
        return False
    views = [r for r in read.returns if r.alias_info is not None and not r.is_write]
    return not views or (allow_valid_view and len(read.returns) == 1)


def is_tensorlist_like_type(kind: Type) -> bool:
    """Tensor[], Tensor?[], Tensor[]? or Tensor?[]?"""
    kind = kind.element if isinstance(kind, OptionalType) else kind
    return isinstance(kind, ListType) and is_tensors(kind)


def is_tensor_like_type(kind: Type) -> bool:
    """Tensor or Tensor?"""
    return (kind.element if isinstance(kind, OptionalType) else kind).kind() == "TensorType"


def has_tensor_arg(schema: FunctionSchema) -> bool:
    """Whether an argument is a tensor or a list of tensors."""
    return any(is_tensors(a.type) for a in schema.arguments)


def has_kwarg_only_args(schema: FunctionSchema) -> bool:
    """Whether an argument is given by name only."""
    return any(a.kwarg_only for a in schema.arguments)


def has_kwarg_only_tensors(schema: FunctionSchema) -> bool:
    """Whether such an argument is a tensor."""
    return any(a.kwarg_only and is_tensors(a.type) for a in schema.arguments)


def mutates_and_returns_first_arg(op: OpOverload) -> bool:
    """Whether it is an in-place operator: f_(Tensor(a!) self, ...) -> Tensor(a!)."""
    schema = op._schema
    if len(schema.returns) != 1 or not schema.arguments or schema.returns[0].alias_info is None or not schema.arguments[0].is_write:
        return False
    first = schema.arguments[0].alias_info
    return (
        first is not None
        and first.after_set == schema.returns[0].alias_info.after_set
        and not any(a.is_write for a in schema.arguments[1:])
    )


def zip_schema(schema: FunctionSchema, args: tuple, kwargs: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """(argument, value) of those that were given."""
    for i, argument in enumerate(schema.arguments):
        if argument.kwarg_only or i >= len(args):
            if argument.name in kwargs:
                yield argument, kwargs[argument.name]
        else:
            yield argument, args[i]


def fill_defaults(schema: FunctionSchema, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """All arguments, those included that were left out."""
    return filled(schema, args, kwargs)


def mutated_args_kwargs(schema: FunctionSchema) -> tuple[list[int], list[str]]:
    """(places, names) of the arguments that are written to: by position, and by name only."""
    places = [i for i, a in enumerate(schema.arguments) if a.is_write and not a.kwarg_only]
    return places, [a.name for a in schema.arguments if a.is_write and a.kwarg_only]


def get_layout_constraint_tag(op: OpOverload, *, with_default: bool = True) -> Tag | None:
    """What an operator says of the strides it wants; the strictest, where it says several things."""
    for tag in (Tag.needs_exact_strides, Tag.needs_contiguous_strides, Tag.needs_fixed_stride_order, Tag.flexible_layout):
        if tag in op.tags:
            return tag
    return Tag.needs_exact_strides if with_default else None


def get_source(stacklevel: int) -> str:
    """file:line of a caller."""
    frame = sys._getframe(stacklevel)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def has_fake_kernel(op: OpOverload) -> bool:
    """Whether it is known what results look like without data."""
    found = kernels.registered.get(op)
    if found is None:
        return is_builtin(op)
    return found.fake is not None or any(found.own(key) for key in ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd"))


class MutationChecker:
    """Whether a call writes to what its schema does not say: made before it, `check` behind it."""

    def __init__(self, op: OpOverload, flat_args: list, args_spec: Any):
        self.op = op
        self.before = [(t, t.detach().clone()) for t in kernels.tensors_of(flat_args)]

    def check(self) -> None:
        """RuntimeError if an argument changed that is not said to."""
        allowed = {a.name for a in self.op._schema.arguments if a.is_write}
        if any(not bool((old == t).all()) for t, old in self.before) and not allowed:
            raise RuntimeError(f"{self.op.name()}: argument was mutated, which the schema {self.op._schema} does not say")
