"""RNN, GRU, LSTM and their cells against PyTorch: all options, packed sequences, gradients of both orders, errors."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest
from layer_oracle import assert_near, assert_states, check_errors, inputs, pair, torch

import flambeau
from flambeau.kernels.native import native

KINDS = ["RNN", "GRU", "LSTM"]


@pytest.fixture(params=["compiled", "operations"])
def path(request, monkeypatch):
    """With the compiled loops, and step by step."""
    if request.param == "operations":
        monkeypatch.setattr("flambeau.kernels.templates.recurrent.compiled", lambda *operands: False)
    elif native.lib is None:
        pytest.skip("nothing is compiled here")


def run(package, layer, x, states, lengths=None, enforce_sorted=True):
    """[output, last states...]; with lengths, of packed sequences."""
    hx = None if not states else tuple(states) if len(states) > 1 else states[0]
    if lengths is not None:
        x = package.nn.utils.rnn.pack_padded_sequence(x, package.tensor(lengths), layer.batch_first, enforce_sorted)
    out, last = layer(x, hx)
    if lengths is not None:
        out = out.data
    return [out, *(last if isinstance(last, tuple) else (last,))]


def compare(ours, theirs, x, states, dtype="float32", tolerance=2e-4, **options):
    """Results, and gradients of input, states and weights."""
    results = []
    for package, layer, tensors in zip((flambeau, torch), (ours, theirs), inputs(x, *states, dtype=dtype), strict=True):
        package.manual_seed(11)
        layer.zero_grad()
        found = run(package, layer, tensors[0], tensors[1:], **options)
        sum(((i + 1) * r * r).sum() for i, r in enumerate(found)).backward()
        results.append([*found, *(t.grad for t in tensors), *(p.grad for p in layer.parameters())])
    for i, (mine, other) in enumerate(zip(*results, strict=True)):
        assert_near(mine, other, f"number {i}", 1e-9 if dtype == "float64" else tolerance)


def state_shapes(kind, layers, ways, batch, hidden, proj=0):
    shapes = [(layers * ways, *batch, proj or hidden), (layers * ways, *batch, hidden)]
    return shapes[: 2 if kind == "LSTM" else 1]


@pytest.mark.parametrize(("kind", "layers", "bidirectional"), list(itertools.product(KINDS, [1, 2], [False, True])))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lengths", [None, [6, 6, 4, 1, 1], [6, 2, 2, 2, 1]])
def test_networks(kind, layers, bidirectional, dtype, lengths, path):
    """Layers, directions, initial states and sequences of different lengths: numbers and gradients are PyTorch's."""
    ours, theirs = pair(kind, 5, 7, layers, bidirectional=bidirectional, dtype=dtype)
    shapes = state_shapes(kind, layers, 2 if bidirectional else 1, (5,), 7)
    compare(ours, theirs, (6, 5, 5), shapes, dtype, lengths=lengths)
    compare(ours, theirs, (6, 5, 5), [], dtype, lengths=lengths)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("batch", "hidden", "steps"), [(1, 1, 1), (37, 16, 3), (33, 64, 5), (16, 130, 2), (50, 520, 2), (1, 200, 6), (4, 150, 3)]
)
def test_sizes(kind, batch, hidden, steps, path):
    """Around the sizes of the compiled blocks, beyond what a core's cache holds, and few samples whose units are shared out."""
    ours, theirs = pair(kind, 3, hidden)
    compare(ours, theirs, (steps, batch, 3), state_shapes(kind, 1, 1, (batch,), hidden), tolerance=2e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [{"bias": False}, {"batch_first": True}, {"num_layers": 3, "dropout": 0.4}, {"num_layers": 2, "bidirectional": True, "dropout": 0.4}],
)
def test_options(kind, options, path):
    """Without biases, with samples first, with dropout between layers (the same numbers are dropped)."""
    ours, theirs = pair(kind, 5, 7, **options)
    shape = (4, 6, 5)
    layers, ways = options.get("num_layers", 1), 2 if options.get("bidirectional") else 1
    compare(ours, theirs, shape, state_shapes(kind, layers, ways, (4 if options.get("batch_first") else 6,), 7))
    compare(ours, theirs, shape, [])
    ours.eval(), theirs.eval()
    compare(ours, theirs, shape, [])
    compare(ours, theirs, (6, 5), state_shapes(kind, layers, ways, (), 7))


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True, "bias": False}])
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_projections(options):
    """proj_size makes the output, and the state that is fed back, smaller."""
    ours, theirs = pair("LSTM", 5, 7, proj_size=3, **options)
    layers, ways = options.get("num_layers", 1), 2 if options.get("bidirectional") else 1
    n = 4 if options.get("batch_first") else 6
    compare(ours, theirs, (4, 6, 5), state_shapes("LSTM", layers, ways, (n,), 7, 3))
    if not options.get("batch_first"):
        compare(ours, theirs, (4, 6, 5), state_shapes("LSTM", layers, ways, (n,), 7, 3), lengths=[4, 4, 3, 2, 1, 1])


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_nonlinearity(nonlinearity, path):
    """The plain network with tanh and with relu, also as the fourth argument."""
    ours, theirs = pair("RNN", 5, 7, 2, nonlinearity, bidirectional=True)
    compare(ours, theirs, (4, 6, 5), [(4, 6, 7)])
    compare(*pair("RNN", 5, 7, nonlinearity=nonlinearity), (4, 6, 5), [])


@pytest.mark.parametrize("kind", KINDS)
def test_packed_in_any_order(kind, path):
    """Sequences that are not sorted by length: states are given, and come back, in the caller's order."""
    ours, theirs = pair(kind, 5, 7, 2, bidirectional=True)
    compare(ours, theirs, (6, 4, 5), state_shapes(kind, 2, 2, (4,), 7), lengths=[2, 6, 3, 6], enforce_sorted=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(kind, dtype, path):
    """Half precision is computed in float32 between its roundings."""
    ours, theirs = pair(kind, 5, 7, dtype=dtype)
    a, b = inputs((4, 3, 5), dtype=dtype)
    assert_near(run(flambeau, ours, a[0], [])[0], run(torch, theirs, b[0], [])[0], "output")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [None, [3, 1]])
def test_second_derivatives(kind, lengths, path):
    """gradgradcheck, both directions, weights and states included."""
    flambeau.manual_seed(0)
    layer = getattr(flambeau.nn, kind)(1, 2, bidirectional=True, dtype=flambeau.float64)
    leaves, _ = inputs((3, 2, 1), *state_shapes(kind, 1, 2, (2,), 2), dtype="float64")

    def function(x, *rest):
        return tuple(run(flambeau, layer, x, rest, lengths))

    assert flambeau.autograd.gradcheck(function, leaves)
    assert flambeau.autograd.gradgradcheck(function, leaves)
    out = function(*leaves)[0].square().sum()
    grads = flambeau.autograd.grad(out, list(layer.parameters()), create_graph=True)
    sum(g.square().sum() for g in grads).backward()
    assert all(p.grad.isfinite().all() and p.grad.abs().sum() > 0 for p in layer.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_partial_gradients(kind, path):
    """Only the last state, only the output, or only some weights may be asked for."""
    for pick, frozen in ((0, False), (-1, False), (0, True)):
        ours, theirs = pair(kind, 5, 7)
        for layer in (ours, theirs):
            layer.weight_hh_l0.requires_grad_(not frozen)
        results = []
        for package, layer, (x,) in zip((flambeau, torch), (ours, theirs), inputs((4, 3, 5)), strict=True):
            run(package, layer, x, [])[pick].sum().backward()
            results.append([x.grad, layer.weight_ih_l0.grad, layer.weight_hh_l0.grad, layer.bias_hh_l0.grad])
        for mine, other in zip(*results, strict=True):
            assert_near(mine, other, f"{pick} {frozen}", 1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_few_samples_of_different_lengths(kind, path):
    """Steps of three, two and one sample, whose units are shared out among threads, in both directions."""
    ours, theirs = pair(kind, 5, 150, 1, bidirectional=True)
    compare(ours, theirs, (6, 3, 5), state_shapes(kind, 1, 2, (3,), 150), tolerance=2e-3, lengths=[6, 4, 1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        {}, {"bias": False, "dtype": flambeau.float64}, {"batch_first": True, "num_layers": 2}, {"num_layers": 2, "bidirectional": True},
        {"num_layers": 2, "dropout": 0.5}, {"bidirectional": True, "dtype": flambeau.float16},
    ],
)  # fmt: skip
def test_unrecorded(kind, options):
    """Where nothing is recorded, the bits, dtypes and strides are the same, without a history, and no result shares memory with another."""
    layer, ways = getattr(flambeau.nn, kind)(6, 9, **options), 2 if options.get("bidirectional") else 1
    dtype, layers = options.get("dtype", flambeau.float32), options.get("num_layers", 1)
    x = flambeau.randn(4, 3, 6, dtype=dtype)
    samples = 4 if options.get("batch_first") else 3
    states = [flambeau.randn(*shape, dtype=dtype) for shape in state_shapes(kind, layers, ways, (samples,), 9)]
    for train, given, seen in itertools.product(
        (True, False), ([], states), (x, x[::2] if samples == 3 else x[:, ::2], x.mT.contiguous().mT)
    ):
        layer.train(train)
        flambeau.manual_seed(1)
        recorded = run(flambeau, layer, seen, given)
        with flambeau.no_grad():
            flambeau.manual_seed(1)
            found = run(flambeau, layer, seen, given)
        for mine, other in zip(found, recorded, strict=True):
            assert not mine.requires_grad and mine.grad_fn is None and other.requires_grad
            assert mine.dtype is other.dtype and mine.stride() == other.stride() and flambeau.equal(mine, other.detach())
        before = [t.clone() for t in found[1:]]
        found[0].zero_()
        assert all(flambeau.equal(t, b) for t, b in zip(found[1:], before, strict=True))


@pytest.mark.skipif(native.lib is None, reason="without compiled kernels there is one thread")
@pytest.mark.parametrize(("samples", "hidden"), [(70, 48), (3, 150)])
@pytest.mark.parametrize("kind", KINDS)
def test_threads_do_not_change_bits(kind, samples, hidden):
    """Results and gradients are the same bits with 1, 2 and 5 threads."""
    before, found = flambeau.get_num_threads(), []
    try:
        for n in (1, 2, 5):
            flambeau.set_num_threads(n)
            flambeau.manual_seed(0)
            layer = getattr(flambeau.nn, kind)(20, hidden, 2)
            (x,), _ = inputs((20, samples, 20))
            out = layer(x)[0]
            out.square().sum().backward()
            found.append([out.detach(), x.grad, *(p.grad for p in layer.parameters())])
    finally:
        flambeau.set_num_threads(before)
    for other in found[1:]:
        assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(found[0], other, strict=True))


def test_weights_by_name():
    """all_weights, _flat_weights and their names are PyTorch's; weights can be replaced, copied, pickled and moved."""
    ours, theirs = pair("LSTM", 3, 4, 2, bidirectional=True, proj_size=2)
    assert ours._flat_weights_names == theirs._flat_weights_names and ours._all_weights == theirs._all_weights
    assert [[tuple(w.shape) for w in g] for g in ours.all_weights] == [[tuple(w.shape) for w in g] for g in theirs.all_weights]
    assert ours.flatten_parameters() is None
    for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert_states(again, theirs)
        assert again._flat_weights[0] is again.weight_ih_l0
    assert ours.double()._flat_weights[0].dtype is flambeau.float64
    ours.weight_hh_l0 = flambeau.nn.Parameter(flambeau.zeros(16, 2))
    assert ours._flat_weights[1] is ours.weight_hh_l0


def test_functions():
    """torch.lstm, gru, rnn_tanh, rnn_relu, and those of one step, as PyTorch exposes them."""
    for name, kind in (("lstm", "LSTM"), ("gru", "GRU"), ("rnn_tanh", "RNN"), ("rnn_relu", "RNN")):
        ours, theirs = pair(kind, 3, 4)
        found = []
        for t, layer, (x, h) in zip((flambeau, torch), (ours, theirs), inputs((5, 2, 3), (1, 2, 4)), strict=True):
            hx = (h, h * 2) if name == "lstm" else h
            weights = [getattr(layer, n) for n in layer._flat_weights_names]
            step = (h[0], h[0] * 2) if name == "lstm" else h[0]
            cell = getattr(t, f"{name}_cell")(x[0], step, *weights)
            results = getattr(t, name)(x, hx, weights, True, 1, 0.0, False, False, False)
            packed = getattr(t, name)(x.reshape(10, 3), t.tensor([2] * 5), hx, weights, True, 1, 0.0, False, False)
            found.append([*results, *packed, *(cell if isinstance(cell, tuple) else [cell])])
        for mine, other in zip(*found, strict=True):
            assert_near(mine, other, name)


@pytest.mark.parametrize("name", ["RNNCell", "GRUCell", "LSTMCell"])
@pytest.mark.parametrize("options", [{}, {"bias": False}])
def test_cells(name, options):
    """One step, batched and not, with a state and without."""
    ours, theirs = pair(name, 3, 4, **options)
    for shape, state in (((2, 3), (2, 4)), ((3,), (4,)), ((2, 3), None)):
        given = [shape] if state is None else [shape, state, state]
        results = []
        for layer, tensors in zip((ours, theirs), inputs(*given), strict=True):
            layer.zero_grad()
            hx = None if state is None else tuple(tensors[1:]) if name == "LSTMCell" else tensors[1]
            found = layer(tensors[0], hx)
            found = list(found) if isinstance(found, tuple) else [found]
            sum((f * f).sum() for f in found).backward()
            results.append([*found, tensors[0].grad, *(p.grad for p in layer.parameters())])
        for mine, other in zip(*results, strict=True):
            assert_near(mine, other, f"{name} {shape}")
    pair("RNNCell", 3, 4, nonlinearity="relu")


X = (5, 3, 4)
CALLS = [
    ("LSTM", {}, X, [(1, 2, 6), (1, 3, 6)]), ("LSTM", {}, X, [(1, 3, 6), (1, 2, 6)]), ("LSTM", {}, (5, 3, 3), []), ("LSTM", {}, (4,), []),
    ("LSTM", {}, (5, 4), [(1, 3, 6)] * 2), ("LSTM", {}, X, [(1, 6)] * 2), ("GRU", {}, (0, 3, 4), []), ("GRU", {}, X, [(1, 2, 6)]),
    ("GRU", {}, (5, 4), [(1, 3, 6)]), ("RNN", {}, (2, 5, 3, 4), []), ("LSTMCell", {}, (1, 2, 4), []), ("LSTMCell", {}, (3, 4), [(2, 6)] * 2),
    ("LSTMCell", {}, (3, 3), []), ("GRUCell", {}, (3, 4), [(3, 5)]), ("RNNCell", {}, (3, 4), [(3, 1, 6)]), ("RNNCell", {"nonlinearity": "x"}, (3, 4), []),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "options", "x", "states"), CALLS)
def test_calls_that_do_not_fit(kind, options, x, states):
    """Shapes that do not fit raise PyTorch's exceptions."""
    check_errors(lambda t, x, *s: getattr(t.nn, kind)(4, 6, **options)(x, (s if len(s) > 1 else s[0]) if s else None), x, *states)


@pytest.mark.parametrize(
    "options",
    [{"hidden_size": 0}, {"num_layers": 0}, {"hidden_size": 2.5}, {"dropout": 2}, {"proj_size": 6}, {"proj_size": -1}, {"input_size": 0}],
)
def test_options_that_cannot_be(options):
    """Impossible sizes raise PyTorch's exceptions."""
    check_errors(lambda t: t.nn.LSTM(**{"input_size": 4, "hidden_size": 6, **options}))


def test_other_errors():
    """Projections without an LSTM, unknown modes and nonlinearities, dtypes that differ; and a warning for dropout that has no effect."""
    check_errors(lambda t: t.nn.GRU(4, 6, proj_size=3))
    check_errors(lambda t: t.nn.RNN(4, 6, nonlinearity="sin"))
    check_errors(lambda t: t.nn.RNNBase("QRNN", 4, 6))
    check_errors(lambda t, x: t.nn.GRU(4, 6)(x.double()), X)
    check_errors(lambda t, x, h: t.nn.GRU(4, 6)(x, h.double()), X, (1, 3, 6))
    with pytest.warns(UserWarning, match="dropout option adds dropout"):
        flambeau.nn.LSTM(4, 6, dropout=0.5)


def test_no_samples():
    """A batch of none gives empty results."""
    ours, theirs = pair("LSTM", 4, 6, 2)
    a, b = inputs((5, 0, 4))
    for mine, other in zip(run(flambeau, ours, a[0], []), run(torch, theirs, b[0], []), strict=True):
        assert_near(mine, other, "empty")


def test_printed_results_name_pytorchs_nodes():
    """The tutorials print outputs of recurrent networks: grad_fn reads as PyTorch's does."""

    def told(lib):
        x = lib.ones(4, 2, 3)
        made = [lib.nn.LSTM(3, 2), lib.nn.GRU(3, 2), lib.nn.RNN(3, 2, batch_first=True), lib.nn.GRU(3, 2, bidirectional=True)]
        names = [m(x)[0].grad_fn.name() for m in made] + [lib.nn.LSTM(3, 2).double()(x.double())[0].grad_fn.name()]
        return names + [cell(x[0]).grad_fn.name() for cell in (lib.nn.GRUCell(3, 2), lib.nn.RNNCell(3, 2))]

    assert told(flambeau) == told(torch)


@pytest.mark.parametrize(
    ("shape", "state", "said"), [((3, 5), (4, 6), "batch size 3 doesn't match hidden0 batch size 4"), ((5,), (3, 6), "inconsistent")]
)
@pytest.mark.parametrize("cell", ["RNNCell", "GRUCell", "LSTMCell"])
def test_a_state_for_every_sample(cell, shape, state, said):
    """A batch of states beside one sample was broadcast."""
    for f in (flambeau, torch):
        h = f.ones(state)
        with pytest.raises(RuntimeError, match=said):
            getattr(f.nn, cell)(5, 6)(f.ones(shape), (h, h) if cell == "LSTMCell" else h)
