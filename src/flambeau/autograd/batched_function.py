"""autograd.Function inside vmap: a batching rule written by its author, or samples one by one.

The rule runs on values, so that tapes outside see whatever it calls; the node with the author's backward is recorded on the wrappers, where
backward runs as on one sample: see Note [levels, wrappers and history] in batched.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from flambeau import modes
from flambeau.autograd.function import Function, _all_arguments, _Results, needs_setup_context
from flambeau.batching import trees
from flambeau.batching.batched import Level, level_of, lift, wrapped
from flambeau.ops import OPS
from flambeau.tensor import Tensor


class VmapInfo(NamedTuple):
    """What a batching rule is told about the vmap it runs in."""

    batch_size: int
    randomness: str


def apply(cls: type[Function], args: tuple, kwargs: dict) -> Any:
    """cls.apply(*args) where some arguments are batched."""
    if cls.setup_context is Function.setup_context:
        raise needs_setup_context(cls)
    args, kwargs = _all_arguments(cls.forward, args, kwargs)
    if any(isinstance(a, Tensor) for a in kwargs.values()):
        raise NotImplementedError(
            f"{cls.__name__}: kwarg-only Tensor args are not supported inside vmap. Let forward take them by position"
        )
    level = level_of(a for a in trees.leaves_of(args) if isinstance(a, Tensor))
    args = trees.mapped(lambda a: lift(a, level) if isinstance(a, Tensor) else a, args)
    found, out_dims = _on_values(cls, level, args, kwargs)
    leaves, shape = trees.flatten(found)
    places = trees.spread(out_dims, shape)
    if places is None:
        raise RuntimeError(f"{cls.__name__}.vmap returned an incompatible pair: out_dims {out_dims} do not fit the outputs, {shape}")
    outputs = [_wrapped(o, d, level) for o, d in zip(leaves, places, strict=True)]
    if modes.state.grad and any(isinstance(a, Tensor) and a._wants() for a in args):
        node = cls._new_node(args)
        with modes.no_grad():
            cls.setup_context(node, args, trees.unflatten(outputs, shape))
        outputs = _Results(node, args, outputs, True).finish()
    return trees.unflatten(outputs, shape)


def _wrapped(output: Any, dim: int | None, level: Level) -> Any:
    if not isinstance(output, Tensor):
        return output
    return wrapped(output if not dim else output.movedim(dim, 0), level, dim is not None)


def _on_values(cls: type[Function], level: Level, args: tuple, kwargs: dict) -> tuple[Any, Any]:
    """(outputs, where the batch lies in them)."""
    values = trees.mapped(lambda a: a.value if isinstance(a, Tensor) else a, args)
    in_dims = trees.mapped(lambda a: 0 if isinstance(a, Tensor) and a.batched else None, args)
    if not any(isinstance(a, Tensor) and a.batched for a in trees.leaves_of(args)):
        return cls.apply(*values, **kwargs), None
    by_hand = cls.vmap is not Function.vmap
    if by_hand and cls.generate_vmap_rule:
        raise RuntimeError(f"{cls.__name__} has both generate_vmap_rule=True and a vmap staticmethod. Please set one of them")
    if by_hand:
        found = cls.vmap(VmapInfo(level.size, level.randomness), in_dims, *values, **kwargs)
        if not isinstance(found, tuple) or len(found) != 2:
            what = "an output, and out_dims that say where the samples lie in it"
            raise RuntimeError(f"Expected {cls.__name__}.vmap to have two returns, {what}. Got {type(found).__name__}")
        return found
    if not cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, which does not have vmap support: give it a staticmethod vmap, or set generate_vmap_rule"
        )
    leaves, shape = trees.flatten(values)
    dims = [0 if isinstance(a, Tensor) and a.batched else None for a in trees.leaves_of(args)]
    samples = [[v if d is None else v[i] for v, d in zip(leaves, dims, strict=True)] for i in range(level.size)]
    rows = [cls.apply(*trees.unflatten(sample, shape), **kwargs) for sample in samples]
    return trees.mapped(lambda *column: OPS["stack"](list(column)), *rows), 0
