"""Every operation, declared once. Importing this room fills `OPS` with those that most programs use; the others come when asked for."""

from collections.abc import Callable
from typing import Any

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


def __getattr__(name: str):
    if name == "aten":  # imported when asked for
        from flambeau.ops.overloads import aten

        return aten
    if name in LIBRARIES:
        return LIBRARIES[name](name)
    raise AttributeError(f"torch.ops has no {name!r}: there are no operations of that library")


__all__ = ["OPS", "SUBJECTS", "everything"]
