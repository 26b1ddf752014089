"""Transformers against PyTorch: from one seed the same weights, the same dropout, the same results and gradients."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from layer_oracle import assert_near, check_errors, inputs, pair, torch

import flambeau

OPTIONS = [
    {}, {"norm_first": True}, {"batch_first": True}, {"bias": False}, {"activation": "gelu"}, {"layer_norm_eps": 1e-2, "norm_first": True, "batch_first": True},
]  # fmt: skip


def both(ours, theirs, call, *shapes, tolerance=1e-4):
    """call(package, module, *tensors) -> tensor: values and all gradients."""
    results = []
    for package, module, tensors in zip((flambeau, torch), (ours, theirs), inputs(*shapes), strict=True):
        package.manual_seed(3)
        module.zero_grad()
        out = call(package, module, *tensors)
        (out * out * out).sum().backward()
        results.append([out, *(t.grad for t in tensors), *(p.grad for p in module.parameters())])
    for i, (mine, other) in enumerate(zip(*results, strict=True)):
        assert_near(mine, other, f"number {i}", tolerance)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("train", [True, False])
def test_encoder_layer(options, train):
    """One layer, with dropout and without, batched and not."""
    ours, theirs = pair("TransformerEncoderLayer", 8, 2, 16, **options)
    ours.train(train), theirs.train(train)
    both(ours, theirs, lambda t, layer, x: layer(x), (4, 3, 8))
    both(ours, theirs, lambda t, layer, x: layer(x), (4, 8))


@pytest.mark.parametrize("options", OPTIONS)
def test_decoder_layer(options):
    """One layer, looking at a memory of another length."""
    ours, theirs = pair("TransformerDecoderLayer", 8, 2, 16, **options)
    memory = (4, 5, 8) if options.get("batch_first") else (5, 3, 8)
    target = (4, 3, 8)
    both(ours, theirs, lambda t, layer, x, m: layer(x, m), target, memory)
    both(ours, theirs, lambda t, layer, x, m: layer(x, m), (4, 8), (5, 8))


@pytest.mark.parametrize("activation", ["function", "module"])
def test_activations_may_be_anything(activation):
    """A callable is called; a module is one of the layer's modules."""
    given = {t: t.nn.functional.silu if activation == "function" else t.nn.Tanh() for t in (flambeau, torch)}
    made = {}
    for t in (flambeau, torch):
        t.manual_seed(0)
        made[t] = t.nn.TransformerEncoderLayer(8, 2, 16, 0.0, given[t])
    assert repr(made[flambeau]) == repr(made[torch])
    both(made[flambeau], made[torch], lambda t, layer, x: layer(x), (4, 3, 8))
    check_errors(lambda t: t.nn.TransformerEncoderLayer(8, 2, activation="swish"))


def masks(package):
    """Padding (N, S) and causal masks of both kinds."""
    padding = package.tensor([[False, False, False, True], [False, False, False, False], [False, True, False, True]])
    causal = package.nn.Transformer.generate_square_subsequent_mask(4)
    return padding, causal


@pytest.mark.parametrize("kind", ["padding", "causal", "causal hint", "both", "bool"])
@pytest.mark.filterwarnings("ignore:Support for mismatched")
def test_encoder(kind):
    """Copies of a layer with a norm at the end; a causal mask is recognised."""
    modules = []
    for package in (flambeau, torch):
        package.manual_seed(1)
        layer = package.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        modules.append(package.nn.TransformerEncoder(layer, 2, package.nn.LayerNorm(8), enable_nested_tensor=False))
    assert repr(modules[0]) == repr(modules[1])

    def call(t, module, x):
        padding, causal = masks(t)
        given = {
            "padding": {"src_key_padding_mask": padding}, "causal": {"mask": causal}, "causal hint": {"mask": causal, "is_causal": True},
            "both": {"mask": causal, "src_key_padding_mask": padding}, "bool": {"mask": causal != 0, "src_key_padding_mask": padding},
        }[kind]  # fmt: skip
        return module(x, **given)

    both(*modules, call, (3, 4, 8))
    for module in modules:
        module.eval()
    both(*modules, call, (3, 4, 8))


@pytest.mark.parametrize("options", [{}, {"norm_first": True, "batch_first": True, "activation": "gelu"}, {"bias": False}])
def test_transformer(options):
    """Encoder and decoder, with masks for both: weights, results and gradients from one seed."""
    ours, theirs = pair("Transformer", 8, 2, 2, 2, 16, **options)
    src, tgt = ((3, 4, 8), (3, 5, 8)) if options.get("batch_first") else ((4, 3, 8), (5, 3, 8))
    both(ours, theirs, lambda t, m, s, x: m(s, x), src, tgt)

    def masked(t, module, s, x):
        padding, _ = masks(t)
        causal = t.nn.Transformer.generate_square_subsequent_mask(5)
        return module(s, x, tgt_mask=causal, src_key_padding_mask=padding, memory_key_padding_mask=padding)

    both(ours, theirs, masked, src, tgt)
    ours.eval(), theirs.eval()
    both(ours, theirs, masked, src, tgt)
    assert repr(pickle.loads(pickle.dumps(ours))) == repr(theirs)


def test_the_causal_mask():
    """generate_square_subsequent_mask is 0 on and below the diagonal, -inf above, in the dtype asked for."""
    for options in ({}, {"dtype": "float64"}):
        made = [
            t.nn.Transformer.generate_square_subsequent_mask(3, **{k: getattr(t, v) for k, v in options.items()}) for t in (flambeau, torch)
        ]
        assert_near(*made, "mask")


def test_custom_parts():
    """An encoder and a decoder of one's own take the place of the usual ones."""

    class Same(flambeau.nn.Module):
        def forward(self, x, *args, **kwargs):
            return x

    model = flambeau.nn.Transformer(8, 2, custom_encoder=Same(), custom_decoder=Same())
    x = flambeau.ones(2, 3, 8)
    assert model(x, x) is x


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_copies_are_apart():
    """The layers of an encoder start equal and share nothing."""
    layer = flambeau.nn.TransformerEncoderLayer(8, 2, 16)
    encoder = flambeau.nn.TransformerEncoder(layer, 2)
    first, second = (list(module.parameters()) for module in encoder.layers)
    assert all((a == b).all() and a is not b for a, b in zip(first, second, strict=True))
    assert copy.deepcopy(encoder).layers[0].self_attn is not encoder.layers[0].self_attn


def test_errors():
    """Sizes that do not fit raise PyTorch's exceptions."""
    check_errors(lambda t, x, y: t.nn.Transformer(8, 2, 1, 1, 8)(x, y), (4, 3, 8), (4, 2, 8))
    check_errors(lambda t, x, y: t.nn.Transformer(8, 2, 1, 1, 8)(x, y), (4, 3, 6), (4, 3, 6))
    check_errors(lambda t: t.nn.TransformerEncoderLayer(8, 3))


def test_training_goes_as_in_pytorch():
    """Ten steps of gradient descent, dropout included, arrive at the same loss."""
    losses = []
    rng = np.random.default_rng(0)
    data, goal = rng.standard_normal((2, 5, 3, 8))
    for package in (flambeau, torch):
        package.manual_seed(5)
        model = package.nn.TransformerEncoder(package.nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False)
        x, y = (package.tensor(a.tolist(), dtype=package.float32) for a in (data, goal))
        for _ in range(10):
            loss = ((model(x) - y) ** 2).mean()
            model.zero_grad()
            loss.backward()
            with package.no_grad():
                for p in model.parameters():
                    p -= 0.05 * p.grad
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


PLAIN = {"nhead": 2, "batch_first": True}
ENCODERS = [
    PLAIN, PLAIN | {"norm_first": True}, PLAIN | {"activation": "gelu"}, PLAIN | {"bias": False}, PLAIN | {"nhead": 1}, {"nhead": 2},
]  # fmt: skip
MASKS = {
    "at the end": [[False, False, True, True], [False, True, True, True]], "all of one": [[False] * 4, [True] * 4],
    "in front": [[True, True, False, False], [False] * 4], "none": [[False] * 4] * 2,
}  # fmt: skip


@pytest.mark.parametrize("options", ENCODERS, ids=repr)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True", "ignore:The PyTorch API of nested tensors")
def test_padding_in_evaluation(options, mask):
    """Where PyTorch leaves padding out of its computations, the results there are zero (then comes the norm); elsewhere they are numbers."""
    if mask == "all of one" and options.get("norm_first"):
        pytest.skip("PyTorch's quick layer makes NaN of a sample that is nothing but padding, its slow one does not")
    found = []
    for package in (flambeau, torch):
        nn = package.nn
        package.manual_seed(0)
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, dim_feedforward=16, **options), 2, nn.LayerNorm(8)).eval()
        for p in encoder.norm.parameters():
            nn.init.constant_(p, 0.5)
        x, padding = package.randn(2, 4, 8), package.tensor(MASKS[mask])
        x = x if options.get("batch_first") else x.transpose(0, 1)
        with package.no_grad():
            answers = [encoder(x, src_key_padding_mask=padding)]
            package.backends.mha.set_fastpath_enabled(False)
            answers.append(encoder(x, src_key_padding_mask=padding))
            package.backends.mha.set_fastpath_enabled(True)
        answers.append(encoder(x, src_key_padding_mask=padding))
        found.append([a.detach().numpy() for a in answers] + [encoder.use_nested_tensor])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_layer_that_computes_padding_is_named():
    """The warning of most first transformers: batch_first was forgotten."""
    for package in (flambeau, torch):
        layer = package.nn.TransformerEncoderLayer(8, 2, 16)
        with pytest.warns(UserWarning, match=r"self.use_nested_tensor is False because encoder_layer.self_attn.batch_first was not True"):
            package.nn.TransformerEncoder(layer, 1)
