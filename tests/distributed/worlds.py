"""Real processes for tests of `flambeau.distributed`: write a program, run it in every rank, look at what they said.

    outputs = ok(run('''
        import TORCH as torch, TORCH.distributed as dist
        dist.init_process_group("gloo")
        x = torch.ones(3) * dist.get_rank()
        dist.all_reduce(x)
        print(x.tolist())
    '''))
    assert outputs == ["[1.0, 1.0, 1.0]\\n"] * 2

TORCH stands for the framework: `flambeau`, or `torch` where the real one is the oracle (`run_both`).
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# A thread of PyTorch's that still runs when Python ends aborts the process now and then ("terminate called without an active exception").
END_AT_ONCE = """
import os as _os, sys as _sys
_sys.stdout.flush(), _sys.stderr.flush()
_os._exit(0)
"""
TIMEOUT = 90.0  # seconds of a whole world: many times what it needs, on a machine with other work


@dataclass
class Rank:
    """What became of one process."""

    number: int
    stdout: str
    stderr: str
    returncode: int  # minus the signal that ended it
    seconds: float  # from the start of the world to the end of this process

    def __str__(self) -> str:
        return f"rank {self.number} ended with {self.returncode} after {self.seconds:.1f} s\n{self.stdout}{self.stderr}"


class World:
    """Ranks that are running. `finish()` waits for all of them; at a deadline it kills what is left and says who hung."""

    def __init__(
        self,
        program: str,
        ranks: int = 2,
        *,
        env: Mapping[str, str] | None = None,
        framework: str = "flambeau",
        arguments: Sequence[str] = (),
    ):
        self.folder = tempfile.TemporaryDirectory(prefix="world")
        text = re.sub(r"\bTORCH\b", framework, textwrap.dedent(program))
        if framework == "torch":
            text += END_AT_ONCE
        self.program = Path(self.folder.name, "program.py")
        self.program.write_text(text)
        self.started = time.monotonic()
        shared = surroundings(ranks) | dict(env or {})
        self.processes = [self._start(number, shared, arguments) for number in range(ranks)]

    def _start(self, number: int, shared: Mapping[str, str], arguments: Sequence[str]) -> subprocess.Popen[str]:
        out, err = (Path(self.folder.name, f"{number}.{kind}").open("w") for kind in ("out", "err"))  # noqa: SIM115 - the next lines close them
        own = {"RANK": str(number), "LOCAL_RANK": str(number)}
        with out, err:
            return subprocess.Popen(
                [sys.executable, str(self.program), *arguments],
                env={**os.environ, **own, **shared},
                stdout=out,
                stderr=err,
                text=True,
                start_new_session=True,
            )

    def kill(self, number: int, how: int = signal.SIGKILL) -> None:
        """Send a signal to one rank."""
        self.processes[number].send_signal(how)

    def said(self, number: int) -> str:
        """What a rank has printed so far."""
        return Path(self.folder.name, f"{number}.out").read_text()

    def wait_for(self, words: str, number: int, timeout: float = 30.0) -> None:
        """Wait until a rank has printed `words`."""
        deadline = time.monotonic() + timeout
        while words not in self.said(number):
            if self.processes[number].poll() is not None or time.monotonic() > deadline:
                ends = self.finish(timeout=0.0, expect_end=False)
                raise AssertionError(f"rank {number} never said {words!r}\n" + "\n".join(map(str, ends)))
            time.sleep(0.01)

    def finish(self, timeout: float = TIMEOUT, *, expect_end: bool = True) -> list[Rank]:
        """Every rank's end, in the order of ranks. AssertionError if some had to be killed."""
        deadline = self.started + timeout
        ends: dict[int, float] = {}
        while len(ends) < len(self.processes) and time.monotonic() < deadline:
            for number, process in enumerate(self.processes):
                if number not in ends and process.poll() is not None:
                    ends[number] = time.monotonic() - self.started
            time.sleep(0.01)
        hung = [number for number, process in enumerate(self.processes) if process.poll() is None]
        for process in self.processes:  # and whatever they have started
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        found = [
            Rank(
                number,
                *(Path(self.folder.name, f"{number}.{kind}").read_text() for kind in ("out", "err")),
                process.returncode,
                ends.get(number, timeout),
            )
            for number, process in enumerate(self.processes)
        ]
        self.folder.cleanup()
        assert not (hung and expect_end), f"ranks {hung} were still running after {timeout:g} s\n" + "\n".join(map(str, found))
        return found


def run(
    program: str, ranks: int = 2, *, env: Mapping[str, str] | None = None, timeout: float = TIMEOUT, framework: str = "flambeau"
) -> list[Rank]:
    """Run a program in `ranks` processes that find each other through the environment, as a launcher would start them."""
    return World(program, ranks, env=env, framework=framework).finish(timeout)


def run_both(program: str, ranks: int = 2, **options: object) -> tuple[list[str], list[str]]:
    """What the ranks print with Flambeau, and what they print with real PyTorch."""
    return ok(run(program, ranks, **options)), ok(run(program, ranks, framework="torch", **options))  # type: ignore[arg-type]


def ok(ranks: list[Rank]) -> list[str]:
    """The output of ranks that all ended well."""
    assert all(rank.returncode == 0 for rank in ranks), "\n".join(map(str, ranks))
    return [rank.stdout for rank in ranks]


def surroundings(ranks: int) -> dict[str, str]:
    """The environment that all ranks share."""
    return {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
        "FLAMBEAU_DIST_SECRET": secrets.token_hex(16),
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
