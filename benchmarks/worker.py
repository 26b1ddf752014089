"""The process a framework lives in: prepare a case when told to, time one round of it when told to.

    parent                          worker
    ------                          ------
                                    ("ready", {version, device})   or  ("failed", why)
    ("prepare", name of a case)     ("ready", calls in a round)    or  ("failed", why)
    ("round", None)                 ("seconds", of one call)       or  ("failed", why)

Nothing but this file imports a framework, and it does so once per process: no two of them ever share an allocator, a
thread pool or an interpreter. The end of the pipe is the end of the worker.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

from benchmarks.case import declared
from benchmarks.stopwatch import Stopwatch

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def serve(pipe: Connection, module: str, device: str, threads: int | None) -> None:
    """Import `module`, say so, then answer requests until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it closes the pipe
    if threads is not None:
        for variable in THREAD_VARIABLES:  # read when the libraries are loaded, which has not happened yet
            os.environ[variable] = str(threads)
    try:
        framework = importlib.import_module(module)
        pipe.send(("ready", _introduce(framework, device)))
    except Exception as error:
        pipe.send(("failed", first_line(error)))
        return
    with contextlib.suppress(EOFError, ConnectionError):  # the parent has closed its end
        _answer(pipe, framework, device)


def first_line(error: BaseException) -> str:
    """`ValueError: the first line of what it says`."""
    said = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _introduce(framework: ModuleType, device: str) -> dict[str, Any]:
    """Version and device by name. A device that is not there is found out now rather than in every case."""
    introduction = {"version": getattr(framework, "__version__", "unknown"), "device": device}
    if device != "cpu":
        framework.zeros(1, device=device)
        introduction["device"] = framework.cuda.get_device_name(device)
    return introduction


def _answer(pipe: Connection, framework: ModuleType, device: str) -> None:
    synchronize = framework.cuda.synchronize if device != "cpu" else None
    stopwatch: Stopwatch | None = None
    answer: tuple[str, Any]
    while True:
        request, name = pipe.recv()
        try:
            if request == "prepare":
                stopwatch = None  # the previous case's tensors go before the next one's come
                stopwatch = _prepare(name, framework, device, synchronize)
                answer = ("ready", stopwatch.count)
            else:
                assert stopwatch is not None, "a round was asked for before a case was prepared"
                answer = ("seconds", stopwatch.round())
        except Exception as error:
            answer = ("failed", first_line(error))
        pipe.send(answer)


def _prepare(name: str, framework: ModuleType, device: str, synchronize: Callable[[], None] | None) -> Stopwatch:
    gc.collect()
    case = declared()[name]
    framework.manual_seed(0)
    return Stopwatch(case.body(framework, device, **case.options), synchronize)
