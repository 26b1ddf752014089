"""Processes that train together on shared memory, and leave nothing behind: no process, no descriptor, no file."""

from __future__ import annotations

import functools
import gc
import os
import signal
import subprocess
import sys
import time

import pytest

import flambeau as torch
import flambeau.multiprocessing as mp
import flambeau.nn as nn
import flambeau.nn.functional as F
from flambeau.multiprocessing.reductions import StorageWeakRef


@pytest.fixture(autouse=True)
def nothing_left():
    """No child, no name in /dev/shm and no more descriptors than before."""
    gc.collect()
    names, descriptors = _names(), len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    assert not mp.active_children()
    assert _names() == names
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 4  # the thread that hands descriptors over has a socket


def _names() -> set:
    return {name for name in os.listdir("/dev/shm") if name.startswith(("torch_", "psm_", "flambeau"))}


# -- Hogwild: all processes write to one model, without asking each other -----------------------------------------------------------


def points(seed: int):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(256, 4, generator=generator)
    return x, (x @ torch.tensor([1.0, -2.0, 3.0, -4.0]) > 0).long()


def train(rank: int, model: nn.Module, done) -> None:
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    x, y = points(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    for _ in range(8):
        for batch in torch.randperm(256).split(32):
            optimizer.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    done[rank] += 1


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))


def accuracy(model) -> float:
    x, y = points(99)
    return (model.eval()(x).argmax(1) == y).float().mean().item()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_hogwild(method):
    """Two processes train one shared model, each with its own optimizer, data and gradients: it learns, in the memory it had before."""
    model, done = network(), torch.zeros(2).share_memory_()
    before = accuracy(model)
    model.train().share_memory()
    where = [p.data_ptr() for p in model.parameters()]
    assert all(p.is_shared() for p in model.parameters())
    context = mp.get_context(method)
    processes = [context.Process(target=train, args=(rank, model, done)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0] and done.tolist() == [1, 1]
    assert accuracy(model) > max(0.9, before)
    assert [p.data_ptr() for p in model.parameters()] == where and all(p.grad is None for p in model.parameters())
    for process in processes:
        process.close()


# -- queues, pools -----------------------------------------------------------------------------------------------------------------


def answer(questions, answers, seen) -> None:
    while (tensor := questions.get()) is not None:
        tensor += 1
        answers.put(tensor * 10)
        answers.put(tensor)
        seen.wait(30)
        seen.clear()


@pytest.mark.parametrize("kind", ["Queue", "SimpleQueue", "JoinableQueue"])
def test_queues_share_both_ways(kind):
    """What the child writes to a tensor it was sent is seen here; what is written here to one that came back is seen there; a result of the child's own
    arrives as memory of the child's."""
    context = mp.get_context("fork")
    questions, answers, seen = getattr(context, kind)(), getattr(context, kind)(), context.Event()
    child = context.Process(target=answer, args=(questions, answers, seen), daemon=True)
    child.start()
    tensor = torch.zeros(4)
    for turn in range(1, 4):
        questions.put(tensor)
        fresh, same = answers.get(), answers.get()
        assert tensor.tolist() == [turn] * 4 and fresh.tolist() == [turn * 10] * 4 and fresh.is_shared()
        assert same.data_ptr() == tensor.data_ptr()
        seen.set()
    questions.put(None)
    child.join(30)
    assert child.exitcode == 0
    child.close()
    for queue in (questions, answers):
        queue.close()


def fill(pair):
    tensor, value = pair
    tensor.fill_(value)
    return tensor.sum(), {"rows": [tensor[:1]]}


def test_pool():
    """map, imap and apply_async with tensors in and out: arguments are written in place, results come in their containers; the pool is gone afterwards."""
    tensors = [torch.zeros(2, 3) for _ in range(6)]
    with mp.get_context("fork").Pool(2) as pool:
        found = pool.map(fill, [(t, i) for i, t in enumerate(tensors)])
        assert [float(total) for total, _ in found] == [6.0 * i for i in range(6)]
        assert [t[0, 0].item() for t in tensors] == list(range(6)) and found[3][1]["rows"][0].tolist() == [[3, 3, 3]]
        assert found[2][1]["rows"][0].data_ptr() == tensors[2].data_ptr(), "it is the tensor that was sent"
        assert [float(total) for total, _ in pool.imap(fill, [(tensors[0], 7)])] == [42.0]
        assert float(pool.apply_async(fill, ((tensors[0], 1),)).get(30)[0]) == 6.0
        workers = [process.pid for process in pool._pool]
        pool.close()
        pool.join()
    assert not any(alive(pid) for pid in workers)


def echo(inbox, outbox) -> None:
    while (got := inbox.get()) is not None:
        outbox.put(got)


def test_hundreds_of_tensors_leave_no_descriptors():
    """Sending many tensors back and forth keeps a descriptor only for those that live."""
    context = mp.get_context("fork")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=echo, args=(inbox, outbox), daemon=True)
    child.start()
    counts = []
    for _ in range(4):
        for i in range(60):
            inbox.put(torch.full((3,), float(i)))
            assert outbox.get(timeout=30)[0].item() == i
        gc.collect()
        counts.append(len(os.listdir("/proc/self/fd")))
    inbox.put(None)
    child.join(30)
    child.close()
    for queue in (inbox, outbox):
        queue.close()
        queue.join_thread()
    assert counts[-1] <= counts[0] + 2, counts


def test_a_whole_model_through_a_queue():
    """A module that is sent arrives with its parameters as shared memory, tied weights tied."""
    model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    model.b.weight = model.a.weight
    context = mp.get_context("fork")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=echo, args=(inbox, outbox), daemon=True)
    child.start()
    inbox.put(model)
    back = outbox.get(timeout=30)
    inbox.put(None)
    child.join(30)
    child.close()
    for queue in (inbox, outbox):
        queue.close()
        queue.join_thread()
    assert back.a.weight is back.b.weight and back.a.weight.data_ptr() == model.a.weight.data_ptr()
    with torch.no_grad():
        back.a.bias.fill_(3)
    assert model.a.bias.tolist() == [3, 3, 3] and isinstance(back.a.bias, nn.Parameter)


MANY = """
import resource
import flambeau as torch
resource.setrlimit(resource.RLIMIT_NOFILE, (200, {hard}))
tensors = [torch.full((3,), float(i)) for i in range(400)]
try:
    for tensor in tensors:
        tensor.share_memory_()
    print(all(t.is_shared() and t[0] == i for i, t in enumerate(tensors)))
except RuntimeError as problem:
    print(problem)
"""


@pytest.mark.parametrize(("hard", "said"), [(2000, "True"), (200, "Too many open files")])
def test_more_tensors_than_descriptors(hard, said):
    """A process asks for more descriptors when shared tensors use up what it has; where there are no more, the message says what to do."""
    made = subprocess.run([sys.executable, "-c", MANY.format(hard=hard)], capture_output=True, text=True, timeout=60)
    assert made.stdout.startswith(said), made.stderr
    assert hard > 200 or "ulimit -n" in made.stdout


# -- spawn -----------------------------------------------------------------------------------------------------------------------


def talkative(i: int) -> None:
    raise ValueError("long " * 50_000)


def test_a_long_error_arrives_whole():
    """A traceback larger than a pipe's buffer neither hangs nor is cut."""
    start = time.monotonic()
    with pytest.raises(mp.ProcessRaisedException) as found:
        mp.start_processes(talkative, nprocs=2, start_method="fork")
    assert time.monotonic() - start < 20 and str(found.value).count("long ") >= 50_000


def short(i: int, out) -> None:
    time.sleep(0.05 * i)
    out[i] = 1


def _first_fails(i: int, seconds: float) -> None:
    if i == 0:
        sys.exit(7)
    time.sleep(seconds)


@pytest.mark.parametrize(
    ("grace", "seconds", "said"), [(None, 60, "Terminating process"), (60, 0.5, None), (0.2, 60, "Terminating process")]
)
def test_the_others_may_end_by_themselves(caplog, grace, seconds, said):
    """After an error the others have the grace period to end on their own, and are then ended with a warning; before, they were ended at once."""
    context = mp.start_processes(_first_fails, (seconds,), 2, join=False, start_method="fork")
    with pytest.raises(mp.ProcessExitedException, match="process 0 terminated with exit code 7"):
        while not context.join(grace_period=grace):
            pass
    assert not any(p.is_alive() for p in context.processes)
    assert (context.processes[1].exitcode == 0) is (said is None)
    assert [said] * (said is not None) == [r.getMessage()[:19] for r in caplog.records]


def _put_pid(i: int, queue) -> None:
    queue.put((i, os.getpid()))


def test_a_server_starts_all_at_once(monkeypatch):
    """TORCH_MP_PARALLEL_START starts processes from threads; each has its own number."""
    monkeypatch.setenv(mp.ENV_VAR_PARALLEL_START, "1")
    queue = mp.get_context("forkserver").SimpleQueue()
    context = mp.start_processes(_put_pid, (queue,), 3, join=False, start_method="forkserver")
    while not context.join():
        pass
    found = dict(queue.get() for _ in range(3))
    assert [found[i] for i in range(3)] == context.pids()


def test_join_reports_progress():
    """join(timeout) returns False while something runs, True when all have ended, again and again."""
    out = torch.zeros(3).share_memory_()
    running = mp.start_processes(short, (out,), nprocs=3, join=False, start_method="fork")
    assert len(set(running.pids())) == 3
    turns = 0
    while not running.join(timeout=10):
        turns += 1
    assert turns <= 3 and out.tolist() == [1, 1, 1] and running.join()


PARENT = """
import sys, time
import flambeau.multiprocessing as mp

def sleep(i, path):
    with open(f"{path}/{i}", "w") as file:
        import os
        file.write(str(os.getpid()))
    time.sleep(120)

if __name__ == "__main__":
    mp.start_processes(sleep, (sys.argv[1],), nprocs=2, start_method="fork")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux tells children that their parent is gone")
def test_children_end_with_a_parent_that_was_killed(tmp_path):
    """kill -9 of the program takes its processes along."""
    heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # ignored in what a shell starts in the background
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], preexec_fn=heard)
    until = time.monotonic() + 30
    while len(found := [p.read_text() for p in tmp_path.iterdir() if p.read_text()]) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(found) == 2
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    while any(alive(int(pid)) for pid in found) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(alive(int(pid)) for pid in found)


def alive(pid: int) -> bool:
    """Whether a process runs: a zombie that waits for its parent does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# -- names -----------------------------------------------------------------------------------------------------------------------


def test_names_of_rooms():
    """The names programs import from torch.multiprocessing's rooms."""
    from flambeau.multiprocessing.pool import Pool
    from flambeau.multiprocessing.queue import Queue, SimpleQueue

    assert callable(Pool) and callable(Queue) and callable(SimpleQueue) and mp.spawn.__name__ == "spawn"
    tensor = torch.ones(2)
    one, other = StorageWeakRef(tensor.untyped_storage()), StorageWeakRef(tensor.view(1, 2).untyped_storage())
    assert one == other and hash(one) == hash(other) and not one.expired()
    del tensor
    gc.collect()
    assert one.expired()
