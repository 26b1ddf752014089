"""Numbers or tuples: `kernel_size=3` means (3, 3) in two dimensions. And prefixes of checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

__all__ = ["consume_prefix_in_state_dict_if_present"]


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple]:
    """A function that makes a tuple of what is iterable, and n copies of what is not."""

    def parse(x: Any) -> tuple:
        return tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single, _pair, _triple, _quadruple = [_ntuple(n, name) for n, name in enumerate(("_single", "_pair", "_triple", "_quadruple"), 1)]


def _reverse_repeat_tuple(t: Iterable, n: int) -> tuple:
    """The last first, each n times: padding per dimension as `pad` wants it. (1, 2), 2 -> (2, 2, 1, 1)"""
    return tuple(x for x in reversed(tuple(t)) for _ in range(n))


def _list_with_default(out_size: Any, defaults: list[int]) -> Any:
    """Sizes with None replaced by the size there is: defaults of the trailing dimensions."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    return [d if size is None else size for size, d in zip(out_size, defaults[-len(out_size) :], strict=True)]


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Take a prefix off all keys, in place: "module." of a model saved inside DistributedDataParallel."""
    for key in list(state_dict):
        value = state_dict.pop(key)  # every key, so that the order stays
        state_dict[key.removeprefix(prefix)] = value
    metadata = getattr(state_dict, "_metadata", None)
    for key in list(metadata or ()):
        if key == prefix.removesuffix("."):
            metadata[""] = metadata.pop(key)
        elif key.startswith(prefix):
            metadata[key.removeprefix(prefix)] = metadata.pop(key)
