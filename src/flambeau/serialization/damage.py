"""Saying which tensors of a checkpoint are damaged, in the words of who saved it: model.layers.3.weight, not data/17."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.tensor import Tensor
from flambeau.tensor.memory.typed_storage import TypedStorage

MOST_NAMED = 10


def report(file: str, result: Any, damaged: dict[str, TypedStorage | None]) -> str:
    """The message about records, by their names, whose bytes do not have their checksum, and the storages made of them."""
    memory = {record: id(storage._storage) if storage is not None else 0 for record, storage in damaged.items()}
    owners: dict[int, list[str]] = {identity: [] for identity in memory.values()}
    for path, tensor in tensors_in(result):
        if tensor._storage is not None and id(tensor._storage) in owners:
            owners[id(tensor._storage)].append(path)
    lines = [
        f"{record}: {', '.join(owners[identity][:MOST_NAMED]) or 'no tensor that could be found'}" for record, identity in memory.items()
    ]
    more = f"\n    and {len(lines) - MOST_NAMED} more" if len(lines) > MOST_NAMED else ""
    return (
        f"{file} is damaged: the bytes of {len(lines)} record{'s' * (len(lines) != 1)} do not have the checksum that was written with them\n    "
        + "\n    ".join(lines[:MOST_NAMED])
        + more
        + "\nNothing was loaded. Take another copy of the file; torch.load(..., mmap=True) reads without checking, to rescue what is whole."
    )


def shown(value: Any) -> str:
    """A value from a file, for a message. Never repr() of a container: one that holds another twice, and so on, is endless."""
    if isinstance(value, (str, bytes, float)) or (isinstance(value, int) and value.bit_length() < 128):
        return repr(value[:40] if isinstance(value, (str, bytes)) else value)
    return f"a {type(value).__name__}"


def tensors_in(value: Any) -> Iterator[tuple[str, Tensor]]:
    """(where, tensor) for all tensors in nested containers and attributes of objects: "model.0.weight"."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        path, part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, Tensor):
            yield path or "the tensor", part
            continue
        if isinstance(part, dict):
            inside: Any = part.items()
        elif isinstance(part, (list, tuple, set)):
            inside = enumerate(part)
        else:
            inside = vars(part).items() if hasattr(part, "__dict__") and not isinstance(part, type) else ()
        waiting.extend([(f"{path}.{_short(name)}" if path else _short(name), found) for name, found in inside][::-1])


def _short(name: Any) -> str:
    return name[:80] if isinstance(name, str) else shown(name)
