"""The names of torch._C that are about operators: schemas and their types, dispatch keys and guards, and a few questions."""

# ruff: noqa: F401 - names are imported to be found here by torch._C

from __future__ import annotations

from typing import Any

from flambeau.library import autograd, kernels
from flambeau.library.guards import (
    AutoDispatchBelowADInplaceOrView,
    AutoDispatchBelowAutograd,
    ExcludeDispatchKeyGuard,
    ForceDispatchKeyGuard,
    IncludeDispatchKeyGuard,
    thread,
)  # fmt: skip
from flambeau.library.keys import FULL_AUTOGRAD, DispatchKey, DispatchKeySet
from flambeau.library.libraries import lookup
from flambeau.operators import overloads
from flambeau.operators.overloads import OpOverload
from flambeau.operators.schema import Argument, FunctionSchema
from flambeau.operators.schema import parse as parse_schema
from flambeau.operators.schema_types import (
    AnyType,
    BoolType,
    ComplexType,
    DeviceObjType,
    FloatType,
    IntType,
    ListType,
    NoneType,
    NumberType,
    OptionalType,
    StringType,
    TensorType,
    TupleType,
    Type,
)  # fmt: skip
from flambeau.operators.tags import Tag
from flambeau.tensor import Tensor

_AutoDispatchBelowAutograd = AutoDispatchBelowAutograd
_AutoDispatchBelowADInplaceOrView = AutoDispatchBelowADInplaceOrView
_ExcludeDispatchKeyGuard = ExcludeDispatchKeyGuard
_IncludeDispatchKeyGuard = IncludeDispatchKeyGuard
_ForceDispatchKeyGuard = ForceDispatchKeyGuard
JitType = Type


def _jit_resolve_packet(name: str, *args: Any, **kwargs: Any) -> str:
    """The overload of "aten::sum" that these arguments are for."""
    namespace, _, short = name.partition("::")
    packet = overloads.defined(namespace, short)
    if packet is None:
        raise RuntimeError(f"there is no operator {name}")
    return overloads.choose(packet, args, kwargs)[0]._overloadname


def _any_requires_grad(*args: Any, **kwargs: Any) -> bool:
    """Whether a tensor among the arguments, or in a list among them, requires a gradient."""
    values = [v for a in (*args, *kwargs.values()) for v in (a if isinstance(a, list | tuple) else (a,))]
    return any(isinstance(v, Tensor) and v.requires_grad for v in values)


def _any_output_is_alias_to_input_or_output(args: Any, kwargs: Any, outputs: Any) -> bool:
    """Whether an output shares memory with an argument or with another output."""

    def where(values: Any) -> list:
        return [t.untyped_storage().data_ptr() for t in kernels.tensors_of(values) if t.numel()]

    taken = set(where((args, tuple((kwargs or {}).values()))))
    for place in where(outputs if isinstance(outputs, tuple | list) else (outputs,)):
        if place in taken:
            return True
        taken.add(place)
    return False


def _jit_get_schemas_for_operator(name: str) -> list[FunctionSchema]:
    """The schemas of all overloads of a name, such as "aten::add"."""
    namespace, _, short = name.partition("::")
    packet = overloads.defined(namespace, short)
    return [] if packet is None else list(packet._schemas.values())


def _get_autograd_fallback_mode() -> str:
    """What happens to results of operators without a derivative: "warn", "nothing" or "error"."""
    return autograd.fallback_mode


def _set_autograd_fallback_mode(mode: str) -> None:
    """Say what happens to results of operators without a derivative."""
    if mode not in ("warn", "nothing", "error"):
        raise RuntimeError(f"expected 'warn', 'nothing' or 'error', found {mode!r}")
    autograd.fallback_mode = mode


def _found(name: str) -> OpOverload:
    found = lookup(name)
    if found is None:
        raise RuntimeError(f"operator {name} does not exist")
    return found


def _dispatch_has_kernel_for_dispatch_key(name: str, key: Any) -> bool:
    """Whether something is registered for an operator and a key."""
    return kernels.has(_found(name), key)


def _dispatch_has_kernel(name: str) -> bool:
    """Whether anything is registered for an operator."""
    found = _found(name)
    return found.namespace == "aten" or found in kernels.registered


def _dispatch_has_kernel_for_any_dispatch_key(name: str, keys: DispatchKeySet) -> bool:
    """Whether something is registered for an operator and one of these keys."""
    return any(kernels.has(_found(name), key) for key in keys)


def _dispatch_find_schema_or_throw(name: str, overload: str) -> OpOverload:
    """An operator by its name and that of its overload."""
    return _found(name + (overload and f".{overload}"))


def _dispatch_call_boxed(handle: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Call an operator that was found."""
    return handle(*args, **kwargs)


def _get_schema(name: str, overload: str) -> FunctionSchema:
    """The schema of an operator."""
    return _found(name + (overload and f".{overload}"))._schema


def _dispatch_tls_local_include_set() -> DispatchKeySet:
    """The keys that this thread meets whatever the tensors are."""
    return DispatchKeySet.of(thread.included)


def _dispatch_tls_local_exclude_set() -> DispatchKeySet:
    """The keys that this thread passes over."""
    return DispatchKeySet.of(thread.excluded)


def _dispatch_keys(tensor: Tensor) -> DispatchKeySet:
    """The keys that a tensor's operators meet."""
    return DispatchKeySet.of(kernels.Call(kernels.Entry(overloads.aten.alias.default), (tensor,), {}, None).keys())


_after_autograd_keyset = DispatchKeySet.of(
    [k.name for k in DispatchKey if k.name not in FULL_AUTOGRAD and k < DispatchKey["ADInplaceOrView"]]
)
_after_ADInplaceOrView_keyset = _after_autograd_keyset

# What torch._C has of this file.
NAMES = frozenset({
    "AnyType", "Argument", "BoolType", "ComplexType", "DeviceObjType", "DispatchKey", "DispatchKeySet", "ExcludeDispatchKeyGuard", "FloatType",
    "FunctionSchema", "IntType", "JitType", "ListType", "NoneType", "NumberType", "OptionalType", "StringType", "Tag", "TensorType", "TupleType", "Type",
    "parse_schema", *(name for name in dict(globals()) if name.startswith("_") and not name.startswith("__") and name != "_found"),
})  # fmt: skip
