"""autograd.Function inside vmap: a batching rule written by its author, or samples one by one.

The rule runs on values, so that tapes outside see whatever it calls; the node with the author's backward is recorded on the wrappers, where
backward runs as on one sample: see Note [levels, wrappers and history] in batched.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from flambeau.autograd import modes
from flambeau.autograd.function import Function, _all_arguments, _Results
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
        raise RuntimeError(
            f"In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must override the setup_context "
            f"staticmethod: {cls.__name__}.forward then takes no ctx"
        )
    args, kwargs = _all_arguments(cls.forward, args, kwargs)
    level = level_of(a for a in args if isinstance(a, Tensor))
    args = tuple([lift(a, level) if isinstance(a, Tensor) else a for a in args])
    found, out_dims = _on_values(cls, level, args, kwargs)
    leaves, shape = trees.flatten(found)
    places = trees.spread(out_dims, shape)
    if places is None:
        raise RuntimeError(f"{cls.__name__}.vmap: out_dims {out_dims} do not fit the outputs, {shape}")
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
    values = [a.value if isinstance(a, Tensor) else a for a in args]
    in_dims = tuple([0 if isinstance(a, Tensor) and a.batched else None for a in args])
    if not any(d == 0 for d in in_dims):
        return cls.apply(*values, **kwargs), None
    by_hand = cls.vmap is not Function.vmap
    if by_hand and cls.generate_vmap_rule:
        raise RuntimeError(f"{cls.__name__} has both generate_vmap_rule=True and a vmap staticmethod. Please set one of them")
    if by_hand:
        return cls.vmap(VmapInfo(level.size, level.randomness), in_dims, *values, **kwargs)
    if not cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please override and implement the vmap staticmethod or set "
            "generate_vmap_rule=True"
        )
    rows = [cls.apply(*[v if d is None else v[i] for v, d in zip(values, in_dims, strict=True)], **kwargs) for i in range(level.size)]
    return trees.mapped(lambda *column: OPS["stack"](list(column)), *rows), 0
