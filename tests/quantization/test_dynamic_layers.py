"""Layers that quantize_dynamic makes: their numbers, their texts, their states, and which layers it takes."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import numpy as np
import pytest
from pairs import array, both, close, refusals, same, torch

import flambeau
from flambeau.kernels.templates import quantized as kernels
from flambeau.ops import quantized as operations


def qconfigs(t) -> dict:
    q = t.ao.quantization
    affine = q.MinMaxObserver.with_args(dtype=t.qint8, qscheme=t.per_tensor_affine)
    narrow = q.MinMaxObserver.with_args(dtype=t.qint8, qscheme=t.per_tensor_symmetric, quant_min=-64, quant_max=63)
    return {
        "default": q.default_dynamic_qconfig,
        "channels": q.per_channel_dynamic_qconfig,
        "affine": q.QConfig(activation=q.default_dynamic_quant_observer, weight=affine),
        "affine channels": q.QConfig(
            activation=None, weight=q.PerChannelMinMaxObserver.with_args(dtype=t.qint8, qscheme=t.per_channel_affine)
        ),
        "narrow": q.QConfig(activation=q.default_dynamic_quant_observer, weight=narrow),
        "float16": q.float16_dynamic_qconfig,
    }


def quantized(t, layer, qconfig: str = "default"):
    """A model with the layer in it, quantized."""
    return t.ao.quantization.quantize_dynamic(t.nn.Sequential(layer), {type(layer): qconfigs(t)[qconfig]})


SHAPES = [(4, 3, (5,)), (20, 30, (1,)), (100, 65, (2, 3)), (257, 64, (60,)), (1024, 130, (3,)), (8, 8, (0,))]


@pytest.mark.parametrize("qconfig", ["default", "channels", "affine", "affine channels", "narrow"])
@pytest.mark.parametrize("shape", SHAPES)
def test_linear_gives_pytorchs_bits(shape, qconfig):
    """A quantized linear layer gives another number than PyTorch's, though integers are exact."""
    inputs, outputs, batch = shape
    same(lambda t: quantized(t, t.nn.Linear(inputs, outputs), qconfig)(t.randn(*batch, inputs) + 0.1).detach())


def test_linear_without_bias_and_in_float16():
    """A layer without a bias, or with weights of float16, gives other numbers than PyTorch's."""
    same(lambda t: quantized(t, t.nn.Linear(30, 20, bias=False))(t.randn(4, 30)))
    close(lambda t: quantized(t, t.nn.Linear(30, 20), "float16")(t.randn(4, 30)))
    same(lambda t: quantized(t, t.nn.Linear(30, 20), "float16")[0].weight())


@pytest.mark.parametrize("qconfig", ["default", "channels", "float16"])
@pytest.mark.parametrize(
    "options",
    [dict(), dict(num_layers=2, bidirectional=True, batch_first=True)],
    ids=["one layer", "two layers both ways"],
)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_agree(kind, options, qconfig):
    """Outputs or last states of a quantized LSTM or GRU are not PyTorch's; with a given state, or of sequences of different lengths."""

    def program(t):
        net = quantized(t, getattr(t.nn, kind)(12, 20, **options), qconfig)[0]
        states = t.randn(2, 4, 4, 20)[:, : 4 if options else 1]
        x = t.randn(4, 9, 12) if options else t.randn(9, 4, 12)
        packed = t.nn.utils.rnn.pack_padded_sequence(
            x, t.tensor([9, 7, 3, 2]) if not options else t.tensor([9, 7, 7, 2]), batch_first=bool(options)
        )
        found = []
        for input, hx in ((x, None), (x, (states[0], states[1]) if kind == "LSTM" else states[0]), (packed, None)):
            output, hidden = net(input, hx)
            found += [output if hasattr(output, "is_quantized") else output.data, *(hidden if kind == "LSTM" else (hidden,))]
        return tuple(found)

    close(program)


@pytest.mark.parametrize("room, name", [(kernels, "STEP"), (operations, "LARGEST")], ids=["a launch for each step", "operations"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_all_ways_to_take_steps_agree(monkeypatch, kind, room, name):
    """The loop over all steps gives other numbers than a launch of each step, or than steps made of operations."""
    flambeau.manual_seed(0)
    net = quantized(flambeau, getattr(flambeau.nn, kind)(12, 20, bidirectional=True))[0]
    packed = flambeau.nn.utils.rnn.pack_padded_sequence(flambeau.randn(9, 4, 12), flambeau.tensor([9, 7, 3, 2]))
    at_once = net(packed)[0].data
    monkeypatch.setattr(room, name, 0)
    np.testing.assert_allclose(array(net(packed)[0].data), array(at_once), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "make", [lambda t: t.nn.LSTMCell(12, 20), lambda t: t.nn.GRUCell(12, 20), lambda t: t.nn.RNNCell(12, 20, nonlinearity="relu")]
)
def test_cells_agree(make):
    """One step of a quantized cell is not PyTorch's."""

    def program(t):
        net = quantized(t, make(t))[0]
        found = net(t.randn(4, 12))
        again = net(t.randn(4, 12), found)
        return (*found, *again) if isinstance(found, tuple) else (found, again)

    close(program)


def model(t):
    return t.nn.Sequential(
        t.nn.Linear(4, 3), t.nn.ReLU(), t.nn.LSTM(3, 5, 2, bidirectional=True), t.nn.GRU(3, 2), t.nn.Embedding(4, 3), t.nn.LSTMCell(3, 4),
        t.nn.MultiheadAttention(4, 2), t.nn.Sequential(t.nn.Linear(2, 2, bias=False), t.nn.RNNCell(3, 2, nonlinearity="relu")), t.nn.RNN(2, 2),
    )  # fmt: skip


SPECS = {
    "everything": lambda t: dict(),
    "types": lambda t: dict(qconfig_spec={t.nn.Linear}),
    "types and names": lambda t: dict(qconfig_spec={t.nn.GRU, "7.0"}),
    "a room": lambda t: dict(qconfig_spec={"7"}),
    "a dict": lambda t: dict(qconfig_spec={t.nn.Linear: qconfigs(t)["channels"], "7.0": None, "2": qconfigs(t)["float16"]}),
    "float16": lambda t: dict(dtype=t.float16),
    "float16 of some": lambda t: dict(qconfig_spec={t.nn.LSTM}, dtype=t.float16),
    "nothing": lambda t: dict(qconfig_spec=set()),
    "a mapping": lambda t: dict(mapping={t.nn.Linear: t.ao.nn.quantized.dynamic.Linear}),
    "attention's own": lambda t: dict(qconfig_spec={t.nn.modules.linear.NonDynamicallyQuantizableLinear}),
}


@pytest.mark.parametrize("name", SPECS)
def test_the_same_layers_are_swapped(name):
    """A spec quantizes other layers than in PyTorch, or prints or names their states otherwise."""

    def program(t):
        net = t.ao.quantization.quantize_dynamic(model(t), **SPECS[name](t))
        return repr(net), list(net.state_dict()), [n for n, _ in net.named_modules()], [n for n, _ in net.named_parameters()]

    theirs, ours = both(program)
    assert theirs == ours


def test_weights_and_biases_can_be_read():
    """weight(), bias(), get_weight() or get_bias() say something else than in PyTorch."""

    def program(t):
        net = t.ao.quantization.quantize_dynamic(model(t))
        linear, lstm, cell = net[0], net[2], net[5]
        parts = {
            "weight": linear.weight(),
            "bias": linear.bias(),
            **lstm.get_weight(),
            **lstm.get_bias(),
            **cell.get_weight(),
            **cell.get_bias(),
        }
        fresh = t.ao.nn.quantized.dynamic.Linear(3, 2)
        assert (fresh.bias().tolist(), t.ao.nn.quantized.dynamic.Linear(3, 2, bias_=False).bias()) == ([0, 0], None)
        return {name: (repr(value.dtype), array(value).tolist()) for name, value in parts.items()}, repr(fresh)

    theirs, ours = both(program)
    assert theirs == ours


def test_the_model_itself_stays_unless_asked():
    """quantize_dynamic changes the model it is given, or copies it with inplace=True, or leaves marks on it."""
    net = model(flambeau).train()
    small = flambeau.ao.quantization.quantize_dynamic(net)
    assert type(net[0]) is flambeau.nn.Linear and net.training and not small.training
    assert not any(hasattr(part, "qconfig") for part in (*net.modules(), *small.modules()))
    assert flambeau.quantization.quantize_dynamic(net, inplace=True) is net and not net.training
    assert isinstance(net[0], flambeau.ao.nn.quantized.dynamic.Linear) and isinstance(net[0], flambeau.nn.quantized.dynamic.Linear)
    alone = flambeau.nn.Linear(2, 3)
    assert type(flambeau.ao.quantization.quantize_dynamic(alone)) is flambeau.nn.Linear  # only what is inside a model is swapped


def test_layers_in_containers_and_transformers_are_used():
    """A layer in a dictionary, a list or a transformer is swapped, but the old one is still computed with."""

    def program(t):
        q = t.ao.quantization.quantize_dynamic
        rooms = q(t.nn.ModuleDict({"0": t.nn.Linear(4, 4), "a": t.nn.ModuleList([t.nn.Linear(4, 4)])}))
        x = t.randn(2, 4)
        decoder = q(t.nn.TransformerDecoderLayer(16, 2, 32))
        attention = q(t.nn.MultiheadAttention(16, 2))
        sequence = t.randn(5, 2, 16)
        return rooms["0"](x), rooms["a"][0](x), decoder(sequence, sequence), attention(sequence, sequence, sequence)[0]

    close(program)
    encoder = flambeau.ao.quantization.quantize_dynamic(flambeau.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True))
    assert encoder(flambeau.randn(2, 5, 16)).shape == (2, 5, 16)  # PyTorch's fails in its fast path


def test_hooks_go_along():
    """A layer's hooks are lost when it is quantized."""
    net, calls = flambeau.nn.Sequential(flambeau.nn.Linear(2, 3)), []
    net[0].register_forward_pre_hook(lambda module, args: calls.append("before"))
    net[0].register_forward_hook(lambda module, args, output: calls.append(tuple(output.shape)))
    flambeau.ao.quantization.quantize_dynamic(net)(flambeau.ones(4, 2))
    assert calls == ["before", (4, 3)]


def recurrent_and_linear(t, qconfig="default"):
    layers = [t.nn.Linear(6, 5), t.nn.LSTM(6, 5, 2), t.nn.GRUCell(6, 5)]
    return t.ao.quantization.quantize_dynamic(t.nn.ModuleList(layers), dict.fromkeys(map(type, layers), qconfigs(t)[qconfig]))


def results(net, x) -> list[np.ndarray]:
    return [array(y[0] if isinstance(y, tuple) else y) for y in (net[0](x), net[1](x.unsqueeze(0)), net[2](x))]


@pytest.mark.parametrize("qconfig", ["default", "channels", "float16"])
def test_state_dicts_are_exchanged_with_pytorch(qconfig):
    """A state_dict saved by one framework does not give the other the same layers; or our own is not loaded with weights_only=True."""
    theirs, ours = both(recurrent_and_linear, qconfig)
    x = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)
    expected = results(ours, flambeau.tensor(x))
    for saved, save, load, t in (
        (theirs, torch.save, flambeau.load, flambeau),
        (ours, flambeau.save, lambda file: torch.load(file, weights_only=False), torch),
        (ours, flambeau.save, flambeau.load, flambeau),
    ):
        file = io.BytesIO()
        save(saved.state_dict(), file)
        file.seek(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            t.manual_seed(7)
            fresh = recurrent_and_linear(t, qconfig)
            assert repr(fresh.load_state_dict(load(file))) == "<All keys matched successfully>"
        for a, b in zip(results(fresh, t.tensor(x)), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=2e-6)


def test_models_are_copied_and_pickled():
    """A deep copy, a pickle, or a model saved whole computes something else."""
    net, x = recurrent_and_linear(flambeau), flambeau.randn(3, 6)
    file = io.BytesIO()
    flambeau.save(net, file)
    file.seek(0)
    for again in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), flambeau.load(file, weights_only=False)):
        for a, b in zip(results(again, x), results(net, x), strict=True):
            np.testing.assert_array_equal(a, b)


def test_hostile_packed_weights_are_refused():
    """A file with something else where packed weights should be is not refused as such."""
    from flambeau.tensor.quantized.script_object import LINEAR, ScriptObject

    class Fake:
        def __init__(self, state):
            self.state = state

        def __reduce__(self):
            return ScriptObject, (), self.state

    for state in (((1, 2), LINEAR), (("x", [], [], [], [3, 4]), "__torch__.torch.classes.rnn.CellParamsBase"), ((), "os.system"), 3):
        file = io.BytesIO()
        flambeau.save({"param": Fake(state)}, file)
        file.seek(0)
        with pytest.raises((pickle.UnpicklingError, RuntimeError)):
            flambeau.load(file)


REFUSED = {
    "one dimension": lambda t: quantized(t, t.nn.Linear(3, 2))(t.ones(3)),
    "features": lambda t: quantized(t, t.nn.Linear(3, 2))(t.ones(2, 4)),
    "float64": lambda t: quantized(t, t.nn.Linear(3, 2))(t.ones(2, 3).double()),
    "float16": lambda t: quantized(t, t.nn.Linear(3, 2))(t.ones(2, 3).half()),
    "NaN": lambda t: quantized(t, t.nn.Linear(3, 2))(t.tensor([[float("nan"), 1.0, 2.0]])),
    "lstm's dimensions": lambda t: quantized(t, t.nn.LSTM(3, 2))(t.ones(2, 3)),
    "lstm's features": lambda t: quantized(t, t.nn.LSTM(3, 2))(t.ones(2, 2, 4)),
    "lstm's state": lambda t: quantized(t, t.nn.LSTM(3, 2))[0](t.ones(2, 2, 3), (t.ones(1, 3, 2), t.ones(1, 3, 2))),
    "lstm without bias": lambda t: quantized(t, t.nn.LSTM(3, 2, bias=False)),
    "cell's features": lambda t: quantized(t, t.nn.GRUCell(3, 2))(t.ones(2, 4)),
    "cell's state": lambda t: quantized(t, t.nn.GRUCell(3, 2))[0](t.ones(2, 3), t.ones(3, 2)),
    "a dtype": lambda t: t.ao.quantization.quantize_dynamic(t.nn.Sequential(t.nn.Linear(3, 2)), dtype=t.float32),
    "a dtype for types": lambda t: t.ao.quantization.quantize_dynamic(t.nn.Sequential(t.nn.Linear(3, 2)), {t.nn.Linear}, dtype=t.float32),
    "a list of types": lambda t: t.ao.quantization.quantize_dynamic(t.nn.Sequential(t.nn.Linear(3, 2)), [t.nn.Linear]),
    "no qconfig": lambda t: t.ao.nn.quantized.dynamic.Linear.from_float(t.nn.Linear(3, 2)),
    "another layer": lambda t: t.ao.nn.quantized.dynamic.Linear.from_float(t.nn.ReLU()),
    "an observer in a qconfig": lambda t: t.ao.quantization.QConfig(t.ao.quantization.MinMaxObserver(), None),
    "a float model's state": lambda t: quantized(t, t.nn.Linear(3, 2)).load_state_dict(t.nn.Sequential(t.nn.Linear(3, 2)).state_dict()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_of_pytorchs_types(name):
    """What PyTorch refuses is done, or refused with another type of exception."""
    theirs, ours = refusals(REFUSED[name])
    assert theirs is not None and ours is theirs


def test_what_is_left_out_says_so():
    """Static quantization and training for it are not refused with a sentence."""
    q = flambeau.ao.quantization
    for name in ("prepare", "quantize", "prepare_qat", "fuse_modules", "get_default_qat_qconfig"):
        with pytest.raises(NotImplementedError, match=f"{name}.*try quantize_dynamic"):
            getattr(q, name)(flambeau.nn.Linear(2, 2))
    with pytest.raises(NotImplementedError, match="static"):
        q.convert(flambeau.nn.Linear(2, 2))
    with pytest.raises(NotImplementedError, match="proj_size"):
        quantized(flambeau, flambeau.nn.LSTM(4, 3, proj_size=2))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        q.nonsense  # noqa: B018
    with pytest.raises(NotImplementedError, match=r"quantized\.Conv2d can be imported, not used: layers of static"):
        flambeau.ao.nn.quantized.Conv2d(1, 1, 1)


def test_observers_find_pytorchs_scales():
    """An observer of a weight finds another scale or zero point than PyTorch's, or prints otherwise."""

    def program(t):
        q, found = t.ao.quantization, []
        for qscheme in ("per_tensor_affine", "per_tensor_symmetric", "per_channel_affine", "per_channel_symmetric"):
            for dtype in ("qint8", "quint8"):
                kind = q.MinMaxObserver if "tensor" in qscheme else q.PerChannelMinMaxObserver
                observer = kind(dtype=getattr(t, dtype), qscheme=getattr(t, qscheme))
                before = observer.calculate_qparams() if "tensor" in qscheme else ()
                for x in (t.randn(5, 7), t.rand(5, 7) + 3, t.zeros(5, 7)):
                    observer(x)
                    scale, zero = observer.calculate_qparams()
                    found.append((scale.tolist(), zero.tolist(), [p.tolist() for p in before], repr(observer), list(observer.state_dict())))
        found += [repr(q.default_dynamic_qconfig.activation()), repr(q.default_dynamic_qconfig.weight())]
        return found

    theirs, ours = both(program)
    assert theirs == ours
