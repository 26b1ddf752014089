"""torch._functorch.vmap: the three steps of vmap, under the names by which libraries replace them to map over containers of their own.

    size, dims, leaves, spec = _process_batched_inputs(in_dims, args, func)    take the arguments apart
    samples = _create_batched_inputs(dims, leaves, level, spec)                put them together again, of samples
    result = _unwrap_batched(func(*samples), out_dims, level, size, func)      samples become all of them

As long as nobody replaces a step, `flambeau.batching.vmap` does all this by itself; as soon as someone does, every vmap goes through these.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from flambeau import random
from flambeau._C._functorch import _add_batch_dim, _remove_batch_dim
from flambeau.batching import batched
from flambeau.batching import vmap as ours
from flambeau.batching.batched import Batched, Level
from flambeau.func import vmap
from flambeau.ops import OPS
from flambeau.tensor import Tensor
from flambeau.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_map_, tree_unflatten

__all__ = ["Tensor", "tree_flatten", "tree_map_", "tree_unflatten", "vmap"]

_get_name = ours._name


def _process_batched_inputs(in_dims: Any, args: Any, func: Callable) -> tuple[int, list, list, Any]:
    """(number of samples, the mapped dimension of each leaf, the leaves of the arguments, how to put them together)."""
    leaves, spec = tree_flatten(args)
    dims = _broadcast_to_and_flatten(in_dims, spec) if isinstance(in_dims, int | tuple) and args else None
    size, dims = ours.checked_inputs(func, in_dims, args, leaves, dims, spec)
    return size, dims, leaves, spec


def _create_batched_inputs(flat_in_dims: list, flat_args: list, vmap_level: int, args_spec: Any) -> Any:
    """The arguments, made of samples."""
    samples = [x if d is None else _add_batch_dim(x, d, vmap_level) for d, x in zip(flat_in_dims, flat_args, strict=True)]
    return tree_unflatten(samples, args_spec)


def _maybe_remove_batch_dim(name: str, batched_output: Any, vmap_level: int, batch_size: int, out_dim: int | None) -> Any:
    """A leaf of the results as it leaves vmap."""
    if out_dim is None:
        return (
            ours.left(name, batched_output, None, batched.state.levels[vmap_level - 1])
            if isinstance(batched_output, Batched)
            else batched_output
        )
    if not isinstance(batched_output, Tensor):
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(batched_output)}. Did you mean out_dims=None for it?"
        )
    return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)


def _unwrap_batched(batched_outputs: Any, out_dims: Any, vmap_level: int, batch_size: int, func: Callable) -> Any:
    """The results with all samples."""
    leaves, spec = tree_flatten(batched_outputs)
    alone = isinstance(batched_outputs, Tensor) and isinstance(out_dims, tuple) and len(out_dims) == 1
    dims = list(out_dims) if alone else _broadcast_to_and_flatten(out_dims, spec)
    if dims is None:
        raise ValueError(
            f"vmap({_get_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of `outputs`, {spec}."
        )
    name = _get_name(func)
    outputs = [_maybe_remove_batch_dim(name, x, vmap_level, batch_size, d) for x, d in zip(leaves, dims, strict=True)]
    return tree_unflatten(outputs, spec)


# -- vmap by these steps -------------------------------------------------------------------------------------------------------------------

STEPS: dict[str, Callable[..., Any]] = {step.__name__: step for step in (_process_batched_inputs, _create_batched_inputs, _unwrap_batched)}
_self = sys.modules[__name__]


class Ended(threading.local):
    """The levels of this thread's vmaps by steps that something still knows, by depth and number of samples.

    Libraries know levels by their numbers, and keep samples made at one for the next vmap of that number (tensordict's `_add_batch_dim` remembers its
    answer while the container is locked). So a vmap over as many samples goes on with the level that was there before.
    """

    def __init__(self) -> None:
        self.levels: weakref.WeakValueDictionary[tuple[int, int], Level] = weakref.WeakValueDictionary()

    def level(self, size: int, randomness: str) -> Level:
        """The level to enter next."""
        key = len(batched.state.levels), size
        found = self.levels.get(key)
        if found is None:
            self.levels[key] = found = Level(size, randomness)
        found.randomness, found.active = randomness, True
        return found


ended = Ended()


def _steps() -> list[Callable] | None:
    """The three steps, if one of them has been replaced."""
    now = [getattr(_self, name) for name in STEPS]
    return None if now == list(STEPS.values()) else now


def _by_steps(func: Callable, in_dims: Any, out_dims: Any, randomness: str, chunk_size: int | None, args: tuple, kwargs: dict) -> Any:
    process, create, unwrap = _steps() or list(STEPS.values())
    size, dims, leaves, spec = process(in_dims, args, func)

    def run(size: int, leaves: list) -> Any:
        with ended.level(size, randomness) as level:
            number = level.depth + 1
            return unwrap(func(*create(dims, leaves, number, spec), **kwargs), out_dims, number, size, func)

    if chunk_size is None or chunk_size >= size:
        return run(size, leaves)
    drawn, chunks = random.get_rng_state(), []
    for start in range(0, size, chunk_size):
        if randomness == "same":  # in all chunks
            random.set_rng_state(drawn)
        stop = min(start + chunk_size, size)
        parts = [x if d is None else x[(slice(None),) * d + (slice(start, stop),)] for x, d in zip(leaves, dims, strict=True)]
        chunks.append(tree_flatten(run(stop - start, parts)))
    whole = chunks[0][1]
    places = _broadcast_to_and_flatten(out_dims, whole)
    assert places is not None
    columns = zip(*(chunk[0] for chunk in chunks), strict=True)
    return tree_unflatten(
        [column[0] if d is None else OPS["cat"](list(column), d) for column, d in zip(columns, places, strict=True)], whole
    )


ours.replaced_steps = lambda: None if _steps() is None else _by_steps
