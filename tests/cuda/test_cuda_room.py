"""What a GPU has besides kernels: memory, copies, matrix products, sums by index, random numbers, streams."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64]


# -- memory and copies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies_there_and_back(gpu, dtype):
    """Every dtype comes back from the GPU bit by bit, in any layout, 0-d and empty included."""
    host = (torch.arange(24) % 7).to(dtype)
    for x in (host.view(4, 6), host.view(4, 6).T, host[::3], host[5], host[:0], host.view(2, 3, 4).transpose(0, 2)):
        moved = x.to("cuda")
        assert moved.device == torch.device("cuda", 0) and moved.stride() == x.clone().stride() and torch.equal(moved.cpu(), x)


def test_pinned_memory(gpu):
    """Pinned memory is known as such, and can be copied without waiting."""
    host = torch.arange(1000.0)
    pinned = host.pin_memory()
    assert pinned.is_pinned() and not host.is_pinned() and torch.equal(pinned, host)
    assert torch.equal(pinned.to("cuda", non_blocking=True).cpu(), host)
    assert torch.equal(pinned.cuda(non_blocking=True).cpu(), host)
    assert torch.empty(3, device="cuda").is_pinned() is False


def test_factories(gpu):
    """Tensors are made where they are asked for; 'cuda' means the current GPU."""
    for made in (torch.zeros(2, 3, device="cuda"), torch.ones(3, device="cuda:0"), torch.full((2,), 7, device="cuda"), torch.eye(3, device="cuda"),
                 torch.arange(5, device="cuda"), torch.linspace(0, 1, 5, device="cuda"), torch.tensor([1, 2], device="cuda"),
                 torch.empty(0, 4, device="cuda"), torch.empty_strided((2, 3), (1, 2), device="cuda")):  # fmt: skip
        assert made.is_cuda and made.device.index == 0
    with torch.device("cuda"):
        assert torch.zeros(2).is_cuda
    assert torch.full((2,), True, device="cuda").tolist() == [True, True]
    assert torch.full((3,), -1.5, dtype=torch.bfloat16, device="cuda").tolist() == [-1.5] * 3
    assert torch.zeros(3, device="cuda").fill_(-0.0).signbit().tolist() == [True] * 3
    assert torch.full((2,), 3 + 4j, device="cuda").abs().tolist() == [5, 5] if gpu.real else True


def test_views_share_memory(gpu):
    """A view, another dtype's view and a storage look at the same bytes."""
    x = torch.zeros(4, 4, device="cuda")
    x.T[1].fill_(2)
    assert x[:, 1].tolist() == [2.0] * 4
    x[0].view(torch.int32).fill_(1065353216)
    assert x[0].tolist() == [1.0] * 4
    assert x.view(torch.uint8).shape == (4, 16) and x.untyped_storage().nbytes() == 64
    assert x[1:].storage_offset() == 4 and x[1:].data_ptr() == x.data_ptr() + 16


def test_counters(gpu):
    """Memory in use is counted, and its peak until it is reset."""
    before = torch.cuda.memory_allocated()
    x = torch.empty(2**20, device="cuda")
    assert torch.cuda.memory_allocated() - before >= 2**22
    del x
    assert torch.cuda.max_memory_allocated() >= before + 2**22
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    assert "Allocated memory" in torch.cuda.memory_summary()
    torch.cuda.empty_cache()


def test_peak(gpu):
    """The peak is the most there ever was."""
    random, kept = np.random.default_rng(0), [torch.empty(2**18, device="cuda") for _ in range(8)]
    torch.cuda.reset_peak_memory_stats()
    most = torch.cuda.memory_allocated()
    for step in range(300):
        kept.append(torch.empty(int(random.integers(0, 2**16)), device="cuda"))
        most = max(most, torch.cuda.memory_allocated())
        assert torch.cuda.max_memory_allocated() == most
        while kept and random.random() < 0.5:
            kept.pop(int(random.integers(len(kept))))
        if step == 200:
            torch.cuda.reset_peak_memory_stats()
            most = torch.cuda.memory_allocated()


def test_out_of_memory(gpu):
    """What does not fit raises PyTorch's error, with the numbers."""
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate .* GPU 0 has a total capacity of"):
        torch.empty(2**42, device="cuda")
    assert torch.ones(3, device="cuda").sum().item() == 3


def test_out_of_memory_says_who_filled_it(gpu):
    """The error of an allocation that finds no room has the table of this GPU's memory, and what would free enough; refusals are counted."""
    model = torch.nn.Sequential(
        *[torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)) for _ in range(4)]
    )
    model.to("cuda")
    beside, out = torch.zeros(1000), model(torch.randn(512, 64, device="cuda"))
    torch.cuda.reset_accumulated_memory_stats()
    torch.cuda.set_per_process_memory_fraction(1e-9)
    try:
        with pytest.raises(torch.OutOfMemoryError, match=r"CUDA out of memory\. Tried to allocate 64\.00 MiB") as caught:
            torch.empty(2**26, dtype=torch.uint8, device="cuda")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    text = str(caught.value)
    for words in (
        "in tensors on cuda:0",
        "activations, for backward",
        "Sequential.* (4 Sequential)",
        "Peak",
        "that the GPU has",
        "checkpoint the 4",
    ):
        assert words in text, text
    assert "resident" not in text
    stats = torch.cuda.memory_stats()
    assert stats["num_ooms"] == 1 and stats["active_bytes.all.current"] == torch.cuda.memory_allocated()
    assert torch.cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["peak"] == torch.cuda.max_memory_allocated()
    found = torch.memory.snapshot()
    assert found.devices["cuda:0"] >= 4 * 512 * 600 * 4 and found.devices["cpu"] >= 4000
    weights = sum(p.nbytes for p in model.parameters())
    assert weights <= torch.memory.snapshot("cuda").kinds["weights"] <= weights + 16 * 512  # pieces begin at multiples of 512
    assert beside is not None and out is not None


def test_devices_must_agree(gpu):
    """A tensor on the CPU does not mix with one on the GPU, unless it is a single number."""
    x = torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(3)
    assert (x + torch.tensor(2.0)).tolist() == [3.0] * 3
    with pytest.raises(TypeError, match=r"Tensor\.cpu"):
        x.numpy()


# -- products --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.int64], ids=str)
def test_products(gpu, dtype):
    """Products of matrices in any layout: by rows, by columns, with gaps, of size one, expanded, empty."""
    torch.manual_seed(0)
    tolerance = {torch.bfloat16: 2e-2, torch.float16: 2e-3}.get(dtype, 1e-5)

    def make(*shape):
        if dtype is torch.int64:
            return torch.randint(-5, 5, shape)
        return torch.complex(torch.randn(shape), torch.randn(shape)) if dtype.is_complex else torch.randn(shape).to(dtype)

    m, n = make(4, 6), make(6, 5)
    pairs = [
        (m, n), (make(6, 4).T, n), (m, make(5, 6).T), (make(6, 4).T, make(5, 6).T), (make(8, 12)[::2, ::2], n), (make(4, 9)[:, :6], n),
        (make(1, 6), n), (m, make(6, 1)), (make(4, 1), make(1, 5)), (make(1, 6).expand(4, 6), n), (make(6, 1).T, make(5, 6).T),
        (make(0, 6), n), (make(4, 0), make(0, 5)), (make(3, 4, 6), make(3, 6, 5)), (make(3, 6, 4).mT, make(3, 5, 6).mT),
        (make(4, 3, 6).transpose(0, 1), make(3, 6, 5)), (make(4, 6).expand(3, 4, 6), make(3, 6, 5)), (make(2, 3, 4, 6), make(6, 5)),
        (make(2, 1, 4, 6), make(3, 6, 5)), (m, make(6)), (make(6), n),
    ]  # fmt: skip
    for a, b in pairs:
        found, wanted = a.cuda() @ b.cuda(), a @ b
        assert found.shape == wanted.shape and found.dtype is dtype
        kind = torch.complex128 if dtype.is_complex else torch.float64
        assert torch.allclose(found.cpu().to(kind), wanted.to(kind), rtol=tolerance, atol=tolerance * 5), (a.shape, b.shape)


def test_views_of_matrices_are_multiplied_in_place(gpu):
    """A layout made on the GPU reaches cuBLAS as it is, with gaps and expanded batches."""
    torch.manual_seed(0)
    host = torch.randn(5, 8, 12)
    card = host.cuda()
    views = [
        lambda x: x[0, ::2, ::3],
        lambda x: x[1, :, 2:7].T,
        lambda x: x[:, :4, 3:8].mT,
        lambda x: x[2:3, :5, :4].expand(6, 5, 4),
        lambda x: x[::2, :5, :4],
    ]
    for view in views:
        a, b = view(host), view(card)
        assert torch.allclose((b.mT @ b).cpu(), a.mT @ a, atol=1e-4)


def test_accumulating_product(gpu):
    """addmm and baddbmm scale and add in one call."""
    torch.manual_seed(0)
    c, a, b = torch.randn(4, 5), torch.randn(4, 6), torch.randn(6, 5)
    found = torch.addmm(c.cuda(), a.cuda(), b.cuda(), beta=0.5, alpha=2)
    assert torch.allclose(found.cpu(), torch.addmm(c, a, b, beta=0.5, alpha=2), atol=1e-5)
    found = torch.addmm(c[0].cuda(), a.cuda(), b.cuda())
    assert torch.allclose(found.cpu(), torch.addmm(c[0], a, b), atol=1e-5)


# -- sums by index ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32, torch.bfloat16, torch.uint8], ids=str)
def test_duplicates_all_count(gpu, dtype):
    """index_add, index_put with accumulate and scatter_reduce combine every value, also where an index repeats."""
    index = torch.tensor([0, 2, 2, 1, 0, 2, 2])
    rows = (torch.arange(35) % 5 + 1).view(7, 5).to(dtype)
    start = torch.ones(3, 5, dtype=dtype)
    wanted, found = start.index_add(0, index, rows), start.cuda().index_add(0, index.cuda(), rows.cuda())
    assert torch.equal(found.cpu(), wanted)
    found = start.cuda().T.contiguous().T.index_put_((index.cuda(),), rows.cuda(), accumulate=True)
    assert torch.equal(found.cpu(), wanted)
    small = (rows % 3).clamp(min=1)
    for how in ("sum", "prod", "amax", "amin", "mean"):
        places = index[:, None].expand(7, 5)
        wanted = start.scatter_reduce(0, places, small, how)
        found = start.cuda().scatter_reduce(0, places.cuda(), small.cuda(), how)
        assert torch.allclose(found.cpu().double(), wanted.double(), rtol=1e-2 if dtype is torch.bfloat16 else 1e-6), how


def test_nan_survives_an_extremum(gpu):
    """A NaN that arrives stays the maximum."""
    x = torch.zeros(2, device="cuda").scatter_reduce(
        0, torch.tensor([0, 0, 1], device="cuda"), torch.tensor([1.0, float("nan"), 2.0], device="cuda"), "amax"
    )
    assert x[0].isnan().item() and x[1].item() == 2


# -- random numbers --------------------------------------------------------------------------------------------------------


def test_philox(gpu):
    """The words are those of the published test vector: key and counter 0."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    words = gpu.draw("randint", generator, (1,), np.dtype(np.int64), torch.device("cuda", 0), low=-(2**63), high=None)
    assert words.item() % 2**64 == 0x6627E8D5E169C58D


def test_streams_of_numbers(gpu):
    """A seed determines the numbers; a state continues them; generators do not disturb each other."""
    torch.manual_seed(5)
    first, second = torch.randn(300, device="cuda"), torch.rand(300, device="cuda")
    torch.manual_seed(5)
    assert torch.equal(torch.randn(300, device="cuda"), first)
    state = torch.cuda.get_rng_state()
    assert state.shape == (16,) and torch.equal(torch.rand(300, device="cuda"), second)
    torch.cuda.set_rng_state(state)
    own = torch.Generator(device="cuda").manual_seed(1)
    torch.rand(10, device="cuda", generator=own)
    assert torch.equal(torch.rand(300, device="cuda"), second)
    with torch.random.fork_rng():
        torch.rand(3, device="cuda")
    torch.cuda.manual_seed(5)
    assert torch.equal(torch.randn(300, device="cuda"), first)
    with pytest.raises(RuntimeError, match="device type for generator"):
        torch.rand(2, device="cuda", generator=torch.Generator())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_distributions(gpu, dtype):
    """Moments are those of the distribution, and bounds are kept."""
    n = 20000 if gpu.real else 4000
    torch.manual_seed(0)

    def check(x, mean, deviation, slack=5.0):
        x = x.double().cpu()
        assert abs(x.mean().item() - mean) < slack * max(deviation, 1e-9) / n**0.5 + (0.01 if dtype is torch.bfloat16 else 0.001)

    u = torch.empty(n, dtype=dtype, device="cuda").uniform_(2, 5)
    assert u.min().item() >= 2 and u.max().item() < 5
    check(u, 3.5, 0.87)
    check(torch.empty(n, dtype=dtype, device="cuda").normal_(-1, 2), -1, 2)
    check(torch.empty(n, dtype=dtype, device="cuda").exponential_(2), 0.5, 0.5)
    check(torch.empty(n, dtype=dtype, device="cuda").geometric_(0.25), 4, 3.5)
    check(torch.empty(n, dtype=dtype, device="cuda").bernoulli_(0.3), 0.3, 0.46)
    check(torch.full((n,), 0.7, dtype=dtype, device="cuda").bernoulli(), 0.7, 0.46)
    check(torch.randint(3, 9, (n,), device="cuda").to(dtype), 5.5, 1.7)
    check(torch.normal(torch.zeros(n, dtype=dtype, device="cuda"), 2.0), 0, 2)
    assert torch.randn(3, dtype=torch.complex64, device="cuda").shape == (3,)


def test_choices(gpu):
    """Permutations have every number once; draws follow their weights."""
    torch.manual_seed(0)
    assert torch.equal(torch.randperm(100, device="cuda").sort().values.cpu(), torch.arange(100))
    weights = torch.tensor([[0.0, 1.0, 3.0, 0.0], [5.0, 0.0, 0.0, 5.0]], device="cuda")
    drawn = torch.multinomial(weights, 2000, replacement=True).cpu()
    assert drawn.shape == (2, 2000) and set(drawn[0].tolist()) == {1, 2} and set(drawn[1].tolist()) == {0, 3}
    assert abs((drawn[0] == 2).double().mean().item() - 0.75) < 0.05
    assert sorted(torch.multinomial(weights[0], 2).tolist()) == [1, 2]


@pytest.mark.gpu
def test_numbers_are_pytorchs():
    """With the same seed, uniform and normal numbers are those of PyTorch on this GPU."""
    real = pytest.importorskip("torch")
    if not real.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    for n in (5, 1000, 3_000_000):
        real.manual_seed(11)
        torch.manual_seed(11)
        for draw in ("rand", "randn", "rand"):
            wanted = getattr(real, draw)(n, device="cuda").cpu().numpy()
            found = getattr(torch, draw)(n, device="cuda").cpu().numpy()
            np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)


# -- devices, streams, events ----------------------------------------------------------------------------------------------


def test_the_module(gpu):
    """torch.cuda describes the GPU."""
    assert torch.cuda.is_available() and torch.cuda.device_count() >= 1 and torch.cuda.current_device() == 0
    assert torch.cuda.get_device_name() and len(torch.cuda.get_device_capability(0)) == 2
    assert torch.cuda.get_device_properties("cuda:0").multi_processor_count > 0
    with torch.cuda.device(0):
        torch.cuda.synchronize()
    with pytest.raises((RuntimeError, ValueError)):
        torch.cuda.get_device_name("cpu")


def test_streams(gpu):
    """Work goes to the stream of a `with`, and streams can wait for each other."""
    side = torch.cuda.Stream()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    x = torch.ones(1000, device="cuda")
    with torch.cuda.stream(side):
        side.wait_stream(torch.cuda.default_stream())
        start.record()
        y = x * 2
        end.record()
    torch.cuda.current_stream().wait_stream(side)
    y.record_stream(torch.cuda.current_stream())
    side.synchronize()
    assert side.query() and end.query() and start.elapsed_time(end) >= 0 and y.sum().item() == 2000
    assert not torch.cuda.is_current_stream_capturing()
    if gpu.real:
        assert side != torch.cuda.default_stream() and torch.cuda.current_stream() == torch.cuda.default_stream()


def test_optimizers_that_cannot_be_captured_say_so(gpu, monkeypatch):
    """Copies of PyTorch's optimizers ask before a step: RuntimeError while a graph is captured, for parameters on a GPU that are not capturable."""
    from flambeau.kernels.cuda import gpu as cuda

    on_gpu, capturable, on_cpu = (
        torch.optim.Adam([torch.ones(2, device=device, requires_grad=True)], capturable=capturable)
        for device, capturable in (("cuda", False), ("cuda", True), ("cpu", False))
    )
    on_gpu._cuda_graph_capture_health_check()
    monkeypatch.setattr(cuda, "is_capturing", lambda: True)
    assert torch.cuda.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="capturable is False"):
        on_gpu._cuda_graph_capture_health_check()
    for fine in (capturable, on_cpu):
        fine._cuda_graph_capture_health_check()


def test_without_a_gpu():
    """On a machine without a GPU questions are answered, and work raises PyTorch's errors."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert torch.cuda.device_count() == 0 and torch.cuda.memory_allocated() == 0 and torch.cuda.get_rng_state_all() == []
    assert torch.cuda.memory_stats() == torch.cuda.memory_stats_as_nested_dict() == {} and torch.cuda.get_allocator_backend() == "native"
    with pytest.raises((AssertionError, RuntimeError)):
        torch.cuda.memory_snapshot()
    torch.cuda.manual_seed_all(1)
    torch.cuda.empty_cache()
    for question in (torch.cuda.current_device, torch.cuda.synchronize, torch.cuda.get_device_name, lambda: torch.zeros(2, device="cuda")):
        with pytest.raises((AssertionError, RuntimeError)):
            question()
    with pytest.raises(RuntimeError):
        torch.Generator(device="cuda")
