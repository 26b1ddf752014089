"""Who has the memory: snapshots, the errors of allocations that find no room, and limits of containers."""

from __future__ import annotations

import gc
import json
import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import flambeau
from flambeau import memory, nn
from flambeau.kernels.native import limits, memory_guard, native
from flambeau.utils.checkpoint import checkpoint

F = nn.functional
compiled = pytest.mark.skipif(native.lib is None, reason="without the extension, memory is not counted")


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Tower(nn.Module):
    """Blocks one above the other, checkpointed if `again` says so."""

    def __init__(self, width: int = 64, depth: int = 6, again: bool = False):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.register_buffer("scale", flambeau.ones(width))
        self.again = again

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return x * self.scale


def trained(**options) -> tuple[Tower, flambeau.optim.Optimizer]:
    """A model that has taken a step of Adam."""
    model = Tower(**options)
    optimizer = flambeau.optim.Adam(model.parameters())
    model(flambeau.randn(4, options.get("width", 64))).sum().backward()
    optimizer.step()
    return model, optimizer


def of_tower(found: memory.Snapshot) -> dict[str, int]:
    """Bytes by kind of the modules of a Tower alone: other tests may have left tensors."""
    kinds: dict[str, int] = {}
    for path, row in found.modules.items():
        if path.startswith("Tower"):
            for kind, nbytes in row.items():
                kinds[kind] = kinds.get(kind, 0) + nbytes
    return kinds


# -- what is counted --------------------------------------------------------------------------------------------------


def test_kinds_are_told_apart():
    """Weights, gradients, both moments of Adam, buffers and what the graph keeps: each is counted as what it is, to the byte."""
    model, optimizer = trained()
    weights = sum(p.nbytes for p in model.parameters())
    steps = sum(optimizer.state[p]["step"].nbytes for p in model.parameters())
    out = model(flambeau.randn(32, 64))
    found = of_tower(memory.snapshot())
    assert found["weights"] == found["gradients"] == weights and found["optimizer"] == 2 * weights + steps
    assert found["buffers"] == 64 * 4
    unit = 32 * 64 * 4  # per block: x, norm(x), 4 of up, 4 of gelu; and two numbers per row for the norm
    assert 6 * 10 * unit <= found["activations"] <= 6 * 10.5 * unit + 3 * unit
    del out
    assert "activations" not in of_tower(memory.snapshot())


def test_views_and_tensors_that_share_memory_count_once():
    """A tensor, its views, its detached alias and NumPy's array of it are one piece of memory; a small view of much counts as much."""
    before = memory.snapshot().total
    x = flambeau.zeros(1000, 1000)
    views = [x[3], x.T, x.detach(), flambeau.from_numpy(x.numpy()), x.view(-1)[::7]]
    assert abs(memory.snapshot().total - before - 4_000_000) < 50_000
    row = x[5]
    del x, views
    assert abs(memory.snapshot().total - before - 4_000_000) < 50_000
    assert row.numel() == 1000


def test_nothing_stays_behind():
    """A snapshot holds numbers and names, and no tensor."""
    x = flambeau.zeros(500, 500)
    found = memory.snapshot()
    with_it = found.total
    del x
    assert memory.snapshot().total <= with_it - 1_000_000


def test_cycles_are_freed_and_counted():
    """What only waits for the collector is not said to be in use."""
    if native.lib is None:
        pytest.skip("without the extension, memory is not counted")
    gc.collect()
    gc.disable()
    try:
        ring = [flambeau.zeros(1000, 1000)]
        ring.append(ring)
        del ring
        found = memory.snapshot()
    finally:
        gc.enable()
    assert found.collected >= 4_000_000 and "nobody could reach" in str(found)


def test_parameters_without_a_module_and_loose_tensors():
    """What an optimizer moves is a weight even without a module; a tensor in a variable is known by its name."""
    weight = flambeau.randn(300, 300, requires_grad=True)
    optimizer = flambeau.optim.SGD([weight], lr=0.1)
    held = {"images": flambeau.zeros(700, 700)}
    found = memory.snapshot()
    assert any(b.kind == "weights" and b.shape == (300, 300) for b in found.blocks)
    assert any(b.kind == "other" and b.name.startswith("held[...]") for b in found.blocks)
    assert optimizer is not None and held


def test_checkpoints_and_hooks_keep_what_they_keep():
    """Tensors packed by hooks count as activations; slots of a checkpoint are empty."""
    plain, again = Tower(), Tower(again=True)
    x = flambeau.randn(256, 64)
    kept = {}
    for name, model in (("plain", plain), ("again", again)):
        out = model(x)
        kept[name] = of_tower(memory.snapshot())["activations"]
        del out
    assert kept["again"] < 0.3 * kept["plain"]
    with flambeau.autograd.graph.saved_tensors_hooks(lambda t: (t.clone(), "packed"), lambda packed: packed[0]):
        out = plain(x)
    assert of_tower(memory.snapshot())["activations"] > kept["plain"]
    assert out is not None


# -- whose it is, and where it was made --------------------------------------------------------------------------------


def test_activations_belong_to_modules():
    """Without anything recorded, what a block keeps is found to be its own."""
    model = Tower(depth=3)
    out = model(flambeau.randn(128, 64))
    found = memory.snapshot().modules
    sizes = [sum(row.get("activations", 0) for path, row in found.items() if path.startswith(f"Tower.blocks.{i}.")) for i in range(3)]
    assert min(sizes) > 0.9 * 9 * 128 * 64 * 4 and max(sizes) < 1.2 * min(sizes)
    assert found["Tower.blocks.1.up"]["activations"] >= 128 * 256 * 4
    assert out is not None


def test_lines_are_known_where_they_are_recorded():
    """Within record(), each piece of memory has the line that made it, and tensors the module that ran."""
    model = Tower(depth=2)
    with memory.record():
        table = flambeau.zeros(600, 600)
        out = model(flambeau.randn(64, 64))
    found = memory.snapshot()
    named = {b.line.rpartition(os.sep)[2] for b in found.blocks if b.line}
    assert all(line.startswith("test_memory.py:") for line in named)
    (made,) = (b for b in found.blocks if b.shape == (600, 600))
    number = int(made.line.rpartition(":")[2])
    with open(__file__) as file:
        assert "flambeau.zeros(600, 600)" in file.readlines()[number - 1]
    assert any(path.startswith("Tower.blocks.0") for path in found.modules)
    assert "x + self.down(F.gelu(" in str(found)
    assert table is not None and out is not None
    assert not flambeau.modes.special


def test_lines_from_anomaly_mode_and_profiler():
    """Lines that anomaly detection or a running profiler has noted are used as well."""
    model = Tower(depth=1)
    with flambeau.autograd.set_detect_anomaly(True, check_nan=False):
        out = model(flambeau.randn(64, 64))
    assert any(b.line for b in memory.snapshot().blocks if b.kind == "activations" and b.module.startswith("Tower"))
    out = None
    with flambeau.profiler.profile(with_stack=True):
        out = model(flambeau.randn(64, 64))
        found = memory.snapshot()
    assert any("test_memory.py" in b.line for b in found.blocks if b.kind == "activations")
    assert out is not None


# -- the object -----------------------------------------------------------------------------------------------------------


def test_table_html_and_dictionary():
    """The table has all kinds and the modules, with repeated ones in a row; the dictionary survives JSON; HTML escapes."""
    model, optimizer = trained()
    out = model(flambeau.randn(512, 64))
    found = memory.snapshot("cpu")
    text = str(found)
    for words in (
        "Kind",
        "optimizer state",
        "activations, for backward",
        "Tower.blocks.* (6 Block)",
        "Peak",
        "resident",
        "What would help",
    ):
        assert words in text, text
    assert repr(found) == text and max(map(len, text.splitlines())) < 150
    page = found._repr_html_()
    assert page.count("<table ") == 3 and "Tower.blocks.* (6 Block)" in page
    again = json.loads(json.dumps(found.to_dict()))
    assert again["total"] == found.total == sum(again["kinds"].values()) == sum(b["nbytes"] for b in again["blocks"])
    assert again["remedies"][0]["nbytes"] > 0
    assert out is not None and optimizer is not None


@compiled
def test_peak():
    """The peak is the most there was at a time since it was reset, temporaries included."""
    memory.reset_peak()
    before = memory.snapshot().peak
    x = flambeau.zeros(2000, 1000)
    del x
    assert memory.snapshot().peak >= before + 8_000_000
    memory.reset_peak()
    assert memory.snapshot().peak < before + 8_000_000
    memory.trim()
    assert memory.snapshot().cached < 2**20


# -- remedies ---------------------------------------------------------------------------------------------------------


def remedy(found: memory.Snapshot, words: str) -> memory.Remedy:
    return next(r for r in found.remedies if words in r.action)


@compiled
def test_checkpointing_frees_what_was_promised():
    """The size given for checkpointing the blocks is what it frees, within a fifth."""
    flambeau.manual_seed(0)
    x = flambeau.randn(2048, 64)
    peaks = []
    for again in (False, True):
        model = Tower(depth=8, again=again)
        gc.collect()
        memory.reset_peak()
        start = memory_guard.pool()["live"]
        loss = model(x).sum()
        if not again:
            promised = remedy(memory.snapshot(), "checkpoint the 8 Blocks in Tower.blocks")
        loss.backward()
        peaks.append(memory_guard.pool()["peak"] - start)
        del loss, model
    saved = peaks[0] - peaks[1]
    assert 0.8 * saved < promised.nbytes < 1.2 * saved, (promised.nbytes, peaks)
    assert promised.cost == "one more forward pass"


def test_evaluation_that_records_is_noticed():
    """A model in eval mode whose graph keeps activations: no_grad, with the size of what it keeps."""
    model = Tower().eval()
    out = model(flambeau.randn(4096, 64))
    found = memory.snapshot()
    assert remedy(found, "torch.no_grad()").nbytes == of_tower(found)["activations"]
    assert "Tower is in eval mode" in remedy(found, "torch.no_grad()").action and not remedy(found, "torch.no_grad()").cost
    with flambeau.no_grad():
        out = model(flambeau.randn(4096, 64))
    assert not any("no_grad" in r.action for r in memory.snapshot().remedies)
    assert out is not None


def test_losses_that_keep_their_graphs_are_noticed():
    """A list of losses with history: the list is named, and all but one graph could go."""
    model = Tower()
    losses = [model(flambeau.randn(1024, 64)).sum() for _ in range(4)]
    found = memory.snapshot()
    advice = remedy(found, "loss.item()")
    assert found.graphs >= 4 and "losses[...]" in advice.action
    assert advice.nbytes >= 0.7 * of_tower(found)["activations"]
    del losses
    assert memory.snapshot().graphs == found.graphs - 4


def test_gradients_optimizers_and_precision():
    """Old gradients, the optimizer's state, half precision and a smaller batch have sizes that follow from what is there."""
    model, optimizer = trained(width=256, depth=2)
    out = model(flambeau.randn(2048, 256))
    found = memory.snapshot()
    kinds = found.kinds
    assert remedy(found, "zero_grad()").nbytes == kinds["gradients"]
    assert remedy(found, "halve the batch").nbytes == kinds["activations"] // 2
    assert 0.9 * kinds["activations"] / 2 <= remedy(found, "autocast").nbytes <= kinds["activations"] / 2
    assert "instead of Adam" in remedy(found, "Adafactor").action
    del out
    model.zero_grad()
    assert not any("zero_grad" in r.action for r in memory.snapshot().remedies)
    assert optimizer is not None


def test_the_cheapest_that_suffices_comes_first():
    """Of what frees enough, the cheapest is named first, and where nothing does, what frees most."""
    model, optimizer = trained(width=256, depth=2)
    out = model(flambeau.randn(2048, 256))
    gradients = memory.snapshot("cpu").kinds["gradients"]
    little, much, too_much = (memory.Snapshot("cpu", wanted).remedies[0] for wanted in (1000, gradients + 1, 1 << 40))
    assert little.cost == "" and much.nbytes > gradients
    assert too_much.nbytes == max(r.nbytes for r in memory.snapshot("cpu").remedies)
    assert out is not None and optimizer is not None


# -- no room ----------------------------------------------------------------------------------------------------------

HUGE = {
    "factory": lambda: flambeau.empty(10**14),
    "operation": lambda: flambeau.ones(1, 1).expand(10**7, 10**6) + 1,
    "copy": lambda: flambeau.ones(1, 1).expand(10**7, 10**6).contiguous(),
    "product": lambda: flambeau.ones(10**7, 1) @ flambeau.ones(1, 10**6),
    "numpy": lambda: flambeau.fft.fft(flambeau.ones(1, 1).expand(10**7, 10**6)),
    "resize": lambda: flambeau.ones(3).resize_(10**13),
    "storage": lambda: flambeau.UntypedStorage(10**14),
    "range": lambda: flambeau.arange(10**13),
    "backward": lambda: flambeau.ones(1, requires_grad=True).expand(10**13).clone(),
}


def grants_anything() -> bool:
    """Whether the system hands out more memory than there is, and kills whoever uses it (vm.overcommit_memory = 1)."""
    try:
        return np.empty(10**13, np.uint8).size > 0
    except MemoryError:
        return False


@pytest.mark.parametrize("what", HUGE)
def test_too_much_is_pytorchs_error(what: str):
    """More than the machine has is a RuntimeError with PyTorch's words, and a MemoryError too; nobody who has memory is blamed for it."""
    if what == "numpy" and grants_anything():
        pytest.skip("NumPy is granted what it asks for")
    with pytest.raises(
        RuntimeError, match=r"DefaultCPUAllocator: can't allocate memory: you tried to allocate \d+ bytes .* in all"
    ) as caught:
        HUGE[what]()
    assert isinstance(caught.value, MemoryError) and "Kind" not in str(caught.value)
    assert type(pickle.loads(pickle.dumps(caught.value))) is RuntimeError  # from a worker process


def test_words_are_pytorchs():
    """Programs that look for PyTorch's words in the message find them."""
    torch = pytest.importorskip("torch")
    with pytest.raises(RuntimeError) as theirs:
        torch.empty(10**14)
    with pytest.raises(RuntimeError) as ours:
        flambeau.empty(10**14)
    words = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 400000000000000 bytes"
    assert words in str(theirs.value) and words in str(ours.value)


PROGRAM = """
import resource, sys
import flambeau as torch
from flambeau import nn

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 512), nn.Linear(512, 256)
    def forward(self, x):
        return self.down(torch.relu(self.up(x)))

model = nn.Sequential(*[Layer() for _ in range(64)])
torch.optim.Adam(model.parameters())
model(torch.randn(64, 256)).sum().backward()  # what libraries take when they are first called is not counted
with open("/proc/self/statm") as file:
    pages = int(file.read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (100 << 20), -1))
x = torch.randn(2048, 256)
try:
    model(x).sum().backward()
except RuntimeError as problem:
    print(problem)
else:
    print("there was room")
print(torch.ones(3).sum().item())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of addresses are kept on Linux")
def test_a_limit_of_the_system_says_who_filled_it():
    """Under ulimit -v the error of the allocation that fails has the table, the modules, the peak and the remedy that frees enough; and
    the program can go on."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, timeout=60, env=environment())
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert "you tried to allocate" in text and text.rstrip().endswith("3.0")
    for words in ("activations, for backward", "Sequential.* (64 Layer)", "Peak", "of ", "checkpoint the 64 Layers in Sequential"):
        assert words in text, text


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "FLAMBEAU_NUM_THREADS": "1"}


# -- containers -------------------------------------------------------------------------------------------------------

TWO = {"memory.max": 2**30, "memory.current": 900 << 20, "memory.stat": "anon 800\ninactive_file {files}\nactive_file 0\n"}
ONE = {
    "memory.limit_in_bytes": 2**30,
    "memory.usage_in_bytes": 900 << 20,
    "memory.stat": "cache 5\ntotal_inactive_file {files}\ntotal_active_file 0\n",
}


@pytest.fixture(params=["v1", "v2"])
def container(request, tmp_path, monkeypatch):
    """A control group with 1 GiB, of which 900 MiB are used; files() sets how much of that are files the system can drop."""
    folder = tmp_path / "memory" if request.param == "v1" else tmp_path
    folder.mkdir(exist_ok=True)

    def files(nbytes: int) -> None:
        for name, content in (ONE if request.param == "v1" else TWO).items():
            (folder / name).write_text(str(content).format(files=nbytes))

    files(0)
    monkeypatch.setattr(limits, "CGROUPS", str(tmp_path))
    monkeypatch.setattr(limits, "_directories", lambda controller: [str(folder)])
    monkeypatch.setattr(limits, "_swap_left", lambda directory: 0.0)
    limits._limited.cache_clear()
    memory.trim()  # what is kept for reuse is not taken from the system again
    yield files
    monkeypatch.undo()
    limits._limited.cache_clear()


def test_a_container_refuses_before_it_is_killed(container):
    """An allocation beyond the limit raises, with the numbers and the table; smaller ones, and those that dropped files make room for, do not."""
    held = flambeau.zeros(1 << 20)
    with pytest.raises(
        RuntimeError, match=r"124 MiB are left of the 1\.00 GiB this container may use, and it would have been killed"
    ) as caught:
        flambeau.empty(200 << 20, dtype=flambeau.uint8)
    assert "other tensors" in str(caught.value) and "you tried to allocate 209715200 bytes" in str(caught.value)
    with pytest.raises(RuntimeError, match="124 MiB are left"):
        flambeau.ones(1, dtype=flambeau.uint8).expand(200 << 20) + 1
    flambeau.empty(80 << 20, dtype=flambeau.uint8)
    container(300 << 20)
    flambeau.empty(200 << 20, dtype=flambeau.uint8)
    assert held is not None


def test_swap_counts_as_left(tmp_path, monkeypatch):
    """What may be swapped out is left, as far as there is swap."""
    for name, content in TWO.items():
        (tmp_path / name).write_text(str(content).format(files=0))
    (tmp_path / "memory.swap.max").write_text(str(500 << 20))
    (tmp_path / "memory.swap.current").write_text(str(100 << 20))
    monkeypatch.setattr(limits, "_limited", lambda: (str(tmp_path),))
    named = limits._named
    for free, expected in ((10**9, 400 << 20), (1024, 1 << 20), (0, 0)):
        monkeypatch.setattr(
            limits, "_named", lambda folder, file, kib=free: [("SwapFree:", kib)] if folder == "/proc" else named(folder, file)
        )
        assert limits.memory_left() == (124 << 20) + expected


def test_small_allocations_do_not_ask(monkeypatch):
    """Below 64 MiB nobody is asked, and without a limit no file is read."""
    asked = []
    memory.trim()
    monkeypatch.setattr(limits, "_limited", lambda: asked.append(1) or ())
    flambeau.empty(1 << 20)
    assert not asked
    flambeau.empty(32 << 20)
    assert len(asked) == 1
    memory.trim()
    monkeypatch.setattr("builtins.open", lambda *a, **k: pytest.fail("a file was read"))
    flambeau.empty(32 << 20)


def test_room_is_made_before_giving_up():
    """Garbage in cycles is collected when memory runs out, and the allocation goes through."""
    if native.lib is None:
        pytest.skip("without the extension, memory is not counted")
    gc.collect()
    gc.disable()
    try:
        ring = [flambeau.zeros(1000, 1000)]
        ring.append(ring)
        del ring
        before = memory_guard.pool()["live"]
        memory_guard.keep(1 << 20, 1)
        assert memory_guard.pool()["live"] <= before - 4_000_000
    finally:
        gc.enable()


def test_numpys_error_becomes_ours():
    """MemoryError that NumPy raises inside an operation arrives as RuntimeError with its size; one without a size, with its words."""
    with pytest.raises(MemoryError) as numpys:
        np.empty(10**15)
    assert "8000000000000000 bytes" in str(memory_guard.as_ours(numpys.value))
    assert isinstance(memory_guard.as_ours(MemoryError("no patch")), RuntimeError) and "no patch" in str(
        memory_guard.as_ours(MemoryError("no patch"))
    )
    ours = memory_guard.as_ours(numpys.value)
    assert memory_guard.as_ours(ours) is ours


def test_a_storage_counts_its_bytes():
    """sys.getsizeof of a storage includes what it holds, by which summaries of models add up."""
    import sys

    small, large = (flambeau.zeros(n).untyped_storage() for n in (10, 1010))
    assert sys.getsizeof(large) - sys.getsizeof(small) == 4000
