"""Where tensors were made: the one thing that cannot be found out afterwards, and so is noted while `record()` is on.

    with flambeau.memory.record():
        loss = model(x).mean()
        print(flambeau.memory.snapshot())

Each call of an operation notes the line of the program, the module that is running, and between which sequence numbers its nodes will lie.
What anomaly detection and a running profiler know of lines is used as well.
"""

from __future__ import annotations

import re
import weakref
from bisect import bisect_right
from typing import Any

from flambeau import errors, modes
from flambeau.interpreters import stack
from flambeau.nn.modules import watched
from flambeau.overrides import TorchFunctionMode
from flambeau.tensor import Tensor
from flambeau.tensor.node import Node, next_sequence
from flambeau.tracing.kinds import OPERATION
from flambeau.tracing.recorder import is_ours

MOST = 200_000  # calls that are remembered: those of several steps, of which only the last can still be in memory

# (first, last sequence number, place, reference to the module) of calls, and the place where an array was made, by its id
_calls: list[tuple[int, int, Any, Any]] = []
_made: dict[int, tuple[Any, Any]] = {}


class record(TorchFunctionMode):
    """Within it, every operation of this thread notes its line and module, for `snapshot()` and for errors about memory."""

    def __enter__(self) -> record:
        self._stop = watched.follow()
        super().__enter__()
        return self

    def __exit__(self, *problem: Any) -> None:
        super().__exit__(*problem)
        self._stop()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        place, first = errors.place(), next_sequence()
        result = func(*args, **(kwargs or {}))
        modules = modes.state.modules
        _calls.append((first, next_sequence(), place, weakref.ref(modules[-1]) if modules else None))
        if len(_calls) > MOST:
            del _calls[: MOST // 2]
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, Tensor):
                _note(tensor._array, place)
        return result


def _note(array: Any, place: Any) -> None:
    key = id(array)
    if key not in _made:
        try:
            _made[key] = weakref.ref(array, lambda _: _made.pop(key, None)), place
        except TypeError:  # a kind of array that cannot be referred to weakly: its line stays unknown
            return


def line_of_array(array: Any) -> str:
    """file:line of the operation that made an array, if that was noted."""
    found = _made.get(id(array))
    return "" if found is None or found[0]() is not array or found[1] is None else errors.line_of(found[1])


class Lines:
    """What is known of nodes: `of(node)` is (file:line, id of the module), empty and 0 where it is not."""

    def __init__(self) -> None:
        self.firsts = [call[0] for call in _calls]
        self.profiled = _profiled()

    def of(self, node: Node) -> tuple[str, int]:
        known = node.metadata_ or {}
        if "traceback_" in known:  # anomaly detection
            found = _FILE.findall("".join(known["traceback_"]))
            modules = known.get("modules_", ())
            return ("{}:{}".format(*found[-1]) if found else ""), id(modules[-1]) if modules else 0
        at = bisect_right(self.firsts, node.sequence) - 1
        if at >= 0 and node.sequence < _calls[at][1]:
            _, _, place, module = _calls[at]
            return "" if place is None else errors.line_of(place), 0 if module is None else id(module())
        place = self.profiled.get(node.sequence)
        return "" if place is None else errors.line_of(place), 0


_FILE = re.compile(r'File "(.*)", line (\d+)')


def _profiled() -> dict[int, Any]:
    """Places by sequence number, from the profiler that is running, if one is."""
    found: dict[int, Any] = {}
    for _, _, kind, _, line, more in getattr(stack.at(stack.PROFILE), "notes", ()):
        if kind == OPERATION and line:
            place = next((p for p in line if not is_ours(p[0])), None) if isinstance(line[0], tuple) else line
            found[more[0] if isinstance(more, tuple) else more] = place
    return found
