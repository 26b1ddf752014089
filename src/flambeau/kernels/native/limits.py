"""What this process may use of the machine: CPUs and memory, within what affinity and containers allow."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from math import ceil, inf

CGROUPS = "/sys/fs/cgroup"


def threads() -> int:
    """How many threads share large work unless a program says otherwise: the environment decides, else there is one for each CPU."""
    for name in ("FLAMBEAU_NUM_THREADS", "OMP_NUM_THREADS"):
        first = os.environ.get(name, "").partition(",")[0].strip()  # "4,2" are the levels of nested OpenMP
        if first.isdigit() and int(first) > 0:
            return int(first)
    return cpus()


def cpus() -> int:
    """CPUs this process may use: affinity, and the container's quota rounded up; at least 1."""
    return max(1, ceil(min(affinity(), cpu_quota())))


def affinity() -> int:
    """CPUs the system may run this process on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quota() -> float:
    """CPUs' worth of time the container may use; infinity without a limit."""
    return min(map(_cpu_quota, _directories("cpu")), default=inf)


def memory() -> float:
    """Bytes this process may use: what is installed, or the container's limit."""
    return float(min(installed_memory(), memory_limit()))


def installed_memory() -> int:
    """Bytes of the machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@lru_cache(None)
def swap() -> float:
    """Bytes on disks that the machine may put memory in."""
    return next((1024 * number for name, number in _named("/proc", "meminfo") if name == "SwapTotal:"), 0.0)


def memory_limit() -> float:
    """Bytes the container may use; infinity without a limit."""
    return min(map(_memory_limit, _directories("memory")), default=inf)


def memory_left() -> float:
    """Bytes that may still be used before the container's limit is reached, which kills; infinity without a limit.

    What the system can take back by itself, files it has read and swap, counts as left.
    """
    return min(map(_memory_left, _limited()), default=inf)


@lru_cache(None)
def _limited() -> tuple[str, ...]:
    """The control groups that limit this process's memory. Found once: it is asked for each large piece of memory."""
    return tuple(directory for directory in _directories("memory") if _memory_limit(directory) < inf)


def _memory_left(directory: str) -> float:
    used = _numbers(directory, "memory.current") or _numbers(directory, "memory.usage_in_bytes")
    if not used:
        return inf
    stat = dict(_named(directory, "memory.stat"))
    files = sum(stat.get(f"total_{name}", stat.get(name, 0)) for name in ("inactive_file", "active_file", "slab_reclaimable"))
    return _memory_limit(directory) - used[0] + files + _swap_left(directory)


def _swap_left(directory: str) -> float:
    # Version 2 limits swap by itself, version 1 memory and swap together; and no more can be used than there is.
    free = next((1024 * number for name, number in _named("/proc", "meminfo") if name == "SwapFree:"), 0)
    limit, used = _numbers(directory, "memory.swap.max"), _numbers(directory, "memory.swap.current")
    if not limit:
        limit, used = _numbers(directory, "memory.memsw.limit_in_bytes"), _numbers(directory, "memory.memsw.usage_in_bytes")
        if limit and used:
            limit = [limit[0] - _memory_limit(directory)]
            used = [max(0.0, used[0] - sum(_numbers(directory, "memory.usage_in_bytes")))]
    return max(0.0, min(free, limit[0] - used[0])) if limit and used else 0.0


def _named(directory: str, file: str) -> Iterator[tuple[str, float]]:
    """(name, number) of each line of a file that starts with these."""
    try:
        with open(f"{directory}/{file}") as lines:
            for line in lines:
                name, number = (*line.split(), "", "")[:2]
                if number.isdigit():
                    yield name, float(number)
    except OSError:
        return


def resident() -> tuple[int, int]:
    """Bytes of this process that are in main memory, now and at most; 0 where the system does not say."""
    status = dict(_named("/proc/self", "status"))
    if "VmHWM:" in status:
        return int(status["VmRSS:"]) * 1024, int(status["VmHWM:"]) * 1024
    try:
        import resource
    except ImportError:
        return 0, 0
    return 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def address_space() -> float:
    """Bytes of addresses this process may use: `ulimit -v`. Infinity without a limit."""
    try:
        import resource
    except ImportError:
        return inf
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return inf if soft == resource.RLIM_INFINITY else float(soft)


def _cpu_quota(directory: str) -> float:
    # Version 2 writes "150000 100000" (quota, period) or "max 100000", version 1 a file for each (quota -1: no limit).
    found = _numbers(directory, "cpu.max") or _numbers(directory, "cpu.cfs_quota_us") + _numbers(directory, "cpu.cfs_period_us")
    return found[0] / found[1] if len(found) == 2 and found[0] > 0 else inf


def _memory_limit(directory: str) -> float:
    # Where there is no limit, version 2 writes "max" and version 1 a number near 2^63.
    found = _numbers(directory, "memory.max") or _numbers(directory, "memory.limit_in_bytes")
    return found[0] if found and found[0] < 2**60 else inf


def _numbers(directory: str, name: str) -> list[float]:
    """The numbers in a file; none if there is no such file."""
    try:
        with open(f"{directory}/{name}") as file:
            return [inf if word == "max" else float(word) for word in file.read().split()]
    except (OSError, ValueError):
        return []


def _directories(controller: str) -> Iterator[str]:
    """The control groups this process is in, each followed by its parents.

    Lines of /proc/self/cgroup read "4:cpu,cpuacct:/a/b" (version 1) or "0::/a/b" (version 2). Inside a container the path may be the
    host's and not exist here; going up to the root of the mount finds the container's own limit.
    """
    try:
        with open("/proc/self/cgroup") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            root = f"{CGROUPS}/{controller}" if controllers else CGROUPS
            names = [name for name in path.split("/") if name]
            for depth in range(len(names), -1, -1):
                yield "/".join([root, *names[:depth]])
