"""All cases for a world of ranks.

A body runs in every rank, and so does the callable it returns: what it does must be matched there. Only the bodies of `launch` run in
the parent, with the name of a package, and start ranks themselves.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from functools import partial
from importlib import import_module

from benchmarks import case as cases
from benchmarks.case import Case

IN_RANKS: dict[str, Case] = {}
LAUNCHES: dict[str, Case] = {}
case, probe = (partial(declare, registry=IN_RANKS) for declare in (cases.case, cases.probe))
launch = partial(cases.probe, registry=LAUNCHES)


def declared() -> dict[str, Case]:
    """Every case under its name, in the order of the table."""
    for subject in ("collectives", "memory", "steps", "checks", "startup"):
        import_module(f"benchmarks.distributed.{subject}")
    return IN_RANKS | LAUNCHES


def select(patterns: Sequence[str]) -> list[Case]:
    """The cases whose name has one of `patterns` in it, with * and ? as in the shell; all of them for no patterns."""
    return [case for name, case in declared().items() if any(fnmatch.fnmatchcase(name, f"*{pattern}*") for pattern in patterns or [""])]
