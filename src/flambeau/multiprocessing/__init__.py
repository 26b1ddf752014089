"""Python's `multiprocessing`, with tensors that travel between processes as shared memory: what one process writes, the others see.

    import flambeau.multiprocessing as mp

Every name of `multiprocessing` is here. Importing this file teaches its pickler about tensors (`reductions.py`); `spawn` (`spawn.py`) runs
one function in several processes and passes on the first exception.
"""

# ruff: noqa: F401 - names are imported to be public

import multiprocessing
import multiprocessing as _multiprocessing
from multiprocessing import *

from flambeau.multiprocessing import pool, queue, reductions
from flambeau.multiprocessing.reductions import init_reductions
from flambeau.multiprocessing.spawn import (
    ENV_VAR_PARALLEL_START,
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    *_multiprocessing.__all__,
]

_all_sharing_strategies = {"file_descriptor", "file_system"}
_sharing_strategy = "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepted for PyTorch's programs. Memory is always shared by descriptors of blocks without names, which need no cleaning up."""
    global _sharing_strategy
    if new_strategy not in _all_sharing_strategies:
        raise AssertionError(f"there is no sharing strategy {new_strategy!r}, only {sorted(_all_sharing_strategies)}")
    _sharing_strategy = new_strategy


def get_sharing_strategy() -> str:
    """The name given to `set_sharing_strategy`."""
    return _sharing_strategy


def get_all_sharing_strategies() -> set[str]:
    """The names `set_sharing_strategy` takes."""
    return _all_sharing_strategies


init_reductions()
