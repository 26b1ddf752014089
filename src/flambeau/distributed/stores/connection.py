"""A client's connection to the server of a TCPStore: made, proved, and asked one step at a time."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import suppress

from flambeau.distributed.errors import DistNetworkError
from flambeau.distributed.stores import handshake
from flambeau.distributed.stores.addresses import keep_alive
from flambeau.distributed.stores.frames import HEAD, HELLO, MOST, PROOF, REFUSED, WELCOME, Frame, Malformed, pack, unpack
from flambeau.distributed.stores.secret import VARIABLE, origin

PAUSES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # seconds between attempts to connect, the last one again and again


class Connection:
    """One connection that is used by one thread at a time. `was_there`: the host has been reached before, and if it is not there now, it is gone."""

    def __init__(self, host: str, port: int, secret: bytes, timeout: float, *, was_there: bool = False):
        self.host, self.port = host, port
        self.wire = _connected(host, port, secret, timeout, was_there)
        self.wire.settimeout(None)  # the kernel keeps the time: one system call per answer instead of two
        self._patience = 0.0
        self._buffer = bytearray(1 << 16)

    def ask(self, code: int, fields: tuple[bytes, ...] | list[bytes], limit: float, patience: float) -> Frame:
        """Send a frame, and wait for the answer, for `patience` seconds at most."""
        try:
            if patience != self._patience:
                self._be_patient(patience)
            self.wire.sendall(pack(code, fields, limit))
            return self._receive()
        except BlockingIOError:
            raise DistNetworkError(
                f"the store at {self.host}:{self.port} has not answered for {patience:.0f} s, although its machine can be reached. "
                f"Is the process that hosts it stopped, or busy with something that holds Python's lock?"
            ) from None
        except (OSError, Malformed) as problem:
            raise lost(self.host, self.port, problem) from problem

    def _be_patient(self, patience: float) -> None:
        whole = min(int(patience), 2**31)
        self.wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", whole, int((patience - int(patience)) * 1e6) or 1))
        self._patience = patience

    def _receive(self) -> Frame:
        count = self.wire.recv_into(self._buffer)
        frame, size = unpack(memoryview(self._buffer)[:count])
        if frame is not None:
            return frame
        parts = bytearray(self._buffer[:count])
        while count:
            if len(parts) >= size:
                frame, size = unpack(parts)
                if frame is not None:
                    return frame
            count = self.wire.recv_into(self._buffer)
            parts += memoryview(self._buffer)[:count]
        raise ConnectionResetError(0, "the other side has closed the connection")

    def close(self) -> None:
        """Close it, also under a thread that waits for an answer."""
        with suppress(OSError):  # the other side has gone already
            self.wire.shutdown(socket.SHUT_RDWR)
        self.wire.close()


def lost(host: str, port: int, problem: Exception) -> DistNetworkError:
    """The connection has ended."""
    return DistNetworkError(
        f"the connection to the store at {host}:{port} is lost: {getattr(problem, 'strerror', None) or problem}\n"
        f"    The process that hosts the store has ended (rank 0, or the launcher); what it printed last says why."
    )


def _connected(host: str, port: int, secret: bytes, timeout: float, was_there: bool) -> socket.socket:
    """A connection that has proved itself. Tries until `timeout`: the host may start later than we do."""
    deadline = time.monotonic() + timeout
    attempts = 0
    problem: OSError
    while True:
        try:
            return _attempt(host, port, secret, deadline)
        except ConnectionRefusedError as found:
            if was_there:
                raise lost(host, port, found) from found
            problem = found
        except OSError as found:
            problem = found
        pause = PAUSES[min(attempts, len(PAUSES) - 1)]
        attempts += 1
        if time.monotonic() + pause >= deadline:
            break
        time.sleep(pause)
    raise DistNetworkError(
        f"TCPStore: timed out after {timeout * 1000:.0f}ms while trying to connect to ({host}, {port}): {problem.strerror or problem}, "
        f"{attempts} times\n"
        f"    expected  the process that hosts the store (rank 0, or the launcher) listens there\n"
        f"    try       see whether it runs and is on the machine that MASTER_ADDR names, whether all processes have the same MASTER_PORT,\n"
        f"              and whether a firewall stands between; a longer timeout where it only starts late"
    ) from problem


def _attempt(host: str, port: int, secret: bytes, deadline: float) -> socket.socket:
    left = max(deadline - time.monotonic(), 0.05)
    wire = socket.create_connection((host, port), timeout=left)
    try:
        if wire.getsockname() == wire.getpeername():
            # The kernel gave us the very port that nobody listened at, and connected us to ourselves.
            raise ConnectionRefusedError(0, "nobody listens there")
        keep_alive(wire)
        wire.settimeout(min(left, 2 * handshake.SECONDS))
        _introduce(wire, host, port, secret)
    except BaseException:
        wire.close()
        raise
    return wire


def _introduce(wire: socket.socket, host: str, port: int, secret: bytes) -> None:
    """The client's part of the handshake."""
    try:
        code, _, fields = _one_frame(wire)
        if code != HELLO or len(fields) != 2 or fields[0] != handshake.PROTOCOL:
            raise Malformed("another protocol")
        nonce = handshake.nonce()
        wire.sendall(pack(PROOF, [nonce, handshake.proof(secret, b"client", fields[1], nonce)]))
        code, _, answer = _one_frame(wire)
        if code == REFUSED:
            raise _wrong_secret(host, port, "it does not accept this process's secret")
        if code != WELCOME or not answer or not handshake.proves(answer[0], secret, b"server", fields[1], nonce):
            raise _wrong_secret(host, port, "it cannot show that it knows this process's secret")
    except Malformed as problem:
        raise DistNetworkError(
            f"TCPStore: what answers at {host}:{port} is no store of Flambeau ({problem}). "
            f"Another program listens there: choose another MASTER_PORT. (PyTorch's own stores speak another language.)"
        ) from problem


def _wrong_secret(host: str, port: int, why: str) -> DistNetworkError:
    return DistNetworkError(
        f"TCPStore: there is a store at {host}:{port}, but {why}, which comes from {origin()}\n"
        f"    expected  all processes of a program have the same secret\n"
        f"    try       set {VARIABLE} to the same long random text in the environment of all of them, on every machine;\n"
        f"              the launcher does so for the processes it starts. If that is another user's program, choose another MASTER_PORT"
    )


def _one_frame(wire: socket.socket) -> Frame:
    """A frame, read to its last byte and no further."""
    data = b""
    while True:
        frame, size = unpack(data, MOST)
        if frame is not None:
            return frame
        if size > 4096:
            raise Malformed(f"a greeting of {size} bytes")
        received = wire.recv(size - len(data) if len(data) >= HEAD.size else HEAD.size - len(data))
        if not received:
            raise ConnectionResetError(0, "it closed the connection")
        data += received
