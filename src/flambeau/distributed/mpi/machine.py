"""Machine: which processes share memory and process ids with this one, so that bytes between them need no network.

# Note [what can be reached from outside]
MPI's engine for networks listens at every address of the machine, and takes whoever connects for a rank: it knows no secret. So where all ranks are
on one machine it gets no network at all, and they exchange bytes through shared memory that only their user may open. Ranks on several machines need
the network, which must be one that only trusted machines are on; GLOO_SOCKET_IFNAME names the interfaces that are used, as in PyTorch.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

SHARED_MEMORY = "/dev/shm"
NETWORKS = ("UCX_TLS", "UCX_NET_DEVICES")  # what a user may have said about them; theirs is the last word


def machine() -> str:
    """The same for processes that can open each other's shared memory and see each other's process ids, and for no others."""
    signs = [socket.gethostname(), str(os.getuid())]
    with suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id") as file:
            signs.append(file.read().strip())
        signs += [os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "user", "uts")]
        signs.append(str(os.stat(SHARED_MEMORY).st_dev))
    return " ".join(signs)


def transport(one_machine: bool) -> dict[str, str]:
    """The environment in which MPI starts: see Note [what can be reached from outside]."""
    if any(name in os.environ for name in NETWORKS):
        return {}
    if one_machine:
        return {"UCX_TLS": "self,posix"}
    interfaces = os.environ.get("GLOO_SOCKET_IFNAME")
    return {"UCX_NET_DEVICES": interfaces} if interfaces else {}


def hangup() -> dict[str, str]:
    """The environment in which MPI's library is loaded: its engine for networks would keep SIGHUP for its own debugging, and no rank would end by it."""
    return {} if "UCX_DEBUG_SIGNO" in os.environ else {"UCX_DEBUG_SIGNO": "0"}


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables that are set inside this block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def forget_segments() -> None:
    """Take the names from MPI's shared memory, which all ranks have open by now: it ends with the last of them, however that ends."""
    with suppress(OSError), open("/proc/self/maps") as maps:
        for path in {line.split(maxsplit=5)[-1].strip() for line in maps if f"{SHARED_MEMORY}/mpich_shm_" in line}:
            with suppress(OSError):
                os.unlink(path)
