"""The ways in which operations can be carried out on pieces, by subject. `@rule("mm")` declares them for the operation of that name.

    RULES     name of an operation -> its rule: question -> ways
    RUNS      name -> what a rank does with its pieces, where that is not the operation itself: run(call, pieces, decision)
    COMPOSED  name -> a function of DTensors that stands for the operation
    WHOLE     operations made of others that have a rule of their own all the same

Pointwise operations need none: `elementwise` is theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from flambeau.distributed.tensor.ways import Rule

RULES: dict[str, Rule] = {}
RUNS: dict[str, Callable] = {}
COMPOSED: dict[str, Callable] = {}
WHOLE: set[str] = set()
SUBJECTS = "pointwise reductions products views joining rows lookups attention losses random selection triangles".split()
_loaded: list[bool] = []


def rule(*names: str, run: Callable | None = None, whole: bool = False) -> Callable[[Rule], Rule]:
    """Declares the ways of these operations, and what a rank does, if it is not the operation itself. whole: they are made of others."""

    def declare(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
            if run is not None:
                RUNS[name] = run
            if whole:
                WHOLE.add(name)
        return function

    return declare


def load() -> None:
    """Import all subjects, once."""
    if not _loaded:
        for subject in SUBJECTS:
            import_module(f"flambeau.distributed.tensor.rules.{subject}")
        _loaded.append(True)


def elementwise(question: Any) -> Any:
    """The rule of pointwise operations."""
    return RULES["pointwise"](question)
