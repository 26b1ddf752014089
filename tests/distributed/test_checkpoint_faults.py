"""The checkpoint that is in a folder stays whole, whatever fails while another one is saved over it, and whenever the process is killed."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

import flambeau
import flambeau.distributed.checkpoint as dcp
from flambeau.distributed.checkpoint import file_names
from flambeau.serialization import durable

pytestmark = pytest.mark.filterwarnings("ignore:Detected an existing checkpoint")


def state(value: float) -> dict[str, Any]:
    return {"step": value, "model": {f"layer{i}": flambeau.full((40, 50), value + i) for i in range(3)}}


def content(folder: Path) -> float:
    """Which checkpoint a folder has; an error if it is not whole."""
    found = {"step": 0.0, "model": {f"layer{i}": flambeau.zeros(40, 50) for i in range(3)}}
    dcp.load(found, checkpoint_id=folder, no_dist=True)
    for i in range(3):
        assert flambeau.equal(found["model"][f"layer{i}"], flambeau.full((40, 50), found["step"] + i))
    return found["step"]


def save(value: float, folder: Path, threads: int = 1) -> None:
    dcp.save(state(value), storage_writer=dcp.FileSystemWriter(folder, thread_count=threads), no_dist=True)


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()


class Failing:
    """System calls of which the n-th raises; a write may take half of its bytes first."""

    def __init__(self, patch: pytest.MonkeyPatch, n: int):
        self.n, self.count, self.lock = n, 0, threading.Lock()
        self.others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}  # what they call is none of ours
        self.failed: str | None = None
        for name, call in vars(durable.calls).items():
            patch.setattr(durable.calls, name, self.wrapped(name, call))

    def wrapped(self, name: str, call: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() in self.others:
                return call(*args, **kwargs)
            with self.lock:
                self.count += 1
                fails = self.count == self.n
            if not fails:
                return call(*args, **kwargs)
            self.failed = name
            if name == "close":
                call(*args)
            if name == "write":
                call(args[0], args[1][: len(args[1]) // 2])
            raise OSError(errno.ENOSPC if name == "write" else errno.EIO, f"call {self.n} ({name}) fails")

        return called


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("exists", [True, False], ids=["overwriting", "new"])
def test_any_system_call_may_fail(exists: bool, threads: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A failing system call is a CheckpointException with the rank and the file, the old checkpoint is whole, and nothing is left of the new one."""
    monkeypatch.setattr(durable, "SYNC_EVERY", 5_000)  # so that small files are synced on the way, too
    seen: set[str] = set()
    n = 0
    while True:
        n += 1
        folder = tmp_path / str(n)
        if exists:
            save(1.0, folder)
        before = set(os.listdir(folder)) if exists else set()
        gc.collect()  # files that other tests have left open would be closed, and counted, at any moment
        open_before = descriptors()
        with monkeypatch.context() as patch:
            failing = Failing(patch, n)
            problem: Any = None
            try:
                save(2.0, folder, threads)
            except dcp.CheckpointException as found:
                problem = found
        assert descriptors() == open_before
        after = set(os.listdir(folder))
        assert not [name for name in after if name.endswith(".tmp")] or failing.failed == "unlink"
        if problem is None:
            assert content(folder) == 2.0
            assert failing.failed in (None, "unlink")  # an old file that cannot be removed does not make the new one worse
        else:
            ((rank, (cause, _)),) = problem.failures.items()
            assert rank == 0 and isinstance(cause, OSError)
            assert str(tmp_path) in str(problem)
            if ".metadata" in after and (not exists or content(folder) == 2.0):  # the last syncs come when the new one has its name
                assert failing.failed in ("fsync", "open", "close") and content(folder) == 2.0
            else:
                assert after == before
                assert not exists or content(folder) == 1.0
            save(3.0, folder)  # and the folder can be saved to again
        seen.add(failing.failed or "none")
        if failing.failed is None:
            assert content(folder) == 2.0
            assert len(os.listdir(folder)) == 1 + threads  # what was there before is gone
            break
    assert seen >= {"open", "write", "fsync", "fdatasync", "close", "replace", "none"}
    assert ("unlink" in seen) == exists


KILLER = """
    import os, signal, sys, warnings
    import flambeau
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    warnings.simplefilter("ignore")
    from flambeau.serialization import durable
    from test_checkpoint_faults import save

    durable.SYNC_EVERY = 5_000

    def dying(name, call, n, counted=[0]):
        def called(*args, **kwargs):
            counted[0] += 1
            if counted[0] == n:
                if name == "write":
                    call(args[0], args[1][: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)
        return called

    n, ended = 0, False
    while not ended:
        n += 1
        folder = Path({folder!r}, str(n))
        save(1.0, folder)
        child = os.fork()
        if not child:
            for name, call in list(vars(durable.calls).items()):
                setattr(durable.calls, name, dying(name, call, n))
            save(2.0, folder)
            os._exit(0)
        ended = os.waitpid(child, 0)[1] == 0
    print(n)
"""


def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    """SIGKILL in every system call of a save over another: the folder has the old checkpoint or the new one, and the next save removes what lies about."""
    program = textwrap.dedent(KILLER.format(tests=str(Path(__file__).parent), folder=str(tmp_path)))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = [content(tmp_path / str(n)) for n in range(1, int(done.stdout) + 1)]
    assert set(found) == {1.0, 2.0}
    assert found == sorted(found)  # there is one moment
    assert found.count(1.0) > 10
    for n in range(1, len(found) + 1):
        save(3.0, tmp_path / str(n))
        assert content(tmp_path / str(n)) == 3.0
        assert len(os.listdir(tmp_path / str(n))) == 2


def test_only_files_of_checkpoints_are_removed(tmp_path: Path) -> None:
    """Saving over a checkpoint removes its files and those of killed saves; whatever else is in the folder stays."""
    save(1.0, tmp_path)
    kept = {"README", "model.pt", "__init__.py", "__0_0.distcp.bak", ".hidden.tmp", "__x_0.distcp"}
    strays = {"__7_0.distcp", "__3_0123abcd_1.distcp", ".__0_0.distcp.0123abcd.tmp", ".metadata.0123abcd.tmp", "__0.metadata"}
    for name in kept | strays:
        (tmp_path / name).touch()
    save(2.0, tmp_path)
    assert content(tmp_path) == 2.0
    left = set(os.listdir(tmp_path))
    assert kept < left and not strays & left
    assert len(left - kept) == 2


def test_names_do_not_collide() -> None:
    """A first save has PyTorch's names, later ones their own; both are known as files of checkpoints."""
    assert file_names.prefix(3, []) == "__3_"
    first, second = (file_names.prefix(3, ["__0_0.distcp"]) for _ in range(2))
    assert first != second and first.startswith("__3_")
    names = [f"{first}0.distcp", file_names.temporary(f"{first}0.distcp"), file_names.temporary(".metadata"), "__0_12.distcp"]
    assert file_names.left_over(names, used=[]) == sorted(names)
    assert file_names.left_over(names, used=names[:1], kept=names[1:2]) == sorted(names[2:])


FULL_DISK = """
    import os, sys, warnings
    import flambeau as torch
    import flambeau.distributed.checkpoint as dcp
    warnings.simplefilter("ignore")
    folder = sys.argv[1]
    old = {"x": torch.ones(50_000)}
    dcp.save(old, checkpoint_id=folder, no_dist=True)
    before = sorted(os.listdir(folder))
    try:
        dcp.save({"x": torch.zeros(400_000)}, checkpoint_id=folder, no_dist=True)
    except dcp.CheckpointException as problem:
        (rank, (cause, _)), = problem.failures.items()
        print(rank, type(cause).__name__, cause.errno, "distcp" in cause.filename)
    print(sorted(os.listdir(folder)) == before)
    found = {"x": torch.zeros(50_000)}
    dcp.load(found, checkpoint_id=folder, no_dist=True)
    print(torch.equal(found["x"], old["x"]))
    dcp.save({"x": torch.zeros(50_000)}, checkpoint_id=folder, no_dist=True)
"""


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    """On a file system of 1 MB the second checkpoint does not fit beside the first, which stays; a smaller one can be saved after that."""
    mount = 'mount -t tmpfs -o size=1m none $0 && exec $1 -c "$2" $0/checkpoint'
    if subprocess.run(["unshare", "-rm", "sh", "-c", "mount -t tmpfs none $0", str(tmp_path)], capture_output=True).returncode:
        pytest.skip("no small file system can be mounted here: user namespaces are not allowed")
    command = ["unshare", "-rm", "sh", "-c", mount, str(tmp_path), sys.executable, textwrap.dedent(FULL_DISK)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"0 OSError {errno.ENOSPC} True", "True", "True"]
