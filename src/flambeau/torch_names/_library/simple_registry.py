"""torch._library.simple_registry: what was registered for an operator beside kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.library import kernels
from flambeau.library.libraries import lookup

__all__ = ["SimpleLibraryRegistry", "SimpleOperatorEntry", "find_torch_dispatch_rule", "singleton"]


class SimpleOperatorEntry:
    """The fake implementation of an operator, and its rules for classes with `__torch_dispatch__`."""

    def __init__(self, qualname: str):
        self.qualname = qualname

    def _entry(self) -> kernels.Entry | None:
        overload = lookup(self.qualname)
        return None if overload is None else kernels.registered.get(overload)

    @property
    def fake_impl(self) -> Any:
        """The fake implementation: `.kernel` is None where there is none, and has `.source` where there is."""
        found = self._entry()
        return found.fake if found is not None and found.fake is not None else _Nothing

    abstract_impl = fake_impl

    @property
    def torch_dispatch_rules(self) -> _Rules:
        """The rules."""
        return _Rules(self._entry())


class _Nothing:
    """Stands for a fake implementation that is not there."""

    kernel = None


class _Rules:
    """`find(class)` gives a rule, or None."""

    def __init__(self, entry: kernels.Entry | None):
        self._rules = {} if entry is None else entry.dispatch_rules

    def find(self, torch_dispatch_class: type) -> Callable | None:
        """The rule for a class."""
        return self._rules.get(torch_dispatch_class)


class SimpleLibraryRegistry:
    """`find("shop::double")` gives the entry of an operator."""

    def find(self, qualname: str) -> SimpleOperatorEntry:
        """The entry of an operator, registered or not."""
        return SimpleOperatorEntry(qualname)


singleton = SimpleLibraryRegistry()


def find_torch_dispatch_rule(op: Any, torch_dispatch_class: type) -> Callable | None:
    """The rule that an operator has for a class or mode with `__torch_dispatch__`."""
    return singleton.find(op.name()).torch_dispatch_rules.find(torch_dispatch_class)
