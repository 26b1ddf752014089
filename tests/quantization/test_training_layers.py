"""torch.ao.nn.qat: the linear layer whose weight passes through a module."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from pairs import array, both, refusals


def _layers(t):
    return importlib.import_module(f"{t.__name__}.ao.nn.qat")


def _close(program):
    for theirs, ours in zip(*both(program), strict=True):
        assert str(theirs.dtype) == str(ours.dtype)
        np.testing.assert_allclose(array(ours), array(theirs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["x86", "qnnpack"])
def test_a_step_of_training(backend):
    """An output, a gradient, or the range of the weight differs; or an entry of the state has another name."""
    names = []

    def program(t):
        layer = _layers(t).Linear(4, 3, qconfig=t.ao.quantization.get_default_qconfig(backend))
        out = layer(t.randn(5, 4))
        out.square().sum().backward()
        names.append(list(layer.state_dict()))
        return out, layer.weight.grad, *layer.state_dict().values()

    _close(program)
    assert names[0] == names[1]


def test_a_module_that_rounds():
    """The weight does not pass through the module that qconfig.weight makes."""

    def program(t):
        class Rounded(t.nn.Module):
            def __init__(self, factory_kwargs=None):
                super().__init__()

            def forward(self, x):
                return t.fake_quantize_per_tensor_affine(x, 0.125, 0, -128, 127)

        layer = _layers(t).Linear(4, 3, qconfig=t.ao.quantization.QConfig(None, Rounded))
        return layer(t.ones(2, 4)), layer.to_float()(t.ones(2, 4))

    _close(program)


def test_from_float():
    """A layer made of a float one does not share its parameters, or says something else; parametrizations do not come along."""

    def program(t):
        layer = t.nn.Linear(4, 3)
        layer.qconfig = t.ao.quantization.get_default_qconfig()
        made = _layers(t).Linear.from_float(layer)
        assert made.weight is layer.weight and made.bias is layer.bias
        t.nn.utils.parametrizations.weight_norm(layer)
        return made(t.ones(2, 4)), _layers(t).Linear.from_float(layer).weight, made.to_float().weight

    _close(program)


REFUSED = {
    "no qconfig": lambda t: _layers(t).Linear(2, 2),
    "a float layer without": lambda t: _layers(t).Linear.from_float(t.nn.Linear(2, 2)),
    "another layer": lambda t: _layers(t).Linear.from_float(t.nn.ReLU()),
    "an unknown backend": lambda t: t.ao.quantization.get_default_qconfig("abacus"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what):
    """What PyTorch refuses is taken, or refused with another exception."""
    theirs, ours = refusals(REFUSED[what])
    assert theirs is ours is AssertionError
