"""The process of one rank: prepare a case when told to, run it as often as told to, say how long that took.

    parent                          every rank
    ------                          ----------
                                    ("ready", {version, device})   or  ("failed", why)
    ("prepare", name of a case)     ("done", 0.0)                  or  ("failed", why)
    ("run", calls)                  ("done", seconds of all calls, or what a probe found)

All ranks of a world get the same requests, so that what one sends is what another receives. The end of the pipe is the end of the rank.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import timeit
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

from benchmarks.distributed.cases import declared
from benchmarks.worker import first_line


def serve(pipe: Connection, module: str, environment: Mapping[str, str]) -> None:
    """Become the rank that `environment` says, then answer requests until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it closes the pipe
    os.environ.update(environment)  # libraries read it when they are loaded, which has not happened yet
    warnings.simplefilter("ignore")  # the names that PyTorch 2.13 deprecates are those that programs use
    try:
        torch = import_module(module)
        distributed = import_module(f"{module}.distributed")
        distributed.init_process_group("gloo")
        pipe.send(("ready", {"version": getattr(torch, "__version__", "unknown"), "device": "cpu"}))
    except Exception as error:
        pipe.send(("failed", first_line(error)))
        return
    with contextlib.suppress(EOFError, ConnectionError):  # the parent has closed its end
        _answer(pipe, torch)
    distributed.destroy_process_group()


def _answer(pipe: Connection, torch: ModuleType) -> None:
    call: Callable[[], Any] | None = None
    while True:
        request, argument = pipe.recv()
        try:
            value = 0.0
            if request == "prepare":
                call = None  # the previous case's tensors go before the next one's come
                gc.collect()
                case = declared()[argument]
                call = case.body(torch, "cpu", **case.options)
            else:
                assert call is not None, "a run was asked for before a case was prepared"
                if not case.probe:
                    call()  # the other framework had the caches and the cores just now, and a collective begins when all ranks are here
                value = call() if case.probe else timeit.timeit(call, number=argument)
            pipe.send(("done", value))
        except Exception as error:
            pipe.send(("failed", first_line(error)))
