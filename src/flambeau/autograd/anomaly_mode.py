"""Anomaly detection: which forward line made the gradient that is NaN, or the node that failed.

Forward is watched as well (see anomaly_forward.py): a NaN or an infinity that comes out of finite operands is a warning there, because a program
may well want it (a mask of -inf, a division it corrects afterwards). A NaN in a gradient is an error, as in PyTorch; an infinity a warning.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from flambeau import modes


def set_anomaly(mode: bool, check_nan: bool = True) -> None:
    """Switch anomaly detection in this thread."""
    mode = bool(mode)
    if mode != modes.state.anomaly:
        from flambeau.autograd.anomaly_forward import looking
        from flambeau.interpreters import stack

        modes.state.anomaly = mode
        modes.enter() if mode else modes.leave()
        stack.push(looking) if mode else stack.remove(looking)
        while stops:
            stops.pop()()
        if mode:
            stops.extend(start() for start in watchers)
    modes.state.check_nan = check_nan


watchers: list[Callable[[], Callable[[], None]]] = []  # who keeps `state.modules` up to date while the mode is on: start() -> stop()
stops: list[Callable[[], None]] = []


set_anomaly_enabled = set_anomaly


def is_anomaly_enabled() -> bool:
    """Whether nodes remember where they were made."""
    return modes.state.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Whether gradients are searched for NaN."""
    return modes.state.check_nan


class set_detect_anomaly:
    """Switch anomaly detection on or off, at once; as a context manager, until its end."""

    def __init__(self, mode: bool, check_nan: bool = True):
        self.before = (modes.state.anomaly, modes.state.check_nan)
        set_anomaly(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc) -> None:
        set_anomaly(*self.before)


class detect_anomaly(set_detect_anomaly):
    """Within it every recorded operation remembers its line; a NaN in a gradient is an error that names it.

    >>> with detect_anomaly():
    ...     pass
    """

    def __init__(self, check_nan: bool = True):
        self.check_nan = check_nan
        warnings.warn("Anomaly Detection has been enabled. It slows everything down, and is meant for debugging.", stacklevel=2)

    def __enter__(self) -> None:
        super().__init__(True, self.check_nan)


def callers() -> list[str]:
    """The program's own lines that led here, as traceback text: the framework's frames are left out at the end."""
    frames = traceback.extract_stack()
    while frames and frames[-1].filename.startswith(_HOME):
        frames.pop()
    return traceback.format_list(frames)


_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Explained:
    """Within it a node of backward runs; what goes wrong there is explained."""

    def __init__(self, node: Any):
        self.node, self.outer = node, modes.state.running

    def __enter__(self) -> None:
        modes.state.running = self.node

    def __exit__(self, kind: Any, problem: BaseException | None, where: Any) -> None:
        if isinstance(problem, Exception):
            explain(self.node)
        modes.state.running = self.outer


def explain(node) -> None:
    """Warn with the forward call of the node in which backward failed, and with that of the node whose backward recorded it, if one did."""
    known = node.metadata_ or {}
    if "traceback_" not in known:
        _warn(f"Error detected in {type(node).__name__}. No forward pass information: it ran outside of detect_anomaly.")
        return
    _warn(f"Error detected in {type(node).__name__}. Here is the forward call that caused the error:\n{''.join(known['traceback_'])}")
    while "parent_" in known:
        parent = known["parent_"]
        known = parent.metadata_ or {}
        where = "".join(known.get("traceback_", ["(no forward pass information)\n"]))
        _warn(f"Previous calculation was induced by {type(parent).__name__}. Traceback of forward call that induced it:\n{where}")


def _warn(words: str) -> None:
    """Warn as if the program's own line that called the framework did."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HOME):
        frame, level = frame.f_back, level + 1
    try:
        warnings.warn(words, stacklevel=level)
    except Warning:  # made an error by the program's filters: it must not take the place of the one it explains
        print(words, file=sys.stderr)


def check(node, sent, received=()) -> None:
    """RuntimeError if a gradient the node sends contains NaN; a warning if it is infinite and what the node received was not."""
    from flambeau.autograd import anomaly_forward as forward

    for i, grad in enumerate(sent or ()):
        if grad is None or not grad._is_float():
            continue
        what = forward.oddity(grad)
        if what == "NaN":
            lines = [f"Function '{node.name()}' returned nan values in its {i}th output.", *_details(node, grad, received)]
            raise RuntimeError("\n".join(lines))
        if what and not any(g is not None and forward.oddity(g) for g in received):
            _warn("\n".join([f"Function '{node.name()}' returned infinite values in its {i}th output.", *_details(node, grad, received)]))


def _details(node, grad, received) -> list[str]:
    """What is known of a node whose gradient went wrong."""
    from flambeau.autograd import anomaly_forward as forward

    known: dict[str, Any] = node.metadata_ or {}
    lines = []
    if known.get("modules_"):
        lines.append(f"    in module      {forward.path_of(known['modules_'])}")
    if known.get("traceback_"):
        first = known["traceback_"][-1].strip().splitlines()
        lines.append(f"    forward call   {first[0].removeprefix('File ')}" + (f": {first[1].strip()}" if len(first) > 1 else ""))
    lines += [f"    received       {forward.range_of(g)}" for g in received if g is not None]
    lines += [f"    {name:<14} {forward.range_of(value)}" for name, value in _saved(node)]
    lines.append(f"    sent           {forward.range_of(grad)}{forward.batch_of(grad)}")
    return lines


def _saved(node):
    """(name, tensor) of what the node saved."""
    for name in dir(type(node)):
        if name.startswith("_saved_"):
            try:
                value = getattr(node, name)
            except (AttributeError, RuntimeError):  # not saved by this call, or changed in place since, which is reported elsewhere
                continue
            if hasattr(value, "_array"):
                yield "saved " + name.removeprefix("_saved_"), value
