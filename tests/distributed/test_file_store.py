"""A FileStore is right under many processes, and whole after one of them dies."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest
from worlds import World, ok, run

from flambeau.distributed.errors import DistStoreError
from flambeau.distributed.stores import FileStore

dist = pytest.importorskip("torch.distributed")


@pytest.mark.parametrize("kind", [FileStore, dist.FileStore])
def test_the_last_one_removes_the_file(kind: type, tmp_path: Path) -> None:
    """With a world size, the file goes with the last of them; without one it stays."""
    path = tmp_path / "store"
    first, second = kind(str(path), 2), kind(str(path), 2)
    first.set("k", "v")
    assert second.get("k") == b"v" and second.path == str(path)
    del first
    assert path.exists()
    del second
    assert not path.exists()
    alone = kind(str(path))
    alone.set("k", "v")
    del alone
    assert path.exists()
    assert kind(str(path)).get("k") == b"v"


def test_processes_lose_no_step(tmp_path: Path) -> None:
    """Counters and barriers are exact when several processes write at once."""
    program = f"""
        import os
        from flambeau.distributed.stores import FileStore
        store = FileStore({str(tmp_path / "store")!r}, 3)
        store.barrier("start", 3)
        for turn in range(60):
            store.add("n", 1)
            store.append("all", os.environ["RANK"])
        store.barrier("end", 3)
        print(store.add("n", 0), sorted(store.get("all")).count(49))
        store.barrier("gone", 3)
    """
    assert ok(run(program, 3, timeout=60)) == ["180 60\n"] * 3
    assert not (tmp_path / "store").exists()


def test_a_process_that_dies_while_it_writes_spoils_nothing(tmp_path: Path) -> None:
    """Processes are killed again and again while they write: every record that was complete stays, the others go on."""
    path = tmp_path / "store"
    program = f"""
        import itertools
        from flambeau.distributed.stores import FileStore
        store = FileStore({str(path)!r})
        print("begun", flush=True)
        for turn in itertools.count():
            store.set("value", b"x" * 500_000)
            store.add("turns", 1)
    """
    store = FileStore(str(path))
    for _ in range(2):
        world = World(program, 2)
        for number in range(2):
            world.wait_for("begun", number)
        time.sleep(0.05)
        for number in range(2):
            world.kill(number, signal.SIGKILL)
        world.finish(30)
        assert store.get("value") == b"x" * 500_000
        before = store.add("turns", 0)
        assert before > 0 and store.add("turns", 1) == before + 1
        path.unlink()
        store = FileStore(str(path))


def test_half_a_record_is_removed(tmp_path: Path) -> None:
    """At whatever byte the last writer died, what came before is there and what comes after is read by all."""
    first = tmp_path / "first"
    store = FileStore(str(first))
    store.set("k", "before")
    whole = first.read_bytes()
    store.set("k", "the record that gets cut")
    cut = first.read_bytes()
    for end in range(len(whole), len(cut)):
        path = tmp_path / f"{end}"
        path.write_bytes(cut[:end])
        late = FileStore(str(path))
        assert late.get("k") == b"before", end
        late.set("k", "after")
        assert FileStore(str(path)).get("k") == late.get("k") == b"after"
    for end in range(len(b"flambeau")):  # it died with the first bytes of the file
        path = tmp_path / f"beginning {end}"
        path.write_bytes(whole[:end])
        assert not FileStore(str(path)).check(["k"])


def test_a_file_that_is_cut_under_us(tmp_path: Path) -> None:
    """Another program that empties the file is named as the reason."""
    store = FileStore(str(tmp_path / "store"))
    os.truncate(store.path, 0)
    with pytest.raises(DistStoreError, match=r"has been cut from .* to 0 bytes"):
        store.check(["k"])


@pytest.mark.parametrize(
    "content", [b"dear diary\n", b"#!/bin/sh\n", bytes(10), b"\0\0\0\x09" + bytes(20), b"flambeau store 1\n" + b"\0\0\0\x09" + bytes(20)]
)
def test_other_files_are_left_alone(content: bytes, tmp_path: Path) -> None:
    """A file that is no store is refused, and not changed."""
    path = tmp_path / "diary"
    path.write_bytes(content)
    with pytest.raises(DistStoreError, match="was not written by a FileStore"):
        FileStore(str(path))
    assert path.read_bytes() == content


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """A folder that is not there is named."""
    with pytest.raises(DistStoreError, match=r"cannot open .*nowhere/store: No such file"):
        FileStore(str(tmp_path / "nowhere" / "store"))


def test_a_full_disk(tmp_path: Path) -> None:
    """A step that could not be written did not happen, for anybody; there is an error, and what was there stays."""
    program = f"""
        import resource
        from flambeau.distributed.stores import FileStore
        store = FileStore({str(tmp_path / "store")!r})
        store.set("k", "before")
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        try:
            store.set("k", "x" * 4000)
        except RuntimeError as problem:
            print(problem)
        print(store.get("k"))
        store.set("k", "after")
        print(store.get("k"))
    """
    (said,) = ok(World(program, 1).finish(60))
    assert said.splitlines()[0].endswith("File too large") and said.splitlines()[1:] == ["b'before'", "b'after'"]
    assert FileStore(str(tmp_path / "store")).get("k") == b"after"


def test_a_fork_has_a_lock_of_its_own(tmp_path: Path) -> None:
    """A fork and its parent do not write over each other."""
    program = f"""
        import os
        from flambeau.distributed.stores import FileStore
        store = FileStore({str(tmp_path / "store")!r}, 1)
        child = os.fork()
        for _ in range(100):
            store.add("n", 1)
        if not child:
            os._exit(0)
        os.wait()
        print(store.add("n", 0))
    """
    assert ok(World(program, 1).finish(60)) == ["200\n"]
    assert not (tmp_path / "store").exists()


def test_goodbye(tmp_path: Path) -> None:
    """Who has left does not come back through the same store."""
    store = FileStore(str(tmp_path / "store"), 1)
    store.set_timeout(timedelta(seconds=1))
    store.goodbye()
    store.goodbye()
    assert os.listdir(tmp_path) == []
    with pytest.raises(DistStoreError, match="left with goodbye"):
        store.get("k")
