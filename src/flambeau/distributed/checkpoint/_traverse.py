"""Walking through nested state: every leaf with its path of keys and list indices."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, TypeAlias, TypeVar

from flambeau.distributed.checkpoint.metadata import STATE_DICT_TYPE
from flambeau.tensor import Tensor

__all__ = ["get_element", "print_tensor", "set_element", "traverse_state_dict"]

PATH_ITEM: TypeAlias = str | int
OBJ_PATH: TypeAlias = tuple[PATH_ITEM, ...]
STATE_DICT_ITEM: TypeAlias = object
CONTAINER_TYPE: TypeAlias = MutableMapping[PATH_ITEM, STATE_DICT_ITEM]
T = TypeVar("T")


def _keep_visiting_tensors(value: object) -> bool:
    return isinstance(value, Tensor)


def traverse_state_dict(
    state_dict: STATE_DICT_TYPE,
    visitor: Callable[[OBJ_PATH, object], None],
    keep_traversing: Callable[[object], bool] = _keep_visiting_tensors,
) -> None:
    """Call `visitor(path, leaf)` for every leaf. Mappings are always entered; a list is entered if a mapping, or something `keep_traversing` says yes to, is
    somewhere in it, and is a leaf otherwise; tuples are leaves."""

    def walk(path: OBJ_PATH, value: object) -> None:
        if isinstance(value, Mapping):
            for key, inside in value.items():
                walk((*path, str(key)), inside)
        elif isinstance(value, list) and _is_worth_entering(value, keep_traversing):
            for position, inside in enumerate(value):
                walk((*path, position), inside)
        else:
            visitor(path, value)

    for key, value in state_dict.items():
        walk((str(key),), value)


def _is_worth_entering(values: list, keep_traversing: Callable[[object], bool]) -> bool:
    return any(
        isinstance(value, Mapping) or keep_traversing(value) or (isinstance(value, list) and _is_worth_entering(value, keep_traversing))
        for value in values
    )


def traverse_state_dict_v_2_3(
    state_dict: STATE_DICT_TYPE,
    visitor: Callable[[OBJ_PATH, object], None],
    keep_traversing: Callable[[object], bool] = _keep_visiting_tensors,
) -> None:
    """As `traverse_state_dict`, by the rule that checkpoints of PyTorch 2.3 were flattened with: a mapping without tensors is a leaf, too."""

    def is_leaf(value: object) -> bool:
        inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else None
        if inside is None:
            return True
        return not any(keep_traversing(v) or (isinstance(v, (Mapping, list)) and not is_leaf(v)) for v in inside)

    def walk(path: OBJ_PATH, value: object) -> None:
        if is_leaf(value):
            visitor(path, value)
        elif isinstance(value, Mapping):
            for key, inside in value.items():
                walk((*path, str(key)), inside)
        elif isinstance(value, list):
            for position, inside in enumerate(value):
                walk((*path, position), inside)

    for key, value in state_dict.items():
        walk((str(key),), value)


def set_element(root_dict: STATE_DICT_TYPE, path: OBJ_PATH, value: object) -> None:
    """Put a value at a path. Dictionaries and lists that are missing on the way are made; lists grow, filled up with None.

    >>> root = {}
    >>> set_element(root, ("a", 1, "b"), 5)
    >>> root
    {'a': [None, {'b': 5}]}
    """
    place: Any = root_dict
    for key, following in itertools.pairwise(path):
        place = _entered(place, key, list if isinstance(following, int) else dict)
    if isinstance(place, list):
        _grow(place, path[-1])
    place[_own_key(place, path[-1])] = value


def _entered(place: Any, key: Any, kind: type) -> Any:
    """The container at a key, made if there is none."""
    if isinstance(place, list):
        _grow(place, key)
        if place[key] is None:
            place[key] = kind()
        return place[key]
    return place.setdefault(_own_key(place, key), kind())


def _own_key(place: Any, key: Any) -> Any:
    """The key as the container has it: paths hold text, and an optimizer numbers its parameters."""
    if isinstance(key, str) and key not in place and isinstance(place, dict):
        return next((own for own in place if not isinstance(own, str) and str(own) == key), key)
    return key


def _grow(values: list, index: Any) -> None:
    values.extend([None] * (index + 1 - len(values)))


def get_element(root_dict: STATE_DICT_TYPE, path: OBJ_PATH, default_value: T | None = None) -> T | None:
    """What is at a path, or the default."""
    place: Any = root_dict
    for key in path:
        own = _own_key(place, key)
        if isinstance(place, list) and isinstance(own, int):
            if own >= len(place):
                return default_value
        elif not isinstance(place, Mapping) or own not in place:
            return default_value
        place = place[own]
    return place


def print_tensor(path: OBJ_PATH, value: object, print_fun: Callable[[str], None] = print) -> None:
    """A visitor that prints one line for every leaf."""
    shown = (
        f"{type(value).__name__} {tuple(value.shape)} {value.dtype}"
        if isinstance(value, Tensor)
        else f"{type(value).__name__} {value!r:.60}"
    )
    print_fun(f"{path}: {shown}")
