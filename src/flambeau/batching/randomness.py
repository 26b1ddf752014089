"""Random numbers inside vmap: refused, the same for every sample, or different ones.

PyTorch's rule: a program that draws random numbers must say which it means, by vmap(..., randomness=).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import modes
from flambeau.batching.batched import Batched, Level, front, lift, too_small, wrapped
from flambeau.ops import OPS
from flambeau.tensor import Tensor

state = modes.state
CHOICES = ("error", "different", "same")


def draw(level: Level, function: Callable, args: tuple, kwargs: dict) -> Any:
    """function(*args, **kwargs), which draws random numbers, as `level` says."""
    name = function.__name__
    if level.randomness == "error":
        raise RuntimeError(
            f"vmap: called random operation while in randomness error mode: {name}. Say vmap(..., randomness='same') or 'different', or draw "
            "outside of vmap"
        )
    inside, state.draw = state.draw, level.outer_draw  # an outer vmap has its own say about the same numbers
    try:
        first = args[0] if args else None
        writes = name.endswith("_") and isinstance(first, Tensor)
        if writes:
            return _write(level, function, first, args[1:], kwargs)
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        if level.randomness == "same":
            return _same(level, function, args, kwargs, tensors)
        return wrapped(_of_tensors(level, function, args, kwargs) if tensors else _of_sizes(level, name, function, args, kwargs), level)
    finally:
        state.draw = inside


def _is_mapped(value: Any, level: Level) -> bool:
    return isinstance(value, Batched) and value.level is level and value.batched


def _write(level: Level, function: Callable, self: Tensor, rest: tuple, kwargs: dict) -> Tensor:
    """normal_() and its like."""
    mapped = _is_mapped(self, level)
    if level.randomness == "different":
        if not mapped:
            if any(_is_mapped(v, level) for v in (*rest, *kwargs.values())):
                raise too_small(function.__name__, level)
            raise RuntimeError(
                "vmap: no different inplace randomness on an unbatched tensor: all samples would see the same randomness. "
                "Clone the tensor from one that is mapped over"
            )
        function(self.value, *[_front(v, level, self.dim()) for v in rest], **kwargs)
        return self
    if any(_is_mapped(v, level) for v in (*rest, *kwargs.values())):
        raise _not_the_same(function)
    plain = [v.value if isinstance(v, Batched) and v.level is level else v for v in rest]
    if not mapped:
        function(self.value if isinstance(self, Batched) and self.level is level else self, *plain, **kwargs)
    else:
        self.value.copy_(function(self.value.new_empty(self.shape), *plain, **kwargs))
    return self


def _not_the_same(function: Callable) -> RuntimeError:
    return RuntimeError(
        f"Vmap does not currently support same randomness with a batched tensor input: {function.__name__} would draw from it"
    )


_SHAPED = ("rand_like", "randn_like", "randint_like", "noise")  # those that look at a tensor's shape only


def _same(level: Level, function: Callable, args: tuple, kwargs: dict, tensors: list) -> Any:
    """One draw for all samples."""
    if function.__name__ in _SHAPED and _is_mapped(args[0], level):
        args = (args[0].value.new_empty(args[0].shape), *args[1:])
    elif any(_is_mapped(t, level) for t in tensors):
        raise _not_the_same(function)
    plain = [a.value if isinstance(a, Batched) and a.level is level else a for a in args]
    return function(*plain, **kwargs)


def _front(value: Any, level: Level, rank: int | None = None) -> Any:
    return front(lift(value, level), rank) if isinstance(value, Tensor) else value


def _of_tensors(level: Level, function: Callable, args: tuple, kwargs: dict) -> Tensor:
    """Draws with probabilities, or in the shape, of tensors: the batch is one more dimension of them."""
    rank = max(a.dim() for a in (*args, *kwargs.values()) if isinstance(a, Tensor))
    given = [_front(a, level, rank) for a in args]
    if function.__name__ == "noise" and given[1] is not None:
        given[1] = (level.size, *given[1])
    if function.__name__ == "multinomial":
        return _multinomial(level, function, given, kwargs)
    return function(*given, **{k: _front(v, level, rank) for k, v in kwargs.items()})


def _multinomial(level: Level, function: Callable, given: list, kwargs: dict) -> Tensor:
    weights = given[0]
    rows = weights.reshape((-1, weights.shape[-1]))
    return function(rows, *given[1:], **kwargs).reshape((*weights.shape[:-1], -1))


def _of_sizes(level: Level, name: str, function: Callable, args: tuple, kwargs: dict) -> Tensor:
    """rand(2, 3), randn((2, 3)), randint(10, (2, 3)), normal(0, 1, (2, 3)), randperm(n)."""
    n = level.size
    if name == "randperm":
        return OPS["stack"]([function(*args, **kwargs) for _ in range(n)])
    if "size" in kwargs:
        return function(*args, **kwargs | {"size": (n, *kwargs["size"])})
    if args and isinstance(args[-1], (tuple, list)):
        return function(*args[:-1], (n, *args[-1]), **kwargs)
    return function(n, *args, **kwargs)
