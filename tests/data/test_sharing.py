"""Tensors between processes: shared memory, not copies, through everything multiprocessing has."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import time
from multiprocessing.reduction import ForkingPickler

import pytest

import flambeau as torch
import flambeau.multiprocessing as mp


def receive(inbox, outbox):
    """Double what comes, in place, and send it back with what was seen."""
    while (got := inbox.get()) is not None:
        seen = [(type(t).__name__, t.requires_grad, t.is_shared(), tuple(t.shape), t.stride()) for t in got]
        for t in got:
            t.detach().mul_(2)
        outbox.put((got, seen))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_queue_shares_memory(method):
    """A tensor sent through a queue is the same memory on both sides; views, classes, requires_grad and strides arrive."""
    context = mp.get_context(method)
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=receive, args=(inbox, outbox), daemon=True)
    process.start()
    base = torch.arange(6.0)
    sent = [base, base.reshape(2, 3).t(), torch.nn.Parameter(torch.ones(2)), torch.ones(1, requires_grad=True), torch.ones(2, 0)]
    inbox.put(sent)
    back, seen = outbox.get(timeout=60)
    assert base.tolist() == [0, 4, 8, 12, 16, 20], "doubled twice: as a whole, and through the view"
    assert [s[0] for s in seen] == ["Tensor", "Tensor", "Parameter", "Tensor", "Tensor"]
    assert [s[1] for s in seen] == [False, False, True, True, False] and all(s[2] for s in seen[:4])
    assert seen[1][3:] == ((3, 2), (1, 3)) and seen[4][3] == (2, 0)
    assert back[0].data_ptr() == base.data_ptr() and back[0].untyped_storage() is base.untyped_storage(), "it came home"
    assert back[2].tolist() == [2, 2] and isinstance(back[2], torch.nn.Parameter)
    inbox.put(None)
    process.join(20)
    assert process.exitcode == 0


def write(tensor, pipe):
    tensor.fill_(7)
    pipe.send(torch.tensor([1, 2], dtype=torch.bfloat16))
    pipe.recv()


def test_arguments_and_pipes():
    """A tensor among the arguments of a process is shared after share_memory_(); pipes carry any dtype."""
    tensor = torch.zeros(3).share_memory_()
    ours, theirs = mp.Pipe()
    process = mp.get_context("fork").Process(target=write, args=(tensor, theirs), daemon=True)
    process.start()
    assert ours.poll(30) and ours.recv().tolist() == [1, 2]
    ours.send(None)
    process.join(20)
    assert tensor.tolist() == [7, 7, 7]


def test_a_history_is_refused():
    """The result of an operation that requires a gradient cannot be sent: backward would stop silently."""
    with pytest.raises(RuntimeError, match="detach"):
        ForkingPickler.dumps(torch.ones(2, requires_grad=True) * 2)
    assert pickle.loads(pickle.dumps(torch.ones(2))).tolist() == [1, 1], "pickle itself still copies"


def test_shared_memory_has_no_name_and_goes_away():
    """Sharing leaves nothing in /dev/shm, and its descriptors go with the tensors."""
    names = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    tensors = [torch.ones(1000).share_memory_() for _ in range(20)]
    view = tensors[0][5:]
    assert all(t.is_shared() for t in tensors) and view.is_shared() and not torch.ones(1).is_shared()
    if names:
        assert set(os.listdir("/dev/shm")) <= names
    del tensors, view
    gc.collect()
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before


def test_a_resized_storage_is_not_the_shared_one():
    """After a storage was resized it lies elsewhere, and is moved again when it is sent."""
    tensor = torch.ones(4).share_memory_()
    tensor.untyped_storage().resize_(64)
    assert not tensor.is_shared()
    back = pickle.loads(ForkingPickler.dumps(tensor))
    assert back.tolist() == [1, 1, 1, 1] and tensor.is_shared()


def test_a_module_is_shared():
    """The parameters of a model with share_memory() are written by other processes: asynchronous training."""
    model = torch.nn.Linear(2, 2)
    for p in model.parameters():
        p.share_memory_()
    process = mp.get_context("fork").Process(target=zero, args=(model,), daemon=True)
    process.start()
    process.join(30)
    assert all(p.detach().abs().sum().item() == 0 for p in model.parameters())


def zero(model):
    for p in model.parameters():
        p.data.zero_()


# -- spawn ---------------------------------------------------------------------------------------------------------------


def store(i, out):
    out[i] = i + 1


def fail(i, kind):
    if i == 1 and kind == "raise":
        raise ValueError("a mistake")
    if i == 1 and kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if i == 1 and kind == "exit":
        os._exit(7)
    time.sleep(60)


def test_start_processes_runs_a_function_in_each():
    """fn(i, *args) runs for every i, with shared tensors."""
    out = torch.zeros(3).share_memory_()
    assert mp.start_processes(store, (out,), nprocs=3, start_method="fork") is None
    assert out.tolist() == [1, 2, 3]


@pytest.mark.parametrize("kind", ["raise", "kill", "exit"])
def test_the_first_failure_ends_all(kind):
    """One process fails: the others are ended within seconds, and the exception says which, how, and with its traceback."""
    start = time.monotonic()
    context = mp.start_processes(fail, (kind,), nprocs=2, join=False, start_method="fork")
    with pytest.raises(Exception) as caught:
        while not context.join(timeout=20):
            pass
    problem = caught.value
    assert time.monotonic() - start < 20 and problem.error_index == 1 and problem.error_pid == context.pids()[1]
    if kind == "raise":
        assert (
            isinstance(problem, mp.ProcessRaisedException) and "ValueError: a mistake" in str(problem) and "test_sharing.py" in str(problem)
        )
    else:
        assert isinstance(problem, mp.ProcessExitedException)
        assert (problem.exit_code, problem.signal_name) == ((-9, "SIGKILL") if kind == "kill" else (7, None))
    assert not any(process.is_alive() for process in context.processes)
    assert str(pickle.loads(pickle.dumps(problem))) == str(problem)


def test_spawned_processes_see_shared_tensors():
    """spawn() itself, with new interpreters."""
    out = torch.zeros(2)
    mp.spawn(store, (out,), nprocs=2)
    assert out.tolist() == [1, 2] and out.is_shared()


def test_names_are_pytorchs():
    """Every public name of torch.multiprocessing is there, and the sharing strategies are accepted."""
    theirs = pytest.importorskip("torch").multiprocessing
    assert set(theirs.__all__) <= set(mp.__all__) and all(hasattr(mp, name) for name in mp.__all__)
    for name in ("spawn", "start_processes", "SpawnContext", "ProcessContext", "ProcessRaisedException", "reductions"):
        assert hasattr(mp, name)
    assert mp.get_all_sharing_strategies() == theirs.get_all_sharing_strategies()
    mp.set_sharing_strategy("file_system")
    assert mp.get_sharing_strategy() == "file_system"
    mp.set_sharing_strategy("file_descriptor")
    with pytest.raises(AssertionError):
        mp.set_sharing_strategy("telepathy")
