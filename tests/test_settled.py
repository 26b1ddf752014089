"""Calls that are remembered: the second call with the same shapes and options must be what the first was, and notice all that may differ."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import flambeau as fl
from flambeau.eager import settled
from flambeau.ops import OPS

torch = pytest.importorskip("torch")

CALLS = {
    "max_pool2d": (lambda t, x, i: t.nn.functional.max_pool2d(x, 2), (2, 3, 6, 6)),
    "avg_pool2d padded": (lambda t, x, i: t.nn.functional.avg_pool2d(x, 3, 2, 1, True, False), (2, 3, 7, 6)),
    "avg_pool1d": (lambda t, x, i: t.nn.functional.avg_pool1d(x, 3, 2, 1), (2, 3, 9)),
    "adaptive_avg_pool2d": (lambda t, x, i: t.nn.functional.adaptive_avg_pool2d(x, (3, 2)), (2, 3, 6, 6)),
    "interpolate nearest": (lambda t, x, i: t.nn.functional.interpolate(x, scale_factor=2), (2, 3, 4, 5)),
    "interpolate bilinear": (lambda t, x, i: t.nn.functional.interpolate(x, size=(7, 3), mode="bilinear"), (2, 3, 4, 5)),
    "cosine_similarity": (lambda t, x, i: t.nn.functional.cosine_similarity(x, x.detach() + 1, 1), (4, 5)),
    "layer_norm": (lambda t, x, i: t.nn.functional.layer_norm(x, (5,), x[0] * 2, x[1]), (4, 5)),
    "group_norm": (lambda t, x, i: t.nn.functional.group_norm(x, 2, x[0, :, 0], x[0, :, 1]), (2, 4, 5)),
    "instance_norm": (lambda t, x, i: t.nn.functional.instance_norm(x), (2, 4, 5)),
    "rms_norm": (lambda t, x, i: t.nn.functional.rms_norm(x, (5,), x[0]), (4, 5)),
    "cat": (lambda t, x, i: t.cat([x, x * 2, x], 1), (4, 5)),
    "stack": (lambda t, x, i: t.stack([x, x * 2], -1), (4, 5)),
    "max": (lambda t, x, i: x.max(1)[0], (4, 5)),
    "sort": (lambda t, x, i: x.sort(1, descending=True)[0], (4, 5)),
    "gather": (lambda t, x, i: x.gather(1, i), (4, 5)),
    "index_select": (lambda t, x, i: x.index_select(0, i[0]), (4, 5)),
    "scatter_add": (lambda t, x, i: (x * 0).scatter_add(1, i, x[:, :2]), (4, 5)),
    "index_add": (lambda t, x, i: (x * 2).index_add(0, i[0], x[:2], alpha=2.0), (4, 5)),
    "norm": (lambda t, x, i: x.norm(dim=1), (4, 5)),
    "var": (lambda t, x, i: x.var(1), (4, 5)),
    "softmax": (lambda t, x, i: t.nn.functional.softmax(x, -1), (4, 5)),
    "logsumexp": (lambda t, x, i: x.logsumexp(1), (4, 5)),
    "sum of columns": (lambda t, x, i: x[:, 1:3].sum(), (4, 5)),
    "roll": (lambda t, x, i: x.roll(1, 0), (4, 5)),
    "repeat": (lambda t, x, i: x.repeat(2, 1), (4, 5)),
    "pad": (lambda t, x, i: t.nn.functional.pad(x, (1, 2), value=3.0), (4, 5)),
    "split": (lambda t, x, i: x.split(2, 1)[1] * x.split(2, 1)[0], (4, 4)),
    "unbind": (lambda t, x, i: x.unbind(0)[1] * x.unbind(0)[2], (4, 4)),
    "index": (lambda t, x, i: x[i[:, 0], i[:, 1]], (4, 5)),
    "cumsum": (lambda t, x, i: x.cumsum(1), (4, 5)),
    "conv1d": (lambda t, x, i: t.nn.functional.conv1d(x, x[:, :, :3], padding=1), (2, 2, 8)),
    "conv_transpose2d": (lambda t, x, i: t.nn.functional.conv_transpose2d(x, x[:1, :2].reshape(2, 1, 5, 5), stride=2, padding=1), (1, 2, 5, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_the_third_call_is_torchs_too(name):
    """Values, gradients or the gradient of a gradient of a remembered call are not PyTorch's, or its node has another name."""
    call, shape = CALLS[name]
    rng = np.random.default_rng(0)
    index = rng.integers(0, 4, (4, 2))
    for _ in range(3):
        data = rng.standard_normal(shape)
        found = []
        for t in (torch, fl):
            x = t.tensor(data, requires_grad=True)
            y = call(t, x, t.tensor(index))
            (g,) = t.autograd.grad((y * y).sum(), x, create_graph=True)
            (g * g).sum().backward()
            found.append((y.grad_fn.name(), *(v.detach().numpy() for v in (y, g, x.grad))))
        assert found[0][0] == found[1][0]
        for ours, theirs in zip(found[1][1:], found[0][1:], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CALLS)
def test_whether_a_gradient_is_wanted_is_asked_every_time(name):
    """A call without gradients was remembered, and the same call with them records nothing; or the other way round."""
    call, shape = CALLS[name]
    index = fl.tensor(np.random.default_rng(0).integers(0, 4, (4, 2)))
    for wanted in (False, True, False, True):
        assert call(fl, fl.ones(shape, requires_grad=wanted), index).requires_grad is wanted
    with fl.no_grad():
        assert not call(fl, fl.ones(shape, requires_grad=True), index).requires_grad


def test_options_that_are_equal_but_not_the_same_are_told_apart():
    """0.0 and -0.0, or True and 1, were taken for one request."""
    x = fl.zeros(2, 3)
    for value in (0.0, -0.0, 0.0):
        assert np.signbit(fl.nn.functional.pad(x, (1, 0), value=value).numpy()[0, 0]) == np.signbit(value)
    assert fl.max(x, 1, True)[0].shape == (2, 1)
    assert fl.max(x, 1, False)[0].shape == (2,)
    with pytest.raises(TypeError):
        fl.max(x, 1.0)


def test_what_warns_warns_again():
    """A remembered call keeps its warning to itself the second time."""
    for call in (lambda x: fl.nn.functional.softmax(x), lambda x: x.var(1)):
        for _ in range(3):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call(fl.ones(2, 1))
            assert len(caught) == 1


def test_errors_are_found_again():
    """An error was remembered as a success, or an index out of bounds was not looked for."""
    x = fl.ones(3, 4)
    assert x.gather(1, fl.zeros(3, 1, dtype=fl.int64)).shape == (3, 1)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="out of bounds"):
            x.gather(1, fl.full((3, 1), 7))
        with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
            fl.cat([x, fl.ones(2, 5)], 0)


def test_function_modes_and_subclasses_see_every_call():
    """A remembered call passes by those who want to see every call."""
    seen = []

    class Watch(fl.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function.__name__)
            return function(*args, **(kwargs or {}))

    class Own(fl.Tensor):
        pass

    x = fl.ones(2, 3)
    for _ in range(3):
        fl.cat([x, x])
        assert type(fl.cat([x.as_subclass(Own), x])) is Own
    with Watch():
        fl.cat([x, x])
    assert seen[-1] == "cat"


def test_autocast_is_asked_every_time():
    """A call remembered outside of autocast ran inside of it as it was."""
    x = fl.ones(4, 4)
    for _ in range(2):
        with fl.autocast("cpu", dtype=fl.bfloat16):
            assert fl.nn.functional.conv1d(x[None], fl.ones(2, 4, 3)).dtype is fl.bfloat16
        assert fl.nn.functional.conv1d(x[None], fl.ones(2, 4, 3)).dtype is fl.float32


def test_no_more_calls_are_remembered_than_there_is_room_for(monkeypatch):
    """The memory of calls grows without end."""
    monkeypatch.setattr(settled, "MOST", 10)
    call = OPS["roll"].call
    known = next(c.cell_contents for c in call.__closure__ if isinstance(c.cell_contents, dict))
    for n in range(1, 40):
        fl.roll(fl.ones(n), 1, 0)
    assert 0 < len(known) <= 10


def test_a_tensor_given_twice_is_not_taken_for_two():
    """A call with one tensor in two places was remembered, and the next call, with two tensors, used only one of them."""
    x = fl.tensor([[0, 1], [1, 0]])
    y = fl.tensor([[1, 1], [0, 0]])
    assert x.gather(1, x).tolist() == [[0, 1], [0, 1]]
    assert x.gather(1, y).tolist() == [[1, 1], [1, 1]]
    assert y.gather(1, x).tolist() == [[1, 1], [0, 0]]


def test_what_forward_keeps_for_its_backward_is_not_shared():
    """A call that hands its operation a dict to keep something in is not remembered: the next one would write into the same dict."""
    x, op = fl.ones(2), OPS["_nll_loss"]
    found = [settled._settled((op, [x, kept], y), y, (x,), {}) for kept, y in (({}, x + 1), (None, x + 1))]
    assert found[0] is None and found[1] is not None
