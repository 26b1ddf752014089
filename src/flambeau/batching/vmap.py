"""vmap: a function of one sample made a function of many, without a loop.

vmap(f)(xs)   is   stack([f(x) for x in xs]),   in one run of f on tensors that stand for all samples (see batched.py)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flambeau import random
from flambeau.batching import dispatch, trees  # noqa: F401 - dispatch tells operations about batched tensors
from flambeau.batching.batched import Batched, Level, wrapped
from flambeau.batching.randomness import CHOICES
from flambeau.ops import OPS
from flambeau.tensor import Tensor


def vmap(func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None) -> Callable:
    """A function that maps `func` over a dimension of its arguments.

    in_dims     which dimension of each argument holds the samples, None for arguments that all samples share: one number for all, or a tuple
                shaped like the arguments, in which one entry may stand for everything below it
    out_dims    where that dimension goes in the results, in the same way; None for results that are the same for all samples
    randomness  what random operations inside do: "error", "different" numbers for each sample, or the "same" for all
    chunk_size  how many samples to map over at a time, to bound the memory; None for all

    >>> vmap(torch.dot)(torch.ones(2, 3), torch.ones(2, 3))
    tensor([3., 3.])
    """
    if randomness not in CHOICES:
        raise RuntimeError(f"randomness is one of 'error', 'different' and 'same', found {randomness!r}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0, found {chunk_size}")

    @functools.wraps(func)
    def mapped(*args, **kwargs):
        by_steps = replaced_steps()
        if by_steps is not None:
            return by_steps(func, in_dims, out_dims, randomness, chunk_size, args, kwargs)
        size, leaves, shape, dims = _inputs(func, in_dims, args)
        samples = [None if d is None else x.movedim(d, 0) if d else x for x, d in zip(leaves, dims, strict=True)]

        def run(start: int, stop: int) -> tuple[list, Any, list]:
            whole = start == 0 and stop == size
            parts = [x if s is None else s if whole else s[start:stop] for x, s in zip(leaves, samples, strict=True)]
            with Level(stop - start, randomness) as level:
                given = [x if s is None else wrapped(x, level) for x, s in zip(parts, samples, strict=True)]
                found = func(*trees.unflatten(given, shape), **kwargs)
                return _outputs(func, out_dims, found, level)

        if chunk_size is None or chunk_size >= size:
            found, out_shape, _places = run(0, size)
            return trees.unflatten(found, out_shape)
        drawn, chunks = random.get_rng_state(), []
        for i in range(0, size, chunk_size):
            if randomness == "same":  # in all chunks
                random.set_rng_state(drawn)
            chunks.append(run(i, min(i + chunk_size, size)))
        _, out_shape, places = chunks[0]
        columns = zip(*(chunk[0] for chunk in chunks), strict=True)
        joined = [column[0] if d is None else OPS["cat"](list(column), d) for column, d in zip(columns, places, strict=True)]
        return trees.unflatten(joined, out_shape)

    return mapped


def replaced_steps() -> Callable | None:
    """Who maps instead, once a library has replaced a step of vmap: _functorch/vmap.py puts its own function here."""
    return None


def _inputs(func: Callable, in_dims: Any, args: tuple) -> tuple[int, list, Any, list]:
    """(number of samples, leaves of the arguments, their shape, the mapped dimension of each); ValueError where they do not go together."""
    leaves, shape = trees.flatten(args)
    size, dims = checked_inputs(
        func, in_dims, args, leaves, trees.spread(in_dims, shape) if isinstance(in_dims, int | tuple) else None, shape
    )
    return size, leaves, shape, dims


def checked_inputs(func: Callable, in_dims: Any, args: tuple, leaves: list, dims: list | None, shape: Any) -> tuple[int, list]:
    """(number of samples, the mapped dimension of each leaf, counted from the front); ValueError where they do not go together."""
    said = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(f"{said}: expected `in_dims` to be int or a (potentially nested) tuple like the inputs, found {type(in_dims)}.")
    if not args:
        raise ValueError(f"{said}: got no inputs, so there is nothing to map over.")
    if dims is None:
        raise ValueError(f"{said}: in_dims is not compatible with the structure of `inputs`, {trees.flatten(in_dims)[1]} with {shape}.")
    dims = [_checked(said, x, d) for x, d in zip(leaves, dims, strict=True)]
    sizes = [x.shape[d] for x, d in zip(leaves, dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError(
            f"{said}: there must be at least one Tensor to map over, and every in_dim is None. Call the function itself, or name a dimension"
        )
    if any(n != sizes[0] for n in sizes):
        raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, found {sizes}")
    return sizes[0], dims


def _checked(said: str, x: Any, dim: Any) -> int | None:
    if dim is not None and (not isinstance(dim, int) or isinstance(dim, bool)):
        raise ValueError(f"{said}: Got in_dim={dim} for an input, where a dimension or None is expected.")
    if dim is None:
        return None
    if not isinstance(x, Tensor):
        raise ValueError(
            f"{said}: Got in_dim={dim} for an input but the input is of type {type(x)}, and only tensors can be mapped over. "
            "Say None for it"
        )
    if not -x.dim() <= dim < x.dim():
        raise ValueError(
            f"{said}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {x.dim()}: -{x.dim()} to "
            f"{x.dim() - 1} are its dimensions."
        )
    return dim % x.dim()


def _outputs(func: Callable, out_dims: Any, found: Any, level: Level) -> tuple[list, Any, list]:
    """(results without the wrappers of this level, their shape, where the samples lie in each)."""
    leaves, shape = trees.flatten(found)
    if not all(p is None or isinstance(p, int) for p in trees.leaves_of(out_dims)):
        raise ValueError(f"vmap({_name(func)}, ..., out_dims={out_dims}): out_dims must be an int, None or a python collection of ints.")
    single = shape is trees.LEAF
    prefix = out_dims
    if single and isinstance(out_dims, (tuple, list)) and len(out_dims) == 1:
        prefix = out_dims[0]
    places = trees.spread(prefix, shape)
    if places is None:
        raise ValueError(
            f"vmap({_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of "
            f"`outputs`, {trees.flatten(out_dims)[1]} with {shape}."
        )
    for leaf, place in zip(leaves, places, strict=True):
        if not isinstance(leaf, Tensor) and place is not None:
            raise ValueError(
                f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type {type(leaf)}. Leave out .item() and the like, or "
                "say out_dims=None for what is the same for all samples"
            )
    return [left(_name(func), t, d, level) for t, d in zip(leaves, places, strict=True)], shape, places


def left(name: str, tensor: Tensor, dim: int | None, level: Level) -> Tensor:
    """A result of the function of this name as it leaves the level: the samples in dimension `dim`."""
    own = isinstance(tensor, Batched) and tensor.level is level
    value = tensor.value if own else tensor
    mapped = own and tensor.batched
    if dim is None:
        if mapped:
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return value
    if not mapped:
        value = value.unsqueeze(0).expand(level.size, *value.shape)
    return value.movedim(0, dim) if dim else value


def _name(func: Callable) -> str:
    return getattr(func, "__name__", repr(func))
