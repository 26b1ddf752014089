"""Backward inside of backward inside of backward: where a Function's backward calls backward() in turn, without an end in sight.

Each call lies on Python's stack, which holds a thousand frames. A new thread has a stack of its own, so every so often one goes on there, while
this one waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
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
    modes_here, found, problems = modes.state.__dict__, [], []

    def there() -> None:
        modes.state.__dict__.update(modes_here)
        try:
            found.append(function(*args))
        except BaseException as problem:
            problems.append(problem)
        modes_here.update(modes.state.__dict__)

    thread = threading.Thread(target=there, name="backward")
    thread.start()
    thread.join()
    if problems:
        raise problems[0]
    return found[0]
