"""Calls that always come down to the same one operation on arrays, remembered.

Many composites only look at shapes and options, check them, and hand their tensors to one array operation: `max_pool2d`, `cat`, `topk`. Such a
composite says `settled=True`. The first call with certain shapes, strides, dtypes and options is watched; the next one with the same goes
straight to that operation, with the arguments it was given then. For small tensors the checks cost more than the work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from numpy import asarray, generic, ndarray

from flambeau.autograd import modes
from flambeau.autograd.node import rename
from flambeau.dtypes import dtype
from flambeau.eager import overrides
from flambeau.eager.record import record_usual
from flambeau.kernels import arrays, keeper
from flambeau.tensor import PLAIN, Size, Tensor, wrap

state = modes.state
EXACT = frozenset({int, bool, str, tuple, Size, type(None), dtype})  # types of options that can be looked up, together with their type
MOST = 1000  # calls remembered for each operation
MANY = 24  # tensors of one call
watching = 0  # how many calls, over all threads, want to know which array operations run
_counting = threading.Lock()


class Settled:
    """What a call came down to: `op` with these arguments, and which of its results was returned (None: all it returns).

    values  the arguments; those that are tensors, or lists of them, are replaced in every call
    shown   the name its node shows, where that is not its own
    places  (where in `values`, the argument of the call, whether it is a list) for each of these
    """

    __slots__ = ("op", "pattern", "places", "shown", "values", "which")

    def __init__(self, op, values: list, places: list[tuple], which: int | None, pattern: int):
        self.op, self.values, self.places, self.which, self.pattern = op, values, places, which, pattern
        self.shown: str | None = None


def remembering(op, front: Callable) -> Callable:
    """`front`, which runs the composite `op`, with a short cut for calls like one before."""
    known: dict[tuple, Settled | None] = {}

    def with_memory(*args, **kwargs):
        if modes.special:
            return overrides.noted(op, front, args, kwargs)
        key: list = []
        needs, home = False, ndarray
        tensors: list = []
        for v in args if not kwargs else (*args, *kwargs.values()):
            kind = type(v)
            if kind in PLAIN:
                array = v._array
                if type(array) is not home:
                    if tensors or not arrays.on_only_gpu(array):
                        return front(*args, **kwargs)
                    home = type(array)
                    key.append(home)
                key += array.shape, array.strides, array.dtype
                tensors.append(v)
                if v._needs or (v._base is not None and v.requires_grad):
                    needs = True
            elif kind in EXACT or (kind is float and v):  # not 0.0, which equals -0.0
                key += v, kind
            elif kind is list and v:
                if type(v[0]) in PLAIN and not tensors and arrays.on_only_gpu(v[0]._array):
                    home = type(v[0]._array)
                    key.append(home)
                for t in v:
                    if type(t) not in PLAIN or type(t._array) is not home:
                        return front(*args, **kwargs)
                    array = t._array
                    key += array.shape, array.strides, array.dtype
                    if t._needs or (t._base is not None and t.requires_grad):
                        needs = True
                tensors += v
                key.append(len(v))
            else:
                return front(*args, **kwargs)
        found = known.get(looked_up := (*key, *kwargs), 0)
        if not found:
            return front(*args, **kwargs) if found is None else _watched(op, known, looked_up, front, args, kwargs)
        given = found.values.copy()
        for at, which, is_list in found.places:
            v = args[which] if type(which) is int else kwargs[which]
            given[at] = [t._array for t in v] if is_list else v._array
        try:
            if found.which == 0 and not needs and not watching and found.op.alone is not None:
                return wrap(found.op.alone(*given))
            made = found.op.forward(*given)
        except MemoryError as problem:  # NumPy's own: programs that try a smaller batch next catch RuntimeError
            raise keeper.as_ours(problem) from None
        if needs:
            for at, which, _ in found.places:
                given[at] = args[which] if type(which) is int else kwargs[which]
        result = finish(found.op, made, given, tensors, found.pattern, needs)
        if watching:
            note(found.op, given, result)
        if found.which is not None:
            result = result[found.which]
        if needs and found.shown is not None and result._node is not None:
            rename(result._node, found.shown)
        return result

    return with_memory


def remembering_choice(op, front: Callable, form: str) -> Callable:
    """`front`, which runs the operation that the choice `op` names (its `form`: call or call_inplace), with a short cut for calls like one before."""
    known: dict[tuple, tuple | None] = {}
    choose, names = op.forward, frozenset(op.parameters)

    def with_memory(*args, **kwargs):
        if modes.special or not args or type(args[0]) not in PLAIN or (kwargs and not names.issuperset(kwargs)):
            return front(*args, **kwargs)
        key: list = []
        for v in args if not kwargs else (*args, *kwargs.values()):
            kind = type(v)
            if kind in PLAIN:
                array = v._array
                key += array.shape, array.strides, array.dtype
                if type(array) is not ndarray:
                    if not arrays.on_gpu(array):
                        return front(*args, **kwargs)
                    key.append(type(array))
            elif kind in EXACT or (kind is float and v):  # not 0.0, which equals -0.0
                key += v, kind
            else:
                return front(*args, **kwargs)
        looked_up = (*key, *kwargs)
        found = known.get(looked_up, 0)
        if not found:
            if found is None:
                return front(*args, **kwargs)
            chosen, *operands = choose(*args, **kwargs)
            if len(known) >= MOST:
                known.clear()
            known[looked_up] = _template(chosen, operands, args, kwargs)
            return getattr(chosen, form)(*operands)
        chosen, template, places = found
        operands = template.copy()
        for at, which in places:
            operands[at] = args[which] if type(which) is int else kwargs[which]
        return getattr(chosen, form)(*operands)

    return with_memory


def _template(chosen, operands: list, args: tuple, kwargs: dict) -> tuple | None:
    """(operation, its operands but for tensors, where these come from), if all of them were arguments of the call, and no two the same."""
    given = [(name, v) for name, v in (*enumerate(args), *kwargs.items()) if isinstance(v, Tensor)]
    places = [(at, name) for at, v in enumerate(operands) if isinstance(v, Tensor) for name, g in given if g is v]
    if len(places) != sum(isinstance(v, Tensor) for v in operands) or len({id(v) for _, v in given}) != len(given):
        return None
    return chosen, [None if isinstance(v, Tensor) else v for v in operands], places


def finish(op, found: Any, values: Sequence, tensors: Sequence[Tensor], pattern: int | None, needs: bool) -> Any:
    """Wrap and record what an array operation computed. `tensors` are those among its arguments, `values`, and `pattern` says
    where, in a digit to the base 64 for each: how many tensors it is, one more if they are a list. None: not to be remembered."""
    if type(found) is ndarray and op.result_type is None:
        result = wrap(found if found.size else as_array(found))
        if needs and op.differentiable and found.dtype.kind in FLOATING:
            record_usual(op, (result,), (result,), values, tensors, pattern if len(tensors) < MANY else None)
        return result
    several = isinstance(found, (tuple, list))
    made = [a if (type(a) is ndarray or arrays.on_gpu(a)) and a.size else as_array(a) for a in (found if several else (found,))]
    results = tuple(map(wrap, made))
    if needs and op.differentiable:
        outputs = [r for r, a in zip(results, made, strict=True) if a.dtype.kind in FLOATING]
        if outputs:
            record_usual(op, results, outputs, values, tensors, pattern if len(tensors) < MANY else None)
    if op.result_type is not None:
        return op.result_type(*results)
    return results if several else results[0]


FLOATING = "fcV"  # kinds of NumPy's dtypes; V are bfloat16 and what is smaller still


def as_array(value: Any) -> Any:
    """NumPy answers some 0-d questions with a scalar: an array again. And its empty arrays have strides of 0, which PyTorch's do not."""
    if isinstance(value, generic):
        return asarray(value)
    return value if value.size or 0 not in value.strides else arrays.empty_beside(value, value.shape, value.dtype)


def _watched(op, known: dict, key: tuple, front: Callable, args: tuple, kwargs: dict) -> Any:
    """Run `front`, and note in `known` what it came down to."""
    global watching
    outer, state.arrays_made = state.arrays_made, []
    with _counting:
        watching += 1
    try:
        result = front(*args, **kwargs)
        made = state.arrays_made
    finally:
        with _counting:
            watching -= 1
        state.arrays_made = outer
    if len(known) >= MOST:
        known.clear()
    found = None
    if len(made) == 1 and (op.settled is True or op.settled(*args, **kwargs)):
        found = _settled(made[0], result, args, kwargs)
    known[key] = found
    if found is not None:
        found.shown = op.grad_name(*args, **kwargs) if callable(op.grad_name) else op.grad_name
    if outer is not None:
        outer += made
    return result


def note(op, values: Sequence, result: Any) -> None:
    """Tell whoever wants to know that an array operation was run."""
    if state.arrays_made is not None:
        state.arrays_made.append((op, values, result))


def _settled(noted: tuple, result: Any, args: tuple, kwargs: dict) -> Settled | None:
    """What a call can be remembered as, if the result of the only operation it ran was all of its result."""
    op, values, made = noted
    which = None
    if made is not result:
        which = next((i for i, r in enumerate(made) if r is result), None) if isinstance(made, tuple) else None
        if which is None:
            return None
    given = [*enumerate(args), *kwargs.items()]
    places, kept, pattern = [], list(values), 0
    for at, value in enumerate(values):
        if isinstance(value, Tensor):
            match = [name for name, v in given if v is value]
            places.append((at, *match, False))
            pattern = pattern << 6 | 1
        elif type(value) is list:
            match = [name for name, v in given if type(v) is list and len(v) == len(value) and all(map(_is, v, value))]
            places.append((at, *match, True))
            pattern = pattern << 6 | min(len(value) + 1, 63)
        elif type(value) is dict:  # filled by forward for its own backward: no two calls may share it
            return None
        else:
            pattern <<= 6
            continue
        if len(match) != 1:
            return None
        kept[at] = None
    tensors = sum(isinstance(v, Tensor) or (len(v) if type(v) is list else 0) for _, v in given)
    used = sum(isinstance(v, Tensor) or (len(v) if type(v) is list else 0) for v in values)
    in_order = [name for _, name, _ in places] == [name for name, v in given if isinstance(v, Tensor) or type(v) is list]
    if not in_order or tensors != used or op.parameters[op.n_positional :]:
        return None
    return Settled(op, kept, places, which, pattern)


def _is(a: Any, b: Any) -> bool:
    return a is b
