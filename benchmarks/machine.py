"""What a number was measured on: processor, cores, memory, system, and which state of this repository."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]


def describe() -> dict[str, Any]:
    """The machine as the JSON file records it. The load average tells a reader whether it was busy with other work."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "memory_bytes": _memory_bytes(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "commit": _commit(),
    }


def usable_cores() -> int:
    """Cores this process may use: the affinity mask, and the quota of the container around it if there is one."""
    allowed = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota = _first_line("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0] != "max":
        allowed = min(allowed, math.ceil(int(quota[0]) / int(quota[1])))
    return max(1, allowed)


def own_process(program: str, *arguments: str) -> Callable[[], float]:
    """A function that runs a Python program in a fresh process, with this path, and gives the number it prints last."""
    path = os.pathsep.join([str(REPOSITORY), *filter(None, sys.path)])

    def read() -> float:
        ran = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
        )
        if ran.returncode:
            raise RuntimeError(ran.stderr.strip().rpartition("\n")[2])
        return float(ran.stdout.split()[-1])

    return read


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _commit() -> str | None:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        asked = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return asked.stdout.strip()


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().partition("\n")[0]
    except OSError:
        return ""
