"""MPI in this process: loaded when the first group needs it, and started for one set of processes.

`init_process_group` may be called again after `destroy_process_group`: if all its ranks were in the last world, it gets a communicator of that.
Otherwise a further MPI is started beside it, because none starts twice: see Note [one MPI, several worlds] in copies.py.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import sys
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from flambeau.distributed.errors import DistBackendError
from flambeau.distributed.mpi import copies, pmi
from flambeau.distributed.mpi.machine import environment, forget_segments, hangup, machine, transport
from flambeau.distributed.mpi.posting import Posting
from flambeau.distributed.mpi.started import started_by_mpi
from flambeau.distributed.mpi.waiting import Waiter
from flambeau.distributed.stores.arrival import wait_for

THREAD_MULTIPLE = 3
MISSING = "process groups on CPUs need MPI: pip install 'flambeau[dist]' (mpi4py and mpich)"


@dataclass
class Library:
    """The MPI of this process.

    mpi     mpi4py's module
    world   the name of the world it was started with: equal in all its processes, and in no others
    native  whether an MPI launcher (mpiexec, srun) started this world, and waits for it to end properly
    """

    mpi: Any
    world: str
    waiter: Waiter
    posting: Posting
    native: bool


_library: Library | None = None  # the newest
_starting = threading.Lock()
_inherited = False  # whether this process was forked from one that had started MPI


def _forked() -> None:
    global _library, _starting, _inherited
    mpi = sys.modules.get("mpi4py.MPI")
    _inherited = _inherited or bool(mpi and mpi.Is_initialized())
    _library, _starting = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def communicator(store: Any, rank: int, size: int, name: str, timeout: timedelta) -> tuple[Library, Any]:
    """MPI, started if need be, and a communicator of the ranks that share `store`; rank 0 of them first."""
    with _starting:
        return _communicator(store, rank, size, name, timeout)


def _communicator(store: Any, rank: int, size: int, name: str, timeout: timedelta) -> tuple[Library, Any]:
    global _library
    own = {"world": _library and _library.world, "rank": _world_rank(), "run": uuid.uuid4().hex, "machine": machine()}
    said = arrive(store, rank, size, f"{name}/worlds", own, timeout)
    worlds = {one["world"] for one in said}
    if len(worlds) == 1 and None not in worlds:
        ranks = [one["rank"] for one in said]
    else:
        one_machine = len({one["machine"] for one in said}) == 1
        _library = _start(store, rank, size, f"{name}/{said[0]['run']}", one_machine)
        ranks = [one["rank"] for one in arrive(store, rank, size, f"{name}/ranks", {"rank": _world_rank()}, timeout)]
    assert _library is not None
    return _library, subset(_library, _library.mpi.COMM_WORLD, ranks)


def as_started(rank: int, size: int) -> tuple[Library, Any]:
    """MPI and a communicator of all the ranks that mpiexec or srun has started, which need no store to find each other."""
    global _library
    with _starting:
        if _library is None:
            _library = _start(None, rank, size, "launched", os.environ.get("MPI_LOCALNRANKS") == str(size))
        return _library, subset(_library, _library.mpi.COMM_WORLD, range(size))


def arrive(store: Any, rank: int, size: int, key: str, own: dict, timeout: timedelta) -> list[dict]:
    """What every rank says, when all have; who is late is named soon, who never comes at the end."""
    store.set(f"{key}/{rank}", json.dumps(own))
    keys = {number: f"{key}/{number}" for number in range(size)}
    late = wait_for(store, keys, timeout, f"init_process_group on rank {rank} of {size}")
    if late:
        raise DistBackendError(
            f"init_process_group: of {size} ranks, these did not arrive within {timeout.total_seconds():g} s: {late}\n"
            f"    try      start them, or check that every process was told WORLD_SIZE={size}"
        )
    return [json.loads(said) for said in store.multi_get(list(keys.values()))]


def subset(library: Library, comm: Any, ranks: Sequence[int], tag: int = 0) -> Any:
    """A communicator of some ranks of another one, in this order. All of them, and only they, call this."""
    everyone = comm.Get_group()
    chosen = everyone.Incl(ranks)
    made = comm.Create_group(chosen, tag)
    made.Set_errhandler(library.mpi.ERRORS_RETURN)
    chosen.Free()
    everyone.Free()
    return made


def finish(mpi: Any) -> None:
    """Tell an MPI launcher that this process ends as it should: else it ends the others. After an error it may do so."""
    if not mpi.Is_finalized() and getattr(sys, "last_value", None) is None:
        _binding(mpi).MPI_Finalize()


def _start(store: Any, rank: int, size: int, name: str, one_machine: bool) -> Library:
    """Start MPI: as the launcher's, if one started all these ranks; else with ourselves as its launcher."""
    mpi = _mpi4py()
    launched = _launched()
    if native := launched == size:
        if not mpi.Is_initialized():
            _init(mpi, one_machine)
            atexit.register(finish, mpi)
    elif store is None:
        raise ValueError(
            "init_process_group: these processes were not started by mpiexec or srun, and were given no store to find each other in"
        )
    else:
        if mpi.Is_initialized() or launched:  # the launcher's world may be wanted later
            mpi = copies.another(mpi)
        with pmi.answering(store, rank, size, name) as answerer:
            try:
                _init(mpi, one_machine)
            except DistBackendError as problem:
                raise (answerer.problem or problem) from None
    if mpi.Query_thread() != THREAD_MULTIPLE:
        raise DistBackendError(
            "this MPI cannot be called from several threads, which groups do\n"
            "    try      pip install mpich, which can; or leave mpi4py.rc.thread_level at 'multiple', if the program starts MPI itself"
        )
    mpi.COMM_WORLD.Set_errhandler(mpi.ERRORS_RETURN)
    test = ctypes.cast(_binding(mpi).MPI_Test, ctypes.c_void_p).value
    assert test is not None
    return Library(mpi, name, Waiter(mpi, test), Posting(mpi, _binding(mpi)), native)


def _launched() -> int | None:
    """How many ranks mpiexec or srun started, if this process is one of them and can speak to the launcher."""
    started = started_by_mpi() if "PMI_FD" in os.environ or "PMI_PORT" in os.environ else None
    return started[1] if started and not _inherited else None


def _init(mpi: Any, one_machine: bool) -> None:
    """MPI_Init_thread, through ctypes because that lets other threads run meanwhile: one of them answers MPI's questions."""
    with environment(transport(one_machine)):
        if error := _binding(mpi).MPI_Init_thread(None, None, THREAD_MULTIPLE, ctypes.byref(ctypes.c_int())):
            raise DistBackendError(f"MPI_Init_thread failed with error {error}")
    forget_segments()


def _world_rank() -> int | None:
    return None if _library is None else _library.mpi.COMM_WORLD.Get_rank()


@cache
def _mpi4py() -> Any:
    """mpi4py's module, told to leave starting and ending to us."""
    try:
        import mpi4py
    except ImportError:
        raise RuntimeError(MISSING) from None
    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    try:
        with environment(hangup()):
            from mpi4py import MPI
    except (ImportError, RuntimeError) as problem:
        raise RuntimeError(f"{MISSING}. mpi4py is there, but finds no library: {problem}") from None
    return MPI


def _binding(mpi: Any) -> ctypes.CDLL:
    """The functions of the library that mpi4py is linked to, for calls it cannot make as we need them."""
    return getattr(mpi, "_linked", None) or ctypes.CDLL(mpi.__file__)
