"""Plans: what a call comes down to, worked out once.

Programs make the same few calls again and again: the same operation on tensors of the same geometry and dtype, with the same options. The first such call
goes the general way, which is Python; the second goes there too, and is watched: every operation that does work notes what it did (`note`). If all of
it can be told from the call's arguments, the notes become a `Plan`, a list of steps, and from then on compiled code carries the steps out
(kernels/native/csrc/plan.c): look the call up, run the work on arrays, wrap the results, record the nodes.

    step     the operation, what its work takes (tensors of the call, results of earlier steps, constants), what comes out, how it is recorded
    work     a compiled loop, a library's function, or a Python function on arrays; what an operation says beforehand it will do with arrays
             like these (`ArrayOp.work`), if it says it
    history  what a node saves, and how its derivative finds that; worked out when the step is first recorded, for each choice of operands
             that want a gradient

No plan holds a tensor of the program, or its array, and none knows of modes: while an interpreter is active, or a debugger steps, everything goes the
general way. A plan is complete before anybody can find it. `flambeau.plan(function, *args)` shows one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from numpy import ndarray

from flambeau import changes, dtypes, float8, modes
from flambeau.eager import record
from flambeau.kernels import arrays
from flambeau.kernels.native.native import lib, strided_view
from flambeau.ops.results import Kept
from flambeau.tensor import Tensor
from flambeau.tensor.node import rename

state = modes.state
# What an argument of a step's work is, or what a node saves: kernels/native/csrc/plan.c knows these numbers.
VALUE, LIST, ARGUMENT, CAST, RESULT, CONSTANT_RESULT, FRESH, ORIGINAL = (1000 * i for i in range(1, 9))
MAKES, VIEWS, WRITES = range(3)
NUMBER = NOTHING = -1  # in the place of an operand of a formula that is no tensor
MOST = 48  # tensors of a call and of its steps together
FLOATING = "fcV"  # kinds of NumPy's dtypes; V are bfloat16 and what is smaller still


class Note(NamedTuple):
    """What an operation did that was run the general way."""

    kind: int
    op: Any
    values: Sequence  # its arguments, in order; of a formula: its operands
    results: tuple[Tensor, ...]
    whole: Any  # what it returned
    # Of a formula: (options, dtype it was computed in, dtype of the result); of views: their geometries; of a write: a Write.
    more: Any = None


class Write(NamedTuple):
    """How an operation wrote over a tensor, the first of its arguments.

    run       run(*given): the work
    repeats   whether that tensor may be among the other operands, too
    recorded  whether it has a new history since; or recorded(tensor, *operands), which gives another tensor the same
    """

    run: Callable
    given: Sequence
    repeats: bool = False
    recorded: bool | Callable = False


def note(*about: Any) -> None:
    """Tell whoever is watching in this thread what was done; of nothing at all, that there is no plan for it."""
    notes = state.notes
    if notes is None:
        return
    if about and about[0] == WRITES and notes and notes[-1] is None:
        notes.pop()  # it was said already that memory was written to, but not how
    notes.append(Note(*about) if about else None)


def learn(front: Callable, args: tuple, kwargs: dict, wants: bool, by_kind: int) -> tuple[Any, Any]:
    """(result, plan) of a call; False if there is no plan for such calls. Of the first `by_kind` arguments only
    the kind counts: the plan is to hold for all numbers."""
    notes: list[Note | None] = []
    state.notes = notes
    modes.watching += 1  # see Note [counting without a lock] in modes.py
    try:
        result = front(*args, **kwargs)
    finally:
        modes.watching -= 1
        state.notes = None
    return result, _plan(notes, result, args, kwargs, wants, by_kind)


def _plan(notes: list, result: Any, args: tuple, kwargs: dict, wants: bool, by_kind: int) -> Any:
    """A plan for compiled code, or False."""
    if None in notes:
        return False
    given = list({id(t): t for t in _held((*args, *kwargs.values()))}.values())
    made = Plan(given, args[:by_kind], len(notes), wants)
    try:
        for about in notes:
            made.add(about, result)
        made.end(result)
    except Unplanned:
        return False
    return made.compiled()


def _held(values: Any) -> Iterator[Any]:
    """What has a number: tensors, and what the work of an operation has left to its derivative."""
    for value in values:
        if isinstance(value, Tensor) or type(value) is Kept:
            yield value
        elif type(value) in (list, tuple):
            yield from _held(value)


class Factory:
    """Stands for the operation of a note that says how a tensor was made of nothing: by which function, without arguments."""

    kind, parameters, n_positional, variadic, differentiable = "array", (), 0, None, False
    find_work = first_alone = before = None

    def __init__(self, name: str, make: Callable):
        self.name, self.short, self.forward = name, name, make


class Assignment(Factory):
    """Stands for the operation that copies a result to where the program wants it: out=, x[index] = value. No operand may lie in the same memory."""

    differentiable = True

    def __init__(self, name: str, write: Callable):
        super().__init__(name, write)
        self.write = write


def copying(array: Any) -> Callable:
    """copy(out, source) for `out` like this array."""
    if type(array) is not ndarray or array.dtype.char in float8.CHARS:
        return arrays.write
    into = arrays.CASTS[dtypes.OF_NUMPY[array.dtype].name].launch_into

    def copy(out: Any, source: Any) -> None:
        if into(out, source) is NotImplemented:
            arrays.write(out, source)

    return copy


def note_delivered(out: Tensor, result: Tensor) -> None:
    """Tell whoever is watching that a result was copied to an out= of its shape."""
    copy = copying(out._array)
    note(WRITES, Assignment("out=", copy), (out, result), (), out, Write(copy, (out, result)))


def mark() -> int:
    """How much has been noted so far."""
    return len(state.notes or ())


def note_whole(since: int, *about: Any) -> None:
    """The same as `note`, of what has been noted in parts since the mark."""
    notes = state.notes
    if notes is not None and None not in notes[since:]:
        notes[since:] = [Note(*about)]


def note_made(name: str, make: Callable, result: Tensor) -> None:
    """Tell whoever is watching how a tensor was made."""
    note(MAKES, Factory(name, make), (), (result,), result)


class Unplanned(Exception):
    """There is more to a call than its steps."""


class Plan:
    """What a call comes down to: `steps`, and which of all tensors are its results. Tensors have numbers: those of the call, then those of the steps."""

    def __init__(self, given: Sequence[Tensor], args: tuple, notes: int, wants: bool):
        self.given, self.notes, self.wants = len(given), notes, wants
        self.numbers = {id(t): i for i, t in enumerate(given)}
        self.alive: list[Any] = list(given)  # so that no id is used twice; gone when the plan is made
        self.args = args
        self.steps: list[Step] = []
        self.container: Any = None
        self.codes: tuple[int, ...] = ()

    def add(self, about: Note, result: Any) -> None:
        """One more step."""
        step, only = STEPS[about.kind](self, about), self.notes == 1
        if type(about.op) is Assignment and self.steps and step.writes_for(self.steps[-1], about):
            self.steps.pop()
            del self.numbers[id(self.alive.pop())]
        if only and not self.wants and about.kind == MAKES and about.op.kind == "array":
            step.use_first_alone(about, result)
        if not only and about.kind == MAKES and about.op.kind == "array" and type(about.op) is not Factory:
            _check_shapes(about)
        step.shown = _node_name(about) if self.wants else None
        self.steps.append(step)
        for t in about.results:
            self.number(t)

    def number(self, value: Any) -> int:
        """A number for what has come out of a step."""
        if len(self.alive) >= MOST or id(value) in self.numbers:
            raise Unplanned
        self.numbers[id(value)] = len(self.alive)
        self.alive.append(value)
        return len(self.alive) - 1

    def code(self, value: Any, values: list) -> int:
        """How an argument of work is written down."""
        if isinstance(value, Tensor):
            if id(value) not in self.numbers:
                raise Unplanned
            return self.numbers[id(value)]
        if type(value) is Kept:
            return FRESH + (self.numbers[id(value)] if id(value) in self.numbers else self.number(value))
        if type(value) in (list, tuple) and any(isinstance(v, Tensor) for v in value):
            if not all(v is None or (isinstance(v, Tensor) and id(v) in self.numbers) for v in value):
                raise Unplanned
            values.append(tuple([None if v is None else self.numbers[id(v)] for v in value]))
            return LIST + len(values) - 1
        if _is_data(value):
            raise Unplanned
        values.append(value)
        return VALUE + len(values) - 1

    def end(self, result: Any) -> None:
        """Say what the call returns."""
        several = isinstance(result, (tuple, list))
        if several:
            self.container = type(result)
        items = result if several else (result,)
        if not all(t is None or (isinstance(t, Tensor) and id(t) in self.numbers) for t in items):
            raise Unplanned
        self.codes = tuple([NOTHING if t is None else self.numbers[id(t)] for t in items])

    def compiled(self) -> Any:
        """The plan for compiled code. Nothing of the call is held from here on."""
        self.alive, self.numbers, self.args = [], {}, ()
        return lib.Plan(self, tuple([s.told() for s in self.steps]), self.container, self.codes)


def _check_shapes(about: Note) -> None:
    """Unplanned if the shapes of results depend on what tensors hold: the steps after it were chosen by them."""
    op = about.op
    if op.shape_rule is None:
        raise Unplanned
    try:
        found = op.shape_rule(**dict(zip(op.parameters, map(_without_data, about.values), strict=True)))
    except (NotImplementedError, AttributeError, TypeError, RuntimeError, ValueError):
        raise Unplanned from None
    shapes = [tuple(spec[0]) for spec in (found if isinstance(found, list) else [found])]
    if shapes != [tuple(r._array.shape) for r in about.results]:
        raise Unplanned


def _without_data(value: Any) -> Any:
    if isinstance(value, Tensor):
        return arrays.MetaArray(tuple(value._array.shape), value._array.dtype)
    return [_without_data(v) for v in value] if type(value) in (list, tuple) and any(isinstance(v, Tensor) for v in value) else value


class Step:
    """One operation: `run` is its work; `codes`, `values`, `names` say what that takes.

    tensors   the numbers of the operands that are tensors, in the order of the node's edges
    template  the operation's arguments with numbers in the places of tensors: for recording the general way
    """

    kind = MAKES
    several = False
    names: tuple[str, ...] | None = None
    shown: str | None = None
    written: tuple | Callable | None = None  # of a write that is recorded: the history, and for which operands that want a gradient
    wanted = 0

    def __init__(self, plan: Plan, about: Note):
        self.op, self.n_results = about.op, len(about.results)
        self.first_result = len(plan.alive)
        self.values: list[Any] = []
        self.template = [_numbered(plan, v) for v in about.values]
        self.tensors: tuple[int, ...] = tuple(
            [int(n) for v in self.template for n in (v.numbers if type(v) is _Several else (v,)) if type(n) is _Number]
        )
        self.differentiable: bool = getattr(about.op, "differentiable", True)
        self.floating = sum([1 << i for i, r in enumerate(about.results) if r._array.dtype.kind in FLOATING])
        self.specs = [(tuple(r._array.shape), r.dtype, r.stride()) for r in about.results]

    def told(self) -> tuple:
        """What compiled code is told of it."""
        return (
            self.kind, self.run, tuple(self.codes), tuple(self.values), self.names, len(self.codes) - len(self.names or ()), self.tensors,
            self.n_results, self.several, self.floating, self.differentiable and bool(self.floating or self.kind == WRITES), self.record,
            self.written, self.wanted,
        )  # fmt: skip

    def filled(self, tensors: Sequence[Tensor]) -> list:
        """The operation's arguments again, with these tensors in their places."""
        at = dict(zip(self.tensors, tensors, strict=True))
        return [
            at[v] if type(v) is _Number else [None if n is None else at[n] for n in v.numbers] if type(v) is _Several else v
            for v in self.template
        ]

    def record(self, tensors: tuple, results: tuple, args: tuple, kept: Kept | None) -> tuple | None:
        """Record results the general way; and how compiled code records those of the next call, if it can."""
        values = [kept if v is Kept else v for v in self.filled(tensors)]
        self.record_values(values, results, args)
        outputs = [r for i, r in enumerate(results) if self.floating >> i & 1]
        node = outputs[0]._node
        if node is None:
            return None
        rename(node, self.shown)
        return self.history(node, values, tensors, results)

    def record_values(self, values: list, results: tuple, args: tuple) -> None:
        record.record_array(self.op, results, values)

    def history(self, node: Any, values: list, tensors: tuple, results: tuple) -> tuple | None:
        """(what makes nodes, recipe, what is saved, in codes, values for these, counts, options)"""
        keep, constants = [], []  # type: ignore[var-annotated]
        for (kind, at, _), entry in zip(node.recipe.keep, node.saved or (), strict=True):
            if kind == record.OPERAND:
                keep.append(self.operand(at))
                continue
            if kind == record.OPERANDS:
                keep.append(LIST + len(constants))
                constants.append(self.template[at].numbers)
            elif kind == record.ONE_RESULT:
                outputs = [i for i in range(len(results)) if self.floating >> i & 1]
                if at not in outputs:
                    keep.append(CONSTANT_RESULT + at)
                    continue
                keep.append(RESULT + len(constants))
                constants.append((at, outputs.index(at)))
            elif kind == record.ALL_RESULTS:
                return None
            elif type(entry) is Kept:
                keep.append(FRESH + self.fresh)
                continue
            else:
                keep.append(VALUE + len(constants))
                constants.append(entry)
        return type(node).make, node.recipe, tuple(keep), tuple(constants), getattr(node, "counts", None), None

    def operand(self, at: int) -> int:
        """What a node keeps of an operand, in codes."""
        return int(self.template[at])

    def use_first_alone(self, about: Note, result: Any) -> None:
        """Where nobody asks for more than the first result, or for a gradient, take the work that makes it alone, if the operation has one."""


class _Number(int):
    """Stands for a tensor in a template."""


class _Several(NamedTuple):
    """Stands for a list of tensors in a template."""

    numbers: tuple


def _is_data(value: Any) -> bool:
    """Whether it is made of what tensors hold, and so is another one in every call."""
    return any(map(_is_data, value)) if type(value) in (list, tuple) else hasattr(value, "__array_interface__") or arrays.on_gpu(value)


def _numbered(plan: Plan, value: Any) -> Any:
    if isinstance(value, Tensor):
        return _Number(plan.code(value, []))
    if type(value) in (list, tuple) and any(isinstance(v, Tensor) for v in value):
        plan.code(value, [])
        return _Several(tuple([None if v is None else _Number(plan.numbers[id(v)]) for v in value]))
    return Kept if type(value) is Kept else value


def _node_name(about: Note) -> str | None:
    """What the node shows itself as: composites have names for the last node they make."""
    node = next((r._node for r in about.results if r._node is not None), None)
    return None if node is None else type(node).__name__


class ArrayStep(Step):
    """A function on arrays."""

    def __init__(self, plan: Plan, about: Note):
        op = about.op
        if op.variadic or any(isinstance(v, dict) and type(v) is not Kept for v in about.values):
            raise Unplanned
        unused: list[Any] = []
        codes = [plan.code(v, unused) for v in about.values]  # numbers what is fresh, before the results
        super().__init__(plan, about)
        self.several = type(about.whole) is not Tensor
        self.fresh = next((c - FRESH for c in codes if c >= FRESH), 0)
        bare = [_bare(v) for v in about.values]
        ready = op.find_work(*bare) if op.find_work is not None and type(_first(bare)) is ndarray else None
        self.is_ready = ready is not None
        if ready is not None:
            taken = [v for v in about.values if isinstance(v, Tensor) or (type(v) is list and _bare(v) is not v) or type(v) is Kept]
            self.run = ready
        else:
            taken, self.run = list(about.values), op.forward
            self.names = op.parameters[op.n_positional :] or None
        self.codes = [plan.code(v, self.values) for v in taken]

    def use_first_alone(self, about: Note, result: Any) -> None:
        if not about.results or result is not about.results[0]:
            return
        alone = self.op.first_alone
        if self.is_ready:
            find = self.op.find_first_alone
            alone = None if find is None else find(*map(_bare, about.values))
        if alone is not None:
            self.run, self.several, self.n_results = alone, False, 1


def _bare(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value._array
    if type(value) is list and any(isinstance(v, Tensor) for v in value):
        return [v._array if isinstance(v, Tensor) else v for v in value]
    return value


def _first(bare: list) -> Any:
    return next((v for b in bare for v in (b if type(b) is list else (b,)) if hasattr(v, "dtype")), None)


class FormulaStep(Step):
    """A formula for each element. Operands of other dtypes than that it is computed in are cast on their way."""

    def __init__(self, plan: Plan, about: Note):
        super().__init__(plan, about)
        op, operands = about.op, about.values
        options, key, out_dtype = about.more
        operand_kinds = list(zip(operands, op.kernel.kinds, strict=True))
        arrays_of = [v._array for v, _ in operand_kinds if isinstance(v, Tensor)]
        home = type(arrays_of[0])
        mixed = any(v._array.dtype != key for v, kind in operand_kinds if kind == "T" and isinstance(v, Tensor))
        conditions = [v for v, kind in operand_kinds if kind != "T"]
        if any(type(a) is not home for a in arrays_of) or (conditions and mixed) or not all(map(_is_condition, conditions)):
            raise Unplanned
        self.tensors = tuple([int(n) if type(n) is _Number else NUMBER for n in self.template])
        self.numbers_at = [_at(plan.args, v, i) for i, v in enumerate(operands)]
        self.codes = [self._operand(plan, v, at, key, mixed) for v, at in zip(operands, self.numbers_at, strict=True)]
        self.options = options
        for value in options:
            self.codes.append(plan.code(value, self.values))
        if home is ndarray:
            self.run = op.kernel.launch
        elif mixed or home is not getattr(arrays.cuda_room, "ndarray", None):
            raise Unplanned
        else:
            self.run = arrays.cuda_room.formula(op.kernel, key, out_dtype)

    def _operand(self, plan: Plan, value: Any, at: int | None, key: Any, mixed: bool) -> int:
        from flambeau.eager.pointwise import as_number

        if isinstance(value, Tensor):
            number = plan.code(value, [])
            if value._array.dtype == key or not mixed:
                return number
            self.values.append((number, arrays.CASTS[dtypes.OF_NUMPY[key].name].launch))
            return CAST + len(self.values) - 1
        if at is None:
            self.values.append(as_number(value, dtypes.OF_NUMPY[key]) if mixed else value)
            return VALUE + len(self.values) - 1
        if not mixed:
            return ARGUMENT + at
        kind = dtypes.OF_NUMPY[key]
        self.values.append((-1 - at, lambda number: as_number(number, kind)))
        return CAST + len(self.values) - 1

    def record_values(self, values: list, results: tuple, args: tuple) -> None:
        for i, at in enumerate(self.numbers_at):
            if at is not None:
                values[i] = args[at]
        record.record_pointwise(self.op, results[0], tuple(values), tuple(self.options))

    def history(self, node: Any, values: list, tensors: tuple, results: tuple) -> tuple | None:
        return _history_of_formula(self, node, values, self.numbers_at, self.options)


def _history_of_formula(step: Step, node: Any, values: Sequence, numbers_at: Sequence, options: Sequence) -> tuple:
    keep, constants = [], []  # type: ignore[var-annotated]
    for at in node.recipe.keep:
        if at == record.RESULT:
            keep.append(RESULT + len(constants))
            constants.append((0, 0))
        elif type(step.template[at]) is _Number:
            keep.append(step.operand(at))
        elif numbers_at[at] is not None:
            keep.append(ARGUMENT + numbers_at[at])
        else:
            keep.append(VALUE + len(constants))
            constants.append(values[at])
    return type(node).make, node.recipe, tuple(keep), tuple(constants), None, tuple(options) or None


def _is_condition(value: Any) -> bool:
    return isinstance(value, Tensor) and value._array.dtype.kind == "b"


def _at(args: tuple, value: Any, i: int) -> int | None:
    """Which of the arguments that count by their kind alone an operand is, if it is a number; None if it is none of them."""
    if isinstance(value, Tensor) or not args:
        return None
    found = [at for at, v in enumerate(args) if v is value]
    if i in found:
        return i
    if len(found) != 1:
        raise Unplanned  # a plan for all numbers cannot be made of one that has changed on its way
    return found[0]


class ViewStep(Step):
    """Views of one tensor: `values` are their geometries."""

    kind = VIEWS

    def __init__(self, plan: Plan, about: Note):
        super().__init__(plan, about)
        input = about.values[0]
        self.codes = [plan.code(input, [])]
        self.several = type(about.whole) is tuple
        self.values = [(tuple(shape), tuple(strides), offset) for shape, strides, offset in about.more]
        self.run = strided_view if type(input._array) is ndarray else arrays.cuda_room.strided_view
        self.differentiable = input._is_float()

    def record_values(self, values: list, results: tuple, args: tuple) -> None:
        if self.several:
            record.record_array(self.op, results, values)
        else:
            record.record_view(self.op, results[0], values[0], tuple(values))


class WriteStep(Step):
    """Work that writes over its first operand. `several`: that may be among the others, too."""

    kind = WRITES

    def __init__(self, plan: Plan, about: Note):
        super().__init__(plan, about)
        how: Write = about.more
        given, first, others = how.given, about.values[0], self.tensors[1:]
        self.run, self.several, self.n_results = how.run, how.repeats, 0
        self.names = self.op.parameters[self.op.n_positional :] or None if len(given) == len(self.op.parameters) else None
        # Of formulas, the tensor that is written to stands in front of the operands, and so there twice.
        numbers_at = [_at(plan.args, v, i - 1) if i <= len(plan.args) else None for i, v in enumerate(given)]
        self.codes = [plan.code(v, self.values) if at is None else ARGUMENT + at for v, at in zip(given, numbers_at, strict=True)]
        written = self.codes[0]
        if written >= plan.given or (written in others and not self.several):
            raise Unplanned
        if plan.notes > 1 and self.run is not getattr(self.op, "write", None):
            raise Unplanned  # it may find that there is more to it when others have been written to
        if callable(how.recorded):
            self.written = how.recorded
            self.wanted = sum([1 << i for i, edge in enumerate(first._node.edges) if edge is not None])
        elif how.recorded:
            if first._node is None or first._node.hooks is not None or first._base is not None or written in others:
                raise Unplanned
            self.record_so(first, about.values, numbers_at[1:])
        elif plan.wants and self.differentiable and any(n >= plan.given for n in others):
            raise Unplanned  # it begins to want a gradient
        if (
            type(self.op) is Assignment and not how.recorded
        ):  # refused if any operand of the call wants a gradient, or lies in the same memory
            self.tensors = (written, *[n for n in range(plan.given) if n != written])

    def writes_for(self, maker: Step, about: Note) -> bool:
        """Whether this step, which copies the only result of another one to where it is wanted, can do its work there, too."""
        out, result = (v._array for v in about.values) if len(about.values) == 2 else (None, None)
        into = getattr(maker.run, "into", None) if maker.kind == MAKES and maker.n_results == 1 and not maker.several else None
        if (
            into is None
            or self.codes[1:] != [maker.first_result]
            or any(c >= FRESH for c in maker.codes)
            or out.dtype != result.dtype
            or out.strides != result.strides
        ):
            return False
        self.run, self.codes, self.values, self.names = into, [self.codes[0], *maker.codes], maker.values, None
        return maker.names is None

    def record_so(self, first: Tensor, values: Sequence, numbers_at: list) -> None:
        """The history that the tensor has now is the one it is to have after every such call."""
        self.n_results = self.floating = 1
        if self.op.kind == "pointwise":
            n = len(self.op.operands)
            self.tensors = tuple([int(v) if type(v) is _Number else NUMBER for v in self.template[:n]])
            self.written = _history_of_formula(self, first._node, values, numbers_at, values[n:])
        else:
            self.written = self.history(first._node, list(values), (), (first,))
        edges = first._node.edges
        self.wanted = sum([1 << i for i, edge in enumerate(edges) if edge is not None])
        if self.written is None or len(edges) != len(self.tensors):
            raise Unplanned

    def operand(self, at: int) -> int:
        return ORIGINAL if at == 0 else super().operand(at)


def _made(plan: Plan, about: Note) -> Step:
    return (FormulaStep if about.op.kind == "pointwise" else ArrayStep)(plan, about)


STEPS: dict[int, Callable[[Plan, Note], Step]] = {MAKES: _made, VIEWS: ViewStep, WRITES: WriteStep}


# -- fronts ----------------------------------------------------------------------------------------------------------------


def front(op: Any, general: Callable, form: str = "plans") -> Callable:
    """The function that runs an operation: by its plans, and otherwise in the `general` way. All functions of one `form` share a table."""
    if lib is None:
        return general
    plans = op.__dict__.get(form)
    if plans is None:
        plans = op.__dict__.setdefault(form, lib.Plans(len(op.operands) if op.kind == "pointwise" else 0))
    made = lib.Front(plans, general, learn, op.before if form == "plans" else None)
    made.__wrapped__ = general
    return made


def furnish() -> None:
    """Tell the compiled part what tensors, storages and nodes are made of. Runs once, at import."""
    if lib is None:
        return
    from flambeau import devices, errors
    from flambeau.eager import array_ops, views
    from flambeau.kernels.native import memory_guard
    from flambeau.ops import formats
    from flambeau.tensor import PLAIN, Size, wrap
    from flambeau.tensor.node import next_sequence
    from flambeau.tensor.storage import Storage

    of_tensor = ("_array", "_base", "_inference", "_needs", "_node", "_nr", "_stamp", "_storage", "_view_mode")
    functions = (
        wrap, views._wrap_view, record.store, next_sequence, array_ops.as_array, record.share, Kept, memory_guard.as_ours, Tensor._shared_storage,
        arrays.copy,
    )  # fmt: skip
    lasting = {dtypes.dtype, devices.device, formats.memory_format}
    changes.listeners.append(lib.forget_plans)
    changes.not_again.append(note)
    classes = (Tensor, Size, Storage, record.OpNode)
    lib.furnish(
        classes,
        PLAIN,
        lasting,
        functions,
        errors._PACKAGE,
        vars(sys.modules[modes.__name__]),
        state,
        (*of_tensor, "version", "changed_at", "saved"),
    )
