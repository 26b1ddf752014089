"""Recurrent networks on a GPU: all steps in one launch and step by step, PyTorch's numbers and gradients."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau.kernels.templates import recurrent
from flambeau.kernels.templates.cuda_recurrent import Walk, print_step, print_walk

torch = pytest.importorskip("torch")
rng = np.random.default_rng(0)
KINDS = ["LSTM", "GRU", "RNN"]


@pytest.fixture(params=["walk", "step"])
def path(request, gpu, monkeypatch):
    """All steps in one launch, and a product and a launch for each."""
    if request.param == "step":
        monkeypatch.setattr(gpu.recurrent, "_walk", lambda *given: None)
    return request.param


def compare(kind, sizes, *inputs, lengths=None, dtype="float32", tolerance=1e-4, **options):
    """Results and all gradients of a layer on a GPU against PyTorch's, which has the same weights."""
    ours = getattr(flambeau.nn, kind)(*sizes, dtype=getattr(flambeau, dtype), **options)
    theirs = getattr(torch.nn, kind)(*sizes, dtype=getattr(torch, dtype), **options)
    with torch.no_grad():
        for p, q in zip(theirs.parameters(), ours.parameters(), strict=True):
            p.copy_(torch.from_numpy(q.detach().numpy()))
    found = []
    for package, layer, device in ((flambeau, ours.cuda(), "cuda"), (torch, theirs, "cpu")):
        x, *states = [package.tensor(a, dtype=getattr(package, dtype), device=device, requires_grad=True) for a in inputs]
        hx = None if not states else tuple(states) if len(states) > 1 else states[0]
        with package.no_grad():
            plain = _results(layer, x, hx)
        pack = package.nn.utils.rnn.pack_padded_sequence
        results = _results(layer, x if lengths is None else pack(x, package.tensor(lengths), enforce_sorted=False), hx)
        assert all(t.device.type == device for t in results)
        sum(((i + 1) * r * r).sum() for i, r in enumerate(results)).backward()
        grads = [t.grad for t in (x, *states, *layer.parameters())]
        found.append([t.detach().cpu().numpy() for t in (*plain, *results, *grads)])
    for i, (card, host) in enumerate(zip(*found, strict=True)):
        np.testing.assert_allclose(card, host, tolerance, tolerance, err_msg=f"number {i}")


def _results(layer, x, hx):
    out, last = layer(x, hx) if hx is not None else layer(x)
    out = out.data if hasattr(out, "batch_sizes") else out
    return [out, *(last if isinstance(last, tuple) else (last,))]


def numbers(*shape):
    return rng.standard_normal(shape).tolist()


def states(kind, layers, samples, hidden):
    return [numbers(layers, samples, hidden) for _ in range(1 + (kind == "LSTM"))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [None, [5, 2, 5, 1, 4]], ids=["even", "packed"])
def test_networks(path, kind, lengths):
    """Two layers, both directions, given states, sequences of one length and of several, with gradients and without."""
    compare(kind, (3, 6, 2), numbers(5, 5, 3), *states(kind, 4, 5, 6), lengths=lengths, bidirectional=True)
    compare(kind, (3, 6, 2), numbers(5, 5, 3), lengths=lengths, bias=False)


@pytest.mark.parametrize(("kind", "hidden", "samples"), [("LSTM", 37, 2), ("GRU", 21, 5), ("RNN", 70, 9), ("LSTM", 5, 700)])
def test_tiles(gpu, kind, hidden, samples, monkeypatch):
    """Hidden sizes that fill no vector, and one to eight samples to a block, the last of which has fewer."""
    monkeypatch.setattr(gpu.recurrent, "multiprocessors", lambda device: 2)
    gpu.recurrent._walk.cache_clear()
    compare(kind, (2, hidden), numbers(3, samples, 2), *states(kind, 1, samples, hidden), tolerance=1e-3)
    gpu.recurrent._walk.cache_clear()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_beside_the_registers(gpu, kind, monkeypatch):
    """Weights that a thread has in registers for a part, or not at all, in double precision too."""
    for registers, dtype in ((8, "float32"), (0, "float64")):
        monkeypatch.setattr(gpu.recurrent, "REGISTERS", registers)
        gpu.recurrent._walk.cache_clear()
        compare(kind, (2, 18), numbers(4, 3, 2), *states(kind, 1, 3, 18), dtype=dtype)
    gpu.recurrent._walk.cache_clear()


def test_relu(path):
    """The plain network with relu."""
    compare("RNN", (3, 6), numbers(4, 2, 3), numbers(1, 2, 6), nonlinearity="relu")


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell"])
def test_cells(gpu, kind):
    """Single steps, and the gradient of the last state alone."""
    ours, theirs = getattr(flambeau.nn, kind)(3, 6), getattr(torch.nn, kind)(3, 6)
    theirs.load_state_dict({name: torch.from_numpy(p.numpy()) for name, p in ours.state_dict().items()})
    x, found = numbers(2, 3), []
    for package, cell, device in ((flambeau, ours.cuda(), "cuda"), (torch, theirs, "cpu")):
        out = cell(package.tensor(x, device=device))
        last = out[1] if kind == "LSTMCell" else out
        last.sum().backward()
        found.append([t.detach().cpu().numpy() for t in (last, *[p.grad for p in cell.parameters()])])
    for card, host in zip(*found, strict=True):
        np.testing.assert_allclose(card, host, 1e-5, 1e-5)


def test_one_launch_for_all_steps(gpu, monkeypatch):
    """A hundred steps of a network of usual size are one kernel forward and one backward."""
    launched = []
    run = gpu.recurrent._run
    monkeypatch.setattr(gpu.recurrent, "_run", lambda walk, *given: (launched.append(walk), run(walk, *given))[1])
    layer = flambeau.nn.LSTM(4, 8).cuda()
    layer(flambeau.randn(100, 2, 4, device="cuda"))[0].sum().backward()
    assert [w.backward for w in launched] == [False, True]


def test_sizes_that_fit(gpu):
    """128 units of an lstm, 160 of a gru and 256 of a plain network fit into a multiprocessor, and 512 of none."""
    for cell, hidden in (("lstm", 128), ("gru", 160), ("rnn_tanh", 256)):
        for backward in (False, True):
            assert gpu.recurrent._walk(cell, "float32", backward, 2, hidden, 0) is not None
    assert gpu.recurrent._walk("lstm", "float32", False, 2, 512, 0) is None
    assert gpu.recurrent._walk("lstm", "float32", False, 100_000, 128, 0) is None


@pytest.mark.parametrize("cell", recurrent.GATES)
def test_every_cell_prints(cell):
    """Every cell is a kernel for all steps and one for a step; nothing in their texts is left to fill in."""
    for backward in (False, True):
        walk = Walk(cell, "float32", backward, 1, 8, 4, 32)
        for text in (print_walk(walk), print_step(cell, "float32", backward, True)):
            assert text.count("{") == text.count("}")
            assert not any(word in text for word in ("FORMULA", "TANH", "SIGMOID", "GATES", "DEPTH", "ROWS", "KEEP_", "IS_"))
