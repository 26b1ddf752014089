"""Nested state as one flat dictionary of names joined by dots, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from flambeau.distributed.checkpoint._traverse import OBJ_PATH, set_element, traverse_state_dict
from flambeau.distributed.checkpoint.metadata import STATE_DICT_TYPE

FLATTEN_MAPPING: TypeAlias = dict[str, OBJ_PATH]


def flatten_state_dict(
    state_dict: STATE_DICT_TYPE, traverse: Callable[..., None] = traverse_state_dict
) -> tuple[STATE_DICT_TYPE, FLATTEN_MAPPING]:
    """(leaves by name, path of each name); `traverse` says what is a leaf.

    >>> flatten_state_dict({"model": {"weight": 1}, "steps": [2, 3]})
    ({'model.weight': 1, 'steps': [2, 3]}, {'model.weight': ('model', 'weight'), 'steps': ('steps',)})
    """
    flat: STATE_DICT_TYPE = {}
    paths: FLATTEN_MAPPING = {}

    def note(path: OBJ_PATH, value: object) -> None:
        name = ".".join(map(str, path))
        if name in flat:
            raise ValueError(f"duplicated flatten key {name}: both {paths[name]} and {path} are called so. Rename one of them")
        flat[name], paths[name] = value, path

    traverse(state_dict, note)
    return flat, paths


def unflatten_state_dict(state_dict: STATE_DICT_TYPE, mapping: FLATTEN_MAPPING) -> STATE_DICT_TYPE:
    """The nested state that was flattened to these."""
    nested: STATE_DICT_TYPE = {}
    for name, value in state_dict.items():
        set_element(nested, mapping[name], value)
    return nested
