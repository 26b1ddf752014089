"""Running update rules on tensors: all parameters of a group in one launch, or as operations that are recorded. And what is done to all
gradients of a model: their norm, and multiples of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flambeau import modes
from flambeau.interpreters import calls, stack
from flambeau.kernels import arrays
from flambeau.kernels.loops import updates
from flambeau.kernels.reductions import folding
from flambeau.ops.updates import Rule, scaled, unscaled
from flambeau.tensor import PLAIN, Tensor, wrap


def move(rule: Rule, names: tuple[str, ...], tensors: Sequence[list[Tensor]], options: dict) -> None:
    """Give all parameters and their states the new values of the rule.

    tensors  lists of equal length: the parameters, their gradients, then their states, which have these names
    """
    if not all([type(p) in PLAIN for p in tensors[0]]):
        tensors = _here(tensors)
    if modes.state.grad or _seen() or calls.dispatched(tensors):
        options = {name: v.squeeze() if isinstance(v, Tensor) and v.dim() else v for name, v in options.items()}
        for i, operands in enumerate(zip(*tensors, strict=True)):
            _as_operations(rule, names, operands, {name: v.of[i] if type(v) is OnGpu else v for name, v in options.items()})
        return
    lists = tuple([[t._array for t in group] for group in tensors])
    for name, value in options.items():
        if isinstance(value, Tensor) and arrays.on_gpu(value._array) and all(map(arrays.on_gpu, lists[0])):
            options[name] = [value._array] * len(lists[0])
        elif isinstance(value, Tensor):
            options[name] = value.item()
        elif type(value) is OnGpu:
            options[name] = [t._array for t in value.of]
    updates.run(rule.kernel(names), lists, [options[name] for name in rule.options])
    for i, group in enumerate(tensors):
        if i != 1:
            _note_writes(group)


def _seen() -> bool:
    """Whether somebody wants to see what happens here as operations."""
    return bool(modes.special) and stack.by_operations()


def _here(tensors: Sequence[list[Tensor]]) -> list[list[Tensor]]:
    """Of parameters that lie on several processes the part that lies here, with the corresponding parts of gradients and states."""
    columns = [first._as_pieces(rest) if hasattr(first, "_as_pieces") else [first, *rest] for first, *rest in zip(*tensors, strict=True)]
    return [list(group) for group in zip(*columns, strict=True)]


def _note_writes(tensors: Sequence[Tensor]) -> None:
    for t in tensors:
        storage = t._storage or t._shared_storage()
        storage.version += 1


def _as_operations(rule: Rule, names: tuple[str, ...], tensors: Sequence[Tensor], options: dict) -> None:
    """One parameter by ordinary operations, on copies: what is saved for backward must not be written over."""
    views = [t.view_as_real() if t.is_complex() else t for t in tensors]
    param, grad, states = views[0], views[1:2], views[2:]  # what is only scaled has no gradient
    found = rule(param.clone(), *grad, **dict(zip(names, [s.clone() for s in states], strict=True)), **options)
    for old, new in zip((param, *states), found, strict=True):
        old.copy_(new)


def read(numbers: Sequence[Tensor]) -> list[float]:
    """The values of tensors of one element."""
    return [arrays.item(t._array) for t in numbers]


class OnGpu:
    """Numbers that lie on a GPU, a tensor of one element for each parameter: kernels read them there, and nobody waits for their values."""

    def __init__(self, of: Sequence[Tensor]):
        self.of = of


def advance(steps: Sequence[Tensor]) -> list[float]:
    """Add 1 to every counter; their new values."""
    if arrays.cuda_room is not None:
        arrays.cuda_room.graphs.refuse(
            "a step that is counted in main memory", "capturable=True counts on the GPU, where an optimizer has it"
        )
    found = [t._array.item() + 1.0 for t in steps]
    write(steps, found)
    return found


def counted(steps: Sequence[Tensor]) -> list:
    """The same; of counters that all lie on a GPU not their values, but where they lie, for rules to read there."""
    counters = [t._array for t in steps]
    if _seen() or not all(map(arrays.on_gpu, counters)) or len({a.dtype for a in counters}) > 1:
        return advance(steps)
    arrays.cuda().advance(counters)
    _note_writes(steps)
    return [OnGpu(steps)] * len(steps)


def write(numbers: Sequence[Tensor], values: Sequence[float]) -> None:
    """Set tensors of one element."""
    for t, value in zip(numbers, values, strict=True):
        array = t._array
        array.fill(value) if type(array) is np.ndarray else arrays.fill(array, value)
    _note_writes(numbers)


def being_captured(tensors: Sequence[Tensor]) -> bool:
    """Whether what is done to these goes into a CUDA graph instead of being done."""
    return any(t.is_cuda for t in tensors) and arrays.cuda().is_capturing()


def on_cpu(tensors: Sequence[Tensor]) -> bool:
    """Whether all are plain real numbers in the memory of the CPU."""
    return all([type(t._array) is np.ndarray and t._array.dtype.kind != "c" for t in tensors])


def scale(tensors: Sequence[Tensor], factor: float) -> None:
    """Multiply tensors on the CPU in place, all in one launch."""
    move(scaled, (), [list(tensors)], {"factor": factor})


def unscale(tensors: Sequence[Tensor], factor: float) -> bool:
    """The same, and whether an element was infinite or NaN before, on whatever process it lies."""
    apart = [t for t in tensors if hasattr(t, "_as_pieces")]
    here = _here([list(tensors)])[0] if apart else tensors
    found = updates.run(unscaled.kernel(()), ([t._array for t in here],), [factor])
    _note_writes(here)
    return apart[0]._anywhere(found, apart) if apart else found


def norms(tensors: Sequence[Tensor], order: float) -> list[Tensor] | None:
    """The norm of each tensor, all in a launch or two; None where there are no kernels for that."""
    found = updates.norms([t._array for t in tensors], order)
    return None if found is None else [wrap(found[0][i]) for i in range(len(tensors))]


def clip(tensors: Sequence[Tensor], total: Tensor, most: float) -> bool:
    """Multiply all by most / (total + 1e-6) in place, if that is less than one, in one launch; False where there is no kernel for that."""
    done = not _seen() and updates.clip([t._array for t in tensors], total._array, most)
    if done:
        _note_writes(tensors)
    return done


def total_norm(tensors: Sequence[Tensor], order: float) -> Tensor | None:
    """The norm of all tensors together, as the norm of their norms; None where it takes more than a launch or two, or the compiled folds."""
    both = None if _seen() else updates.norms([t._array for t in tensors], order)
    if both is not None:
        return wrap(both[1])
    if _seen() or order not in (1.0, 2.0) or not on_cpu(tensors):
        return None
    name, kind = f"norm{int(order)}", tensors[0]._array.dtype
    found = []
    for t in tensors:
        array = t._array
        one = None if array.dtype != kind else folding.fold(name, array, tuple(range(array.ndim)), False, kind)
        if one is None:
            return None
        found.append(one)
    total = folding.fold(name, np.array(found), (0,), False, kind)
    return None if total is None else wrap(total)
