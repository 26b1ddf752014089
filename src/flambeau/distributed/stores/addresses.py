"""Where a store listens, given the name under which others will look for it."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress

from flambeau.distributed.errors import DistNetworkError

Address = tuple[socket.AddressFamily, str]

EVERYWHERE: list[Address] = [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")]
BACKLOG = 1024


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an address."""
    return address.startswith("127.") or address == "::1"


def addresses(host: str) -> list[Address]:
    """The addresses of this machine that `host` stands for. A loopback name never leads further than this machine."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as problem:
        raise DistNetworkError(
            f"TCPStore: {host!r} is no address of this machine: {problem.strerror or problem}. "
            f"For processes of one machine use localhost, for several the name or address of the one that hosts the store"
        ) from problem
    unique: list[Address] = list(dict.fromkeys((family, str(where[0])) for family, _, _, _, where in found))
    unique.sort(key=lambda address: address[0] != socket.AF_INET)
    named = is_loopback(host) or host in ("localhost", "localhost.localdomain", "ip6-localhost")
    if not named and all(is_loopback(address) for _, address in unique):
        return EVERYWHERE  # /etc/hosts gives this machine's own name a loopback address, which means something else on the other machines
    return unique


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at `host`, all on the same port; 0 stands for one that is free."""
    wanted = addresses(host)
    try:
        return list(_listening(wanted, port))
    except OSError as problem:
        if problem.errno == errno.EADDRNOTAVAIL and wanted is not EVERYWHERE:  # an address of a router or a container in front of us
            with suppress(OSError):
                return list(_listening(EVERYWHERE, port))
        raise _cannot_listen(host, port, problem) from problem


def _listening(wanted: list[Address], port: int) -> Iterator[socket.socket]:
    """The first address is needed; further ones (the same machine in IPv6) are listened at where that is possible."""
    for number, (family, address) in enumerate(wanted):
        try:
            listener = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            if number == 0:
                raise
            continue
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of the last program may still be fading out
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((address, port))
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            if number == 0:
                raise
            continue
        port = listener.getsockname()[1]
        yield listener


def _cannot_listen(host: str, port: int, problem: OSError) -> DistNetworkError:
    name = errno.errorcode.get(problem.errno or 0, "?")
    advice = {
        errno.EADDRINUSE: "another program listens there, perhaps one of yours that has not ended: `ss -ltnp` shows which. "
        "Choose another port (MASTER_PORT), or 0 where the others can be told which one it became",
        errno.EACCES: "ports below 1024 are the administrator's. Choose a higher one",
        errno.EADDRNOTAVAIL: "that is no address of this machine. The process with rank 0 must run on the machine that MASTER_ADDR names",
    }.get(problem.errno or 0, "choose another host or port")
    return DistNetworkError(
        f"TCPStore: cannot listen at {host}, port: {port}, code: -{problem.errno}, name: {name}, message: {problem.strerror}\n    try  {advice}"
    )


def adopt(descriptor: int, port: int) -> socket.socket:
    """A socket that somebody else has opened to listen at `port`."""
    try:
        listener = socket.socket(fileno=descriptor)
        listener.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
        found = listener.getsockname()[1]
    except OSError as problem:
        raise DistNetworkError(
            f"TCPStore: master_listen_fd={descriptor} is not a socket that listens, code: -{problem.errno}, "
            f"name: {errno.errorcode.get(problem.errno or 0, '?')}, message: {problem.strerror}"
        ) from problem
    if found != port:
        listener.detach()
        raise DistNetworkError(f"TCPStore: the socket master_listen_fd={descriptor} listens at port {found}, but port is {port}")
    return listener


def keep_alive(wire: socket.socket) -> None:
    """Send small frames at once, and notice within half a minute when the other machine has lost its power or its cable."""
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
