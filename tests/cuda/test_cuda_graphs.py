"""CUDA graphs: what is captured is done again at every replay, in the same memory, with new random numbers, and with PyTorch's recipes."""

from __future__ import annotations

import pytest

import flambeau as torch


def captured(work):
    """(the graph of work(), what it returned), after PyTorch's recipe: first on a side stream the ordinary way."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = work()
    return graph, found


def test_a_replay_does_it_again(gpu):
    """A replay reads what its inputs hold then, writes where it wrote, and nothing happens before."""
    x, counter = torch.ones(3, 4, device="cuda"), torch.zeros((), device="cuda")

    def work():
        counter.add_(1)
        return (x * 2 + 1).exp().sum(0)

    graph, out = captured(work)
    assert counter.item() == 2  # of the warm-up
    place = out.data_ptr()
    for value in (0.0, 0.5, -1.0):
        x.fill_(value)
        graph.replay()
        assert torch.allclose(out.cpu(), torch.full((4,), 3.0) * torch.tensor(2 * value + 1).exp()) and out.data_ptr() == place
    assert counter.item() == 5


def test_memory_of_a_graph_is_its_own(gpu):
    """Nobody else gets what a graph writes on its way, as long as it may be replayed; graphs may share a pool; afterwards it is given back."""
    x = torch.ones(1000, device="cuda")
    graph, out = captured(lambda: ((x + 1) * 3).sqrt())
    pool = graph.pool()
    segments = [s for s in torch.cuda.memory_snapshot() if s["segment_pool_id"] == pool]
    assert segments and all(s["device"] == 0 for s in segments) and torch.cuda.memory_snapshot(pool) == segments
    low, high = segments[0]["address"], segments[0]["address"] + segments[0]["total_size"]
    assert low <= out.data_ptr() < high
    others = [torch.zeros(1000, device="cuda") for _ in range(50)]
    assert not any(low <= t.data_ptr() < high for t in others)
    graph.replay()
    assert torch.allclose(out.cpu(), torch.full((1000,), 6.0).sqrt()) and all(t.sum().item() == 0 for t in others)
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second, pool=pool):
        again = out * 2
    assert second.pool() == pool and low <= again.data_ptr() < high
    x.fill_(2)
    graph.replay()
    second.replay()
    assert torch.allclose(again.cpu(), torch.full((1000,), 6.0))
    torch.cuda.empty_cache()
    assert torch.cuda.memory_snapshot(pool)
    del graph, second, out, again
    torch.cuda.empty_cache()
    assert not torch.cuda.memory_snapshot(pool)


def test_numbers_are_new_at_every_replay(gpu):
    """Replays draw what eager calls would draw next; a capture leaves the generator where it stands, and a replay moves it on as they do."""
    x = torch.ones(500, device="cuda")

    def work():
        return torch.nn.functional.dropout(x, 0.5), torch.randn(300, device="cuda"), torch.randint(0, 100, (7,), device="cuda")

    torch.cuda.manual_seed(11)
    expected = [[t.cpu() for t in work()] for _ in range(3)]
    after = torch.cuda.get_rng_state()
    torch.cuda.manual_seed(11)
    graph = torch.cuda.CUDAGraph()
    before = torch.cuda.get_rng_state()
    with torch.cuda.graph(graph):
        found = work()
    assert torch.equal(torch.cuda.get_rng_state(), before)
    for wanted in expected:
        graph.replay()
        assert all(torch.equal(t.cpu(), w) for t, w in zip(found, wanted, strict=True))
    assert torch.equal(torch.cuda.get_rng_state(), after)
    torch.cuda.set_rng_state(before)
    graph.replay()
    assert all(torch.equal(t.cpu(), w) for t, w in zip(found, expected[0], strict=True))
    torch.cuda.manual_seed(12)
    graph.replay()
    assert not torch.equal(found[0].cpu(), expected[0][0])


def test_generators_of_ones_own(gpu):
    """A generator must be known to the graph that draws from it."""
    generator = torch.Generator("cuda").manual_seed(3)
    expected = torch.rand(10, device="cuda", generator=generator).cpu()
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="register_generator_state"), torch.cuda.graph(graph):
        torch.rand(10, device="cuda", generator=generator)
    graph.reset()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        found = torch.rand(10, device="cuda", generator=generator)
    generator.manual_seed(3)
    graph.replay()
    assert torch.equal(found.cpu(), expected)


def test_the_state_of_a_generator_is_no_business_of_a_capture(gpu):
    """Within a capture it cannot be asked or set, but for the seed that it has."""
    torch.cuda.manual_seed(5)
    generator = torch.cuda.default_generators[0]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for question in (generator.get_state, generator.initial_seed, generator.get_offset, generator.seed, torch.cuda.get_rng_state):
            with pytest.raises(RuntimeError, match="capturing a CUDA graph"):
                question()
        with pytest.raises(RuntimeError, match="only with the seed it has"):
            torch.cuda.manual_seed(6)
        torch.cuda.manual_seed(5)
    assert generator.initial_seed() == 5


def test_what_waits_for_the_gpu_says_so(gpu):
    """Numbers and copies of ordinary memory cannot be part of a graph; the capture ends, and everything works again."""
    x = torch.ones(3, device="cuda")
    for work in (lambda: x.sum().item(), x.tolist, x.cpu, lambda: torch.arange(3.0).to("cuda"), lambda: bool((x > 0).all())):
        with pytest.raises(RuntimeError, match="capturing a CUDA graph"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            assert torch.cuda.is_current_stream_capturing()
            work()
        assert not torch.cuda.is_current_stream_capturing() and x.sum().item() == 3


def test_pinned_memory_is_read_at_every_replay(gpu):
    """A copy from pinned memory can be captured, and copies what is there then."""
    host = torch.zeros(4).pin_memory()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = host.to("cuda", non_blocking=True) + 1
    for value in (1.0, 2.0):
        host.fill_(value)
        graph.replay()
        assert found.tolist() == [value + 1] * 4


def test_streams_beside_each_other(gpu):
    """Work of another stream that waits for the capturing one, and is waited for, belongs to the graph."""
    x, side = torch.ones(4, device="cuda"), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            z = y + 1
        torch.cuda.current_stream().wait_stream(side)
        out = z * 10
    x.fill_(3)
    graph.replay()
    assert out.tolist() == [70.0] * 4


def test_graphs_that_are_kept(gpu, tmp_path):
    """The order of calls is checked; what was noted can be looked at where it is kept."""
    graph = torch.cuda.CUDAGraph()
    for call in (graph.replay, graph.pool, graph.capture_end, graph.raw_cuda_graph, graph.raw_cuda_graph_exec, graph.instantiate):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(RuntimeError, match="non-default stream"):
        graph.capture_begin()
    with pytest.raises(RuntimeError, match="capture error mode"):
        graph.capture_begin(capture_error_mode="loud")
    x = torch.ones(2, device="cuda")
    with torch.cuda.graph(graph):
        x.add_(1)
    with pytest.raises(RuntimeError, match="already owns"), torch.cuda.graph(graph):
        pass
    with pytest.warns(UserWarning, match="debug not enabled"):
        graph.debug_dump(str(tmp_path / "no.dot"))
    kept = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(kept):
        x.add_(1)
    assert kept.raw_cuda_graph()
    kept.debug_dump(str(tmp_path / "graph.dot"))
    assert "digraph" in (tmp_path / "graph.dot").read_text()
    kept.instantiate()
    assert kept.raw_cuda_graph_exec()
    kept.replay()
    assert x.tolist() == [2.0, 2.0]
    assert torch.cuda.graph_pool_handle() != torch.cuda.graph_pool_handle()


@pytest.mark.parametrize("make", [
    lambda p: torch.optim.Adam(p, lr=0.1, capturable=True), lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1, device="cuda"), capturable=True),
    lambda p: torch.optim.RAdam(p, capturable=True), lambda p: torch.optim.RMSprop(p, capturable=True), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    lambda p: torch.optim.NAdam(p, capturable=True), lambda p: torch.optim.ASGD(p, t0=3, capturable=True),
], ids=["adam", "adamw with lr on the GPU", "radam", "rmsprop", "sgd", "nadam", "asgd"])  # fmt: skip
def test_steps_of_optimizers(gpu, make):
    """Captured steps count on, and move parameters as eager steps do."""

    def start():
        weights = [torch.tensor([1.0, -2.0, 3.0], device="cuda", requires_grad=True), torch.ones(2, 2, device="cuda", requires_grad=True)]
        return weights, make(weights)

    def step(weights, optimizer):
        for w in weights:
            w.grad = (w * w * w).detach()
        optimizer.step()

    eager, replayed = start(), start()
    for _ in range(7):
        step(*eager)
    for _ in range(2):
        step(*replayed)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(*replayed)
    for _ in range(5):
        graph.replay()
    for a, b in zip(eager[0], replayed[0], strict=True):
        assert torch.allclose(a.cpu(), b.cpu(), rtol=1e-6), (a, b)
    state = replayed[1].state[replayed[0][0]]
    assert "step" not in state or state["step"].item() == 7


def test_steps_that_cannot_be_repeated_say_so(gpu):
    """A step that counts in main memory would always be the same one."""
    w = torch.ones(2, device="cuda", requires_grad=True)
    w.grad = torch.ones(2, device="cuda")
    optimizer = torch.optim.Adam([w])
    optimizer.step()
    with pytest.raises(RuntimeError, match="capturable is False"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        optimizer.step()
    for other in (torch.optim.Adagrad([w]), torch.optim.Adafactor([w])):
        other.step()
        with pytest.raises(RuntimeError, match="capturing a CUDA graph"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            other.step()


def test_a_whole_step(gpu):
    """Forward, backward and a step captured together: what the eager loop gives, for operations that are kernels of ours."""

    def start():
        w = torch.linspace(-1, 1, 12, device="cuda").reshape(3, 4).requires_grad_()
        return w, torch.optim.Adam([w], lr=0.05, capturable=True)

    def step(w, optimizer):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.gelu(w * data).sub(1).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    data = torch.ones(3, 4, device="cuda")
    expected, (w, optimizer) = [], start()
    for i in range(6):
        data.fill_(1 + i / 10)
        expected.append(step(w, optimizer).item())
    w, optimizer = start()
    for i in range(2):
        data.fill_(1 + i / 10)
        assert abs(step(w, optimizer).item() - expected[i]) < 1e-6
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(w, optimizer)
    for i in range(2, 6):
        data.fill_(1 + i / 10)
        graph.replay()
        assert abs(loss.item() - expected[i]) < 1e-6


class Scaled(torch.nn.Module):
    """Something with parameters that is made of kernels of ours alone."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([0.5, 2.0]))

    def forward(self, x):
        """(N, 2) -> (N, 2)"""
        return torch.tanh(x * self.weight)


def test_graphed_callables(gpu):
    """Modules and functions that run by graphs give the values and the gradients that they gave, and modules know when they have changed."""
    module, plain = Scaled().cuda(), Scaled().cuda()
    sample = torch.ones(3, 2, device="cuda", requires_grad=True)
    made = torch.cuda.make_graphed_callables(module, (sample,))
    assert made is module
    for value in (0.25, -1.0):
        x, y = (torch.full((3, 2), value, device="cuda", requires_grad=True) for _ in range(2))
        for p in (module.weight, plain.weight):
            p.grad = None
        found, expected = made(x), plain(y)
        (found * 2).sum().backward()
        (expected * 2).sum().backward()
        for a, b in ((found, expected), (x.grad, y.grad), (module.weight.grad, plain.weight.grad)):
            assert torch.allclose(a.cpu(), b.cpu())
    assert torch.allclose(module.eval()(x).cpu(), plain(y).cpu())
    first, second = torch.cuda.make_graphed_callables((lambda t: t * 3, lambda t: (t + 1, t - 1)), ((sample,), (sample,)))
    x = torch.full((3, 2), 4.0, device="cuda", requires_grad=True)
    both = second(first(x))
    assert [t.tolist() for t in both] == [[[13.0] * 2] * 3, [[11.0] * 2] * 3]
    (both[0] * 5 + both[1]).sum().backward()
    assert x.grad.tolist() == [[18.0] * 2] * 3
    with pytest.raises(RuntimeError, match="hooks"):
        module.register_forward_hook(lambda *a: None)
        torch.cuda.make_graphed_callables(module, (sample,))
    with pytest.raises(TypeError, match="only Tensors"):
        torch.cuda.make_graphed_callables(Scaled(), (2.0,))
