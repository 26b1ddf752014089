"""What happens when things go wrong: exceptions, killed workers, killed parents, Ctrl-C, exits. Nothing hangs, nothing stays behind."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from loader_oracle import OURS
from worker_datasets import Odd, Trouble, first

import flambeau

DataLoader = OURS.DataLoader


def read(kind, **options):
    return list(DataLoader(Trouble(kind), 2, num_workers=2, collate_fn=first, **options))


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_an_exception_comes_with_the_workers_traceback(context):
    """An exception in a worker is raised here, of the same type, with the worker's number, its own lines and the index of the item."""
    with pytest.raises(KeyError) as caught:
        read("raise", multiprocessing_context=context)
    text = str(caught.value)
    assert "Caught KeyError in DataLoader worker process 0" in text and "no such thing" in text
    assert "worker_datasets.py" in text and "__getitem__" in text and "dataset[5]" in text and "\n" in text


def test_batches_before_an_exception_arrive_and_the_iterator_goes_on():
    """The exception comes in its place in the order, and does not spoil the batches around it."""
    iterator = iter(DataLoader(Trouble("raise"), 2, num_workers=2, collate_fn=first))
    assert [next(iterator), next(iterator)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyError):
        next(iterator)
    assert next(iterator) == [6, 7]


@pytest.mark.parametrize("kind, text", [("odd", "Caught Odd"), ("local", "Caught Local")])
def test_exceptions_that_cannot_be_made_again_become_runtime_errors(kind, text):
    """A constructor with other arguments, or a class that only the worker has, still gives the worker's traceback."""
    with pytest.raises(RuntimeError, match=text):
        read(kind)
    assert Odd(1, 2).args == (1, 2)


def test_a_batch_that_cannot_be_sent_is_an_error_here():
    """A lambda, or a tensor with a history, in a batch: an exception in its place, where PyTorch waits for ever."""
    with pytest.raises(RuntimeError, match="detach"):
        read("gradient")
    with pytest.raises((AttributeError, TypeError, OURS.torch.utils.data._utils.worker.pickle.PicklingError), match="could not be sent"):
        read("unpicklable")


def test_a_worker_that_cannot_be_started_is_an_error_here():
    """A data set that cannot be sent to a spawned process: the exception is raised, and no process stays."""
    before = set(multiprocessing.active_children())
    with pytest.warns(UserWarning, match="Got pickle error when"), pytest.raises((AttributeError, TypeError)):  # PyTorch's warning
        list(DataLoader([lambda: 1], num_workers=2, multiprocessing_context="spawn"))
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize("when", ["worker_init_fn", "iter"])
def test_errors_before_the_first_batch_are_raised_here(when):
    """worker_init_fn or the __iter__ of a stream raises in a worker."""

    class Bad(OURS.IterableDataset):
        def __iter__(self):
            raise ZeroDivisionError("in iter")

    def init(worker):
        raise ZeroDivisionError("in init")

    loader = DataLoader(range(4), num_workers=1, worker_init_fn=init) if when != "iter" else DataLoader(Bad(), num_workers=1)
    iterator = iter(loader)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="worker process 0"):
            next(iterator)


@pytest.mark.parametrize("kind, words", [("kill", "SIGKILL"), ("term", "SIGTERM"), ("exit", "exit code 3"), ("leave", "exit code 0")])
@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"in_order": False}], ids=str)
def test_a_dead_worker_is_named(kind, words, options):
    """A worker that dies is reported within seconds, with its pid and the signal, and the others are ended."""
    start = time.monotonic()
    loader = DataLoader(Trouble(kind), 2, num_workers=2, collate_fn=first, **options)
    iterator = iter(loader)
    pids = [process.pid for process in iterator._workers]
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid\(s\) (\d+)\) exited unexpectedly") as caught:
        list(iterator)
    assert words in str(caught.value) and int(re.search(r"pid\(s\) (\d+)", str(caught.value))[1]) in pids
    assert time.monotonic() - start < 10 and not any(alive(pid) for pid in pids)
    with pytest.raises(RuntimeError, match="gone"):
        next(iterator)


def test_a_worker_that_leaves_when_all_tasks_are_given_out_is_noticed():
    """The last tasks are with the workers, which may go when they are done: one that goes before must not leave the loader waiting."""
    loader = DataLoader(Trouble("leave"), 3, num_workers=2, collate_fn=first, prefetch_factor=4)
    with pytest.raises(RuntimeError, match="exit code 0"):
        list(loader)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie counts, it should have been waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_persistent_loader_starts_anew_after_a_death():
    """After the error, iterating again starts new workers."""
    loader = DataLoader(range(6), num_workers=1, persistent_workers=True)
    iterator = iter(loader)
    next(iterator)
    os.kill(iterator._workers[0].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="SIGKILL"):
        list(iterator)
    assert len(list(loader)) == 6


def test_a_worker_killed_while_nobody_waits_is_reported_when_somebody_does():
    """A worker dies between two batches: the next ones tell."""
    iterator = iter(DataLoader(range(100), num_workers=2))
    next(iterator)
    os.kill(iterator._workers[1].pid, signal.SIGKILL)
    time.sleep(0.1)
    with pytest.raises(RuntimeError, match="worker 1 is killed by signal: SIGKILL"):
        list(iterator)


def test_a_slow_worker_runs_into_the_timeout():
    """timeout=0.5 raises after half a second, although the worker sleeps for a minute; it is not waited for."""
    start = time.monotonic()
    with pytest.raises(RuntimeError, match=r"timed out after 0.5 seconds"):
        read("sleep", timeout=0.5)
    import gc

    gc.collect()
    assert time.monotonic() - start < 15


# -- whole programs ------------------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys, time, signal
import numpy as np
import flambeau as torch
from flambeau.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 10_000
    def __getitem__(self, i):
        time.sleep(0.002)
        return torch.full((30_000,), float(i))

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts in the background
    loader = DataLoader(Slow(), 2, num_workers=2, multiprocessing_context=sys.argv[2], persistent_workers=sys.argv[1] == "persistent")
    iterator = iter(loader)
    batch = next(iterator)
    print("pids", *[process.pid for process in iterator._workers], flush=True)
    todo = sys.argv[1]
    if todo == "wait":
        for batch in iterator:
            pass
    if todo == "delete":
        del iterator
        import multiprocessing
        assert not multiprocessing.active_children()
    if todo == "raise":
        raise ValueError("a bug in the program")
    if todo == "sysexit":
        sys.exit(4)
    if todo == "osexit":
        os._exit(5)
    if todo == "kept":
        sys.modules["kept"] = iterator, batch
    print("end", flush=True)
"""


@pytest.fixture
def program(tmp_path):
    """Starts the program above; kills it at the end of the test if it is still there."""
    started = []
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)

    def start(todo, context="fork"):
        environment = {**os.environ, "PYTHONPATH": str(Path(flambeau.__file__).parents[1])}
        process = subprocess.Popen(
            [sys.executable, str(path), todo, context],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment,
        )  # fmt: skip
        started.append(process)
        line = process.stdout.readline()
        assert line.startswith("pids"), process.stderr.read()
        return process, [int(pid) for pid in line.split()[1:]]

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def gone(pids, seconds=12) -> bool:
    """Whether processes end within some seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not any(running(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def running(pid: int) -> bool:
    """Whether a process of somebody else's runs: orphans may stay zombies in a container whose first process does not collect them."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def segments() -> set[str]:
    """Everything with a name in shared memory, but for the semaphores of other tests that run at the same time."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("sem.")} if os.path.isdir("/dev/shm") else set()


@pytest.mark.parametrize("todo, code", [("delete", 0), ("kept", 0), ("persistent", 0), ("raise", 1), ("sysexit", 4), ("osexit", 5)])
def test_workers_end_with_the_program(program, todo, code):
    """However a program ends in the middle of an epoch, its workers end too, without noise on stderr."""
    before = segments()
    process, pids = program(todo)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code, err
    assert ("a bug in the program" in err and "Exception ignored" not in err) if todo == "raise" else err == ""
    assert gone(pids) and segments() <= before


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_end_when_the_parent_is_killed(program, context):
    """kill -9 of the program: workers notice and leave, nothing stays in shared memory."""
    before = segments()
    process, pids = program("wait", context)
    process.kill()
    process.wait(10)
    assert gone(pids) and segments() <= before


def test_ctrl_c_ends_everything(program):
    """SIGINT to the whole group, as a terminal sends it: one KeyboardInterrupt, from the program, and no process stays."""
    before = segments()
    process, pids = program("wait")
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err.count("KeyboardInterrupt"), err.count("Traceback")) == (-signal.SIGINT, 1, 1), err
    assert gone(pids) and segments() <= before


def test_a_forked_child_of_the_program_does_not_end_its_workers():
    """A child that the program forks for itself, and that exits, leaves loaders and workers alone."""
    iterator = iter(DataLoader(range(20), num_workers=2))
    next(iterator)
    child = os.fork()
    if child == 0:
        del iterator
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(iterator)) == 19


def test_workers_that_read_too_much_and_too_many_workers_warn():
    """The phrases by which programs filter these warnings are PyTorch's."""

    class Stream(OURS.torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(2))

        def __len__(self):
            return 2

    loader = DataLoader(Stream(), num_workers=2)
    len(loader)
    with pytest.warns(UserWarning, match=r"but [0-9]+ samples have been fetched\. For multiprocessing data-loading, this"):
        list(loader)
    with pytest.warns(UserWarning, match="excessive worker creation might get DataLoader running slow or even freeze"):
        DataLoader(range(4), num_workers=1000)


def test_exceptions_travel():
    """torch._utils.ExceptionWrapper holds an exception for another thread or process, which raises it with its traceback."""
    from flambeau._utils import ExceptionWrapper

    try:
        {}["missing"]
    except KeyError:
        held = pickle.loads(pickle.dumps(ExceptionWrapper(where="in a test")))
    with pytest.raises(KeyError, match="Caught KeyError in a test") as found:
        held.reraise()
    assert "test_worker_failures.py" in str(found.value) and held.exc_type is KeyError
