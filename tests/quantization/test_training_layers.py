"""torch.ao.nn.qat: the layer that is trained with a rounded weight."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from pairs import array, both, refusals

SCHEMES = {
    "symmetric": ("MovingAverageMinMaxObserver", "per_tensor_symmetric"),
    "affine": ("MovingAverageMinMaxObserver", "per_tensor_affine"),
    "by channel": ("MovingAveragePerChannelMinMaxObserver", "per_channel_symmetric"),
    "widest": ("PerChannelMinMaxObserver", "per_channel_symmetric"),
}


def _layers(t):
    return importlib.import_module(f"{t.__name__}.ao.nn.qat")


def _rounding(t, scheme):
    observer, qscheme = SCHEMES[scheme]
    q = t.ao.quantization
    how = {"quant_min": -128, "quant_max": 127, "dtype": t.qint8, "qscheme": getattr(t, qscheme)}
    return q.QConfig(activation=q.MinMaxObserver, weight=q.FakeQuantize.with_args(observer=getattr(q.observer, observer), **how))


def _close(program):
    for theirs, ours in zip(*both(program), strict=True):
        assert str(theirs.dtype) == str(ours.dtype)
        np.testing.assert_allclose(array(ours), array(theirs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_two_steps_of_training(scheme):
    """An output, a gradient, a range, a scale or an entry of the state differs; or a loaded state says something else."""

    def program(t):
        layer = _layers(t).Linear(4, 3, qconfig=_rounding(t, scheme))
        x, said = t.randn(5, 4), []
        for _ in range(2):
            out = layer(x)
            out.square().sum().backward()
            said += [out, layer.weight.grad, *(v.clone() for v in layer.state_dict().values())]
            with t.no_grad():
                layer.weight -= 0.1 * layer.weight.grad
        layer.weight_fake_quant.disable_observer()
        said.append(layer(x))
        another = _layers(t).Linear(4, 3, qconfig=_rounding(t, scheme))
        if "channel" not in SCHEMES[scheme][1]:  # PyTorch's observers of channels take no other shape
            another.load_state_dict(layer.state_dict())
            said.append(another(x))
        layer.weight_fake_quant.disable_fake_quant()
        return *said, layer(x), layer.to_float()(x)

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


def _bare(t):
    return _layers(t).Linear.from_float(t.nn.Linear(2, 2))


REFUSED = {
    "no qconfig": lambda t: _layers(t).Linear(2, 2),
    "a float layer without": _bare,
    "another layer": lambda t: _layers(t).Linear.from_float(t.nn.ReLU()),
    "an unknown backend": lambda t: t.ao.quantization.get_default_qconfig("abacus"),
    "bounds outside": lambda t: t.ao.quantization.FakeQuantize(quant_min=-300, quant_max=255),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what):
    """What PyTorch refuses is taken, or refused with another exception."""
    theirs, ours = refusals(REFUSED[what])
    assert theirs is ours is AssertionError
