"""Calls that always come down to the same one operation on arrays, remembered.

Many composites only look at shapes and options, check them, and hand their tensors to one array operation: `max_pool2d`, `cat`, `topk`. Such a
composite says `settled=True`. The second call with certain shapes, strides, dtypes and options is watched; the next one with the same goes
straight to that operation, with the arguments it was given then. For small tensors the checks cost more than the work.

And where the array operation can say beforehand what such a call will do (`ArrayOp.prepared`), that is kept instead: what is left of a call is to
look it up and to do it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy import asarray, generic, ndarray

from flambeau import modes
from flambeau.eager.looks import look
from flambeau.eager.record import MOST_TENSORS, History, record_settled, record_usual
from flambeau.kernels import arrays
from flambeau.kernels.native import memory_guard
from flambeau.tensor import PLAIN, Tensor, wrap
from flambeau.tensor.node import rename

state = modes.state
ITSELF = "itself"  # what calls come down to that return their first argument, a tensor
MOST = 1000  # calls remembered for each operation
watching = 0  # how many calls, over all threads, want to know which array operations run


class Settled:
    """What a call came down to: `op` with these arguments, and which of its results was returned (None: all it returns).

    values  the arguments; those that are tensors, or lists of them, are replaced in every call
    places  (where in `values`, the argument of the call, whether it is a list) for each of these
    order   which of the call's tensors stands in each place, where that is not the order of the call
    ready   the function that does it, of the arrays in their places alone; NotImplemented where it cannot. None: there is none
    shown   the name its node shows, where that is not its own
    history  how it is recorded, once it was: see `record_settled`
    """

    __slots__ = ("history", "op", "order", "pattern", "places", "ready", "shown", "values", "which")

    def __init__(self, op, values: list, places: list[tuple], which: int | None, pattern: int):
        self.op, self.values, self.places, self.which, self.pattern = op, values, places, which, pattern
        self.shown: str | None = None
        self.order: list[int] | None = None
        self.ready: Callable | None = None
        self.history: History | None = None

    def with_arrays(self, given: Sequence) -> list:
        """The arguments, with what is given in the places of tensors."""
        values = self.values.copy()
        for place, value in zip(self.places, given, strict=True):
            values[place[0]] = value
        return values

    def with_tensors(self, args: tuple, kwargs: dict) -> list:
        """The arguments, with tensors in their places."""
        values = self.values.copy()
        for at, which, is_list in self.places:
            value = args[which] if type(which) is int else kwargs[which]
            values[at] = list(value) if is_list else value
        return values


def remembering(op, front: Callable) -> Callable:
    """`front`, which runs `op`, with a short cut for calls like one before."""
    known: dict[tuple, Any] = {}  # -> a Settled, ITSELF, None: it is to be run, or 0: seen once

    def with_memory(*args, **kwargs):
        if modes.special:
            return front(*args, **kwargs)
        seen = look(args, kwargs)
        if seen is None:
            return front(*args, **kwargs)
        looked_up, tensors, given, needs = seen
        found = known.get(looked_up, 0)
        if not found:
            if found is not None and looked_up in known:
                return _watched(op, known, looked_up, front, args, kwargs)
            if found is not None:
                _seen(known, looked_up)
            return front(*args, **kwargs)
        if found is ITSELF:
            return tensors[0]
        watched = watching  # read once: other threads begin and end to watch in between
        if found.order is not None:
            given, tensors = [given[i] for i in found.order], [tensors[i] for i in found.order]
        try:
            made = NotImplemented if found.ready is None else found.ready(*given)
            if made is NotImplemented:
                if found.which == 0 and not needs and not watched and found.op.alone is not None:
                    return wrap(found.op.alone(*found.with_arrays(given)))
                made = computed(found.op, found.with_arrays(given))
        except MemoryError as problem:  # NumPy's own: programs that try a smaller batch next catch RuntimeError
            raise memory_guard.as_ours(problem) from None
        if type(made) is ndarray and not needs and not watched and made.size:
            return wrap(made)
        if type(made) is ndarray:
            result = whole = wrap(made if made.size else as_array(made))
            results = (result,)
        else:
            several = type(made) is tuple or isinstance(made, (tuple, list))
            results = tuple([wrap(as_array(a)) for a in (made if several else (made,))])
            if found.which is not None and not watched:
                result = results[found.which]
            else:
                whole = found.op.result_type(*results) if found.op.result_type is not None else results if several else results[0]
                result = whole if found.which is None else results[found.which]
        if needs and (not modes.paused or state.grad):
            record_settled(found, results, tensors, args, kwargs)
            if found.shown is not None and result._node is not None:
                rename(result._node, found.shown)
        if watched:
            note(found.op, found.with_tensors(args, kwargs), whole)
        return result

    return with_memory


def _seen(known: dict, key: tuple) -> None:
    """Note that there was such a call. The second one is watched: what comes once, as other lengths do in every step, is not worth it."""
    if len(known) >= MOST:
        known.clear()
    known[key] = 0


def computed(op, given: Sequence) -> Any:
    """The array operation, with all arguments in the order of its parameters."""
    n = op.n_positional
    if n == len(op.parameters):
        return op.forward(*given)
    return op.forward(*given[:n], **dict(zip(op.parameters[n:], given[n:], strict=True)))


def remembering_choice(op, front: Callable) -> Callable:
    """`front`, which runs the in-place form of what the choice `op` names, with a short cut for calls like one before."""
    known: dict[tuple, tuple | None] = {}
    choose, names = op.forward, frozenset(op.parameters)

    def with_memory(*args, **kwargs):
        if modes.special or not args or type(args[0]) not in PLAIN or (kwargs and not names.issuperset(kwargs)):
            return front(*args, **kwargs)
        seen = look(args, kwargs)
        if seen is None:
            return front(*args, **kwargs)
        looked_up, tensors, given, needs = seen
        found = known.get(looked_up, 0)
        if not found:
            if found is None or list in map(type, given):
                return front(*args, **kwargs)
            chosen, *operands = choose(*args, **kwargs)
            if len(known) >= MOST:
                known.clear()
            known[looked_up] = _template(chosen, operands, args, kwargs)
            return chosen.call_inplace(*operands)
        chosen, template, places, ready = found
        at_once = ready is not None and not args[0]._inference and not (needs and state.grad) and not _shared(tensors)
        if at_once and ready(*given) is not NotImplemented:
            args[0]._bump()
            return args[0]
        operands = template.copy()
        for at, which in places:
            operands[at] = args[which] if type(which) is int else kwargs[which]
        return chosen.call_inplace(*operands)

    return with_memory


def _shared(tensors: Sequence[Tensor]) -> bool:
    """Whether another tensor looks at the memory of the first: whether that may be written to then, is to be asked."""
    first = tensors[0]
    storage = first._storage
    return any([t is first or (storage is not None and t._storage is storage) for t in tensors[1:]])


def _template(chosen, operands: list, args: tuple, kwargs: dict) -> tuple | None:
    """(operation, its operands but for tensors, where these come from, what writes at once), if all of them were arguments of the call,
    and no two the same."""
    given = [(name, v) for name, v in (*enumerate(args), *kwargs.items()) if isinstance(v, Tensor)]
    places = [(at, name) for at, v in enumerate(operands) if isinstance(v, Tensor) for name, g in given if g is v]
    if len(places) != sum(isinstance(v, Tensor) for v in operands) or len({id(v) for _, v in given}) != len(given):
        return None
    ready = None
    if chosen.kind == "array" and chosen.prepare_write is not None and [name for _, name in places] == [name for name, _ in given]:
        bare = [v._array if isinstance(v, Tensor) else v for v in operands]
        if all([type(v._array) is ndarray for _, v in given]) and 0 not in bare[0].strides:
            ready = chosen.prepare_write(*bare)
    return chosen, [None if isinstance(v, Tensor) else v for v in operands], places, ready


def finish(op, found: Any, values: Sequence, tensors: Sequence[Tensor], pattern: int | None, needs: bool) -> Any:
    """Wrap and record what an array operation computed. `tensors` are those among its arguments, `values`, and `pattern` says
    where, in a digit to the base 64 for each: how many tensors it is, one more if they are a list. None: not to be remembered."""
    if type(found) is ndarray and op.result_type is None:
        result = wrap(found if found.size else as_array(found))
        if needs and op.differentiable and found.dtype.kind in FLOATING:
            record_usual(op, (result,), (result,), values, tensors, pattern if len(tensors) < MOST_TENSORS else None)
        return result
    several = isinstance(found, (tuple, list))
    made = [as_array(a) for a in (found if several else (found,))]
    results = tuple(map(wrap, made))
    if needs and op.differentiable:
        outputs = [r for r, a in zip(results, made, strict=True) if a.dtype.kind in FLOATING]
        if outputs:
            record_usual(op, results, outputs, values, tensors, pattern if len(tensors) < MOST_TENSORS else None)
    if op.result_type is not None:
        return op.result_type(*results)
    return results if several else results[0]


FLOATING = "fcV"  # kinds of NumPy's dtypes; V are bfloat16 and what is smaller still


def as_array(value: Any) -> Any:
    """NumPy answers some 0-d questions with a scalar: an array again. And its empty arrays have strides of 0, which PyTorch's do not."""
    if (type(value) is ndarray or arrays.on_gpu(value)) and value.size:
        return value
    if isinstance(value, generic):
        return asarray(value)
    return value if value.size or 0 not in value.strides else arrays.empty_beside(value, value.shape, value.dtype)


def _watched(op, known: dict, key: tuple, front: Callable, args: tuple, kwargs: dict) -> Any:
    """Run `front`, and note in `known` what it came down to."""
    global watching
    outer, state.arrays_made = state.arrays_made, []
    watching += 1  # see Note [counting without a lock] in modes.py
    try:
        result = front(*args, **kwargs)
        made = state.arrays_made
    finally:
        watching -= 1
        state.arrays_made = outer
    found = None
    sure = len(made) <= 1 and (not callable(op.settled) or op.settled(*args, **kwargs))
    if sure and made:
        found = _settled(made[0], result, args, kwargs)
    if found is not None:
        if op.kind == "composite":  # of an array operation, that is its own name
            shown = op.grad_name(*args, **kwargs) if callable(op.grad_name) else op.grad_name
            found.shown = shown if shown != found.op.node_class.__name__ else None
        found.ready = _ready(found, made[0][1])
    itself = found is None and sure and not made and bool(args) and result is args[0]
    unsure = found is None and sure and _repeats(args, kwargs)  # which tensor went where will be seen when they are different ones
    known[key] = ITSELF if itself else 0 if unsure else found
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
            match = [name for name, v in given if type(v) in (list, tuple) and len(v) == len(value) and all(map(_is, v, value))]
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
    of_tensors = [(name, _tensors_in(v)) for name, v in given if _tensors_in(v)]
    used = sum(map(_tensors_in, values))
    names, used_names = [name for name, _ in of_tensors], [name for _, name, _ in places]
    if sum([n for _, n in of_tensors]) != used or (names != used_names and (set(names) != set(used_names) or used != len(names))):
        return None
    found = Settled(op, kept, places, which, pattern)
    if names != used_names:
        found.order = [names.index(name) for name in used_names]
    return found


def _ready(found: Settled, values: Sequence) -> Callable | None:
    """What does a call: what the operation says it will do with arrays like these, if they are in main memory, or the operation itself."""
    op = found.op
    bare = [v._array if isinstance(v, Tensor) else [t._array for t in v] if type(v) is list else v for v in values]
    first = bare[0][0] if type(bare[0]) is list else bare[0]
    ready = op.prepare(*bare) if op.prepare is not None and type(first) is ndarray else None
    n, m = len(found.places), op.n_positional
    if ready is not None or op.alone is not None or [at for at, _, _ in found.places] != [*range(n)] or n > m:
        return ready
    rest, named, forward = tuple(found.values[n:m]), dict(zip(op.parameters[m:], found.values[m:], strict=True)), op.forward
    if named:
        return lambda *given: forward(*given, *rest, **named)
    return (lambda *given: forward(*given, *rest)) if rest else forward


def _repeats(args: tuple, kwargs: dict) -> bool:
    """Whether a tensor is there twice."""
    given = [id(t) for v in (*args, *kwargs.values()) for t in (v if type(v) in (list, tuple) else (v,)) if isinstance(t, Tensor)]
    return len(set(given)) != len(given)


def _tensors_in(value: Any) -> int:
    """How many tensors an argument is."""
    if isinstance(value, Tensor):
        return 1
    return len(value) if type(value) in (list, tuple) and value and isinstance(value[0], Tensor) else 0


def _is(a: Any, b: Any) -> bool:
    return a is b
