"""Operators that programs define, inside vmap: a rule given with register_vmap, or the samples one by one.

A rule is func(info, in_dims, *args, **kwargs) -> (results, out_dims), where info has batch_size and randomness, and in_dims says for each argument where
its samples lie; it runs on the values that hold all samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.autograd import batched_function
from flambeau.batching import trees
from flambeau.batching.batched import level_of, lift
from flambeau.library.autograd import filled
from flambeau.library.kernels import Entry, tensors_of
from flambeau.ops import OPS
from flambeau.tensor import Tensor

__all__ = ["kernel", "run"]


def kernel(entry: Entry, rule: Callable) -> Callable[..., Any]:
    """What runs for the key FuncTorchBatched, where there is a rule."""

    def mapped(*args: Any, **kwargs: Any) -> Any:
        return _apply(entry, rule, *filled(entry.overload._schema, args, kwargs))

    return mapped


def run(entry: Entry, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Samples one by one, where nobody gave a rule."""
    return _apply(entry, None, *filled(entry.overload._schema, args, kwargs))


def _apply(entry: Entry, rule: Callable | None, args: tuple, kwargs: dict[str, Any]) -> Any:
    if any(True for _ in tensors_of(kwargs.values())):
        raise NotImplementedError(
            f"{entry.overload}: kwarg-only Tensor args are not supported inside vmap. Let the operator take them by position"
        )
    level = level_of(list(tensors_of(args)))
    lifted = trees.mapped(lambda a: lift(a, level) if isinstance(a, Tensor) else a, args)
    values = trees.mapped(lambda a: a.value if isinstance(a, Tensor) else a, lifted)
    in_dims = trees.mapped(lambda a: 0 if isinstance(a, Tensor) and a.batched else None, lifted)
    if rule is None:
        found, out_dims = _one_by_one(entry, values, in_dims, kwargs, level.size)
    else:
        found, out_dims = _checked(rule(batched_function.VmapInfo(level.size, level.randomness), in_dims, *values, **kwargs), entry)
    leaves, shape = trees.flatten(found)
    places = trees.spread(out_dims, shape)
    if places is None:
        raise RuntimeError(f"the vmap rule of {entry.overload} gave out_dims {out_dims}, which do not fit its outputs, {shape}")
    return trees.unflatten([batched_function._wrapped(o, d, level) for o, d in zip(leaves, places, strict=True)], shape)


def _checked(found: Any, entry: Entry) -> tuple[Any, Any]:
    if not isinstance(found, tuple) or len(found) != 2:
        raise RuntimeError(f"the vmap rule of {entry.overload} returns two things, (results, out_dims), found {type(found).__name__}")
    return found


def _one_by_one(entry: Entry, values: tuple, in_dims: Any, kwargs: dict[str, Any], size: int) -> tuple[Any, Any]:
    leaves, shape = trees.flatten(values)
    dims = trees.spread(in_dims, shape)
    samples = [[v if d is None else v.select(d, i) for v, d in zip(leaves, dims or (), strict=True)] for i in range(size)]
    rows = [entry.overload(*trees.unflatten(sample, shape), **kwargs) for sample in samples]
    if not rows or any(r is None for r in rows):
        return None, None
    return trees.mapped(lambda *column: OPS["stack"](list(column)) if isinstance(column[0], Tensor) else column[0], *rows), 0
