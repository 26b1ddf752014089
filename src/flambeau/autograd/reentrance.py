"""Backward inside of backward inside of backward: where a Function's backward calls backward() in turn, without an end in sight.

Each call lies on Python's stack, which holds a thousand frames. A new thread has a stack of its own, so every so often one goes on there, while
this one waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flambeau.autograd import modes

DEEPEST = 60  # Functions inside each other on one stack: each takes about seven frames, and the program some of its own


def run(function: Callable, args: Any) -> Any:
    """function(*args), on a stack with room for it."""
    state = modes.state
    state.nested += 1
    try:
        return function(*args) if state.nested % DEEPEST else _elsewhere(function, args)
    finally:
        state.nested -= 1


def _elsewhere(function: Callable, args: Any) -> Any:
    """function(*args) in a thread with the modes of this one."""
    here = modes.state.__dict__

    def there() -> Any:
        modes.state.__dict__.update(here)
        try:
            return function(*args)
        finally:
            here.update(modes.state.__dict__)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(there).result()
