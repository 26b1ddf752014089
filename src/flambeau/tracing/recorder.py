"""The notes of a profiler: one tuple per operation, per node of backward, per range of the program.

While a thread is profiled, its Recorder is on the stack of interpreters. An operation that has no parts worth showing runs with the recorder taken
off, on the hot path it would have taken; during a composite it stays, and the parts come here in turn. Nothing is interpreted here:
`events.build` does that when somebody looks.

    (start, end, kind, what, line, more)     times in ns; line is (code object, offset in it) of the program; more depends on the kind

Note [six entries a note]: while a profile runs, notes stand one after the other in one list, without the tuples. Tuples that stay would keep Python's
garbage collector busy, which looks at all that was made of late, and after tens of thousands at everything there is.

Note [lines of quick operations]: finding the line of the program means walking up the calls, which takes longer than a small operation. So it is
looked up for the first calls of each, and else only while all looking up has taken less than a two-hundredth of the time, or, for operations that
take over 150 us, less than a hundredth; unless stacks are wanted: then always.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from time import perf_counter_ns as now
from typing import Any

from flambeau import modes
from flambeau.interpreters import stack
from flambeau.tensor import PLAIN, Tensor
from flambeau.tracing import names
from flambeau.tracing.kinds import NODE, OPERATION, RANGE

state = modes.state
_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Code of the framework and of the program, by id (the hash of a code object reads all of it), and kept alive so that ids stay theirs.
_ours: dict[int, Any] = {}
_theirs: dict[int, Any] = {}
MODES = {"dropout": 2, "dropout1d": 2, "dropout2d": 2, "dropout3d": 2, "alpha_dropout": 2, "batch_norm": 5}  # where `training` is passed
SLOW = 150_000  # ns
WHOLE = frozenset(
    "sum mean clone contiguous amax amin max min cross_entropy nll_loss".split()
)  # composites that come down to one operation
WIDTH = 6  # entries of a note
_whole: dict[Any, bool] = {}  # function of an operation -> whether it has no parts worth showing
watchers: list[Callable[[], Callable[[], None]]] = []  # others with something to note, such as modules: start() -> stop()


class Recorder(stack.Interpreter):
    """Notes of one thread, from `start` to `stop`."""

    level, stays, by_operations = stack.PROFILE, True, False

    def __init__(self, shapes: bool = False, memory: bool = False, stacks: bool = False, modules: bool = False, device: bool = False):
        self.shapes, self.stacks, self.modules = shapes, stacks, modules
        self.plain = not (shapes or memory or device)  # nothing but times
        self.rows: list = []  # the notes, one after the other: see Note [six entries a note]
        self.note = self.rows.extend
        self.seen: dict[Any, int] = {}  # operation -> how often it was noted, as far as that was counted
        self.known: set[Any] = set()  # those noted more than a few times
        self.due = 0  # until when there is nothing to note of a quick, known operation but times
        self.ledger: Any = None
        self.clock: Any = None
        # For `profiler/mistakes.py`: (name, line, whether in training mode, whether gradients were recorded, sequence) of layers that have modes, and
        # (name, line) -> times in ns of slow operations whose operands do not lie in memory in one order.
        self.modal: list[tuple] = []
        self.scattered: dict[tuple, list[int]] = {}
        self.suspects: set[Any] = set()  # the operations among them
        self.thread = threading.get_native_id()
        # What other threads did for this one, such as its collectives: (thread, the thread's name, what, start, end).
        self.elsewhere: list[tuple[int, str, str, int, int]] = []
        self.first = self.last = self.lines_ns = 0
        self._stops: list[Callable] = []
        if memory:
            from flambeau.tracing.memory import Ledger

            self.ledger = Ledger()
        if device:
            from flambeau.tracing.device import Clock

            self.clock = Clock()

    # -- switching

    def start(self) -> None:
        """Note what this thread does from now on."""
        if active() is not None:
            raise RuntimeError("Profiler is already enabled on this thread: a profile inside another one cannot tell whose time it is")
        self._stops = [start() for start in watchers] if self.modules else []
        self.thread = threading.get_native_id()
        self.first = now()
        stack.push(self)

    def stop(self) -> None:
        """Note no more."""
        if self.ledger is not None:
            self.ledger.close()
        self.last = now()
        stack.remove(self)
        for stop in self._stops:
            stop()
        if self.clock is not None:
            self.clock.read()

    # -- noting

    @property
    def notes(self) -> list[tuple]:
        """All notes so far, each (start, end, kind, what, line, more)."""
        return list(zip(*[iter(self.rows)] * WIDTH, strict=True))

    def handle(self, function: Any, args: tuple, kwargs: dict, next: Callable) -> Any:
        """Carry out a call, and note it."""
        op = getattr(function, "op", None)
        if op is None:  # such as one that makes tensors: `event` says what it shows, or tells it from the arguments
            event = getattr(function, "event", None)
            if event is None:
                return next(*args, **kwargs)
            return self.run_whole(next, event(*args) if callable(event) else event, args, kwargs)
        if len(state.stack) == 1 and self.is_whole(function):  # else others may have something to add
            return self.run_whole(next, function, args, kwargs)
        return self.run_parts(function, next, args, kwargs)

    def alone(self, function: Any, body: Callable, args: tuple, kwargs: dict) -> Any:
        """The usual case, without detours: profiles are to be cheap."""
        if _whole.get(function):
            return self.run_whole(function, function, args, kwargs)
        return self.handle(function, args, kwargs, stack.Next(stack.walk, (), function, body, None))

    def run_whole(self, function: Callable, name: Any, args: tuple, kwargs: dict) -> Any:
        """Call something that has no parts worth showing, and note it. `name` is that of the operation, or the function of one."""
        device = None if self.clock is None else self.clock.begin()
        before = state.stack
        without = state.stack = () if len(before) == 1 else stack.left_out(before, self)
        modes.special -= 1  # in place, since this is done for every operation: see Note [counting without a lock]
        start = now()
        try:
            result = function(*args, **kwargs)
        finally:
            end = now()
            if state.stack is without:  # `stack.back`, without the call
                state.stack = before
                modes.special += 1
            else:
                stack.back(self, before, without)
        if end > self.due or end - start > SLOW or name not in self.known:
            line = self.looked_up(name, start, end)
            if end - start > SLOW and (line is not None or name in self.suspects) and is_scattered(args):
                self.suspects.add(name)  # from now on, all calls are looked at
                self.scattered.setdefault((name, line or self.line()), []).append(end - start)
            if not self.plain:
                self.operation(name, start, end, line, args, kwargs, result, device)
                return result
        else:
            line = None
        if type(result) in PLAIN:  # `sequence_of`, without the call
            node = result._node
            sequence = -1 if node is None else node.sequence
        else:
            sequence = sequence_of(result)
        self.note((start, end, OPERATION, name, line, sequence))
        return result

    def run_node(self, node: Any, grads: Any) -> Any:
        """Run a node of backward where there are only times to note. A declared derivative is one event, and runs as it would without a profile;
        a program's own Function has parts."""
        before = without = state.stack
        if getattr(node, "op", None) is not None:
            without = state.stack = () if len(before) == 1 else stack.left_out(before, self)
            modes.special -= 1
        start = now()
        try:
            return node.apply(grads)
        finally:
            self.note((start, now(), NODE, type(node), None, node.sequence))
            stack.back(self, before, without)

    def run_parts(self, function: Callable, forward: Callable, args: tuple, kwargs: dict) -> Any:
        """Call `forward`, which does what the composite `function` does and comes here for each of its parts, and note it."""
        op, rows = function.op, self.rows  # type: ignore[attr-defined]
        before = len(rows)
        device = self.clock.begin() if self.clock is not None else None
        start = now()
        result = forward(*args, **kwargs)
        end = now()
        if len(rows) == before + WIDTH and names.of(rows[-3]) == names.of(function) and op.short not in MODES:
            _whole[function] = True  # its only part is the operation of the same name, and they are one event
        line = self.looked_up(function, start, end) if end > self.due or end - start > SLOW or function not in self.known else None
        if op.short in MODES:
            self._note_mode(op.short, line, args, kwargs, result)
        if self.plain:
            self.note((start, end, OPERATION, function, line, sequence_of(result)))
        else:
            self.operation(function, start, end, line, args, kwargs, result, device)
        return result

    def _note_mode(self, name: str, line, args: tuple, kwargs: dict, result) -> None:
        at = MODES[name]
        training = bool(args[at] if len(args) > at else kwargs.get("training", kwargs.get("train", at == 2)))
        if training == state.grad:  # as it should be
            return
        chance = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
        if at != 2 or chance:
            self.modal.append((name, line or self.line(), training, state.grad, sequence_of(result)))

    def looked_up(self, name: Any, start: int, end: int) -> Any:
        """The line of an operation that ended just now, or None: see Note [lines of quick operations]."""
        spent, share = self.lines_ns, 100 if end - start > SLOW else 200
        if name in self.known and not self.stacks and end - self.first < spent * share:
            return None
        seen = self.seen[name] = self.seen.get(name, 0) + 1
        if seen == 4:
            self.known.add(name)
        line = self.line()
        self.lines_ns = spent = spent + now() - end
        if self.plain and not self.stacks:
            self.due = self.first + 200 * spent
        return line

    @staticmethod
    def is_whole(function: Any) -> bool:
        """Whether an operation has no parts worth showing: it is computed at once, comes down to one that is, or is a view."""
        known, op = _whole.get(function), function.op
        if known is None:
            composite = op.kind == "composite" and op.short != "sum_to_size"
            known = _whole[function] = not composite or op.short in WHOLE or op.as_view
        return known

    def operation(self, function, start: int, end: int, line, args: tuple, kwargs: dict, result, device=None) -> None:
        """Note an operation that has run."""
        looks = ([_look(v) for v in (*args, *kwargs.values())], tuple(kwargs)) if self.shapes else None
        if self.ledger is not None:
            self.ledger.note(result, (args, kwargs), end)
        if device is not None:
            device = self.clock.end(device, (first_of(result), *args[:2]))
        self.note((start, end, OPERATION, function, line, (sequence_of(result), looks, device)))

    def handle_node(self, node: Any, grads: Sequence, next: Callable) -> list:
        """Run a node of backward, and note it. (The engine notes by itself where there are only times to note.)"""
        device = self.clock.begin() if self.clock is not None else None
        start = now()
        try:
            sent = next(grads)
        finally:
            end = now()
        if self.ledger is not None:
            self.ledger.note(sent, (grads, {}), end)
        if device is not None:
            device = self.clock.end(device, grads)
        looks = [_look(g) for g in grads] if self.shapes else None
        self.note((start, end, NODE, type(node), None, (node.sequence, looks, device)))
        return sent

    def ended(self, start: int, name: str, kind: int = RANGE) -> None:
        """Note a stretch of the program that ends now: `range`, for what every step of training does."""
        self.note((start, now(), kind, name, self.line() if self.stacks else None, None))

    def ended_elsewhere(self, what: str, start: int) -> None:
        """Note what the calling thread, which is another one, has just ended on behalf of this recorder's."""
        thread = threading.current_thread()
        self.elsewhere.append((threading.get_native_id(), thread.name, what, start, now()))

    def range(self, name: str, kind: int = RANGE, more: Any = None) -> Range:
        """Note how long a `with` block takes, under a name."""
        return Range(self, name, kind, more)

    def line(self) -> Any:
        """The line of the program that led here: (code object, offset), or a tuple of these from the innermost on if stacks are wanted."""
        frame: Any = sys._getframe(2)
        if self.stacks:
            frame = sys._getframe(1)
            found = []
            while frame is not None:
                found.append((frame.f_code, frame.f_lasti))
                frame = frame.f_back
            return tuple(found)
        while frame is not None:
            code = frame.f_code
            if id(code) not in _ours:
                if id(code) in _theirs or not is_ours(code):
                    _theirs[id(code)] = code
                    return code, frame.f_lasti
                _ours[id(code)] = code
            frame = frame.f_back
        return None


def active() -> Recorder | None:
    """The recorder of this thread, unless an operation without parts is running."""
    return stack.at(stack.PROFILE)


class Range:
    """A stretch of the program with a name."""

    __slots__ = ("kind", "line", "more", "name", "recorder", "start")

    def __init__(self, recorder: Recorder, name: str, kind: int, more: Any = None):
        self.recorder, self.name, self.kind, self.more = recorder, name, kind, more

    def __enter__(self) -> None:
        self.line = self.recorder.line() if self.recorder.stacks else None
        self.start = now()

    def __exit__(self, *exc: Any) -> None:
        self.recorder.note((self.start, now(), self.kind, self.name, self.line, self.more))


def first_of(result: Any) -> Any:
    """The result of an operation, or the first of several."""
    return result[0] if isinstance(result, (tuple, list)) and result else result


def sequence_of(result: Any) -> int:
    """The number of the node that an operation recorded, -1 if it recorded none."""
    first = result if type(result) in PLAIN else first_of(result)
    node = first._node if isinstance(first, Tensor) else None
    return -1 if node is None else node.sequence


def is_scattered(args: tuple) -> bool:
    """Whether an operand in main memory does not lie row by row. (Where none does, and all in the same way, the way does not matter.)"""
    for v in args:  # the usual case first: this is asked of every slow operation
        if isinstance(v, Tensor) and not getattr(getattr(v._array, "flags", None), "c_contiguous", True):
            break
    else:
        return False
    found = [v._array for v in args if isinstance(v, Tensor) and getattr(v._array, "flags", None) is not None and v._array.size > 4096]
    if not any(not a.flags.c_contiguous and 0 not in a.strides for a in found):
        return False
    return len(found) == 1 or any(a.strides != found[0].strides for a in found)


def is_ours(code: Any) -> bool:
    """Whether this code is the framework's own, or Python's."""
    return code.co_filename.startswith((_HOME, "<frozen")) or code.co_filename.endswith(("contextlib.py", "functools.py"))


def line_of(code: Any, offset: int) -> int:
    """The number of the line at this offset of a code object."""
    for first, last, number in code.co_lines():
        if first <= offset < last and number is not None:
            return number
    return code.co_firstlineno


def _look(value: Any) -> Any:
    """What is remembered of an argument: shape, strides and dtype of a tensor; a plain number itself; None of anything else."""
    if isinstance(value, Tensor):
        array = value._array
        return array.shape, getattr(array, "strides", ()), array.dtype
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_look(v) for v in value]
    return None


def _forget() -> None:
    """A process that was forked in the middle of a profile (a worker of a data loader) has nobody to tell what it does."""
    recorder = active()
    if recorder is not None:
        stack.remove(recorder)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
