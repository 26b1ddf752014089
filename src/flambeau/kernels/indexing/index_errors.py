"""What is said of an index that is out of bounds: one list of errors for those that look at it at once and for those that find it later.

A GPU finds a bad index while it runs, long after the operation has returned (see `cuda/error_notes.py`). All it can write down are numbers: which of
these errors it is, the index, the size that it exceeds, its dimension or position, and for a class the one that may be ignored.
"""

from __future__ import annotations

_DIM = "index {index} is out of bounds for dimension {at} with size {size}"
_SELF = "index out of range in self: index {index} is out of bounds for a dimension of size {size}"
_ELEMENT = "out of range: tried to access index {index} on a tensor of {size} elements."
_CLASS = (
    "Target {index} is out of bounds: the target at position {at} names a class, and with "
    "{size} classes these are 0 to {last} (or ignore_index, {other})"
)

INDEX, ALONG, ROW, ELEMENT, CLASS = range(5)  # x[i]; gather and scatter; index_select and embedding; take and put; losses of classes
ERRORS: tuple[tuple[type[Exception], str], ...] = (
    (IndexError, _DIM), (RuntimeError, _DIM), (IndexError, _SELF), (IndexError, _ELEMENT), (IndexError, _CLASS),
)  # fmt: skip


def error(kind: int, index: int, size: int, at=0, other: int = 0, more: str = "") -> Exception:
    """The error for an index; `more` is said after it."""
    which, words = ERRORS[kind]
    return which(words.format(index=index, size=size, at=at, last=size - 1, other=other) + more)
