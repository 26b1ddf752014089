"""What happens when an operation meets a batched tensor.

Operations ask `__torch_function__` of their arguments' classes; for a Batched that is `dispatch`. Composites and choices just run: they are
made of other operations. The others become operations on values, by their batching rule, and are then recorded if some grad that runs
inside the vmap wants to know (see Note [levels, wrappers and history] in batched.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from flambeau import modes
from flambeau.batching import indexing, rules
from flambeau.batching.batched import Batched, Level, adopt, aligned, check_leaf, level_of, lift, too_small, wrapped
from flambeau.eager import array_ops
from flambeau.eager.arguments import Arguments
from flambeau.eager.indexing import getitem, setitem
from flambeau.eager.pointwise import _sorter, compute_dtype
from flambeau.eager.record import record_array, record_pointwise
from flambeau.ops import OPS
from flambeau.ops.promotion import promoted
from flambeau.tensor import Tensor

state = modes.state


def dispatch(cls, function: Callable, types, args: tuple = (), kwargs: dict | None = None) -> Any:
    """Run any function of tensors, some of which are batched."""
    kwargs = kwargs or {}
    op = getattr(function, "op", None)
    if kwargs.get("out") is not None:
        words = "the fallback path doesn't work on out= or view ops. Use the returned tensor instead of out="
        raise RuntimeError(f"vmap: Batching rule not implemented for aten::{function.__name__}; {words}")
    kwargs.pop("out", None)
    if op is None:
        if function is getitem:
            return indexing.getitem(*args)
        if function is setitem:
            return indexing.setitem(*args)
        return rules.made(function, args, kwargs)
    if function is getattr(op, "call_inplace", None):
        return _in_place(op, args, kwargs)
    return RUN[op.kind](op, args, kwargs)


Batched.__torch_function__ = classmethod(dispatch)  # type: ignore[assignment, method-assign]


def _composite(op, args: tuple, kwargs: dict):
    instead = rules.COMPOSED.get(op.name)
    return (instead or op.forward)(*args, **kwargs)


def _choice(op, args: tuple, kwargs: dict):
    chosen, *operands = op.forward(*args, **kwargs)
    return chosen.call(*operands)


def _pointwise(op, args: tuple, kwargs: dict) -> Tensor:
    operands, options = _sorted(op, args, kwargs)
    level = level_of(operands)
    operands = tuple([lift(v, level) if isinstance(v, Tensor) else v for v in operands])
    options = tuple([v.item() if isinstance(v, Tensor) else v for v in options])
    result = wrapped(op.call(*_ready(op, operands), **dict(zip(op.options, options, strict=True))), level, _any_batched(operands))
    if state.grad and op.differentiable and result._is_float() and any(isinstance(v, Tensor) and v._wants() for v in operands):
        record_pointwise(op, result, operands, options)
    return result


def _sorted(op, args: tuple, kwargs: dict) -> tuple[tuple, tuple]:
    if not hasattr(op, "sort"):
        op.sort = _sorter(op)
    return op.sort(args, kwargs)


def _ready(op, operands: tuple) -> list:
    """The values of operands, so that they broadcast. The samples decide the dtype: a batch of numbers counts as numbers, not as a vector."""
    tensors = [v for v in operands if isinstance(v, Tensor)]
    found = iter(aligned(tensors))
    if any(t.batched and not t._array.ndim for t in tensors) and len({t.dtype for t in tensors}) > 1:
        meant = [v for v, kind in zip(operands, op.kernel.kinds, strict=True) if kind == "T"]
        common = compute_dtype(op, promoted(*meant))
        kinds = iter([k for v, k in zip(operands, op.kernel.kinds, strict=True) if isinstance(v, Tensor)])
        found = iter([v.to(common) if k == "T" else v for v, k in zip(found, kinds, strict=True)])
    return [next(found) if isinstance(v, Tensor) else v for v in operands]


def _any_batched(values) -> bool:
    return any(t.batched for t in array_ops._tensors(values))


def _array(op, args: tuple, kwargs: dict) -> Any:
    values = _arguments(op).values(args, kwargs)
    level = level_of(array_ops._tensors(values))
    by_name = {name: _lifted(value, level) for name, value in zip(_names(op), values, strict=True)}
    if op.kind == "array" and op.promote:
        by_name = array_ops.promote(op, by_name)
        by_name = {name: _lifted(value, level) for name, value in by_name.items()}
    if op.name in rules.COMPOSED:
        return rules.COMPOSED[op.name](**by_name)
    found = _values(op, by_name, level)
    return _recorded(op, found, by_name, level)


def _arguments(op) -> Arguments:
    if not hasattr(op, "arguments"):
        op.arguments = Arguments(op)
    return op.arguments


def _names(op) -> tuple[str, ...]:
    return (*op.parameters, op.variadic) if op.variadic else op.parameters


def _lifted(value: Any, level: Level) -> Any:
    if isinstance(value, Tensor):
        return lift(value, level)
    if isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value):
        return [lift(v, level) if isinstance(v, Tensor) else v for v in value]
    return value


def _values(op, by_name: dict, level: Level) -> Any:
    """The operation on values: (results, whether they are batched)."""
    if not _any_batched(by_name.values()):
        plain = {name: _value(value) for name, value in by_name.items()}
        return op.call(*plain.values()) if op.n_positional == len(plain) else op.call(**plain), False
    rule = rules.RULES.get(op.name)
    found = NotImplemented if rule is None else rule(op, **by_name)
    return loop(op, op.call, by_name, level) if found is NotImplemented else found, True


def _value(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.value
    return [_value(v) for v in value] if isinstance(value, list) else value


def _recorded(op, found: tuple, by_name: dict, level: Level) -> Any:
    """Results as wrappers, with a history if one is wanted."""
    results, batched = found
    several = isinstance(results, (tuple, list))
    given = list(by_name.values())
    wraps = tuple([wrapped(r, level, batched) for r in results]) if several else (wrapped(results, level, batched),)
    if op.kind == "view":
        _as_views(op, by_name, wraps, several)
    floats = any(r._is_float() for r in wraps)
    if state.grad and floats and getattr(op, "differentiable", True) and any(t._wants() for t in array_ops._tensors(given)):
        record_array(op, wraps, given)
    if getattr(op, "result_type", None) is not None:
        return op.result_type(*wraps)
    return wraps if several else wraps[0]


def _as_views(op, by_name: dict, results: tuple[Batched, ...], several: bool) -> None:
    """Let views know their base, and how they are made from it: a write through them is a write to the base."""
    input, *rest = by_name.values()
    above = input._look or (lambda base: base)
    for i, view in enumerate(results):
        view._base = input if input._base is None else input._base
        view._stamp = view._storage.version
        if several:
            view._view_mode = "multi"
        view._look = lambda base, i=i: op.call(above(base), *rest)[i] if several else op.call(above(base), *rest)


RUN: dict[str, Callable] = {"composite": _composite, "choice": _choice, "pointwise": _pointwise, "array": _array, "view": _array}


# -- in place --------------------------------------------------------------------------------------------------------------


def _in_place(op, args: tuple, kwargs: dict) -> Tensor:
    """Tensor.<name>_: computed, then written over the values."""
    if op.kind == "choice":
        chosen, *operands = op.forward(*args, **kwargs)
        return chosen.call_inplace(*operands)
    self = args[0] if args else kwargs["input"]
    operands = list(array_ops._tensors((*args, *kwargs.values())))
    level = level_of(operands)
    if not isinstance(self, Batched) or self.level is not level or (not self.batched and any(_is_batched_at(t, level) for t in operands)):
        raise too_small(op.short, level)
    recorded = state.grad and any(t._wants() for t in operands if isinstance(t, Batched) and t.level is level) and self._is_float()
    if recorded:
        check_leaf(self)
        return _write_recorded(op, self, args, kwargs)
    if op.kind == "pointwise":
        _write_pointwise(op, self, args, kwargs)
    else:
        result = _out_of_place(op, self, args, kwargs)
        self.value.copy_(result.value)
    return self


def _is_batched_at(tensor: Tensor, level: Level) -> bool:
    return isinstance(tensor, Batched) and tensor.level is level and tensor.batched


def _write_pointwise(op, self: Batched, args: tuple, kwargs: dict) -> None:
    operands, options = _sorted(op, args, kwargs)
    lifted = tuple([lift(v, self.level) if isinstance(v, Tensor) else v for v in operands])
    op.call_inplace(*_ready(op, lifted), **dict(zip(op.options, options, strict=True)))


def _out_of_place(op, first: Tensor, args: tuple, kwargs: dict) -> Any:
    """The operation's result, given to `copy_` and its like under another roof: a copy is no operation by itself."""
    rest = args[1:] if args else args
    named = {k: v for k, v in kwargs.items() if k != "input"}
    return RUN[op.kind](op, (first, *rest), named)


def _write_recorded(op, self: Batched, args: tuple, kwargs: dict) -> Batched:
    """A write that some grad inside the vmap must know of: of a copy of what was there, so that derivatives can still read it."""
    before = self.clone()
    result = _out_of_place(op, before, args, kwargs)
    self.value.copy_(result.value)
    adopt(self, result)
    return self


# -- no rule ---------------------------------------------------------------------------------------------------------------

_told: set[str] = set()


def loop(op, call: Callable, by_name: dict, level: Level) -> Any:
    """The operation sample by sample, stacked: right, and as slow as a loop. Says so once for each operation."""
    if "kept" in by_name and not op.name.endswith("_backward"):  # backward only reads it
        raise NotImplementedError(
            f"vmap: there is no batching rule for {op.short}, which keeps numbers for its derivative beside its result"
        )
    if op.name not in _told:
        _told.add(op.name)
        warnings.warn(
            f"There is a performance drop: {op.name} has no rule for batches, and runs in a loop over the {level.size} samples", stacklevel=6,
        )  # fmt: skip
    if not level.size:
        raise RuntimeError(f"vmap: {op.short} has no batching rule, and without samples there is nothing to find its result's shape by")
    samples = [call(**{name: _sample(value, i) for name, value in by_name.items()}) for i in range(level.size)]
    if isinstance(samples[0], (tuple, list)):
        return tuple([OPS["stack"](list(column)) for column in zip(*samples, strict=True)])
    return OPS["stack"](samples)


def _sample(value: Any, i: int) -> Any:
    if isinstance(value, Tensor):
        return value.value[i] if value.batched else value.value
    return [_sample(v, i) for v in value] if isinstance(value, list) else value
