"""Anomaly mode says where NaN and infinity come from: operation, line, module, operands, batch index; in forward and in backward."""

from __future__ import annotations

import warnings

import pytest

import flambeau
from flambeau import modes, nn

pytestmark = pytest.mark.filterwarnings("ignore:Anomaly Detection")


def reported(program) -> list[str]:
    """The warnings of a program in anomaly mode, but the one that says the mode is on."""
    with warnings.catch_warnings(record=True) as seen, flambeau.autograd.detect_anomaly():
        warnings.simplefilter("always")
        program()
    return [str(w.message) for w in seen if "Anomaly Detection" not in str(w.message)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.ModuleDict({"norm": Log()})

    def forward(self, x):
        return self.encoder["norm"](x) * 2


class Log(nn.Module):
    def forward(self, x):
        return x.log()


def test_forward_names_operation_module_operands_and_sample():
    """A NaN made in forward is reported where it is made, once, with the module, what went in, and which sample it is."""
    x = flambeau.ones(4, 3)
    x[2, 1] = -1
    (message,) = reported(lambda: Net()(x))
    assert message.startswith("NaN appears in forward, in log: 1 of 12 elements")
    assert "encoder.norm (Log)" in message
    assert "range -1 .. 1" in message
    assert "at batch index 2" in message
    assert not nn.modules.hooks.everywhere and not modes.state.modules


def test_forward_warns_at_the_programs_line():
    """The warning points at the line of the program, not into the framework."""
    with warnings.catch_warnings(record=True) as seen, flambeau.autograd.detect_anomaly():
        warnings.simplefilter("always")
        flambeau.ones(2) / 0.0
    assert seen[-1].filename == __file__ and "infinity appears in forward, in div" in str(seen[-1].message)


def test_what_was_put_in_on_purpose_is_not_reported():
    """Masks of -inf, and operations on what is not finite already, are no news."""

    def program():
        mask = flambeau.full((3, 3), float("-inf")).triu(1)
        flambeau.zeros(3, 3).masked_fill(mask != 0, float("-inf")).softmax(-1)
        (flambeau.zeros(3, 3) + mask).softmax(-1)
        flambeau.tensor([float("nan"), 1.0]) * 2
        nn.functional.scaled_dot_product_attention(*[flambeau.ones(1, 1, 3, 2)] * 3, is_causal=True)

    assert reported(program) == []


def test_nan_of_infinities_is_reported():
    """A row of a softmax that is masked altogether is NaN: the mask explains infinities, not this."""
    (message,) = reported(lambda: flambeau.full((1, 3), float("-inf")).softmax(-1))
    assert "NaN appears in forward, in softmax" in message


def test_backward_names_line_operands_and_module():
    """The error of a NaN gradient has PyTorch's first sentence, then the line, the module, and the numbers."""

    class Root(nn.Module):
        def forward(self, x):
            return x.sqrt() * flambeau.tensor([0.0, 1.0])

    x = flambeau.tensor([0.0, 4.0], requires_grad=True)
    with (
        flambeau.autograd.detect_anomaly(),
        pytest.raises(RuntimeError) as caught,
        pytest.warns(UserWarning, match="Error detected in Sqrt"),
    ):
        nn.Sequential(Root())(x).sum().backward()
    message = str(caught.value)
    assert message.startswith("Function 'SqrtBackward0' returned nan values in its 0th output.")
    assert "0 (Root)" in message and "test_anomaly.py" in message
    assert "saved result" in message and "at batch index 0" in message


def test_infinite_gradients_warn():
    """An infinite gradient is a warning: with loss scaling it is expected, and skipped by the scaler."""
    x = flambeau.tensor([0.0, 4.0], requires_grad=True)
    messages = reported(lambda: x.sqrt().sum().backward())
    assert len(messages) == 1 and "returned infinite values in its 0th output" in messages[0]
    assert x.grad[0].item() == float("inf")


def test_same_results():
    """The mode looks and does not touch: forward and gradients are the same bits, under autocast and a profiler too."""
    from flambeau.profiler import profile

    layer, x = nn.Linear(4, 4), flambeau.randn(2, 4)
    wanted = layer(x).relu().sum()
    (grad,) = flambeau.autograd.grad(wanted, layer.weight)
    with flambeau.autograd.detect_anomaly(), profile() as prof:
        found = layer(x).relu().sum()
        (other,) = flambeau.autograd.grad(found, layer.weight)
        with flambeau.autocast("cpu"):
            assert layer(x).dtype is flambeau.bfloat16
    assert found.item() == wanted.item() and flambeau.equal(grad, other)
    assert {e.key: e.count for e in prof.key_averages()}["AddmmBackward0"] == 1
    assert modes.state.stack == () and modes.special == 0


def test_warnings_that_are_errors_do_not_hide_the_error(capsys):
    """Where warnings are errors, the line that made a node is lost, or raised in place of what went wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with flambeau.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="modified by an inplace operation"):
            warnings.simplefilter("error")
            a = flambeau.rand(5, requires_grad=True)
            b = a + 1
            c = b**2
            b += 1
            c.sum().backward()
    assert "Error detected in PowBackward0" in capsys.readouterr().err
