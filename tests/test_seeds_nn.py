"""What introductions to PyTorch tell their readers about modules, layers and losses, taken at their word and run on Flambeau.

Each test is a passage: its code, with the values its text gives. Where a text gives no number, the passage is run with PyTorch too, from the
same seed, and must tell the same story; where a text is wrong about PyTorch, PyTorch is right.
"""

from __future__ import annotations

import math

import pytest
from lessons import alike, count, fashion_classifier, mlp, mnist_model, simple_net, transformer_block

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F

oracle = pytest.importorskip("torch")


# -- modules ---------------------------------------------------------------------------------------------------------------


def test_a_module_prints_as_a_tree():
    """print(model) shows the layers by name and size."""
    expected = (
        "SimpleNet(\n"
        "  (fc1): Linear(in_features=784, out_features=128, bias=True)\n"
        "  (relu): ReLU()\n"
        "  (fc2): Linear(in_features=128, out_features=10, bias=True)\n"
        ")"
    )
    assert str(simple_net(torch)) == expected
    assert str(fashion_classifier(torch)) == str(fashion_classifier(oracle))
    assert str(mnist_model(torch, norm=True)) == str(mnist_model(oracle, norm=True))


def test_parameters_are_counted():
    """784-128-10 has 101,770 parameters, 50-30-3 has 1,623, the two laboratories have 269,322 and 235,146."""
    assert f"{count(simple_net(torch)):,}" == "101,770"
    assert count(nn.Sequential(nn.Linear(50, 30), nn.ReLU(), nn.Linear(30, 3))) == 1623
    assert f"{count(fashion_classifier(torch)):,}" == "269,322"
    assert f"{count(mnist_model(torch)):,}" == "235,146"
    assert 784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10 == 235_146


def test_every_layer_has_the_parameters_of_the_table():
    """in*out+out for Linear, in*out*k*k+out for Conv2d, 2n for the norms, vocabulary*dim for Embedding, nothing for the rest."""
    table = [
        (nn.Linear(7, 5), 7 * 5 + 5),
        (nn.Linear(7, 5, bias=False), 35),
        (nn.Conv2d(3, 8, 5), 3 * 8 * 5 * 5 + 8),
        (nn.BatchNorm1d(6), 12),
        (nn.LayerNorm(6), 12),
        (nn.Embedding(100, 16), 1600),
        *((layer, 0) for layer in (nn.Dropout(0.5), nn.ReLU(), nn.GELU(), nn.Flatten(), nn.MaxPool2d(2))),
    ]
    for layer, number in table:
        assert count(layer) == number, layer


def test_parameters_are_found_by_name():
    """named_parameters walks the tree: names with dots, shapes, requires_grad."""
    model = mlp(torch)
    assert model(torch.randn(8, 64)).shape == (8, 10)
    lines = [f"{name} {tuple(p.shape)} {p.requires_grad}" for name, p in model.named_parameters()]
    assert lines == ["fc1.weight (256, 64) True", "fc1.bias (256,) True", "fc2.weight (10, 256) True", "fc2.bias (10,) True"]
    assert [name for name, _ in model.named_children()] == ["fc1", "act", "drop", "fc2"]
    assert [name for name, _ in model.named_modules()] == ["", "fc1", "act", "drop", "fc2"]
    for p in model.fc1.parameters():
        p.requires_grad = False
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == 2570 and count(model) == 19210


def test_only_parameters_register():
    """A Parameter is a tensor that registers itself; a plain tensor does not; a buffer moves and is saved but is not trained."""

    class Attention(nn.Module):
        def __init__(self, max_seq, d):
            super().__init__()
            self.qkv = nn.Linear(d, 3 * d)
            self.register_buffer("causal_mask", torch.tril(torch.ones(max_seq, max_seq, dtype=torch.bool)), persistent=True)
            self.gain = nn.Parameter(torch.ones(d))
            self.constant = torch.ones(d)
            self.register_buffer("scratch", torch.zeros(2), persistent=False)

    model = Attention(4, 6)
    assert isinstance(model.gain, torch.Tensor) and model.gain.requires_grad
    assert [name for name, _ in model.named_parameters()] == ["gain", "qkv.weight", "qkv.bias"]
    assert [name for name, _ in model.named_buffers()] == ["causal_mask", "scratch"]
    assert list(model.state_dict()) == ["gain", "causal_mask", "qkv.weight", "qkv.bias"]
    model.to(torch.float64)
    assert model.gain.dtype is model.scratch.dtype is torch.float64
    assert model.constant.dtype is torch.float32 and model.causal_mask.dtype is torch.bool
    assert model.to("meta").qkv.weight.device.type == "meta" and model.constant.device.type == "cpu"


def test_super_init_comes_first():
    """A layer assigned before super().__init__() is refused, as PyTorch does."""

    def forgetful(torch):
        class Net(torch.nn.Module):
            def __init__(self):
                self.fc = torch.nn.Linear(2, 2)

        try:
            return Net()
        except AttributeError as problem:
            return str(problem)

    assert "Module.__init__() call" in alike(forgetful)


def test_containers_register_and_lists_do_not():
    """ModuleList and ModuleDict register their modules; a plain list or dict hides them from parameters and state_dict."""

    class Stack(nn.Module):
        def __init__(self, layers):
            super().__init__()
            self.layers = layers

        def forward(self, x):
            for layer in self.layers:
                x = F.gelu(layer(x))
            return x

    layers = [nn.Linear(6, 6) for _ in range(3)]
    listed, hidden = Stack(nn.ModuleList(layers)), Stack(layers)
    assert count(listed) == 3 * 42 and list(listed.state_dict())[:2] == ["layers.0.weight", "layers.0.bias"]
    assert count(hidden) == 0 and not hidden.state_dict()
    x = torch.randn(2, 6)
    assert torch.equal(listed(x), hidden(x))
    with pytest.warns(UserWarning, match="not registered"), pytest.raises(ValueError, match="empty parameter list"):
        torch.optim.SGD(hidden.parameters(), lr=0.1)

    class MultiHead(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.heads = nn.ModuleDict({"classifier": nn.Linear(d, 10), "regressor": nn.Linear(d, 1)})

        def forward(self, x, head: str):
            return self.heads[head](x)

    model = MultiHead(6)
    assert model(x, "classifier").shape == (2, 10) and model(x, head="regressor").shape == (2, 1)
    assert next(n for n, _ in model.named_parameters()) == "heads.classifier.weight"
    with pytest.raises(KeyError):
        model(x, "segmenter")


def test_hooks_print_shapes():
    """A forward hook on each child sees the output's shape, and is gone after remove(); .forward() runs no hooks."""
    model, seen = simple_net(torch), []

    def print_shape_hook(module, input, output):
        seen.append(f"{module.__class__.__name__:15s} output shape: {output.shape}")

    hooks = [layer.register_forward_hook(print_shape_hook) for _, layer in model.named_children()]
    model(torch.randn(1, 784))
    assert seen == [
        "Linear          output shape: torch.Size([1, 128])",
        "ReLU            output shape: torch.Size([1, 128])",
        "Linear          output shape: torch.Size([1, 10])",
    ]
    model.fc1.forward(torch.randn(1, 784))
    assert len(seen) == 3
    for h in hooks:
        h.remove()
    model(torch.randn(1, 784))
    assert len(seen) == 3


def test_hooks_modify():
    """A forward hook may replace the output, a pre-hook the input."""
    layer, x = nn.Linear(3, 2), torch.randn(4, 3)
    plain, of_zero = layer(x), layer(torch.zeros_like(x))
    with layer.register_forward_hook(lambda module, args, output: output * 0 + 7):
        assert layer(x).unique().tolist() == [7.0]
    with layer.register_forward_pre_hook(lambda module, args: (args[0] * 0,)):
        assert torch.equal(layer(x), of_zero)
    assert torch.equal(layer(x), plain)


def test_gradients_are_inspected():
    """After backward each parameter's gradient has a mean and a deviation to print."""

    def program(torch):
        model = simple_net(torch)
        torch.nn.functional.cross_entropy(model(torch.randn(16, 784)), torch.randint(0, 10, (16,))).backward()
        return [(name, param.grad.mean(), param.grad.std()) for name, param in model.named_parameters() if param.grad is not None]

    found = alike(program)
    name, mean, std = found[0]
    line = f"{name:20s} grad mean={mean:.6f} std={std:.6f}"
    assert len(found) == 4 and line.startswith("fc1.weight           grad mean=")


def test_control_flow_in_forward():
    """Eager execution: print and if in forward work, and decide anew at each call."""

    class Net(nn.Module):
        def forward(self, x):
            if x.sum() > 0:
                return x * 2
            return x * 0

    net = Net()
    assert net(torch.ones(2)).tolist() == [2, 2] and net(-torch.ones(2)).tolist() == [0, 0]


# -- layers ----------------------------------------------------------------------------------------------------------------


def test_common_layers_and_their_shapes():
    """Linear's weight is (out, in); Embedding looks up rows; LayerNorm has gamma and beta of (768,)."""
    fc = nn.Linear(in_features=128, out_features=512, bias=True)
    assert fc.weight.shape == (512, 128) and fc.bias.shape == (512,)
    x = torch.randn(2, 128)
    assert torch.allclose(fc(x), x @ fc.weight.T + fc.bias, atol=1e-6)
    emb = nn.Embedding(num_embeddings=500, embedding_dim=768)
    ids = torch.randint(0, 500, (4, 32))
    assert emb.weight.shape == (500, 768) and emb(ids).shape == (4, 32, 768)
    assert torch.equal(emb(ids)[1, 2], emb.weight[ids[1, 2]])
    ln = nn.LayerNorm(normalized_shape=768)
    assert ln.weight.shape == ln.bias.shape == (768,)
    h = ln(emb(ids))
    assert h.mean(-1).abs().max().item() < 1e-5 and (h.var(-1, unbiased=False) - 1).abs().max().item() < 1e-3
    assert nn.GELU()(torch.tensor([0.0, 100.0, -100.0])).tolist() == [0, 100, 0]


def test_the_same_seed_gives_the_same_layers():
    """Weights, dropout masks and outputs are PyTorch's for the same seed."""

    def program(torch):
        nn = torch.nn
        made = (nn.Linear(5, 3), nn.Embedding(7, 4), nn.Conv2d(3, 4, 3), nn.LSTM(3, 4, 2), nn.MultiheadAttention(8, 2), nn.BatchNorm1d(3))
        return [dict(layer.state_dict()) for layer in made], nn.Dropout(0.3)(torch.ones(40)), nn.Linear(4, 4)(torch.randn(2, 4))

    alike(program)


def test_dropout_in_training_and_evaluation():
    """Dropout zeroes with probability p and scales the rest by 1 / (1 - p) in training; in evaluation it is the identity."""
    torch.manual_seed(0)
    drop, x = nn.Dropout(p=0.1), torch.ones(10_000)
    y = drop(x)
    assert y.unique().tolist() == pytest.approx([0.0, 1 / 0.9])
    assert (y == 0).float().mean().item() == pytest.approx(0.1, abs=0.01)
    assert drop.eval()(x) is x or torch.equal(drop(x), x)


def test_train_and_eval_reach_every_child():
    """eval() sets training to False down the tree, train() sets it back; BatchNorm uses running statistics in evaluation."""
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Sequential(nn.Dropout(0.5)))
    assert all(m.training for m in model.modules())
    x = torch.randn(32, 4)
    assert not torch.equal(model(x), model(x))
    assert model[1].num_batches_tracked.item() == 2
    assert model.eval() is model and not any(m.training for m in model.modules())
    before = model[1].running_mean.clone()
    assert torch.equal(model(x), model(x)) and torch.equal(model[1].running_mean, before)
    bn, h = model[1], model[0](x)
    assert torch.allclose(bn(h), (h - bn.running_mean) / torch.sqrt(bn.running_var + bn.eps), atol=1e-6)
    assert all(m.training for m in model.train().modules())


def test_multihead_attention():
    """batch_first takes (B, S, E); without it (S, B, E) is expected; need_weights=False gives None; heads must divide the dimension."""
    attn = nn.MultiheadAttention(embed_dim=48, num_heads=12, batch_first=True)
    x = torch.randn(4, 32, 48)
    out, weights = attn(query=x, key=x, value=x, need_weights=False)
    assert out.shape == (4, 32, 48) and weights is None
    again, weights = attn(x, x, x)
    assert weights.shape == (4, 32, 32) and torch.allclose(out, again, atol=1e-6)
    seq_first = nn.MultiheadAttention(48, 12)
    seq_first.load_state_dict(attn.state_dict())
    assert torch.allclose(seq_first(x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1))[0].transpose(0, 1), out, atol=1e-6)
    assert not torch.allclose(seq_first(x, x, x)[0], out, atol=1e-3)  # works, and attends across the batch: the day of debugging
    with pytest.raises(AssertionError, match="divisible"):
        nn.MultiheadAttention(embed_dim=50, num_heads=12)
    with pytest.raises(RuntimeError, match="attn_mask"):
        attn(x, x, x, is_causal=True, need_weights=False)


def test_multihead_attention_from_scratch_equals_the_layer():
    """Multi-head self-attention from Linear layers and tensor operations is what nn.MultiheadAttention computes."""

    class SelfAttention(nn.Module):
        def __init__(self, d, heads):
            super().__init__()
            self.heads, self.qkv, self.out = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

        def forward(self, x):
            B, T, C = x.shape
            q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.qkv(x).split(C, dim=2))
            scores = q @ k.transpose(-2, -1) / math.sqrt(C // self.heads)
            mask = torch.tril(torch.ones(T, T, dtype=torch.bool))
            weights = F.softmax(scores.masked_fill(mask == 0, float("-inf")), dim=-1)
            return self.out((weights @ v).transpose(1, 2).contiguous().view(B, T, C))

    ours, theirs = SelfAttention(16, 4), nn.MultiheadAttention(16, 4, batch_first=True)
    theirs.load_state_dict(
        dict(zip(["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"], ours.state_dict().values(), strict=True))
    )
    x = torch.randn(2, 5, 16)
    causal = torch.triu(torch.ones(5, 5), diagonal=1).bool()
    assert torch.allclose(ours(x), theirs(x, x, x, attn_mask=causal, is_causal=True, need_weights=False)[0], atol=1e-6)
    heads = [t.view(2, 5, 4, 4).transpose(1, 2) for t in ours.qkv(x).split(16, dim=2)]
    fused = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(2, 5, 16)
    assert torch.allclose(ours(x), ours.out(fused), atol=1e-6)


def test_a_pre_norm_transformer_block():
    """The block of the exercise keeps (B, S, D), lets no position see the next, and gives PyTorch's numbers and gradients, dropout included."""

    def program(torch, p_drop, masked):
        blk = transformer_block(torch, d_model=64, n_heads=4, d_ff=256, p_drop=p_drop)
        x = torch.randn(2, 16, 64, requires_grad=True)
        mask = torch.triu(torch.ones(16, 16), diagonal=1).bool() if masked else None
        y = blk(x, attn_mask=mask)
        assert y.shape == (2, 16, 64)
        y[:, :5].square().sum().backward()
        return y, x.grad, [p.grad for p in blk.parameters()]

    for p_drop in (0.0, 0.1):
        gradient = alike(program, p_drop, True, rtol=1e-4, atol=1e-4)[1]
        assert gradient[:, 5:].abs().max().item() == 0 and gradient[:, :5].abs().max().item() > 0
        alike(program, p_drop, False, rtol=1e-4, atol=1e-4)


# -- losses ----------------------------------------------------------------------------------------------------------------


def test_cross_entropy_takes_logits():
    """CrossEntropyLoss is LogSoftmax and NLLLoss in one, on raw logits, and (B, S, V) is flattened for it."""
    torch.manual_seed(0)
    logits, targets = torch.randn(8, 10), torch.randint(0, 10, (8,))
    loss = nn.CrossEntropyLoss(ignore_index=-100)(logits, targets)
    assert loss.ndim == 0
    assert loss.item() == pytest.approx(nn.NLLLoss()(nn.LogSoftmax(dim=1)(logits), targets).item(), rel=1e-6)
    assert loss.item() == pytest.approx(-logits.log_softmax(1)[range(8), targets].mean().item(), rel=1e-6)
    B, S, V = 4, 32, 50
    seq_logits, seq_targets = torch.randn(B, S, V), torch.randint(0, V, (B, S))
    flat = F.cross_entropy(seq_logits.reshape(-1, V), seq_targets.reshape(-1))
    assert flat.item() == pytest.approx(F.cross_entropy(seq_logits.transpose(1, 2), seq_targets).item(), rel=1e-6)


def test_cross_entropy_ignores():
    """Positions labelled -100 are in neither numerator nor denominator, and get no gradient."""
    logits = torch.randn(6, 5, requires_grad=True)
    targets = torch.tensor([1, -100, 3, -100, 0, 2])
    loss = F.cross_entropy(logits, targets, ignore_index=-100)
    kept = targets != -100
    assert loss.item() == pytest.approx(F.cross_entropy(logits[kept], targets[kept]).item(), rel=1e-6)
    loss.backward()
    assert logits.grad[~kept].abs().max().item() == 0
    assert math.isnan(F.cross_entropy(logits, torch.full((6,), -100)).item())


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(lambda torch: torch.randint(0, 10, (8,)).float(), id="float labels"),
        pytest.param(lambda torch: torch.randint(0, 10, (8,)).int(), id="int32 labels"),
        pytest.param(lambda torch: torch.full((8,), 10), id="label out of range"),
        pytest.param(lambda torch: torch.full((8,), -1), id="negative label"),
        pytest.param(lambda torch: torch.zeros(7, dtype=torch.long), id="another batch size"),
        pytest.param(lambda torch: torch.softmax(torch.randn(8, 10), 1), id="soft labels"),
    ],
)
def test_labels_of_the_wrong_kind(target):
    """Labels are int64 from 0 to classes - 1, or probabilities; anything else is refused with PyTorch's type of error."""

    def program(torch):
        logits = torch.randn(8, 10)
        try:
            return torch.nn.functional.cross_entropy(logits, target(torch))
        except (RuntimeError, IndexError, ValueError) as problem:
            return type(problem).__name__

    alike(program)


def test_softmax_before_cross_entropy_is_silently_wrong():
    """Softmax twice raises nothing, but its gradients are smaller than they should be, and training is slower."""

    def program(torch, twice):
        F = torch.nn.functional
        w, x, y = torch.zeros(5, 3, requires_grad=True), torch.randn(64, 5), torch.randint(0, 3, (64,))
        losses = []
        for _ in range(20):
            logits = x @ w
            loss = F.cross_entropy(logits.softmax(1) if twice else logits, y)
            (g,) = torch.autograd.grad(loss, w)
            losses.append(loss.item())
            with torch.no_grad():
                w -= g
        return losses

    right, wrong = alike(program, False), alike(program, True)
    assert right[0] - right[-1] > wrong[0] - wrong[-1]


def test_losses_with_logits_are_stable():
    """BCEWithLogitsLoss and CrossEntropyLoss stay finite where sigmoid or softmax and then log do not."""
    big = torch.tensor([200.0, -200.0], requires_grad=True)
    target = torch.tensor([0.0, 1.0])
    loss = nn.BCEWithLogitsLoss()(big, target)
    loss.backward()
    assert loss.item() == 200 and big.grad.tolist() == [0.5, -0.5]
    assert F.binary_cross_entropy(torch.sigmoid(big), target).item() == 100  # log is clamped at -100
    assert F.cross_entropy(torch.tensor([[1000.0, 0.0]]), torch.tensor([1])).item() == 1000
    assert math.isinf(F.nll_loss(F.softmax(torch.tensor([[1000.0, 0.0]]), dim=1).log(), torch.tensor([1])).item())
    x, t = torch.randn(8), torch.empty(8).uniform_().round()
    assert nn.BCEWithLogitsLoss()(x, t).item() == pytest.approx(F.binary_cross_entropy(x.sigmoid(), t).item(), rel=1e-5)


def test_the_table_of_losses():
    """MSE, L1, CTC, BCE with logits and cross entropy give PyTorch's values and gradients."""

    def program(torch):
        nn = torch.nn
        x, y = torch.randn(8, 1, requires_grad=True), torch.randn(8, 1)
        values = [loss(x, y) for loss in (nn.MSELoss(), nn.L1Loss(), nn.BCEWithLogitsLoss(), nn.SmoothL1Loss(), nn.HuberLoss())]
        frames = torch.randn(20, 2, 6, requires_grad=True)
        lengths = torch.tensor([20, 15]), torch.tensor([5, 4])
        values.append(nn.CTCLoss()(frames.log_softmax(2), torch.randint(1, 6, (2, 5)), *lengths))
        sum(values).backward()
        return values, x.grad, frames.grad

    alike(program)


def test_sigmoid_unit_of_the_cards():
    """x = 1.1, w = 2.2, b = 0, y = 1: the gradient of binary cross entropy is -0.0898."""
    x1, y = torch.tensor([1.1]), torch.tensor([1.0])
    w1, b = torch.tensor([2.2], requires_grad=True), torch.tensor([0.0], requires_grad=True)
    F.binary_cross_entropy(torch.sigmoid(x1 * w1 + b), y).backward()
    assert w1.grad.item() == pytest.approx(-0.0898, abs=5e-5)
