"""Every operation, declared once. Importing this room fills `OPS` with those that most programs use; the others come when asked for."""

from collections.abc import Callable
from typing import Any

from flambeau.operators import ABOVE
from flambeau.ops.contents import AT_ONCE, SUBJECTS, load
from flambeau.ops.declare import OPS

for _subject in AT_ONCE:
    load(_subject)


def everything() -> list:
    """All operations, those included that nobody has asked for yet."""
    for subject in SUBJECTS:
        load(subject)
    return list(OPS.values())


LIBRARIES: dict[str, Callable[[str], Any]] = {}  # what rooms above have under torch.ops besides: they enter here who makes it
loaded_libraries: set[str] = set()  # libraries of compiled operators: there can be none


def load_library(path: str) -> None:
    """PyTorch loads operators compiled against it from a shared library."""
    from pathlib import Path

    if not Path(path).exists():
        raise OSError(f"Could not load this library: {path}: there is no such file")
    raise NotImplementedError(
        f"torch.ops.load_library({str(path)!r}): a library of compiled operators is made for PyTorch's C++, of which Flambeau has none. "
        "torch.library.custom_op makes an operator of a Python function, which may call compiled code through ctypes, cffi or pybind11"
    )


def __getattr__(name: str):
    from importlib.util import find_spec

    if name.startswith("__") or find_spec(f"{__name__}.{name}") is not None:  # a file of this room that was not imported yet
        raise AttributeError(f"torch.ops has no {name!r}")
    if name in LIBRARIES:
        return LIBRARIES[name](name)
    if name == "higher_order":
        return ABOVE["higher_order"]()
    from flambeau.operators.overloads import namespace_of

    found = globals()[name] = namespace_of(name)
    return found


__all__ = ["ABOVE", "OPS", "SUBJECTS", "everything"]
