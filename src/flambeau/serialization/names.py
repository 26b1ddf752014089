"""What classes and functions are called in files: by PyTorch's names, in both directions.

A module that was saved whole says `torch.nn.modules.linear Linear` in its pickle, and that is our Linear here and PyTorch's there.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from flambeau.torch_homes import FILES, NAMES, OURS, THEIRS, VISION
from flambeau.torch_homes import torch_home as name_in_files

_FROM_FILE = {theirs: ours for ours, theirs in FILES.items()}
_FROM_NAME = {(theirs, name): ours for (ours, name), theirs in NAMES.items()}


def is_ours(module: str) -> bool:
    """Whether a module name is one that files write as PyTorch's."""
    return module.partition(".")[0] in (OURS, THEIRS, VISION)


def find(module: str, name: str) -> Any:
    """What a file calls `module name`. AttributeError if there is no such thing here."""
    package, _, inside = module.partition(".")
    if package == VISION:
        inside = f"vision.{inside}" if inside else "vision"
    if package == THEIRS and inside == "_C" and name == "_VariableFunctionsClass":
        return sys.modules[OURS]  # PyTorch pickles torch.relu as an attribute of this class
    if package == THEIRS and inside in ("_C", "") and name in ("TensorBase", "_TensorBase"):
        name = "Tensor"
    renamed = _FROM_NAME.get((inside, name)) or _FROM_FILE.get(inside)
    places = [renamed, inside] if renamed else [inside]
    while places:
        for place in places:
            found = _in(place, name)
            if found is not None:
                return found
        # Not there: in the packages around it, then. Files are cut differently, packages show the same names.
        places = [place.rpartition(".")[0] for place in places if place]
    raise AttributeError(f"{module}.{name}: Flambeau has nothing of that name")


def _in(inside: str, name: str) -> Any:
    """A name in a module of ours; None if there is no such module, or no such name in it."""
    try:
        home = importlib.import_module(f"{OURS}.{inside}" if inside else OURS)
    except ModuleNotFoundError as problem:
        if not (problem.name or "").startswith(OURS):
            raise
        return None
    return getattr(home, name, None)


def global_name(obj: Any, name: str | None) -> tuple[str, str] | None:
    """(module, name) to write for a class or function that PyTorch has too; None if it has its own name in files."""
    name = name or getattr(obj, "__qualname__", None) or obj.__name__
    module = getattr(obj, "__module__", None)
    if not isinstance(module, str) or not is_ours(module) or "." in name:
        return None
    written = name_in_files(module, name)
    try:
        return (written, name) if find(written, name) is obj else None
    except AttributeError:
        return None
