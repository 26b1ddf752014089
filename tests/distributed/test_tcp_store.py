"""A TCPStore serves those who know the secret, whatever strangers, slow readers, broken and dying processes do meanwhile."""

from __future__ import annotations

import os
import signal
import socket
import stat
import struct
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from worlds import World, free_port, ok

from flambeau.distributed.errors import DistNetworkError, DistStoreError
from flambeau.distributed.stores import TCPStore, addresses, frames, handshake, server, steps
from flambeau.distributed.stores import secret as secrets_module
from flambeau.distributed.stores.connection import Connection
from flambeau.distributed.stores.secret import secret

SHORT = timedelta(milliseconds=300)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_DIST_SECRET", "of the tests")


@pytest.fixture
def host() -> Iterator[TCPStore]:
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    yield store
    store.goodbye()


def works(host: TCPStore) -> None:
    """A newcomer is served, and soon."""
    start = time.monotonic()
    client = TCPStore("localhost", host.port, timeout=timedelta(seconds=5))
    client.set("works", "yes")
    assert host.get("works") == b"yes" and client.delete_key("works")
    client.goodbye()
    assert time.monotonic() - start < 3


def stranger(host: TCPStore) -> socket.socket:
    return socket.create_connection(("127.0.0.1", host.port), timeout=5)


def ended(wire: socket.socket) -> bool:
    """Whether the server hangs up, and says nothing but its greeting before."""
    said = b""
    try:
        while received := wire.recv(4096):
            said += received
    except ConnectionResetError:
        pass
    return len(said) < 256


# Strangers.

RUBBISH = {
    "a web browser": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a huge length": struct.pack("!IBd", 0xFFFFFFFF, 0, 0.0),
    "a large length": struct.pack("!IBd", 1 << 20, frames.PROOF, 0.0) + b"x" * 1000,
    "no length": struct.pack("!I", 0) * 8,
    "a step": frames.pack(steps.set.number, [b"key", b"value"]),
    "a will": frames.pack(frames.WILL, [b"key", b"value"]),
    "a wrong proof": frames.pack(frames.PROOF, [bytes(32), bytes(32)]),
    "a proof for nothing": frames.pack(frames.PROOF, [b"", handshake.proof(b"", b"client", b"", b"")]),
    "half a proof": frames.pack(frames.PROOF, [bytes(32)]),
    "a field beyond the frame": struct.pack("!IBdI", 13, frames.PROOF, 0.0, 77),
    "zeros": bytes(100_000),
}


@pytest.mark.parametrize("what", RUBBISH)
def test_a_stranger_is_dropped_and_changes_nothing(what: str, host: TCPStore) -> None:
    """Whatever a stranger sends, the server hangs up, keeps its contents and serves others."""
    host.set("mine", "1")
    with stranger(host) as wire:
        wire.sendall(RUBBISH[what])
        assert ended(wire)
    works(host)
    assert host.list_keys() == ["mine"]


def test_an_overheard_proof_is_of_no_use(host: TCPStore) -> None:
    """What proved one connection does not prove the next."""

    def greeting(wire: socket.socket) -> bytes:
        frame = frames.unpack(wire.recv(4096))[0]
        assert frame is not None and frame[2][0] == handshake.PROTOCOL
        return frame[2][1]

    with stranger(host) as first, stranger(host) as second:
        of_server, of_client = greeting(first), handshake.nonce()
        proof = frames.pack(frames.PROOF, [of_client, handshake.proof(secret(), b"client", of_server, of_client)])
        first.sendall(proof)
        welcome = frames.unpack(first.recv(4096))[0]
        assert welcome is not None and welcome[0] == frames.WELCOME
        assert greeting(second) != of_server
        second.sendall(proof)
        assert ended(second)


def test_a_stranger_who_says_nothing_has_five_seconds(host: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that proves nothing ends by itself."""
    assert handshake.SECONDS == 5.0
    monkeypatch.setattr(handshake, "SECONDS", 0.3)
    with stranger(host) as wire:
        start = time.monotonic()
        wire.sendall(b"\0")  # one byte of a frame, and no more
        assert ended(wire)
        assert 0.2 < time.monotonic() - start < 3
    works(host)


def test_a_crowd_of_strangers_stops_nobody(host: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """More silent connections than the server keeps: the oldest go, and those who know the secret come in."""
    monkeypatch.setattr(server, "STRANGERS", 20)
    crowd = [stranger(host) for _ in range(60)]
    works(host)
    assert host._server is not None and len(host._server.strangers) <= 20
    for wire in crowd:
        wire.close()


def test_the_wrong_secret(host: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with another secret is told at once what to do, and the host serves the others."""
    monkeypatch.setenv("FLAMBEAU_DIST_SECRET", "another")
    start = time.monotonic()
    with pytest.raises(DistNetworkError, match="does not accept this process's secret, which comes from the variable FLAMBEAU_DIST_SECRET"):
        TCPStore("localhost", host.port)
    assert time.monotonic() - start < 3
    monkeypatch.setenv("FLAMBEAU_DIST_SECRET", "of the tests")
    works(host)


def fake(answer: Any) -> tuple[int, threading.Thread]:
    """Another program that listens: it calls `answer(wire)` for one connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        wire, _ = listener.accept()
        with wire, listener:
            answer(wire)

    thread = threading.Thread(target=serve)
    thread.start()
    return listener.getsockname()[1], thread


def test_a_server_must_prove_itself_too() -> None:
    """Who listens at the port without knowing the secret gets no keys."""
    heard: list[bytes] = []

    def pretend(wire: socket.socket) -> None:
        wire.sendall(frames.pack(frames.HELLO, [handshake.PROTOCOL, handshake.nonce()]))
        wire.recv(4096)
        wire.sendall(frames.pack(frames.WELCOME, [bytes(32)]))
        heard.append(wire.recv(4096))

    port, thread = fake(pretend)
    with pytest.raises(DistNetworkError, match="cannot show that it knows"):
        TCPStore("127.0.0.1", port)
    thread.join()
    assert heard == [b""]


def test_another_program_at_the_port() -> None:
    """The error says that it is no store, instead of waiting for five minutes."""
    port, thread = fake(lambda wire: wire.sendall(b"220 mail.example.org ESMTP ready\r\n"))
    with pytest.raises(DistNetworkError, match=rf"what answers at 127.0.0.1:{port} is no store"):
        TCPStore("127.0.0.1", port)
    thread.join()


# Where it listens.


def listening_at(store: TCPStore) -> set[str]:
    assert store._server is not None
    return {listener.getsockname()[0] for listener in store._server.listeners}


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "127.0.0.2"])
def test_loopback_names_listen_on_loopback(name: str) -> None:
    """Nobody outside of this machine can reach a store at a loopback name."""
    store = TCPStore(name, 0, is_master=True, wait_for_workers=False)
    assert all(map(addresses.is_loopback, listening_at(store)))
    assert TCPStore(name, store.port).check([])
    store.goodbye()


def test_other_names_listen_where_they_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address of this machine is listened at, and no other; a name that /etc/hosts sends to loopback, and an address in front of us, everywhere."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only asks for the route
            own = probe.getsockname()[0]
        except OSError:
            own = ""
    if own and not addresses.is_loopback(own):
        assert addresses.addresses(own) == [(socket.AF_INET, own)]
        store = TCPStore(own, 0, is_master=True, wait_for_workers=False)
        assert listening_at(store) == {own}
        assert TCPStore(own, store.port).check([])
        store.goodbye()
    known = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest, **more: known("127.0.1.1" if host == "this-machine" else host, *rest, **more)
    )
    assert addresses.addresses("this-machine") == addresses.EVERYWHERE
    listeners = addresses.listen("192.0.2.1", 0)
    assert listeners[0].getsockname()[0] == "0.0.0.0"
    for listener in listeners:
        listener.close()


def test_a_port_that_is_taken(host: TCPStore) -> None:
    """The error carries what programs look for (EADDRINUSE) and says what to try."""
    with pytest.raises(DistNetworkError, match=rf"port: {host.port}, code: -98, name: EADDRINUSE(.|\n)*Choose another port"):
        TCPStore("localhost", host.port, is_master=True, wait_for_workers=False)


def test_a_port_is_free_again(host: TCPStore) -> None:
    """As soon as a store has gone, its port can be used, although its connections fade out only later."""
    port = free_port()
    for turn in range(3):
        store = TCPStore("localhost", port, is_master=True, wait_for_workers=False)
        client = TCPStore("localhost", port)
        client.set("turn", str(turn))
        assert store.list_keys() == ["turn"]
        store.goodbye()
        with pytest.raises(DistNetworkError, match=f"connection to the store at localhost:{port} is lost"):
            client.get("turn")


def test_tenants_share_a_server() -> None:
    """Two hosts of one process at one port are one store where both say multi_tenant, until the last one goes."""
    first = TCPStore("localhost", 0, is_master=True, wait_for_workers=False, multi_tenant=True)
    second = TCPStore("localhost", first.port, is_master=True, wait_for_workers=False, multi_tenant=True)
    first.set("k", "v")
    first.goodbye()
    assert second.get("k") == b"v" and TCPStore("localhost", second.port).get("k") == b"v"
    second.goodbye()
    with pytest.raises(DistNetworkError, match="timed out after 300ms while trying to connect"):
        TCPStore("localhost", second.port, timeout=SHORT)


def test_a_socket_that_somebody_else_opened() -> None:
    """master_listen_fd is listened at; one that is no socket, or of another port, is refused."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with pytest.raises(DistNetworkError, match=f"listens at port {port}, but port is 1"):
        TCPStore("localhost", 1, is_master=True, master_listen_fd=listener.fileno())
    store = TCPStore("localhost", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    assert TCPStore("localhost", port).check([])
    store.goodbye()
    with open(os.devnull) as nothing, pytest.raises(DistNetworkError, match="name: ENOTSOCK"):
        TCPStore("localhost", port, is_master=True, master_listen_fd=nothing.fileno())


# Coming and going.


def test_nobody_listens() -> None:
    """A client tries until its timeout; the error says where, how long and what to look at."""
    start = time.monotonic()
    with pytest.raises(DistNetworkError, match=r"after 300ms while trying to connect to \(localhost, 1\): (.|\n)*MASTER_PORT"):
        TCPStore("localhost", 1, timeout=SHORT)
    assert time.monotonic() - start < 3


def test_a_host_that_comes_late() -> None:
    """A client that starts first waits for its host."""
    port = free_port()
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(TCPStore("localhost", port, timeout=timedelta(seconds=10)).get("k")))
    thread.start()
    time.sleep(0.3)
    store = TCPStore("localhost", port, is_master=True, wait_for_workers=False)
    store.set("k", "v")
    thread.join(5)
    assert found == [b"v"]
    store.goodbye()


def test_workers_that_do_not_come() -> None:
    """The host names how many of its workers came, and leaves the port."""
    port = free_port()
    thread = threading.Thread(target=lambda: TCPStore("localhost", port, 3, timeout=timedelta(seconds=5)))
    thread.start()
    with pytest.raises(DistStoreError, match=r"timed out after 0.3 seconds waiting for clients: 2/3 joined"):
        TCPStore("localhost", port, 3, True, timeout=SHORT)
    thread.join(5)
    TCPStore("localhost", port, 1, True).goodbye()


def test_arguments() -> None:
    """Ports and durations of the wrong kind are TypeErrors, as in PyTorch."""
    for wrong in (("localhost", -1), ("localhost", 70000), ("localhost", "1"), (1, 1), ("localhost", 0, 1, True, 3)):
        with pytest.raises(TypeError):
            TCPStore(*wrong)  # type: ignore[arg-type]
    with pytest.raises(DistNetworkError, match=r"'no\.such\.host\.invalid' is no address of this machine"):
        TCPStore("no.such.host.invalid", 0, is_master=True)


def test_a_thread_that_waits_holds_nobody_up(host: TCPStore) -> None:
    """While one thread waits for a key, others use the same store."""
    client = TCPStore("localhost", host.port, timeout=timedelta(seconds=20))
    waiting = [threading.Thread(target=client.get, args=(f"late{number}",)) for number in range(5)]
    for thread in waiting:
        thread.start()
    start = time.monotonic()
    for number in range(50):
        client.set("k", str(number))
    assert time.monotonic() - start < 2
    client.multi_set([f"late{number}" for number in range(5)], ["now"] * 5)
    for thread in waiting:
        thread.join(5)
        assert not thread.is_alive()


def test_ctrl_c_in_a_wait_leaves_the_store_usable() -> None:
    """After a KeyboardInterrupt the next question gets its own answer, not the one that came too late."""
    program = """
        import os, signal, threading
        from datetime import timedelta
        from flambeau.distributed.stores import TCPStore
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts in the background
        host = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        client = TCPStore("localhost", host.port)
        for turn in range(3):
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                client.get(f"late{turn}")
            except KeyboardInterrupt:
                print("interrupted")
            host.set(f"late{turn}", "too late")
            client.set("k", str(turn))
            assert client.get("k") == b"%d" % turn
    """
    assert ok(World(program, 1).finish(60)) == ["interrupted\n" * 3]


def raw(host: TCPStore) -> socket.socket:
    """A connection that has proved itself, in our own hands."""
    wire = Connection("127.0.0.1", host.port, secret(), 5.0).wire
    wire.settimeout(10)
    return wire


def test_half_frames_and_slow_readers_hold_nobody_up(host: TCPStore) -> None:
    """Who sends a step byte by byte, or does not read a large answer, is waited for; everybody else is served meanwhile."""
    large = bytes(range(256)) * 65536  # 16 MB: more than any socket's buffers
    host.set("large", large)
    with raw(host) as slow, raw(host) as lazy:
        lazy.sendall(frames.pack(steps.get.number, [b"large"], 5.0))
        for byte in frames.pack(steps.set.number, [b"slow", b"1"]):
            slow.sendall(bytes([byte]))
        works(host)
        assert slow.recv(100) == frames.pack(frames.DONE)
        answer = bytearray()
        while len(answer) < len(large) + frames.HEAD.size + 4:
            answer += lazy.recv(1 << 20)
        assert frames.unpack(answer)[0] == (frames.DONE, 0.0, [large])
        lazy.sendall(frames.pack(steps.get.number, [b"slow"], 5.0))
        assert frames.unpack(lazy.recv(100))[0] == (frames.DONE, 0.0, [b"1"])


def test_large_values(host: TCPStore) -> None:
    """What does not fit into a buffer arrives whole."""
    client = TCPStore("localhost", host.port)
    for size in (0, 1, 65_535, 65_536, 65_537, 5_000_000):
        value = os.urandom(size)
        client.set("k", value)
        assert client.get("k") == host.get("k") == value


def test_a_known_client_that_sends_rubbish_loses_only_itself(host: TCPStore) -> None:
    """A frame that is no step ends its own connection."""
    for rubbish in (frames.pack(200), struct.pack("!IBd", (1 << 30) + 1, 0, 0.0), frames.pack(steps.set.number, [b"one field"])):
        with raw(host) as wire:
            wire.sendall(rubbish)
            answer = wire.recv(4096)
            assert not answer or answer[4] == frames.PROBLEM
    works(host)


def test_a_will_is_done_for_who_is_lost(host: TCPStore) -> None:
    """The key is set when a process is killed, at once, for those who wait for it; not after goodbye()."""
    program = f"""
        import time
        from flambeau.distributed.stores import PrefixStore, TCPStore
        store = PrefixStore("ranks", TCPStore("localhost", {host.port}))
        print(store.will("lost", "rank 1"), flush=True)
        time.sleep(60)
    """
    world = World(program, 1, env={"FLAMBEAU_DIST_SECRET": "of the tests"})
    world.wait_for("True", 0)
    assert not host.check(["ranks/lost"])
    world.kill(0)
    start = time.monotonic()
    assert host.get("ranks/lost") == b"rank 1"
    assert time.monotonic() - start < 2
    world.finish(30)

    client = TCPStore("localhost", host.port)
    client.will("left", "no")
    client.goodbye()
    time.sleep(0.1)
    assert not host.check(["left"])
    assert host.will("mine", "") is False  # with the host the store goes
    with pytest.raises(DistNetworkError, match="left with goodbye"):
        client.get("k")


def test_a_host_that_dies_is_noticed() -> None:
    """Clients that wait, and those that ask later, get DistNetworkError with host and port within a moment."""
    program = """
        import time
        from flambeau.distributed.stores import TCPStore
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        print("port", store.port, "", flush=True)
        time.sleep(60)
    """
    world = World(program, 1, env={"FLAMBEAU_DIST_SECRET": "of the tests"})
    world.wait_for("port ", 0)
    time.sleep(0.05)
    port = int(world.said(0).split()[1])
    client = TCPStore("localhost", port, timeout=timedelta(seconds=20))
    killer = threading.Timer(0.2, world.kill, (0, signal.SIGKILL))
    killer.start()
    start = time.monotonic()
    with pytest.raises(DistNetworkError, match=f"the connection to the store at localhost:{port} is lost(.|\n)*has ended"):
        client.get("never")
    assert time.monotonic() - start < 3
    for again in (lambda: client.set("k", "v"), lambda: client.get("k"), lambda: client.will("k", "v")):
        start = time.monotonic()
        with pytest.raises(DistNetworkError, match=f"the connection to the store at localhost:{port} is lost"):
            again()
        assert time.monotonic() - start < 1  # it does not wait for somebody to come back
    world.finish(30)


def test_a_fork_uses_connections_of_its_own() -> None:
    """A forked worker may use the store, does not disturb its parent, and does not keep a dead parent alive for the server."""
    program = """
        import os, sys, time
        from flambeau.distributed.stores import TCPStore
        host = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        if os.fork():
            for number in range(300):                        # at the same time as the child
                host.add("n", 1)
            print(host.get("from the child"), host.get("lost"), host.add("n", 0))
            host.set("end", "")
            os.wait()
        else:
            host.set("from the child", "yes")                # through TCP: the table is the parent's
            client = TCPStore("localhost", host.port)
            client.will("lost", "parent of a worker")
            if os.fork():
                for number in range(300):
                    client.add("n", 1)
                os.kill(os.getpid(), 9)
            client.get("end")                                # its parent is dead, and it goes on
            os._exit(0)
    """
    assert ok(World(program, 1).finish(60)) == ["b'yes' b'parent of a worker' 600\n"]


def test_nothing_is_left_behind() -> None:
    """A store that nobody holds any more closes its sockets and ends its thread; at the end of the program nothing is said."""
    program = """
        import gc, os, threading, time
        from flambeau.distributed.stores import TCPStore
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            host = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
            client = TCPStore("localhost", host.port)
            client.set("k", "v")
            client.will("w", "v")
            del client, host
        gc.collect()
        print(len(os.listdir("/proc/self/fd")) - before, threading.active_count())
        host = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        client = TCPStore("localhost", host.port)
    """
    (rank,) = World(program, 1).finish(60)
    assert (rank.returncode, rank.stdout, rank.stderr) == (0, "0 1\n", "")


# The secret.


def test_the_secret_is_a_file_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable, all processes of a user find the same secret in a file that only he can read; however many look at once."""
    monkeypatch.delenv("FLAMBEAU_DIST_SECRET")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(secret())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1 and len(found[0]) == 64
    path = tmp_path / "flambeau" / "secret"
    assert os.listdir(path.parent) == ["secret"] and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "the file" in secrets_module.origin()

    path.chmod(0o644)
    with pytest.raises(RuntimeError, match="others can read"):
        secret()
    path.unlink()
    path.symlink_to("/etc/hostname")
    with pytest.raises(RuntimeError, match="Set FLAMBEAU_DIST_SECRET"):
        secret()
    monkeypatch.setenv("FLAMBEAU_DIST_SECRET", "given")
    assert secret() == b"given"
