"""MPI in this process: loaded when the first group needs it, started once, for one set of processes.

# Note [one MPI world per process]
MPI starts once in the life of a process and never again. `init_process_group` may be called again after `destroy_process_group`, also with
other ranks: it gets a communicator of the world that is there. A world of other processes would need a second start, which no MPI offers.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from flambeau.distributed.errors import DistBackendError
from flambeau.distributed.mpi import pmi
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
    native: bool


_library: Library | None = None
_starting = threading.Lock()


def started_by_mpi() -> tuple[int, int] | None:
    """(rank, number of ranks) if mpiexec or srun started this process."""
    for rank, size in (("PMI_RANK", "PMI_SIZE"), ("PMIX_RANK", "SLURM_NTASKS"), ("SLURM_PROCID", "SLURM_NTASKS")):
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return None


def communicator(store: Any, rank: int, size: int, name: str, timeout: timedelta) -> tuple[Library, Any]:
    """MPI, started if need be, and a communicator of the ranks that share `store`; rank 0 of them first."""
    with _starting:
        return _communicator(store, rank, size, name, timeout)


def _communicator(store: Any, rank: int, size: int, name: str, timeout: timedelta) -> tuple[Library, Any]:
    global _library
    own = {"world": _library and _library.world, "rank": _world_rank(), "run": uuid.uuid4().hex}
    said = arrive(store, rank, size, f"{name}/worlds", own, timeout)
    worlds = {one["world"] for one in said}
    if worlds == {None}:
        _library = _start(store, rank, size, f"{name}/{said[0]['run']}")
        ranks = [one["rank"] for one in arrive(store, rank, size, f"{name}/ranks", {"rank": _world_rank()}, timeout)]
    elif len(worlds) == 1:
        ranks = [one["rank"] for one in said]
    else:
        strangers = [number for number, one in enumerate(said) if one["world"] is None]
        raise NotImplementedError(
            f"init_process_group: ranks {strangers or 'of this group'} were not part of the group that the others were in before, and MPI starts only once "
            "in a process. Make the largest group first and use new_group() for parts of it, or start new processes"
        )
    assert _library is not None
    return _library, subset(_library, _library.mpi.COMM_WORLD, ranks)


def as_started(rank: int, size: int) -> tuple[Library, Any]:
    """MPI and a communicator of all the ranks that mpiexec or srun has started, which need no store to find each other."""
    global _library
    with _starting:
        if _library is None:
            _library = _start(None, rank, size, "launched")
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


def finish() -> None:
    """Tell an MPI launcher that this process ends as it should. Nobody waits for that where MPI was started by us."""
    if _library is not None and _library.native and not _library.mpi.Is_finalized():
        _binding().MPI_Finalize()


def _start(store: Any, rank: int, size: int, name: str) -> Library:
    """Start MPI: as the launcher's, if one started all these ranks; else with ourselves as its launcher."""
    started = started_by_mpi() if "PMI_FD" in os.environ or "PMI_PORT" in os.environ else None
    binding = _binding()
    if started and started[1] == size:
        _init(binding)
    elif store is None:
        raise ValueError(
            "init_process_group: these processes were not started by mpiexec or srun, and were given no store to find each other in"
        )
    else:
        with pmi.answering(store, rank, size, name) as answerer:
            try:
                _init(binding)
            except DistBackendError:
                raise (answerer.problem or DistBackendError("MPI did not start")) from None
    mpi = _mpi4py()
    mpi.COMM_WORLD.Set_errhandler(mpi.ERRORS_RETURN)
    test = ctypes.cast(binding.MPI_Test, ctypes.c_void_p).value
    assert test is not None
    return Library(mpi, name, Waiter(mpi, test), native=bool(started))


def _init(binding: ctypes.CDLL) -> None:
    """MPI_Init_thread, through ctypes because that lets other threads run meanwhile: one of them answers MPI's questions."""
    provided = ctypes.c_int()
    if error := binding.MPI_Init_thread(None, None, THREAD_MULTIPLE, ctypes.byref(provided)):
        raise DistBackendError(f"MPI_Init_thread failed with error {error}")
    if provided.value != THREAD_MULTIPLE:
        raise DistBackendError("this MPI cannot be called from several threads, which groups do: pip install mpich has one that can")


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
        from mpi4py import MPI
    except (ImportError, RuntimeError) as problem:
        raise RuntimeError(f"{MISSING}. mpi4py is there, but finds no library: {problem}") from None
    return MPI


@cache
def _binding() -> ctypes.CDLL:
    """The functions of the library that mpi4py is linked to, for calls it cannot make as we need them."""
    return ctypes.CDLL(_mpi4py().__file__)
