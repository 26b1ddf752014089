"""The server of a TCPStore: one thread that answers everybody and waits for nobody.

It reads what is there, answers what is complete, and keeps the rest: half a frame, an answer that its reader does not take, a step that waits
for a key. Before a connection has proved that it knows the secret (handshake.py) it may send one short frame, and has five seconds for it.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from flambeau.distributed.stores import frames, handshake, steps
from flambeau.distributed.stores.addresses import keep_alive
from flambeau.distributed.stores.frames import Frame, Malformed, pack, unpack
from flambeau.distributed.stores.steps import PROBLEMS, STEPS
from flambeau.distributed.stores.table import Answer, Table, Waiting

STRANGERS = 256  # connections that may be in their handshake at the same time: the oldest goes for the next
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Server:
    """Answers for one table at some listening sockets, until `close()`."""

    def __init__(self, listeners: list[socket.socket], secret: bytes):
        self.table = Table()
        self.secret = secret
        self.port: int = listeners[0].getsockname()[1]
        self.listeners = listeners
        self.clients: set[Client] = set()
        self.strangers: dict[Client, float] = {}  # and until when each may stay, the oldest first
        self.late: dict[Client, float] = {}  # and until when its step may wait
        self.earliest = float("inf")  # no step has to be given up before this
        self.to_flush: list[Client] = []
        self.closing = False
        self.selector = selectors.DefaultSelector()
        self._bell, self._ringer = socket.socketpair()
        self.selector.register(self._bell, READ, self._heard)
        for listener in listeners:
            listener.setblocking(False)
            self.selector.register(listener, READ, self._accept(listener))
        self._buffer = bytearray(1 << 16)
        self.thread = threading.Thread(target=self._serve, name="flambeau-store", daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Hang up on everybody, and give the port back."""
        self.closing = True
        self.ring()
        if self.thread is not threading.current_thread():
            self.thread.join()

    def forsake(self) -> None:
        """Close this process's ends of everything without a word: it is a fork, and the server goes on in its parent."""
        self.selector.close()
        for wire in (*self.listeners, self._bell, self._ringer, *(client.wire for client in self.clients)):
            wire.close()

    def ring(self) -> None:
        """Have the thread look around."""
        with suppress(OSError):  # full: it will look anyway
            self._ringer.send(b"!")

    def _serve(self) -> None:
        try:
            while not self.closing:
                for key, events in self.selector.select(self._patience()):
                    key.data(events)
                self._look_at_the_clock()
        finally:
            for client in list(self.clients):
                self.drop(client, fulfil=False)  # it was not the client that went
            for listener in self.listeners:
                listener.close()
            self.selector.close()
            self._bell.close()
            self._ringer.close()

    def _accept(self, listener: socket.socket) -> Callable[[int], None]:
        def accept(_events: int) -> None:
            try:
                wire, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError:  # too many open files: somebody has to go before anybody can come
                if self.strangers:
                    self.drop(next(iter(self.strangers)))
                time.sleep(0.05)
                return
            if len(self.strangers) >= STRANGERS:
                self.drop(next(iter(self.strangers)))
            wire.setblocking(False)
            keep_alive(wire)
            client = Client(self, wire)
            self.clients.add(client)
            self.strangers[client] = time.monotonic() + handshake.SECONDS
            self.selector.register(wire, READ, client.ready)
            client.send(pack(frames.HELLO, [handshake.PROTOCOL, client.nonce]))

        return accept

    def drop(self, client: Client, *, fulfil: bool = True) -> None:
        """Hang up. If nobody said goodbye, what the client willed is done."""
        if client not in self.clients:
            return
        self.clients.discard(client)
        self.strangers.pop(client, None)
        self.late.pop(client, None)
        self.selector.unregister(client.wire)
        client.wire.close()
        with self.table.lock:
            if client.waiting is not None:
                self.table.withdraw(client.waiting)
            if fulfil:
                for key, value in client.wills:
                    self.table.begin(steps.set, (key, value), _nobody)

    def _heard(self, _events: int) -> None:
        self._bell.recv(4096)
        with self.table.lock:
            waiting, self.to_flush = self.to_flush, []
        for client in waiting:
            if client in self.clients and client.outgoing:
                self.selector.modify(client.wire, WRITE, client.ready)

    def _patience(self) -> float | None:
        """Until something may have to be given up."""
        earliest = min(self.earliest, next(iter(self.strangers.values()), float("inf")))
        return None if earliest == float("inf") else max(0.0, earliest - time.monotonic())

    def _look_at_the_clock(self) -> None:
        if not self.strangers and self.earliest == float("inf"):
            return
        now = time.monotonic()
        for client in [client for client, until in self.strangers.items() if until <= now]:
            self.drop(client)
        if self.earliest <= now:
            with self.table.lock:
                for client in [client for client, until in self.late.items() if until <= now]:
                    client.give_up()
                self.earliest = min(self.late.values(), default=float("inf"))


class Client:
    """One connection, as the server sees it. It asks one step at a time."""

    def __init__(self, server: Server, wire: socket.socket):
        self.server, self.wire = server, wire
        self.nonce = handshake.nonce()
        self.known = False  # it has proved that it knows the secret
        self.incoming = bytearray()
        self.outgoing = bytearray()
        self.waiting: Waiting | None = None
        self.wills: list[tuple[bytes, bytes]] = []

    def ready(self, events: int) -> None:
        """The connection can be read or written."""
        try:
            if events & WRITE:
                self._flush()
            if events & READ:
                self._read()
        except (OSError, Malformed, ValueError):
            self.server.drop(self)

    def _read(self) -> None:
        buffer = self.server._buffer
        count = self.wire.recv_into(buffer)
        if not count:
            self.server.drop(self)
            return
        self.incoming += memoryview(buffer)[:count]
        if not self.known and len(self.incoming) > frames.MOST_FROM_STRANGERS:
            raise Malformed("a stranger sends more than one proof")
        self._answer_all()

    def _answer_all(self) -> None:
        """Answer what has arrived; one who does not read his answers, or waits for one, is not asked for more."""
        while self.incoming and self.waiting is None and not self.outgoing and self in self.server.clients:
            frame, size = unpack(self.incoming, frames.MOST if self.known else frames.MOST_FROM_STRANGERS)
            if frame is None:
                return
            del self.incoming[:size]
            if self.known:
                self._answer(frame)
            else:
                self._judge(frame)
        if len(self.incoming) > frames.MOST:
            raise Malformed("more than one frame at a time")

    def _judge(self, frame: Frame) -> None:
        """Is the proof right?"""
        code, _, fields = frame
        secret = self.server.secret
        if code == frames.PROOF and len(fields) == 2 and handshake.proves(fields[1], secret, b"client", self.nonce, fields[0]):
            self.known = True
            self.server.strangers.pop(self, None)
            self.send(pack(frames.WELCOME, [handshake.proof(secret, b"server", self.nonce, fields[0])]))
        else:
            with suppress(OSError):
                self.wire.send(pack(frames.REFUSED))
            self.server.drop(self)

    def _answer(self, frame: Frame) -> None:
        code, limit, fields = frame
        if code < len(STEPS):
            self._run(steps.STEPS[code], limit, fields)
        elif code == frames.WILL and len(fields) == 2:
            self.wills.append((fields[0], fields[1]))
            self.send(pack(frames.DONE))
        elif code == frames.GOODBYE:
            self.wills.clear()
            self.send(pack(frames.DONE))
        else:
            raise Malformed(f"no step has the number {code}")

    def _run(self, step: steps.Step, limit: float, fields: list[bytes]) -> None:
        table = self.server.table
        try:
            with table.lock:
                begun = table.begin(step, fields, self.answered)
                if isinstance(begun, Waiting):
                    self.waiting = begun
                    until = time.monotonic() + limit
                    self.server.late[self] = until
                    self.server.earliest = min(self.server.earliest, until)
                    return
        except Exception as problem:
            kind = next((name for name, kind in PROBLEMS.items() if type(problem) is kind), b"RuntimeError")
            self.send(pack(frames.PROBLEM, [kind, str(problem).encode()]))
        else:
            self.send(pack(frames.DONE, begun))

    def answered(self, answer: Answer) -> None:
        """What was waited for is there: whoever wrote the key sends it, on its own thread, holding the table's lock."""
        self.waiting = None
        self.server.late.pop(self, None)
        self.send(pack(frames.DONE, answer))

    def give_up(self) -> None:
        """What was waited for did not come in time."""
        waiting, self.waiting = self.waiting, None
        del self.server.late[self]
        if waiting is not None:
            self.server.table.withdraw(waiting)
            self.send(pack(frames.LATE, waiting.missing))

    def send(self, data: bytes) -> None:
        """Send what the connection takes now; the server's thread sends the rest when it takes more."""
        with self.server.table.lock:
            sent = 0
            if not self.outgoing:
                try:
                    sent = self.wire.send(data)
                except BlockingIOError:
                    pass
                except OSError:
                    return  # gone: the server's thread will notice
            if sent < len(data):
                self.outgoing += memoryview(data)[sent:]
                self.server.to_flush.append(self)
                self.server.ring()

    def _flush(self) -> None:
        with self.server.table.lock:
            sent = self.wire.send(self.outgoing)
            del self.outgoing[:sent]
            if self.outgoing:
                return
        self.server.selector.modify(self.wire, READ, self.ready)
        self._answer_all()


def _nobody(_answer: Answer) -> None:
    """Nobody waits for this."""
