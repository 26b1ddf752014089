"""Processes that know nothing of each other meet, again and again, and errors say what was missing."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from worlds import free_port, ok, run, run_both, surroundings

from flambeau.distributed.errors import DistNetworkError, DistStoreError
from flambeau.distributed.stores import FileStore, PrefixStore, TCPStore

pytest.importorskip("torch")
ours = importlib.import_module("flambeau.distributed.rendezvous")  # in both frameworks the package shows the function under this name
theirs = importlib.import_module("torch.distributed.rendezvous")

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that no launcher has touched."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLAMBEAU_DIST_SECRET", "of the tests")


WRONG: list[tuple[Any, ...]] = [
    ("tcp://127.0.0.1:29616",),
    ("tcp://127.0.0.1:29616?rank=0",),
    ("tcp://127.0.0.1?rank=0&world_size=1",),
    ("tcp://127.0.0.1:29616?rank=a&world_size=1",),
    ("tcp://127.0.0.1:29616?rank=0&world_size=1", 1, 2),
    ("file://?rank=0&world_size=1",),
    ("file:///tmp/x?rank=0",),
    ("file:///tmp/x?world_size=1",),
    ("file:///tmp/x", 0),
    ("foo://x",),
    ("bar",),
    ("",),
    (3,),
    ("env://", "0", 1),
    ("env://", 0, "1"),
    ("env://",),
]


@pytest.mark.parametrize("arguments", WRONG, ids=str)
def test_what_is_wrong_is_said_as_pytorch_says_it(arguments: tuple[Any, ...]) -> None:
    """URLs and numbers that cannot be used raise PyTorch's kinds of error."""
    with pytest.raises(Exception) as expected:
        next(theirs.rendezvous(*arguments))
    with pytest.raises(expected.type):
        next(ours.rendezvous(*arguments))


@pytest.mark.parametrize("name", VARIABLES[:4])
def test_a_variable_that_is_not_set(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """env:// names the variable that is missing, and what sets it."""
    for variable, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        if variable != name:
            monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=rf"environment variable {name} expected, but not set(.|\n)*flambeau run"):
        next(ours.rendezvous("env://"))


def test_env_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process is a world, too; rank and world size given as arguments or in the URL go before those of the environment."""
    for variable, value in {"RANK": "5", "WORLD_SIZE": "9", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}.items():
        monkeypatch.setenv(variable, value)
    for arguments in (("env://", 0, 1), ("env://?rank=0&world_size=1",)):
        meeting = ours.rendezvous(*arguments, timeout=timedelta(seconds=7))
        store, rank, world_size = next(meeting)
        assert (rank, world_size, store.timeout) == (0, 1, timedelta(seconds=7)) and isinstance(store, TCPStore)
        assert store.port == int(os.environ["MASTER_PORT"]) and store.list_keys() == []
        with pytest.raises(RuntimeError, match="cannot meet twice"):
            next(meeting)
        store.goodbye()


def test_two_meet_by_env_tcp_and_file(tmp_path: Any) -> None:
    """Both ranks reach the same store, with either framework's URL."""
    program = f"""
        import os
        from TORCH.distributed.rendezvous import rendezvous
        rank, port = int(os.environ["RANK"]), os.environ["OTHER_PORT"]
        for url in ("env://", f"tcp://localhost:{{port}}?rank={{rank}}&world_size=2", "file://{tmp_path}/TORCH"):
            store, found, size = next(rendezvous(url, *([rank, 2] if url.startswith("file") else [])))
            store.set(f"{{url[:4]}} {{rank}}", "here")
            store.wait([f"{{url[:4]}} {{1 - rank}}"])
            print(url[:4], found, size, store.add("n", 1) in (1, 2))
            store.set(f"left {{rank}}", "")
            if rank == 0:
                store.wait(["left 1"])
    """
    found, expected = run_both(program, env={"OTHER_PORT": str(free_port())}, timeout=60)
    assert found == expected == [f"env: {r} 2 True\ntcp: {r} 2 True\nfile {r} 2 True\n" for r in range(2)]


def test_they_meet_again_at_the_same_port() -> None:
    """Groups that follow each other at one port never see each other's keys, whoever is quicker to leave and to come back."""
    program = """
        import os, time
        from datetime import timedelta
        from flambeau.distributed.rendezvous import rendezvous
        rank = int(os.environ["RANK"])
        kept = []
        for turn in range(24):
            if rank == turn % 2:
                time.sleep(0.01)
            store, *_ = next(rendezvous("env://", timeout=timedelta(seconds=10)))
            assert not store.check(["0"]) or turn == int(store.get("0")), turn
            store.set(str(rank), str(turn))
            assert int(store.get(str(1 - rank))) == turn
            store.barrier("end", 2)
            if turn % 6 == 5:
                kept.append(store)                  # the program still has it: the server goes on
            elif turn % 6 < 4:
                store.goodbye()
            del store
        print("met")
    """
    assert ok(run(program, timeout=60)) == ["met\n"] * 2


def test_a_rank_that_does_not_come() -> None:
    """Rank 0 names the ranks that are missing, the others that nobody listens, both after their timeout."""
    port = free_port()
    with pytest.raises(
        DistStoreError, match=r"after 0.3 seconds waiting for clients at localhost:\d+: 1/3 clients joined\n +missing  ranks 1, 2"
    ):
        next(ours.rendezvous(f"tcp://localhost:{port}?rank=0&world_size=3", timeout=timedelta(seconds=0.3)))
    with pytest.raises(DistNetworkError, match=f"while trying to connect to .localhost, {port}"):
        next(ours.rendezvous(f"tcp://localhost:{port}?rank=1&world_size=3", timeout=timedelta(seconds=0.3)))


def agents(monkeypatch: pytest.MonkeyPatch, port: int, restarts: str) -> None:
    for variable, value in {**surroundings(1), "RANK": "0", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
    monkeypatch.setenv("FLAMBEAU_DIST_SECRET", "of the tests")


def test_the_launchers_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a launcher that hosts the store all ranks are its clients; a group that is started again does not find the old keys."""
    agent = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    seen = set()
    for restarts in ("0", "0", "1", "1", "2"):
        agents(monkeypatch, agent.port, restarts)
        store, rank, world_size = next(ours.rendezvous("env://", timeout=timedelta(seconds=5)))
        below = store._underlying_non_prefix_store if isinstance(store, PrefixStore) else store
        assert isinstance(below, TCPStore) and below._server is None and (rank, world_size) == (0, 1)
        assert not store.check(["k"])
        store.set("k", restarts)
        seen.add(tuple(sorted(agent.list_keys())))
    assert len(seen) == 5  # each has its own key
    agent.goodbye()
    with pytest.raises(DistNetworkError, match="timed out after 300ms while trying to connect"):
        next(ours.rendezvous("env://", timeout=timedelta(seconds=0.3)))


def test_a_scheme_of_ones_own() -> None:
    """A handler gets the URL, with rank and world size in it, and what else was given; a scheme is registered once."""
    asked: list[Any] = []

    def handler(url: str, **kwargs: Any) -> Iterator[Any]:
        asked.append((url, kwargs))
        yield None, 0, 1

    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (("mine://a/b?x=1",), {}),
        (("mine://a/b?x=1", 3, 4), {"more": 2}),
        (("mine://a", 3), {}),
        (("mine://a?rank=3&world_size=4",), {"more": 2}),
    ]
    for framework in (ours, theirs):
        framework.register_rendezvous_handler("mine", handler)
        for arguments, more in calls:
            assert next(framework.rendezvous(*arguments, **more)) == (None, 0, 1)
        with pytest.raises(RuntimeError, match="mine:// already registered"):
            framework.register_rendezvous_handler("mine", handler)
    assert asked[:4] == asked[4:]


def test_a_file_is_a_path(tmp_path: Any) -> None:
    """file:// opens the path that follows."""
    store, *_ = next(ours.rendezvous(f"file://{tmp_path}/meeting?rank=0&world_size=1"))
    assert isinstance(store, FileStore) and store.path == f"{tmp_path}/meeting"


def test_an_agent_leaves_where_nobody_keeps_the_store_any_more():
    """Whoever kept it has gone before: that is said by the answer."""
    from flambeau.distributed.elastic import rendezvous
    from flambeau.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
    from flambeau.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

    program = (
        "import sys; from flambeau.distributed.stores import TCPStore; store = TCPStore('localhost', 0, is_master=True, wait_for_workers=False); "
        "print(store.port, flush=True); sys.stdin.read()"
    )
    keeper = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        parameters = rendezvous.RendezvousParameters("c10d", f"localhost:{keeper.stdout.readline().strip()}", "run", 1, 1, is_host=False)
        backend, store = create_backend(parameters)
        handler = create_handler(store, backend, parameters)
        handler.next_rendezvous()
    finally:
        keeper.kill()
        keeper.communicate()
    assert handler.shutdown() is False
    assert handler.shutdown() is True  # it has left
