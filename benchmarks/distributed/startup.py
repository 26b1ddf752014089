"""What a world costs before its first step: from the launch to the end of the first all_reduce in every rank."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, perf_counter

from benchmarks.distributed.cases import launch
from benchmarks.distributed.world import RANKS, TIMEOUT_SECONDS, surroundings

PROGRAM = Path(__file__).with_name("first_all_reduce.py")


@launch(wanted=None)
def by_hand(package):
    """Two Pythons, started with RANK and the rest of it in their environment."""

    def read():
        world = surroundings(threads=1)
        commands = [[sys.executable, str(PROGRAM), package]] * RANKS
        return until_done(commands, [world | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(RANKS)])

    read()  # the first import reads the disk and may write bytecode
    return read


@launch(wanted=None)
def by_spawn(package):
    """The same by multiprocessing.spawn(), the parent's start included."""

    def read():
        return until_done([[sys.executable, str(PROGRAM), package, "spawn"]], [surroundings(threads=1)])

    read()
    return read


@launch(wanted=None)
def by_launcher(package):
    """The same by `torchrun` and `flambeau run`, the launcher's own start included."""
    launcher = ["torch.distributed.run"] if package == "torch" else [package, "run"]
    command = [sys.executable, "-m", *launcher, f"--nproc_per_node={RANKS}", str(PROGRAM), package]

    def read():
        return until_done([command], [{"OMP_NUM_THREADS": "1"}])

    read()
    return read


def until_done(commands: Sequence[Sequence[str]], environments: Sequence[dict[str, str]]) -> float:
    """Seconds from here until every rank has said that it is done."""
    ours, theirs = os.pipe()
    began = perf_counter()
    processes = [
        subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=os.environ | environment, start_new_session=True)
        for command, environment in zip(commands, environments, strict=True)
    ]
    os.close(theirs)
    try:
        heard(ours)
        return perf_counter() - began
    except EOFError:
        said = [process.communicate()[1].decode().strip().rpartition("\n")[2] for process in processes]
        raise RuntimeError(next(filter(None, said), "the ranks ended before their first all_reduce")) from None
    finally:
        os.close(ours)
        for process in processes:
            end(process)


def heard(pipe: int) -> None:
    """Wait for a line from every rank."""
    deadline, text = monotonic() + TIMEOUT_SECONDS, b""
    while text.count(b"done") < RANKS:
        if not select.select([pipe], [], [], max(0.0, deadline - monotonic()))[0]:
            raise TimeoutError(f"no first all_reduce within {TIMEOUT_SECONDS:g} s")
        more = os.read(pipe, 4096)
        if not more:
            raise EOFError
        text += more


def end(process: subprocess.Popen[bytes]) -> None:
    """A moment to leave by itself, then all that it has started goes with it."""
    try:
        process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
