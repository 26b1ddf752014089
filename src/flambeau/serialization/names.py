"""What classes and functions are called in files: by PyTorch's names, in both directions.

A module that was saved whole says `torch.nn.modules.linear Linear` in its pickle, and that is our Linear here and PyTorch's there.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

OURS, THEIRS, VISION = "flambeau", "torch", "torchvision"  # flambeau.vision is torchvision in files
# Rooms that PyTorch has too. What lives in another file of ours is a name of the package torch itself (flambeau.tensor.Size: torch.Size).
ROOMS = frozenset(
    """amp ao autograd backends compiler cpu cuda distributed distributions fft func futures hub jit library linalg masked multiprocessing nn
    optim overrides profiler serialization signal sparse special testing types utils version""".split()
)
# Our file: PyTorch's, where the names differ.
FILES = {
    "ao.nn.quantized.dynamic.cells": "ao.nn.quantized.dynamic.modules.rnn",
    "ao.nn.quantized.dynamic.linear": "ao.nn.quantized.dynamic.modules.linear",
    "ao.nn.quantized.dynamic.rnn": "ao.nn.quantized.dynamic.modules.rnn",
    "ao.nn.quantized.packed": "ao.nn.quantized.modules.linear",
    "autograd.modes": "autograd.grad_mode",
    "nn.modules.hooks": "nn.modules.module",
    "nn.modules.multihead": "nn.modules.activation",
    "nn.modules.state": "nn.modules.module",
    "parameter": "nn.parameter",
    "pickling": "_utils",
    "random": "_C",
    "rng": "random",
    "untyped_storage": "storage",
}
# Names that live elsewhere than their neighbours: (our file, name): PyTorch's file.
NAMES = {
    ("parameter", "_rebuild_parameter"): "_utils",
    ("parameter", "_rebuild_parameter_with_state"): "_utils",
    ("pickling", "_rebuild_from_type_v2"): "_tensor",
    ("serialization.saving", "_get_layout"): "serialization",
}
_FROM_FILE = {theirs: ours for ours, theirs in FILES.items()}
_FROM_NAME = {(theirs, name): ours for (ours, name), theirs in NAMES.items()}


def is_ours(module: str) -> bool:
    """Whether a module name is one that files write as PyTorch's."""
    return module.partition(".")[0] in (OURS, THEIRS, VISION)


def name_in_files(module: str, name: str) -> str:
    """The module under which PyTorch has what is called `name` in a module of ours."""
    package, _, inside = module.partition(".")
    if package != OURS:
        return module
    if inside.partition(".")[0] == "vision":
        return VISION + inside.removeprefix("vision")
    inside = NAMES.get((inside, name)) or FILES.get(inside) or (inside if inside.partition(".")[0] in ROOMS else "")
    return f"{THEIRS}.{inside}" if inside else THEIRS


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
    for place in (renamed, inside) if renamed else (inside,):
        found = _in(place, name)
        if found is not None:
            return found
    raise AttributeError(f"{module}.{name}: Flambeau has nothing of that name")


def _in(inside: str, name: str) -> Any:
    """A name in a module of ours, or in the packages around it: files are cut differently, packages show the same names."""
    while True:
        try:
            home = importlib.import_module(f"{OURS}.{inside}" if inside else OURS)
        except ModuleNotFoundError as problem:
            if not (problem.name or "").startswith(OURS):
                raise
            home = None
        found = getattr(home, name, None)
        if found is not None or not inside:
            return found
        inside = inside.rpartition(".")[0]


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
