"""Launchers for tests: start one as a user would, look at what it prints while it runs, and see what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import flambeau

TIMEOUT = 60.0
MARK = "LAUNCHING_TEST"
OURS = ("-m", "flambeau", "run")
REAL = ("-m", "torch.distributed.run")
# Variables that would say that this test itself runs under a launcher.
FOREIGN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "FLAMBEAU_DIST_SECRET", "FLAMBEAU_AS_TORCH", "PYTHONPATH")
SOURCES = str(Path(flambeau.__file__).parents[1])  # the package that is tested, in programs that stand elsewhere, too


@dataclass
class Run:
    """What became of a launcher."""

    stdout: str
    stderr: str
    returncode: int
    seconds: float
    ended: float  # seconds since the epoch

    def since(self, mark: Path) -> float:
        """Seconds from the moment when a worker wrote this file to the end: starting takes how long it takes on a machine with other work."""
        return self.ended - mark.stat().st_mtime

    def __str__(self) -> str:
        return f"the launcher ended with {self.returncode} after {self.seconds:.1f} s\n{self.stdout}\n{self.stderr}"


class Launcher:
    """A launcher that is running. All its descendants carry a mark in their environment, by which they can be found."""

    def __init__(
        self,
        *options: str,
        folder: Path,
        program: str,
        args: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        start: tuple[str, ...] = OURS,
        prefix: tuple[str, ...] = (),
    ):
        self.mark = uuid.uuid4().hex
        script = folder / "program.py"
        script.write_text(textwrap.dedent(program))
        clean = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        surroundings = {**clean, "PYTHONPATH": SOURCES, "OMP_NUM_THREADS": "1", MARK: self.mark, **(env or {})}
        self.files = [(folder / f"{self.mark[:8]}.{kind}").open("w+") for kind in ("out", "err")]
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [*prefix, sys.executable, *start, *options, str(script), *args],
            stdout=self.files[0],
            stderr=self.files[1],
            cwd=folder,
            env=surroundings,
            start_new_session=True,
        )

    def said(self) -> str:
        """What has been printed so far."""
        return Path(self.files[0].name).read_text()

    def wait_for(self, words: str, times: int = 1, timeout: float = 30.0) -> None:
        """Wait until `words` has been printed so often."""
        until = time.monotonic() + timeout
        while self.said().count(words) < times:
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"nobody said {words!r} {times} times\n{self.finish()}")
            time.sleep(0.01)

    def finish(self, timeout: float = TIMEOUT) -> Run:
        """Its end. AssertionError if it had to be killed."""
        hung = False
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            hung = True
            self.end_all()
            self.process.wait()
        seconds, ended = time.monotonic() - self.began, time.time()
        run = Run(*(Path(file.name).read_text() for file in self.files), self.process.returncode, seconds, ended)
        for file in self.files:
            file.close()
        assert not hung, f"still running after {timeout:g} s\n{run}"
        return run

    def alive(self) -> list[int]:
        """The processes that this launcher has left or has still."""
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and self._is_ours(entry)]

    def _is_ours(self, entry: Path) -> bool:
        try:
            return f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes()
        except OSError:
            return False

    def end_all(self) -> None:
        for pid in self.alive():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def leaves_nothing(self, within: float) -> None:
        """Wait until nothing is left; AssertionError after so many seconds."""
        until = time.monotonic() + within
        while left := self.alive():
            if time.monotonic() > until:
                names = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in left]
                self.end_all()
                raise AssertionError(f"left behind: {names}")
            time.sleep(0.02)


def launch(*options: str, folder: Path, program: str, **how: object) -> Run:
    """Run a program with a launcher, to its end."""
    return Launcher(*options, folder=folder, program=program, **how).finish()  # type: ignore[arg-type]


def well(run: Run) -> list[str]:
    """The lines that workers printed, sorted, of a run that ended well."""
    assert run.returncode == 0, str(run)
    return sorted(run.stdout.splitlines())
