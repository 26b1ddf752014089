"""`flambeau.summary(model, input_size)`: layers, shapes, parameters, multiplications, memory; and that the model stays as it was."""

from __future__ import annotations

import pytest

import flambeau
from flambeau import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(8 * 16, 10))

    def forward(self, x):
        return self.head(nn.functional.max_pool2d(self.norm(self.conv(x)), 2))


def test_numbers():
    """Parameters, multiplications and bytes are what one counts by hand."""
    found = flambeau.summary(Net(), (2, 3, 8, 8))
    rows = {layer.name: layer for layer in found.layers}
    assert rows["conv"].output == (2, 8, 8, 8) and rows["conv"].params == 8 * 27 + 8
    assert rows["conv"].mult_adds == 2 * 64 * 8 * 27
    assert rows["head"].mult_adds == rows["2"].mult_adds == 2 * 128 * 10
    assert found.mult_adds == 2 * 64 * 8 * 27 + 2 * 128 * 10 == found.flops // 2
    assert found.total_params == found.trainable_params == 8 * 27 + 8 + 16 + 1290
    assert found.param_bytes == 4 * found.total_params and found.input_bytes == 4 * 2 * 3 * 64
    outputs = 2 * 8 * 64 * 2 + 2 * 128 * 2 + 2 * 10  # conv and norm, flatten and dropout, linear
    assert found.activation_bytes == 4 * outputs


def test_table():
    """A tree of layers in columns that line up, with the totals below."""
    text = str(flambeau.summary(Net(), (2, 3, 8, 8)))
    lines = text.splitlines()
    assert lines[0].split() == ["Layer", "Output", "Params", "Mult-adds"]
    assert [line.split("   ")[0] for line in lines[2:6]] == ["Net", "├─ Conv2d (conv)", "├─ BatchNorm2d (norm)", "└─ Sequential (head)"]
    assert lines[6].startswith("   ├─ Flatten (0)") and lines[8].startswith("   └─ Linear (2)")
    ends = {line.rindex(word) + len(word) for line, word in ((lines[0], "Mult-adds"), (lines[3], "27,648"))}
    assert len(ends) == 1
    assert "Parameters   1,530" in text and "Memory" in text


def test_depth_adds_up():
    """What is too deep to be shown is counted where it is inside."""
    found = flambeau.summary(Net(), (2, 3, 8, 8), depth=1)
    row = next(line for line in str(found).splitlines() if "Sequential" in line)
    assert "1,290" in row and "Flatten" not in str(found)


def test_the_model_is_as_before():
    """Mode, hooks, buffers, gradients and random numbers are those of before, also when forward fails."""
    model = Net()
    mean = model.norm.running_mean.clone()
    state = flambeau.get_rng_state()
    flambeau.summary(model, (2, 3, 8, 8))
    with pytest.raises(RuntimeError):
        flambeau.summary(model, (2, 3, 7, 9))
    assert model.training and all(m.training and not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
    assert flambeau.equal(model.norm.running_mean, mean) and model.conv.weight.grad is None
    assert flambeau.equal(flambeau.get_rng_state(), state)
    flambeau.summary(model, (2, 3, 8, 8), mode="train")
    assert not flambeau.equal(model.norm.running_mean, mean)


def test_shared_modules_are_counted_once():
    """A layer that runs twice has two rows, and its parameters count once."""
    layer = nn.Linear(4, 4)
    found = flambeau.summary(nn.Sequential(layer, nn.ReLU(), layer), (1, 4))
    assert found.total_params == 20 and found.mult_adds == 32
    assert str(found).count("(again)") == 1


def test_inputs_of_all_kinds():
    """Several inputs, integers, data instead of sizes, arguments by name, and none at all."""
    both = nn.Bilinear(3, 4, 2)
    assert flambeau.summary(both, [(5, 3), (5, 4)]).layers[0].output == (5, 2)
    assert flambeau.summary(nn.Embedding(10, 4), (2, 3), dtypes=flambeau.int64).layers[0].output == (2, 3, 4)
    assert flambeau.summary(nn.Linear(3, 2), input_data=flambeau.ones(7, 3)).layers[0].output == (7, 2)
    assert flambeau.summary(nn.Linear(3, 2), input_data={"input": flambeau.ones(7, 3)}).layers[0].output == (7, 2)
    assert flambeau.summary(nn.LSTM(3, 4), (5, 2, 3)).layers[0].output == [(5, 2, 4), [(1, 2, 4), (1, 2, 4)]]
    alone = flambeau.summary(Net())
    assert alone.total_params == 1530 and "Output" not in str(alone)
    with pytest.raises(TypeError, match="takes a Module"):
        flambeau.summary([1])


def test_attention_and_recurrence_are_counted():
    """Multiplications inside attention and recurrent layers count as well."""
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    found = flambeau.summary(layer, input_data=[flambeau.ones(1, 5, 8)] * 3)
    assert found.mult_adds == 5 * 8 * 24 + 5 * 8 * 8 + 2 * 5 * 5 * 8
    assert flambeau.summary(nn.LSTM(3, 4), (5, 2, 3)).mult_adds == 10 * (16 * 3 + 16 * 4)


def test_notebook():
    """In a notebook it is a table with the same cells."""
    page = flambeau.summary(Net(), (2, 3, 8, 8))._repr_html_()
    assert page.count("<tr>") == 1 + 7 and "Conv2d (conv)" in page and "1,530" in page
