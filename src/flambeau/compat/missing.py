"""What a program is told about a torch name that Flambeau does not have: an ImportError or AttributeError that names it, never a stand-in.

With FLAMBEAU_REPORT=FILE in the environment (`flambeau run --report` sets it) every such name is also written to FILE, once for each process,
with the line that asked first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


def sentence(name: str) -> str:
    """What is said about a missing name."""
    return f"{name} is not in Flambeau yet (`flambeau run --report` lists everything a program asked for in vain)"


def no_module(name: str) -> ModuleNotFoundError:
    """For `import torch.x` where there is no such module."""
    frame: FrameType | None = sys._getframe(1)
    alias_globals = frame.f_globals
    while frame is not None and (frame.f_globals is alias_globals or "importlib" in frame.f_code.co_filename):
        frame = frame.f_back
    note(name, frame)
    return ModuleNotFoundError(sentence(name), name=name)


def watch(module: ModuleType, alias: str) -> None:
    """Let the module answer for names it does not have. A name that is there is found as before, at no cost."""
    before = vars(module).get("__getattr__")
    if hasattr(before, "watched"):
        return

    def __getattr__(name: str) -> Any:
        plain = f"module {module.__name__!r} has no attribute {name!r}"
        if before is not None:
            try:
                return before(name)
            except AttributeError as problem:
                if not (str(problem).startswith("module 'flambeau") and f"has no attribute {name!r}" in str(problem)):
                    raise  # something else went wrong while the name was being made
        caller = sys._getframe(1)
        if name.startswith("__") or (caller.f_globals.get("__package__") or "").partition(".")[0] == "flambeau":
            raise AttributeError(plain, name=name, obj=module)  # not a program's business
        return _refuse(module, name, f"{alias}.{name}", caller)

    __getattr__.watched = before  # type: ignore[attr-defined]
    module.__getattr__ = __getattr__  # type: ignore[method-assign]


def unwatch(module: ModuleType) -> None:
    """Undo `watch`."""
    now = vars(module).get("__getattr__")
    if hasattr(now, "watched"):
        before: Callable | None = now.watched
        if before is None:
            del module.__getattr__
        else:
            module.__getattr__ = before  # type: ignore[method-assign]


def _refuse(module: ModuleType, name: str, full_name: str, caller: FrameType) -> Any:
    if "importlib" not in caller.f_code.co_filename:  # the import system asks, then imports
        note(full_name, caller)
    if _is_from_import(caller):
        raise ImportError(sentence(full_name), name=module.__name__, path=getattr(module, "__file__", None))
    raise AttributeError(sentence(full_name), name=name, obj=module)


def _is_from_import(frame: FrameType) -> bool:
    """Whether the frame is at a `from torch import x`. Python would replace an AttributeError there by a sentence of its own."""
    from opcode import opmap

    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]


# -- the report --------------------------------------------------------------------------------------------------------------------------

_noted: set[str] = set()


def note(name: str, frame: FrameType | None) -> None:
    """Write a missing name, and who asked, to the report, if there is one."""
    report = os.environ.get("FLAMBEAU_REPORT")
    if not report or name in _noted:
        return
    _noted.add(name)
    where = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "?"
    with open(report, "a", encoding="utf-8") as file:  # one short line at the end: processes do not disturb each other
        file.write(f"{name}\t{where}\n")


def read_report(report: str) -> dict[str, tuple[str, int]]:
    """name -> (who asked first, how many processes asked), of a report."""
    found: dict[str, tuple[str, int]] = {}
    with open(report, encoding="utf-8") as file:
        for line in file:
            name, _, where = line.rstrip("\n").partition("\t")
            first, times = found.get(name, (where, 0))
            found[name] = first, times + 1
    return found
