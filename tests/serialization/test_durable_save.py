"""A file that is being replaced is the old one or the new one, whole: whatever fails, and whenever the process is killed."""

from __future__ import annotations

import errno
import os
import pathlib
import signal
import stat
import subprocess
import sys
import threading
import time

import pytest

import flambeau
from flambeau.serialization import durable

SMALL_SYNC = 100_000  # so that a small file is synced on the way, too


def checkpoint(value: float) -> dict:
    return {"step": value, "model": {f"layer{i}.weight": flambeau.full((50, 100), value + i) for i in range(20)}}


def content(path: pathlib.Path) -> float:
    """Which checkpoint a file is; an error if it is not whole."""
    found = flambeau.load(path)
    for i in range(20):
        assert flambeau.equal(found["model"][f"layer{i}.weight"], flambeau.full((50, 100), found["step"] + i))
    return found["step"]


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()


class Failing:
    """System calls of which the n-th raises; a write may take half of its bytes first."""

    def __init__(self, monkeypatch, n: int):
        self.n, self.count, self.lock = n, 0, threading.Lock()
        for name, call in vars(durable.calls).items():
            monkeypatch.setattr(durable.calls, name, self.wrapped(name, call))

    def wrapped(self, name, call):
        def called(*args, **kwargs):
            with self.lock:
                self.count += 1
                fails = self.count == self.n
            if fails and name == "close":
                call(*args)  # a descriptor whose close reports an error is closed all the same
            if fails and name == "write":
                call(args[0], args[1][: len(args[1]) // 2])
            if fails:
                raise OSError(errno.ENOSPC if name == "write" else errno.EIO, f"call {self.n} ({name}) fails")
            return call(*args, **kwargs)

        return called


@pytest.mark.parametrize("exists", [True, False], ids=["overwriting", "new"])
def test_any_system_call_may_fail(exists, monkeypatch, tmp_path):
    """A failing system call left a broken file, a temporary file, an open descriptor, or went unnoticed."""
    path = tmp_path / "x.pt"
    monkeypatch.setattr(durable, "SYNC_EVERY", SMALL_SYNC)
    n = 0
    while True:
        n += 1
        path.unlink(missing_ok=True)
        if exists:
            flambeau.save(checkpoint(1.0), path)
        descriptors = open_descriptors()
        with monkeypatch.context() as patch:
            failing = Failing(patch, n)
            try:
                flambeau.save(checkpoint(2.0), path)
                failed = False
            except OSError as problem:
                failed = True
                assert f"call {n}" in str(problem)
        assert failed == (failing.count >= n), "a failure went unnoticed"
        assert [p.name for p in tmp_path.iterdir()] in ([["x.pt"]] if exists else [["x.pt"], []])
        if path.exists():
            assert content(path) in ((1.0, 2.0) if failed else (2.0,))
        assert open_descriptors() <= descriptors
        if not failed:
            break
    assert n > 40  # every write, the syncs on the way, and the calls around them


OVERWRITE_FOREVER = """
import sys, flambeau
from flambeau.serialization import durable
sys.path.insert(0, sys.argv[2])
from test_durable_save import checkpoint
durable.SYNC_EVERY = 100_000
value = 1.0
while True:
    value += 1
    flambeau.save(checkpoint(value), sys.argv[1])
    print(value, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no kill -9 here")
def test_kill_9_leaves_a_whole_file(tmp_path):
    """A process killed while it overwrote a checkpoint left a file that cannot be read."""
    path = tmp_path / "x.pt"
    flambeau.save(checkpoint(1.0), path)
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(flambeau.__file__).parents[1])}
    for delay in (0.0, 0.004, 0.011):
        here = str(pathlib.Path(__file__).parent)
        with subprocess.Popen([sys.executable, "-c", OVERWRITE_FOREVER, path, here], stdout=subprocess.PIPE, env=environment) as child:
            child.stdout.readline()  # it is at work
            time.sleep(delay)
            child.send_signal(signal.SIGKILL)
            written = [float(line) for line in child.stdout if line.endswith(b"\n")]
        assert content(path) >= max(written, default=1.0)


def test_a_failure_while_pickling_touches_nothing(tmp_path):
    """An object that cannot be pickled destroys the file it should have replaced."""
    path = tmp_path / "x.pt"
    flambeau.save(checkpoint(1.0), path)
    before = path.read_bytes()
    with pytest.raises((AttributeError, TypeError, Exception), match=r"pickle|lambda"):
        flambeau.save({"f": lambda: 1}, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.pt"]


def test_an_interrupt_in_the_middle(monkeypatch, tmp_path):
    """Ctrl-C while saving leaves a temporary file or a broken checkpoint."""
    path = tmp_path / "x.pt"
    flambeau.save(checkpoint(1.0), path)
    write, count = durable.calls.write, 0

    def interrupted(*args):
        nonlocal count
        count += 1
        if count == 20:
            raise KeyboardInterrupt
        return write(*args)

    monkeypatch.setattr(durable.calls, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        flambeau.save(checkpoint(2.0), path)
    assert content(path) == 1.0
    assert [p.name for p in tmp_path.iterdir()] == ["x.pt"]


def test_permissions_links_and_the_umask(tmp_path):
    """Replacing a file changes its permissions, turns a link into a file, or ignores the umask."""
    path, link = tmp_path / "x.pt", tmp_path / "latest.pt"
    before = os.umask(0o027)
    try:
        flambeau.save(1, path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        link.symlink_to(path.name)
        flambeau.save(2, link)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert link.is_symlink()
    assert flambeau.load(path) == 2


def test_a_folder_or_a_device_in_place_of_a_file(tmp_path):
    """Saving over a folder should say so; saving to a device should write to it, not replace it."""
    with pytest.raises(IsADirectoryError):
        flambeau.save(1, tmp_path)
    if os.path.exists("/dev/null"):
        flambeau.save(1, "/dev/null")
        assert not stat.S_ISREG(os.stat("/dev/null").st_mode)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path):
    """A read-only checkpoint was replaced because its folder allows that."""
    path = tmp_path / "x.pt"
    flambeau.save(1, path)
    path.chmod(0o444)
    with pytest.raises(PermissionError):
        flambeau.save(2, path)
    assert flambeau.load(path) == 1


def test_nothing_is_copied(tmp_path):
    """Saving needs memory in proportion to what is saved: a second copy of the tensors was made."""
    import tracemalloc

    big = flambeau.zeros(5_000_000)  # 20 MB
    strided = big[::2]
    tracemalloc.start()
    pool = flambeau.kernels.native.native.lib.pool_stats(True)["live"] if flambeau.kernels.native.native.lib else 0
    flambeau.save([big, strided, big.reshape(1000, 5000).t()], tmp_path / "x.pt")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000
    if flambeau.kernels.native.native.lib:
        assert flambeau.kernels.native.native.lib.pool_stats()["peak"] - pool < 2_000_000
