"""`torch.ops.<namespace>`: operations by the names of PyTorch's operators, and those that programs define.

    torch.ops.aten.add.Tensor       an OpOverload: one schema, which can be compared, put into a set, and called
    torch.ops.aten.add              an OpOverloadPacket: all of that name; a call finds the overload that its arguments are for

An overload knows what it takes and gives, not how it runs: that is told by the room above that has the functions, see `run`.

>>> aten.add.Tensor._schema
aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from flambeau.operators import ABOVE, aten_schemas, calling
from flambeau.operators.calling import Mismatch
from flambeau.operators.schema import FunctionSchema, parse
from flambeau.operators.tags import Tag, of_aten

# Asked first about every call of an overload of PyTorch's while a mode is active or an argument is of a class of its own: intercept(overload, args, kwargs)
# gives the result, or NotImplemented to go on. Whoever carries operations out in another way (__torch_dispatch__) sets it.
intercept: Callable[[OpOverload, tuple, dict[str, Any]], Any] | None = None

# How overloads and packets run: run(overload or packet, args, kwargs), put here by the room that has the functions when it is first needed (`ABOVE` says which).
run: Callable[[Any, tuple, dict[str, Any]], Any] | None = None


class OpOverload:
    """One operation with one schema."""

    def __init__(self, packet: OpOverloadPacket, schema: FunctionSchema, tags: list[Tag] | None = None):
        self._schema, self._overloadpacket = schema, packet
        self.namespace, _, self._opname = schema.name.rpartition("::")
        self._overloadname = schema.overload_name or "default"
        self._tags = tags
        self._where = ""  # who defined it, for messages
        self._defined_in_python = self.namespace not in ("aten", "prim", "prims")
        self.__name__ = f"{self._opname}.{self._overloadname}"
        self.__qualname__ = self._name = self.name()
        self.__module__ = packet.__module__
        self.is_view = any(a.alias_info is not None and not a.is_write for a in schema.arguments) and not schema.is_mutable
        self.is_mutable = schema.is_mutable
        self._is_out = any(a.is_out for a in schema.arguments)

    def name(self) -> str:
        """aten::add.Tensor"""
        return self._schema.name + (self._schema.overload_name and f".{self._schema.overload_name}")

    @property
    def _namespace(self) -> str:
        return self.namespace

    @property
    def overloadpacket(self) -> OpOverloadPacket:
        """All overloads of the name."""
        return self._overloadpacket

    @property
    def _op(self) -> OpOverload:
        return self

    _handle = _op

    @property
    def tags(self) -> list[Tag]:
        """What else is known of it."""
        return (of_aten(self._schema) if self.namespace == "aten" else []) if self._tags is None else self._tags

    @property
    def _nondeterministic_seeded(self) -> bool:
        return Tag.nondeterministic_seeded in self.tags

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return (run or _runner())(self, args, kwargs)

    def redispatch(self, keyset: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call it, meeting only the kernels of these keys."""
        _runner()
        return redispatch(self, keyset, args, kwargs)

    def has_kernel_for_dispatch_key(self, key: Any) -> bool:
        """Whether something was registered for this key."""
        _runner()
        return has_kernel(self, key)

    def has_kernel_for_any_dispatch_key(self, keys: Any) -> bool:
        """Whether something was registered for one of these keys."""
        return any(self.has_kernel_for_dispatch_key(key) for key in keys)

    def __hash__(self) -> int:
        return hash(self._schema.name) ^ hash(self._overloadname)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.namespace}.{self._opname}', overload='{self._overloadname}')>"

    def __copy__(self) -> OpOverload:
        return self

    def __deepcopy__(self, memo: dict | None = None) -> OpOverload:
        return self

    def __reduce__(self) -> tuple:
        return _found, (self.namespace, self._opname, self._overloadname)


def _no_kernels(overload: OpOverload, key: Any) -> bool:
    return False


def _whole(overload: OpOverload, keys: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    return overload(*args, **kwargs)


# The room that runs overloads puts its own here.
has_kernel: Callable[[OpOverload, Any], bool] = _no_kernels
redispatch: Callable[[OpOverload, Any, tuple, dict[str, Any]], Any] = _whole


class OpOverloadPacket:
    """All overloads of a name."""

    def __init__(self, namespace: str, name: str, schemas: tuple[FunctionSchema, ...] = ()):
        self.__name__, self._qualified_op_name = name, f"{namespace}::{name}"
        self.__module__ = f"torch._ops.{namespace}"
        self._namespace = namespace
        self._overloads: dict[str, OpOverload] = {}
        self._schemas: dict[str, FunctionSchema] = {}
        for schema in schemas:
            self._add(schema)

    def _add(self, schema: FunctionSchema, tags: list[Tag] | None = None) -> OpOverload:
        found = OpOverload(self, schema, tags)
        self._overloads[found._overloadname] = self.__dict__[found._overloadname] = found
        self._schemas[schema.overload_name] = schema
        return found

    def _remove(self, overload: str) -> None:
        self._overloads.pop(overload, None)
        self._schemas.pop("" if overload == "default" else overload, None)
        self.__dict__.pop(overload, None)

    def overloads(self) -> list[str]:
        """Their names."""
        return list(self._overloads)

    @property
    def _op(self) -> OpOverloadPacket:
        return self

    @property
    def _overload_names(self) -> list[str]:
        return self.overloads()

    def __iter__(self) -> Iterator[str]:
        return iter(self.overloads())

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._overloads]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(
                f"{name!r} can't be overridden for {self.__dict__.get('_qualified_op_name')}: OpOverloadPacket has no such attribute"
            )
        there = ", ".join(self.__dict__.get("_overloads", ()))
        raise AttributeError(f"The underlying op of '{self}' has no overload name '{name}'. There are: {there}")

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return (run or _runner())(self, args, kwargs)

    def _meant(self, args: tuple, kwargs: dict[str, Any]) -> OpOverload:
        """The overload for these arguments."""
        return next(iter(self._overloads.values())) if len(self._overloads) == 1 else choose(self, args, kwargs)[0]

    def __hash__(self) -> int:
        return hash(self._qualified_op_name)

    def __str__(self) -> str:
        return f"{self._namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self._namespace}.{self.__name__}')>"

    def __copy__(self) -> OpOverloadPacket:
        return self

    def __deepcopy__(self, memo: dict | None = None) -> OpOverloadPacket:
        return self

    def __reduce__(self) -> tuple:
        return _found, (self._namespace, self.__name__, None)


class Namespace:
    """torch.ops.<name>: the operators of one library."""

    def __init__(self, name: str):
        self.__name__, self.name = f"torch.ops.{name}", name
        self._dir: list[str] = []

    def __getattr__(self, name: str) -> OpOverloadPacket:
        packet = None if name.startswith("__") else defined(self.__dict__["name"], name)
        if packet is None:
            raise AttributeError(
                f"'_OpNamespace' '{self.__dict__['name']}' object has no attribute '{name}'{_advice(self.__dict__['name'])}"
            )
        self.__dict__[name] = packet
        self._dir.append(name)
        return packet

    def forget(self, name: str) -> None:
        """Look it up again when it is next asked for."""
        if self.__dict__.pop(name, None) is not None:
            self._dir.remove(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._dir)

    def __repr__(self) -> str:
        return f"<module 'torch.ops.{self.name}' from 'torch.ops'>"


def _advice(namespace: str) -> str:
    if namespace == "aten":
        return ": there is no such operator"
    return f": nothing defined an operator of that name in this library. torch.library.custom_op('{namespace}::...') or Library('{namespace}', 'DEF') does"


# -- which there are -----------------------------------------------------------------------------------------------------------------------

_packets: dict[tuple[str, str], OpOverloadPacket] = {}  # every packet, made once, so that `is` compares them


def defined(namespace: str, name: str) -> OpOverloadPacket | None:
    """The overloads of a name, or None if there is nothing of it."""
    found = _packets.get((namespace, name))
    if found is None and namespace == "aten" and (schemas := aten_schemas.schemas(name)):
        found = _packets.setdefault((namespace, name), OpOverloadPacket(namespace, name, schemas))
    return found


def define(schema: FunctionSchema, tags: list[Tag]) -> OpOverload:
    """A new operator. RuntimeError if there is one with this name and overload."""
    namespace, _, name = schema.name.rpartition("::")
    packet = defined(namespace, name)
    if packet is None:
        packet = _packets[namespace, name] = OpOverloadPacket(namespace, name)
    if (schema.overload_name or "default") in packet._overloads:
        overload = schema.overload_name and f".{schema.overload_name}"
        raise RuntimeError(
            f"Tried to register an operator ({schema}) with the same name and overload name multiple times. Each overload's schema should only be "
            f"registered with a single call to def(). There is {packet._schemas[schema.overload_name]} already: choose another name than "
            f"{schema.name}{overload}"
        )
    return packet._add(schema, tags)


def undefine(overload: OpOverload) -> None:
    """Take an operator away that `define` made."""
    packet = overload.overloadpacket
    packet._remove(overload._overloadname)
    if not packet._overloads:
        _packets.pop((overload.namespace, overload._opname), None)


def _found(namespace: str, name: str, overload: str | None) -> Any:
    """What a pickle says is meant."""
    packet = getattr(namespace_of(namespace), name)
    return packet if overload is None else getattr(packet, overload)


@cache
def namespace_of(name: str) -> Namespace:
    """torch.ops.<name>; each is made once."""
    return aten if name == "aten" else Namespace(name)


aten = Namespace("aten")


# -- which is meant ------------------------------------------------------------------------------------------------------------------------


def choose(packet: OpOverloadPacket, args: tuple, kwargs: dict[str, Any]) -> tuple[OpOverload, dict[str, Any]]:
    """The first overload whose schema the arguments fit, and what each argument is there."""
    problems = []
    for overload in packet._overloads.values():
        try:
            return overload, calling.bind(overload._schema, args, kwargs)
        except Mismatch as problem:
            problems.append(str(problem))
    if len(problems) == 1:
        raise RuntimeError(problems[0])
    raise RuntimeError("Overloaded torch operator invoked from Python failed to match any schema:\n" + "\n\n".join(problems))


def resolve(packet: OpOverloadPacket | OpOverload, args: tuple, kwargs: dict[str, Any]) -> tuple[OpOverload, tuple, dict[str, Any]]:
    """(overload, args, kwargs) of a call, as `__torch_dispatch__` receives them: see `calling.normalized`."""
    if isinstance(packet, OpOverload):
        overload, bound = packet, calling.bind(packet._schema, args, kwargs)
    else:
        overload, bound = choose(packet, args, kwargs)
    return overload, *calling.normalized(overload._schema, bound)


def _runner() -> Callable:
    """`run`, once the room that has it is there."""
    if run is None:
        ABOVE["run"]()
    assert run is not None
    return run


# -- the usual overload --------------------------------------------------------------------------------------------------------------------

# What PyTorch calls the overload that takes tensors, where nothing more is known of a call and it is not "default".
USUAL = {"sum": "dim_IntList", "mean": "dim", "transpose": "int", "select": "int", "where": "self", "pow": "Tensor_Scalar"}


def overload(name: str, args: tuple = ()) -> OpOverload:
    """The overload of an operation here, by the name of its operator: the one that these arguments are for, or else the usual one."""
    packet = defined("aten", name)
    if packet is None:
        packet = _packets["aten", name] = OpOverloadPacket("aten", name, (parse(f"aten::{name}(...) -> ..."),))
    if args:
        try:
            return choose(packet, args, {})[0]
        except RuntimeError:
            pass
    for usual in (USUAL.get(name), "default", "Tensor"):
        if usual in packet._overloads:
            return packet._overloads[usual]
    return next(iter(packet._overloads.values()))
