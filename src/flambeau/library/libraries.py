"""Library: a namespace of operators, or a part of one, that lives as long as the object does.

    lib = torch.library.Library("shop", "DEF")              the one that opens the namespace; "FRAGMENT" adds to it, "IMPL" only implements
    lib.define("double(Tensor x) -> Tensor")
    lib.impl("double", lambda x: x * 2, "CompositeImplicitAutograd")
    torch.ops.shop.double(x)

What it defined and registered is taken back when it is deleted.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from flambeau import ops
from flambeau.library import fakes, kernels, overriding
from flambeau.library.keys import named
from flambeau.operators import overloads
from flambeau.operators.overloads import Namespace, OpOverload, OpOverloadPacket
from flambeau.operators.schema import parse
from flambeau.operators.tags import Tag

__all__ = ["Library", "lookup", "scoped_library"]

RESERVED = frozenset({"prim"})
_impls: set[str] = set()  # "namespace/operator/key" of all kernels of all libraries
_defs: set[str] = set()  # "namespace::operator.overload" of all definitions
_opened: dict[str, str] = {}  # namespace -> where it was opened


def fallthrough_kernel() -> None:
    """Registered for a key, it says that calls pass over it."""
    raise NotImplementedError("fallthrough_kernel() should never be called: it says that there is nothing to call.")


class Library:
    """Operators of a namespace: kind "DEF" opens it, "FRAGMENT" adds to it, "IMPL" registers kernels alone."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = ""):
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}. There are 'DEF', 'FRAGMENT' and 'IMPL'")
        if ns in RESERVED and kind in ("DEF", "FRAGMENT"):
            raise ValueError(f"{ns} is a reserved namespace. Please try creating a library with another name.")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key and named(dispatch_key)
        frame = sys._getframe(1)
        self._where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if kind != "IMPL":
            _check_free(ns)
        if kind == "DEF":
            _open(ns, self._where)
        self._op_defs: set[str] = set()
        self._op_impls: set[str] = set()
        self._undo: list[Callable[[], Any]] = []
        self._finalizer = weakref.finalize(
            self, _take_back, self._undo, _impls, self._op_impls, _defs, self._op_defs, ns if kind == "DEF" else None
        )

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Tag | Iterable[Tag] = ()) -> str:
        """Define an operator by its schema; its name."""
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        if self.kind == "IMPL":
            raise RuntimeError(
                f"def({schema!r}): Cannot define an operator inside of an IMPL library. Make one of kind 'DEF' or 'FRAGMENT'"
            )
        read = parse_schema(schema)
        if "::" in read.name and read.name.rpartition("::")[0] != self.ns:
            raise RuntimeError(
                f"Explicitly provided namespace ({read.name.rpartition('::')[0]}) in schema string does not match namespace of the library ({self.ns}). "
                "Leave the namespace out of the schema"
            )
        read.name = f"{self.ns}::{read.name.rpartition('::')[2]}"
        overload = overloads.define(read, [tags] if isinstance(tags, Tag) else list(tags))
        name = overload.name()
        overload._where = f"registered at {self._where}"
        self._op_defs.add(name)
        _defs.add(name)
        _forget(self.ns, overload._opname)
        self._undo.append(lambda: _undefine(overload))
        for key, kernel in _waiting.pop(name, ()):
            self._register(overload, key, kernel)
        if name in _waiting_fakes:
            fn = _waiting_fakes.pop(name)
            kernels.entry(overload).fake = fakes.FakeImpl(overload, fn, fakes.source_of(fn))
        return read.name.rpartition("::")[2] + (read.overload_name and f".{read.overload_name}")

    def impl(self, op_name: Any, fn: Callable, dispatch_key: str = "", *, with_keyset: bool = False, allow_override: bool = True) -> None:
        """Register a kernel for an operator and a key. `with_keyset`: it is given the keys that the call still meets, first of all."""
        if not callable(fn):
            raise TypeError(f"Input function is required to be a callable but found type {type(fn)}")
        key = named(dispatch_key) if dispatch_key else self.dispatch_key
        if self.dispatch_key and key != self.dispatch_key:
            raise RuntimeError(
                f"Explicitly provided dispatch key ({key}) is inconsistent with the dispatch key of the library ({self.dispatch_key})"
            )
        name = self._name_of(op_name)
        mark = f"{name.replace('::', '/', 1)}/{key}"
        if not allow_override and mark in _impls:
            raise RuntimeError(
                f"This is not allowed since there's already a kernel registered from python overriding {name.rpartition('::')[2]}'s behavior for {key} "
                f"dispatch key and {self.ns} namespace."
            )
        function = kernels.fallthrough if fn is fallthrough_kernel else fn
        kernel = kernels.Kernel(function, with_keyset, f"registered at {self._where}")
        key = key or kernels.IMPLICIT
        overload = lookup(name)
        _impls.add(mark)
        self._op_impls.add(mark)
        self._undo.append(lambda: _unregister(name, key, kernel))
        if overload is None:  # it may be defined later
            _waiting.setdefault(name, []).append((key, kernel))
        else:
            self._register(overload, key, kernel)

    def _register(self, overload: OpOverload, key: str, kernel: kernels.Kernel) -> None:
        entry = kernels.entry(overload)
        before = entry.own(key)
        if before is not None:
            warnings.warn(
                f"Overriding a previously registered kernel for the same operator and the same dispatch key\n  operator: {overload._schema}\n"
                f"  dispatch key: {key}\n  previous kernel: {before.where}\n  new kernel: {kernel.where}",
                stacklevel=3,
            )
        entry.add(key, kernel)
        if overload.namespace == "aten":
            overriding.begin(overload)

    def _name_of(self, op_name: Any) -> str:
        """namespace::name.overload of what was given: a name, or an operator."""
        if isinstance(op_name, OpOverload):
            name = op_name.name()
        elif isinstance(op_name, OpOverloadPacket):
            name = op_name._qualified_op_name
        elif isinstance(op_name, str):
            name = op_name
        else:
            raise RuntimeError("impl should be passed either a name or an OpOverload object as the first argument")
        if "::" not in name:
            return f"{self.ns}::{name}"
        if name.partition("::")[0] != self.ns:
            raise RuntimeError(
                f"impl({name!r}, ...): Explicitly provided namespace ({name.partition('::')[0]}) in operator name does not match namespace of the library "
                f"({self.ns})"
            )
        return name

    def fallback(self, fn: Callable, dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """Register what runs for a key where no operator has a kernel of its own. Library("_", "IMPL") alone can."""
        key = named(dispatch_key) if dispatch_key else self.dispatch_key
        if self.ns != "_":
            raise RuntimeError(f'Fallback can only be registered using library fragment on the global namespace "_" but it is {self.ns}')
        if not key:
            raise AssertionError("fallback(fn, dispatch_key): say for which key")
        raise NotImplementedError(
            f"Library.fallback({key!r}): operations here do not pass by keys, so there is no place for what stands for all of them. "
            "torch.utils._python_dispatch.TorchDispatchMode or torch.overrides.TorchFunctionMode see every operation"
        )

    def _register_fake(self, op_name: Any, fn: Callable, _stacklevel: int = 1, *, allow_override: bool = True) -> None:
        """Say what an operator's results look like without data."""
        name = self._name_of(op_name if isinstance(op_name, str) else op_name.name())
        overload = lookup(name)
        if overload is None:  # it may be defined later
            _waiting_fakes[name] = fn
            self._undo.append(lambda: _waiting_fakes.pop(name, None))
            return
        entry = kernels.entry(overload)
        before = entry.fake
        _check_fake(entry, name, allow_override)
        entry.fake = made = fakes.FakeImpl(overload, fn, fakes.source_of(fn))

        def undo() -> None:
            if entry.fake is made:
                entry.fake = before

        self._undo.append(undo)

    def _register_torch_dispatch_rule(self, op_name: str, torch_dispatch_class: type, fn: Callable) -> None:
        """Say what an operator does where a class or mode with __torch_dispatch__ meets it."""
        overload = lookup(self._name_of(op_name))
        if overload is None:
            raise RuntimeError(f"there is no operator {op_name!r} in {self.ns}. Define it first")
        rules = kernels.entry(overload).dispatch_rules
        if torch_dispatch_class in rules:
            raise RuntimeError(f"{torch_dispatch_class} already has a `__torch_dispatch__` rule registered for {overload.name()}")
        rules[torch_dispatch_class] = fn
        self._undo.append(lambda: rules.pop(torch_dispatch_class, None))

    def _destroy(self) -> None:
        """Take everything back now."""
        self._finalizer()


_waiting: dict[str, list[tuple[str, kernels.Kernel]]] = {}  # kernels of operators that are not defined yet
_waiting_fakes: dict[str, Callable] = {}  # and their fake implementations


def parse_schema(text: str) -> Any:
    """A schema, with advice about types of C++."""
    try:
        return parse(text)
    except RuntimeError as problem:
        for wrong, right in (
            ("int64_t", "`SymInt` or `int`"),
            ("int32_t", "`SymInt` or `int`"),
            ("double", "`float`"),
            ("std::string", "`str`"),
        ):
            if f"type specifier {wrong!r}" in str(problem):
                raise RuntimeError(f"{problem}\n{wrong} is a type of C++. Use {right}") from None
        raise


def _check_fake(entry: kernels.Entry, name: str, allow_override: bool) -> None:
    if entry.fake is not None and not allow_override:
        raise RuntimeError(f"register_fake(...): the operator {name} already has an fake impl registered at {entry.fake.source}.")
    if entry.own("Meta") is not None and not allow_override:
        raise RuntimeError(
            f"register_fake(...): the operator {name} already has an DispatchKey::Meta implementation, {entry.own('Meta').where}"
        )  # type: ignore[union-attr]
    if entry.own(kernels.IMPLICIT) is not None:
        raise RuntimeError(
            f"register_fake(...): the operator {name} already has an implementation for this device type via a registration to "
            "DispatchKey::CompositeImplicitAutograd: it is made of operators that know what their results look like"
        )


def _open(ns: str, where: str) -> None:
    if ns == "aten" or ns in _opened:
        raise RuntimeError(
            f"Only a single library of kind 'DEF' can open the namespace {ns}; the others are of kind 'FRAGMENT', or 'IMPL' if they only register kernels. "
            f"Previous registration was registered at {_opened.get(ns, 'torch')}; latest registration was registered at {where}"
        )
    _opened[ns] = where


def _check_free(ns: str) -> None:
    """ValueError if torch.ops has something else of this name."""
    found = vars(ops).get(ns)
    if ns not in ("aten", "_") and found is None:
        getattr(ops, ns, None)
        found = vars(ops).get(ns)
    if ns not in ("aten", "_") and not isinstance(found, Namespace):
        raise ValueError(f"torch.ops.{ns} is Flambeau's own, so no operators can be defined there. Choose another namespace")


def lookup(name: str) -> OpOverload | None:
    """The operator of a full name, or None."""
    namespace, _, last = name.rpartition("::")
    short, _, overload = last.partition(".")
    packet = overloads.defined(namespace, short)
    return None if packet is None else packet._overloads.get(overload or "default")


def get_op(qualname: str) -> OpOverload:
    """The operator of a name. RuntimeError if there is none."""
    found = lookup(qualname)
    if found is None:
        raise RuntimeError(f"The operator `{qualname}` is not registered. Perhaps you forgot to import the module that defines it")
    return found


def _forget(ns: str, name: str) -> None:
    """Let torch.ops.<ns> look a name up again."""
    namespace = vars(ops).get(ns)
    if isinstance(namespace, Namespace):
        namespace.forget(name)


def _undefine(overload: OpOverload) -> None:
    kernels.forget(overload)
    overloads.undefine(overload)
    _forget(overload.namespace, overload._opname)


def _unregister(name: str, key: str, kernel: kernels.Kernel) -> None:
    kernel.valid = False
    if (key, kernel) in _waiting.get(name, ()):
        _waiting[name].remove((key, kernel))
    overload = lookup(name)
    found = kernels.registered.get(overload) if overload is not None else None
    if found is None or overload is None:
        return
    found.drop(key, kernel)
    if found.is_empty():
        kernels.forget(overload)
    if overload.namespace == "aten" and not found.kernels:
        overriding.end(overload)


def _take_back(undo: list, all_impls: set[str], impls: set[str], all_defs: set[str], defs: set[str], opened: str | None) -> None:
    """What happens when a library goes."""
    all_impls.difference_update(impls)
    all_defs.difference_update(defs)
    for step in reversed(undo):
        step()
    undo.clear()
    if opened is not None:
        _opened.pop(opened, None)


@contextmanager
def scoped_library(*args: Any, **kwargs: Any) -> Iterator[Library]:
    """A library for as long as a `with`."""
    lib = Library(*args, **kwargs)
    try:
        yield lib
    finally:
        lib._destroy()
