"""Results are the same bits with any number of threads, and the threads survive a fork.

Work is cut in blocks that depend on the shape alone, so it makes no difference who computes a block.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

import flambeau as torch
from flambeau.kernels.native import native

THREADS = (1, 2, 3, 8)

compiled = pytest.mark.skipif(native.lib is None, reason="the extension is not compiled: there is one thread")


@pytest.fixture(autouse=True)
def restored():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def random(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


def indices(high, n, seed=0):
    return torch.randint(0, high, (n,), generator=torch.Generator().manual_seed(seed))


def with_gradients(function):
    """The result of a function and the gradients of its float operands."""

    def run(*operands):
        leaves = [x.clone().requires_grad_() if x.is_floating_point() else x for x in operands]
        result = function(*leaves)
        result.backward(random(*result.shape, seed=9))
        return [result, *(x.grad for x in leaves if x.is_floating_point())]

    return run


A, B = (701, 403), (403, 701)
# name: (function, operands). Large enough to be shared, and of no round size.
CASES = {
    "pointwise": (lambda x, y: (x * y + x.exp()).tanh(), [random(*A), random(*A, seed=1)]),
    "pointwise, broadcast": (lambda x, y: x + y, [random(*A), random(403, seed=1)]),
    "pointwise, transposed": (lambda x, y: x.t() * y, [random(*A), random(*B, seed=1)]),
    "pointwise, every other": (lambda x: x[::2, ::3].sigmoid(), [random(2001, 901)]),
    "pointwise, in place": (lambda x: x.clone().mul_(3).add_(x), [random(*A)]),
    "pointwise, bfloat16": (lambda x: torch.exp(x), [random(*A, dtype=torch.bfloat16)]),
    "pointwise, int64": (lambda x: x * x + 7, [indices(1000, 200_003)]),
    "batch norm, features": (
        with_gradients(lambda x, w, b: torch.nn.functional.batch_norm(x, None, None, w, b, training=True)),
        [random(*A), random(403, seed=1), random(403, seed=2)],
    ),
    "batch norm, images": (
        with_gradients(lambda x, w, b: torch.nn.functional.batch_norm(x, None, None, w, b, training=True)),
        [random(7, 19, 33, 31), random(19, seed=1), random(19, seed=2)],
    ),
    "group norm": (
        with_gradients(lambda x, w, b: torch.nn.functional.group_norm(x, 3, w, b)),
        [random(7, 18, 33, 31), random(18, seed=1), random(18, seed=2)],
    ),
    "pad": (with_gradients(lambda x: torch.nn.functional.pad(x, (3, 1, 2, 5), mode="reflect")), [random(7, 19, 33, 31)]),
    "grid_sample": (
        with_gradients(lambda x, grid: torch.nn.functional.grid_sample(x, grid, align_corners=False)),
        [random(7, 19, 33, 31), random(7, 41, 43, 2, seed=1)],
    ),
    "cast": (lambda x: x.half(), [random(*A)]),
    "comparison": (lambda x, y: x < y, [random(*A), random(*A, seed=1)]),
    "copy": (lambda x: x.t().contiguous(), [random(*A)]),
    "sum": (lambda x: x.sum(), [random(1_000_003)]),
    "sum, float64": (lambda x: x.sum(), [random(500_003, dtype=torch.float64)]),
    "sum, rows": (lambda x: x.sum(1), [random(*A)]),
    "sum, columns": (lambda x: x.sum(0), [random(*A)]),
    "sum, one long row": (lambda x: x.sum(1), [random(3, 300_001)]),
    "sum, long columns": (lambda x: x.sum(0), [random(300_001, 3)]),
    "sum, middle": (lambda x: x.sum(1), [random(31, 203, 41)]),
    "sum, outer two": (lambda x: x.sum((0, 2)), [random(31, 203, 41)]),
    "sum, int": (lambda x: x.sum(0), [indices(100, 300_000).reshape(1000, 300)]),
    "mean": (lambda x: [x.mean(), x.mean(0), x.mean(1)], [random(*A)]),
    "max": (lambda x: [x.max(), *x.max(0), *x.max(1)], [random(*A)]),
    "argmin": (lambda x: [x.argmin(), x.argmin(0), x.argmin(1)], [random(*A)]),
    "var": (lambda x: [x.var(), x.var(0), x.std(1)], [random(*A)]),
    "prod": (lambda x: [x.prod(), x.prod(0), x.prod(1)], [random(*A) * 0.01 + 1]),
    "any": (lambda x: [(x > 4).any(), (x > 3).any(0), (x > -4).all(1)], [random(*A)]),
    "norm": (lambda x: [x.norm(), x.norm(dim=0), x.norm(1, dim=1)], [random(*A)]),
    "logsumexp": (lambda x: [x.logsumexp(0), x.logsumexp(1)], [random(*A)]),
    "softmax": (lambda x: [x.softmax(0), x.softmax(1), x.log_softmax(1)], [random(*A)]),
    "softmax, gradients": (with_gradients(lambda x: x.softmax(1)), [random(*A)]),
    "matmul": (lambda x, y: x @ y, [random(*A), random(*B, seed=1)]),
    "matmul, float64": (lambda x, y: x @ y, [random(*A, dtype=torch.float64), random(*B, dtype=torch.float64, seed=1)]),
    "matmul, transposed": (lambda x, y: x.t() @ y, [random(*A), random(*A, seed=1)]),
    "matmul, tall": (lambda x, y: x @ y, [random(5003, 64), random(64, 7, seed=1)]),
    "matmul, long": (lambda x, y: x @ y, [random(5, 20_011), random(20_011, 3, seed=1)]),
    "matmul, vector": (lambda x, y: x @ y, [random(*A), random(403, seed=1)]),
    "matmul, batched": (lambda x, y: x @ y, [random(13, 71, 65), random(13, 65, 39, seed=1)]),
    "matmul, gradients": (with_gradients(lambda x, y: x @ y), [random(*A), random(*B, seed=1)]),
    "cumsum": (lambda x: [x.cumsum(0), x.cumsum(1)], [random(*A)]),
    "sort": (lambda x: [*x.sort(0), *x.sort(1)], [random(*A)]),
    "topk": (lambda x: [*x.topk(5)], [random(*A)]),
    "gather": (lambda x, i: x.gather(0, i), [random(1000, 300), indices(1000, 300_000).reshape(1000, 300)]),
    "index_select": (lambda x, i: x.index_select(0, i), [random(1000, 129), indices(1000, 5003)]),
    "index_add": (lambda x, i, y: x.index_add(0, i, y), [random(50, 129), indices(50, 5003), random(5003, 129, seed=1)]),
    "scatter_add": (lambda x, i, y: x.scatter_add(0, i, y), [random(50, 300), indices(50, 300_000).reshape(1000, 300), random(1000, 300, seed=1)]),
    "index_put, accumulating": (lambda x, i, y: x.index_put((i,), y, accumulate=True), [random(97), indices(97, 100_003), random(100_003, seed=1)]),
    "masked_select": (lambda x: x.masked_select(x > 0), [random(*A)]),
    "bincount": (lambda i: torch.bincount(i), [indices(97, 300_003)]),
    "embedding, gradients": (with_gradients(lambda w, i: torch.nn.functional.embedding(i, w)), [random(50, 65), indices(50, 5003)]),
    "random numbers": (lambda x: [torch.manual_seed(3) and torch.randn(300_003), torch.rand(300_003), torch.bernoulli(x)], [torch.full((300_003,), 0.3)]),
}  # fmt: skip


def same_bits(a, b) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = (x.detach().reshape(-1).view(torch.uint8) for x in (a, b))
    return torch.equal(a, b)


@compiled
@pytest.mark.parametrize("name", CASES)
def test_results_do_not_depend_on_the_number_of_threads(name):
    """An operation on a large input gives other bits with another number of threads."""
    function, operands = CASES[name]
    found = {}
    for n in THREADS:
        torch.set_num_threads(n)
        result = function(*operands)
        found[n] = list(result) if isinstance(result, (list, tuple)) else [result]
    for n in THREADS[1:]:
        assert all(map(same_bits, found[1], found[n])), f"{name}: {n} threads differ from one"


def test_the_number_of_threads_is_what_was_set():
    """get_num_threads gives back what set_num_threads was given (without compiled kernels there is one thread)."""
    for n in THREADS:
        torch.set_num_threads(n)
        assert torch.get_num_threads() == (n if native.lib is not None else 1)


@pytest.mark.parametrize("n", [0, -1, 1.5, "2", None, True, 10**30])
def test_a_number_of_threads_must_be_a_positive_integer(n):
    """set_num_threads takes what PyTorch takes and refuses the rest with PyTorch's exception type."""
    oracle = pytest.importorskip("torch")
    before = oracle.get_num_threads()
    try:
        oracle.set_num_threads(n)
    except Exception as problem:
        with pytest.raises(type(problem)):
            torch.set_num_threads(n)
    else:
        torch.set_num_threads(n)
    finally:
        oracle.set_num_threads(before)


def computes() -> bool:
    """Pointwise, reduction and product, all large enough for the pool."""
    x = torch.ones(700, 700)
    return (x * 2).sum().item() == 980_000 and (x @ x)[3, 4].item() == 700 and x.softmax(1).sum().item() > 699


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_computes():
    """After os.fork() the child has no worker threads: it must make its own instead of waiting for them, and its children too."""
    torch.set_num_threads(4)
    assert computes()
    assert child(lambda: computes() and child(computes))
    assert computes(), "the parent goes on"


def child(function) -> bool:
    """Whether the function is true in a forked process, within 30 seconds."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if function() else 1
        finally:
            os._exit(code)
    for _ in range(3000):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        threading.Event().wait(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    pytest.fail("the forked child hangs")


def test_python_threads_compute_side_by_side():
    """Operations called from several Python threads at once, while the number of threads changes, give the right results."""
    wrong, expected = [], (random(700, 701) * 2).sum(0)

    def work():
        for _ in range(10):
            if not same_bits((random(700, 701) * 2).sum(0), expected):
                wrong.append(threading.current_thread().name)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for n in (1, 3, 2, 8, 1, 4):
        torch.set_num_threads(n)
    for worker in workers:
        worker.join()
    assert not wrong


FIRST_CALLS = """
import sys, threading, traceback
import flambeau as torch
import flambeau.nn.functional as F

sys.setswitchinterval(1e-5)
data, other = [torch.randn(4, 4, generator=torch.Generator().manual_seed(seed)) + 4 * torch.eye(4) for seed in (1, 2)]
index = torch.tensor([0, 2, 1, 3])


def step():
    a, b = data.clone().requires_grad_(), other.clone()
    x = (a * b + a / 2 - b).sigmoid().tanh().view(2, 8).transpose(0, 1).reshape(16)[2:10]
    total = torch.cat([x, x * 2]).softmax(0).log().sum() + x.mean() + a[0, 1] + a[[0, 2]].sum() + a[b > 0].var()
    total = total + F.linear(a, b).relu().max(dim=1).values.sum() + torch.einsum("ij,jk->ik", a, b).norm() + a.split(2)[0].prod()
    c = a.clone()
    c.mul_(2)
    c[0] = 1
    c[:, 1].add_(b[0])
    c.clamp_(-1, 1).index_fill_(0, index[:1], 0.5).t_().masked_fill_(b > 3, 0.25)
    total = total + torch.where(c > 0, c, b).cumsum(0).sort(0)[0].topk(2)[0].sum() + F.mse_loss(a, b) + F.cross_entropy(a, index)
    total = total + F.layer_norm(a, (4,)).pow(3).sum() + F.batch_norm(a, None, None, training=True).exp().sum() + F.gelu(a).std()
    image = a.view(1, 1, 4, 4)
    total = total + F.conv2d(image, b[:2, :2].reshape(1, 1, 2, 2)).sum() + F.max_pool2d(image, 2).sum() + F.pad(image, (1, 1)).sum()
    total = total + torch.linalg.inv(a).sum() + a.gather(0, index.view(1, 4)).sum() + a.unfold(0, 2, 1).sum() + a.flip(0).amax()
    total = total + a.expand(2, 4, 4).permute(1, 2, 0).squeeze().unsqueeze(0).chunk(2, 1)[0].sum() + a.diagonal().sum() + a.atan2(b).sum()
    total = total + a.roll(1).tril().logsumexp(0).sum() + torch.addmm(b, a, a).sum() + torch.lerp(a, b, 0.3).sum() + (a @ b).trace()
    total = total + torch.view_as_complex(a.view(4, 2, 2)).conj().abs().sum() + torch.stack([a, b]).median() + F.embedding(index, a).sum()
    total.backward()
    return a.grad


found, start = [], threading.Barrier(8)


def work():
    start.wait()
    try:
        found.append([step(), step(), step()])
    except BaseException:
        found.append(traceback.format_exc())


threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
problems = [f for f in found if isinstance(f, str)]
assert not problems, problems[0]
expected = step()
assert all(torch.equal(grad, expected) for grads in found for grad in grads)
"""


@pytest.mark.parametrize("_", range(2))
def test_many_threads_may_use_operations_for_the_first_time_together(_):
    """What is made at its first use (functions, recipes of nodes, remembered calls) is never seen half made by another thread."""
    subprocess.run([sys.executable, "-c", FIRST_CALLS], check=True, timeout=300)


PAUSES = """
import os, time
import flambeau as torch

torch.set_num_threads(2)
x = torch.ones(512, 512)
for _ in range(20):  # workers fall asleep in the pauses
    (x @ x).sum().item()
    time.sleep(0.002)
threads = [int(name) for name in os.listdir("/proc/self/task")]
assert len(threads) > 1
assert {frozenset(os.sched_getaffinity(thread)) for thread in threads} == {frozenset(os.sched_getaffinity(0))}
"""


@compiled
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="there is one CPU to run on")
def test_workers_that_step_aside_may_still_run_anywhere():
    """A worker that wakes on its caller's CPU leaves it, and is bound to no other by that: what the program may use, its threads may."""
    found = os.pathsep.join(filter(None, sys.path))  # in a process without the threads of a driver
    subprocess.run([sys.executable, "-c", PAUSES], check=True, timeout=60, env=os.environ | {"PYTHONPATH": found})
