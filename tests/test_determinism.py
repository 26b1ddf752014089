"""The same seed gives the same bits: in another process, with another number of threads, in whatever order indices come."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import warnings

import pytest

import flambeau as torch
import flambeau.nn.functional as F

oracle = pytest.importorskip("torch")

RUN = """
import hashlib, sys
import flambeau as torch
from flambeau import nn
F = nn.functional

torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(0)
torch.use_deterministic_algorithms(True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.norm, self.drop, self.head = nn.BatchNorm2d(8), nn.Dropout(0.3), nn.Linear(8 * 16 * 16, 10)

    def forward(self, ids):
        x = self.norm(self.conv(self.embed(ids).unsqueeze(1))).relu()
        return self.head(self.drop(x.flatten(1)))


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        return torch.randint(0, 50, (16,)), i % 10  # drawn in workers


model, digest = Net(), hashlib.sha256()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = torch.utils.data.DataLoader(Data(), batch_size=32, shuffle=True, num_workers=2)
for low in (False, True):
    for ids, labels in loader:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
            logits = model(ids)
            groups = torch.zeros(10, 10).index_add(0, labels, logits.float()).scatter_add(1, (labels % 10)[None, :10].expand(10, -1), logits[:10].float())
            loss = F.cross_entropy(logits, labels) + groups.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        digest.update(loss.detach().numpy().tobytes())
for name, tensor in model.state_dict().items():
    digest.update(tensor.numpy().tobytes())
print(digest.hexdigest(), loss.item())
"""


def test_a_training_run_repeats_in_another_process_to_the_bit():
    """Embedding, convolution, batch norm, dropout, index_add and scatter_add, workers that draw numbers, bfloat16: one seed, one result, whatever the
    hash seed of Python and the number of threads."""
    found = set()
    for threads, hashes in ((2, "1"), (2, "2"), (3, "3")):
        made = subprocess.run(
            [sys.executable, "-c", RUN, str(threads)],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert made.returncode == 0, made.stderr
        found.add(made.stdout)
    assert len(found) == 1


N = 30_011  # shared by the threads, and each place is written to about 60 times
SOURCE, INDEX = (
    torch.randn(N, 5, generator=torch.Generator().manual_seed(0)),
    torch.randint(0, 500, (N,), generator=torch.Generator().manual_seed(1)),
)


def embedding_backward():
    weight = torch.zeros(500, 5, requires_grad=True)
    F.embedding(INDEX, weight).backward(SOURCE)
    return weight.grad


def bag_backward():
    weight = torch.zeros(500, 5, requires_grad=True)
    F.embedding_bag(INDEX, weight, torch.arange(0, N, 11), mode="mean").backward(SOURCE[: -(-N // 11)])
    return weight.grad


def gather_backward():
    x = torch.zeros(500, 5, requires_grad=True)
    x.gather(0, INDEX[:, None].expand(-1, 5)).backward(SOURCE)
    return x.grad


def indexing_backward():
    x = torch.zeros(500, 5, requires_grad=True)
    x[INDEX].backward(SOURCE)
    return x.grad


SUMS = {
    "scatter_add": lambda: torch.zeros(500, 5).scatter_add(0, INDEX[:, None].expand(-1, 5), SOURCE),
    "scatter_reduce, mean": lambda: torch.zeros(500, 5).scatter_reduce(0, INDEX[:, None].expand(-1, 5), SOURCE, "mean"),
    "scatter_reduce, prod": lambda: torch.ones(500, 5).scatter_reduce(0, INDEX[:, None].expand(-1, 5), SOURCE, "prod"),
    "scatter": lambda: torch.zeros(500, 5).scatter(0, INDEX[:, None].expand(-1, 5), SOURCE),
    "index_add": lambda: torch.zeros(500, 5).index_add(0, INDEX, SOURCE),
    "index_add, inner": lambda: torch.zeros(5, 500).index_add(1, INDEX, SOURCE.t()),
    "index_reduce": lambda: torch.zeros(500, 5).index_reduce(0, INDEX, SOURCE, "mean"),
    "index_copy": lambda: torch.zeros(500, 5).index_copy(0, INDEX, SOURCE),
    "index_put, accumulated": lambda: torch.zeros(500, 5).index_put((INDEX,), SOURCE, accumulate=True),
    "index_put": lambda: torch.zeros(500, 5).index_put((INDEX,), SOURCE),
    "put, accumulated": lambda: torch.zeros(500).put_(INDEX, SOURCE[:, 0], accumulate=True),
    "bincount": lambda: torch.bincount(INDEX, SOURCE[:, 0]),
    "embedding's backward": embedding_backward,
    "embedding bag's backward": bag_backward,
    "gather's backward": gather_backward,
    "indexing's backward": indexing_backward,
    "bfloat16": lambda: torch.zeros(500, 5, dtype=torch.bfloat16).index_add(0, INDEX, SOURCE.bfloat16()).float(),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_at_indices_do_not_depend_on_threads(name):
    """Where several numbers meet at one place, their order is that of the indices, and the sum is the same bits with any number of threads."""
    before, found = torch.get_num_threads(), set()
    try:
        for threads in (1, 2, 3, 8, 2):
            torch.set_num_threads(threads)
            found.add(hashlib.sha256(SUMS[name]().contiguous().numpy().tobytes()).hexdigest())
    finally:
        torch.set_num_threads(before)
    assert len(found) == 1


# -- switches --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def as_before():
    yield
    for framework in (torch, oracle):
        framework.use_deterministic_algorithms(False)
        framework.utils.deterministic.fill_uninitialized_memory = True


def answers(framework) -> tuple:
    return (
        framework.are_deterministic_algorithms_enabled(),
        framework.is_deterministic_algorithms_warn_only_enabled(),
        framework.get_deterministic_debug_mode(),
    )


@pytest.mark.parametrize("mode", [0, 1, 2, "default", "warn", "error", True, 3, "loud", 1.5, None])
def test_debug_modes(mode, as_before):
    """set_deterministic_debug_mode and its answers are PyTorch's, and so is the type of its refusals."""
    outcomes = []
    for framework in (oracle, torch):
        try:
            framework.set_deterministic_debug_mode(mode)
            outcomes.append(answers(framework))
        except Exception as problem:
            outcomes.append(type(problem))
    assert outcomes[0] == outcomes[1]


def test_asking_for_determinism(as_before):
    """On, on with warnings, off; what is not a bool is refused, and warn_only is a keyword."""
    for arguments in ({"mode": True}, {"mode": True, "warn_only": True}, {"mode": False, "warn_only": True}):
        for framework in (oracle, torch):
            framework.use_deterministic_algorithms(**arguments)
        assert answers(torch) == answers(oracle)
    assert answers(torch)[0] is False
    for call in (lambda f: f.use_deterministic_algorithms(1), lambda f: f.use_deterministic_algorithms(True, True)):
        for framework in (oracle, torch):
            with pytest.raises(TypeError):
                call(framework)


MADE = {
    "empty": lambda f, dtype: f.empty(3, dtype=dtype),
    "empty_like": lambda f, dtype: f.empty_like(f.ones(2, 2), dtype=dtype),
    "empty_strided": lambda f, dtype: f.empty_strided((2, 2), (1, 2), dtype=dtype),
    "new_empty": lambda f, dtype: f.ones(1).new_empty(2, dtype=dtype),
    "resize_": lambda f, dtype: f.ones(2, dtype=dtype).resize_(5),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int64", "uint8", "bool"])
def test_memory_without_values_has_some(name, dtype, as_before):
    """Under deterministic algorithms memory that nobody wrote to holds what PyTorch puts there, unless that is switched off."""
    for framework in (oracle, torch):
        framework.use_deterministic_algorithms(True)
    expected, found = (MADE[name](f, getattr(f, dtype)) for f in (oracle, torch))
    assert str(found.tolist()) == str(expected.tolist())
    torch.utils.deterministic.fill_uninitialized_memory = False
    assert torch.utils.deterministic.fill_uninitialized_memory is False
    assert torch.empty(3).shape == (3,)


ALERTING = {
    "put_": lambda f: f.zeros(5).put_(f.tensor([0, 0]), f.ones(2)),
    "put": lambda f: f.zeros(5).put(f.tensor([0, 0]), f.ones(2)),
    "put_, accumulated": lambda f: f.zeros(5).put_(f.tensor([0, 0]), f.ones(2), accumulate=True),
    "max_unpool1d": lambda f: f.nn.functional.max_unpool1d(f.ones(1, 1, 3), f.zeros(1, 1, 3, dtype=f.int64), 2),
    "max_unpool2d": lambda f: f.nn.MaxUnpool2d(2)(f.ones(1, 1, 3, 3), f.zeros(1, 1, 3, 3, dtype=f.int64)),
    "max_unpool3d": lambda f: f.nn.MaxUnpool3d(2)(f.ones(1, 1, 3, 3, 3), f.zeros(1, 1, 3, 3, 3, dtype=f.int64)),
    "quantized resize_": lambda f: f.quantize_per_tensor(f.ones(3), 0.1, 10, f.qint8).resize_(5),
    "index_add": lambda f: f.zeros(5).index_add(0, f.tensor([0, 0]), f.ones(2)),
}


@pytest.mark.parametrize("warn_only", [False, True])
@pytest.mark.parametrize("name", ALERTING)
def test_functions_that_promise_nothing_say_so(name, warn_only, as_before):
    """Under deterministic algorithms the functions raise, or warn, of which PyTorch does not promise the same bits on the CPU; by the same name."""
    said = []
    for framework in (oracle, torch):
        framework.use_deterministic_algorithms(True, warn_only=warn_only)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                ALERTING[name](framework)
            except RuntimeError as problem:
                seen.append(problem)
        words = [str(getattr(w, "message", w)) for w in seen]
        said.append([w.partition("does not have")[0] for w in words if "does not have" in w])
    assert said[0] == said[1]


def test_flags_of_libraries_can_be_set_and_read():
    """The switches that scripts set before they train exist, with PyTorch's values to begin with; what is not there says so."""
    for path in ("cudnn.deterministic", "cudnn.benchmark", "cudnn.enabled", "cuda.matmul.allow_tf32", "cudnn.allow_tf32"):
        room, _, name = path.rpartition(".")
        ours, theirs = torch.backends, oracle.backends
        for part in room.split("."):
            ours, theirs = getattr(ours, part), getattr(theirs, part)
        before = getattr(ours, name)
        assert before == getattr(theirs, name), path
        setattr(ours, name, not before)
        assert getattr(ours, name) is (not before)
        setattr(ours, name, before)
    assert torch.backends.mps.is_available() is False and torch.backends.mps.is_built() is False
    with torch.backends.cudnn.flags(enabled=True, deterministic=True):
        assert torch.backends.cudnn.deterministic
    assert not torch.backends.cudnn.deterministic
    assert isinstance(torch.backends.mkl.is_available(), bool) and isinstance(torch.backends.openmp.is_available(), bool)
