"""Backward inside of backward inside of backward, where a Function's backward calls backward() in turn, without an end in sight.
Python's stack holds a thousand frames. So every so often one goes on in a thread, which has a stack of its own, while this one waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flambeau import devices
from flambeau.modes import state

DEEPEST = 60  # Functions inside each other on one stack: each takes about seven frames, and the program some of its own


def run(function: Callable, args: Any) -> Any:
    """function(*args), on a stack with room for it."""
    state.nested += 1
    try:
        if state.nested % DEEPEST:
            return function(*args)
        modes = [(kept, kept.__dict__) for kept in (state, devices._state)]  # of which every thread has its own
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(_with_modes, modes, function, args).result()
    finally:
        state.nested -= 1


def _with_modes(modes: list[tuple[Any, dict]], function: Callable, args: Any) -> Any:
    """function(*args) with the modes of the thread that waits."""
    for kept, waiting in modes:
        kept.__dict__.update(waiting)
    try:
        return function(*args)
    finally:
        for kept, waiting in modes:
            waiting.update(kept.__dict__)
