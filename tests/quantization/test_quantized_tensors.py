"""Quantized tensors: what they are made of, what can be done with them, and what refuses."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import numpy as np
import pytest
from pairs import array, both, refusals, same, torch

import flambeau

DTYPES = ("qint8", "quint8", "qint32")


@pytest.mark.parametrize("dtype", DTYPES)
def test_integers_and_floats_are_pytorchs(dtype):
    """A float becomes another integer than in PyTorch, or the integer another float."""

    def program(t):
        q = t.quantize_per_tensor(t.randn(40, 50) * 5, 0.037, 7, getattr(t, dtype))
        return q.int_repr(), q.dequantize(), t.dequantize(q)

    same(program)


def test_values_beyond_the_range_stop_at_its_ends():
    """Infinity, NaN or a large number becomes another integer than in PyTorch."""
    extremes = [float("nan"), float("inf"), -float("inf"), 1e30, -1e30, 0.05, 0.15, 0.25]
    same(lambda t: t.quantize_per_tensor(t.tensor(extremes), 0.1, 3, t.quint8).int_repr())


@pytest.mark.parametrize("axis", [0, 1])
def test_channels_have_scales_of_their_own(axis):
    """Integers, floats, scales, zero points or axis of a tensor quantized by channel differ from PyTorch's."""

    def program(t):
        x = t.randn(6, 6)
        q = t.quantize_per_channel(x, t.rand(6) / 20 + 0.01, t.arange(6) - 3, axis, t.qint8)
        assert (q.q_per_channel_axis(), repr(q.qscheme())) == (axis, "torch.per_channel_affine")
        return q.int_repr(), q.dequantize(), q.q_per_channel_scales(), q.q_per_channel_zero_points(), q.clone().int_repr()

    same(program)
    same(lambda t: t.quantize_per_channel(t.randn(2, 3), t.tensor([0.1, 0.2]), t.tensor([0.5, 3.0]), 0, t.quint8).dequantize())


@pytest.mark.parametrize("reduce_range", [True, False])
@pytest.mark.parametrize("dtype", ["qint8", "quint8"])
def test_the_range_of_a_tensor_chooses_its_scale(dtype, reduce_range):
    """Scale, zero point or integers of quantize_per_tensor_dynamic differ from PyTorch's for some range."""

    def program(t):
        found = []
        for x in (t.randn(30), t.rand(30), -t.rand(30), t.zeros(3), t.tensor([1e-6, 2e-6]), t.tensor([-1e-7, 3e-6]), t.randn(30) * 1e4):
            q = t.quantize_per_tensor_dynamic(x, getattr(t, dtype), reduce_range)
            found.append((q.q_scale(), q.q_zero_point(), array(q).tolist()))
        return found

    theirs, ours = both(program)
    assert theirs == ours


def samples(t):
    x = t.randn(2, 3)
    yield t.quantize_per_tensor(x, 0.1, 3, t.quint8)
    yield t.quantize_per_tensor(x[0, 0], 0.1, 3, t.qint8)
    yield t.quantize_per_tensor(t.zeros(0, 3), 0.5, 0, t.qint32)
    yield t.quantize_per_tensor(t.ones(2000), 0.25, 1, t.quint8)
    yield t.quantize_per_channel(x, t.tensor([0.1, 0.2]), t.tensor([0, 3]), 0, t.qint8)


def test_they_print_as_in_pytorch():
    """The text of a quantized tensor is another."""
    theirs, ours = both(lambda t: [repr(q) for q in samples(t)])
    assert theirs == ours


MOVES = {
    "view": lambda q: q.view(3, 2), "reshape": lambda q: q.reshape(-1), "t": lambda q: q.t(), "flip": lambda q: q.flip(0), "permute": lambda q: q.permute(1, 0),
    "index": lambda q: q[1, 1:], "mask": lambda q: q[q > 0], "select": lambda q: q.select(1, 2), "unsqueeze": lambda q: q.unsqueeze(0),
    "expand": lambda q: q.unsqueeze(0).expand(4, 2, 3), "chunk": lambda q: q.chunk(2)[1], "clone": lambda q: q.clone(),
    "contiguous": lambda q: q.t().contiguous(), "detach": lambda q: q.detach(), "cpu": lambda q: q.cpu(), "to": lambda q: q.to("cpu"),
    "unbind": lambda q: q.unbind()[0], "flatten": lambda q: q.flatten(), "squeeze": lambda q: q.unsqueeze(0).squeeze(), "iter": lambda q: list(q)[1],
    "transpose": lambda q: q.transpose(0, 1), "split": lambda q: q.split(1)[0], "data": lambda q: q.data, "T": lambda q: q.T,
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_what_moves_elements_keeps_their_meaning(name):
    """A view, a copy or a part of a quantized tensor has other elements, another scale or another shape than in PyTorch."""

    def program(t):
        q = MOVES[name](t.quantize_per_tensor(t.randn(2, 3), 0.1, 3, t.quint8))
        assert (q.is_quantized, repr(q.dtype), q.q_scale(), q.q_zero_point()) == (True, "torch.quint8", 0.1, 3)
        assert q.layout is t.strided
        return q.int_repr()

    same(program)


def test_views_share_memory():
    """Writing to a view of a quantized tensor does not reach it."""

    def program(t):
        q = t.quantize_per_tensor(t.zeros(2, 3), 0.1, 3, t.quint8)
        q[1].copy_(t.ones(3))
        q.view(6)[0].copy_(t.tensor(-7.0))
        q[0, 1:] = t.tensor([0.5, 2.5])
        return q.int_repr(), q.dequantize(), q == q.clone(), q < t.quantize_per_tensor(t.ones(2, 3), 0.5, 0, t.qint8)

    same(program)


def test_a_copy_brings_its_meaning_but_not_into_a_part():
    """After a copy between quantized tensors, elements stand for other floats."""

    def program(t):
        q = t.quantize_per_tensor(t.zeros(2, 3), 0.1, 3, t.quint8)
        q.copy_(t.quantize_per_tensor(t.randn(2, 3), 0.05, 90, t.quint8))
        assert (q.q_scale(), q.q_zero_point()) == (0.05, 90)
        return q.dequantize()

    same(program)
    q = flambeau.quantize_per_tensor(flambeau.zeros(2, 3), 0.1, 3, flambeau.quint8)
    q[0] = flambeau.quantize_per_tensor(flambeau.ones(3), 0.5, 0, flambeau.quint8)
    assert q.dequantize().tolist() == [[1, 1, 1], [0, 0, 0]]
    with pytest.raises(NotImplementedError, match="slices"):
        q[q > 0] = 0.5


def test_questions_get_answers():
    """Shape, strides, size of an element, equality or the number in it are not what PyTorch says."""

    def program(t):
        q = t.quantize_per_tensor(t.randn(2, 3), 0.1, 3, t.quint8)
        same_integers = t.quantize_per_tensor(q.dequantize(), 0.1, 3, t.quint8)
        other = t.quantize_per_tensor(q.dequantize(), 0.2, 3, t.quint8)
        return [
            tuple(q.shape), q.stride(), q.element_size(), q.nbytes, q.dim(), len(q), q.is_floating_point(), q.requires_grad, str(q.device),
            t.equal(q, same_integers), t.equal(q, other), q[0, 0].item(), float(q[0, 0]), bool(q[0, 0]), q.type(), q.is_contiguous(),
            repr(t.per_channel_symmetric), t.qint8.itemsize, t.quint8.is_floating_point, t.ones(2).is_quantized, q.untyped_storage().nbytes(),
        ]  # fmt: skip

    theirs, ours = both(program)
    assert theirs == ours


REFUSED = {
    "add": lambda t, q: q + q, "sum": lambda t, q: q.sum(), "matmul": lambda t, q: q.matmul(q), "abs": lambda t, q: q.abs(),
    "sqrt": lambda t, q: t.sqrt(q), "zeros_like": lambda t, q: t.zeros_like(q), "float": lambda t, q: q.float(), "to": lambda t, q: q.to(t.float64),
    "numpy": lambda t, q: q.numpy(), "copy to float": lambda t, q: t.ones(3).copy_(q), "gradient": lambda t, q: q.requires_grad_(),
    "scales": lambda t, q: q.q_per_channel_scales(), "dense scale": lambda t, q: t.ones(2).q_scale(), "dense": lambda t, q: t.ones(2).int_repr(),
    "dense qscheme": lambda t, q: t.ones(2).qscheme(), "zeros": lambda t, q: t.zeros(2, dtype=t.qint8), "item": lambda t, q: q.item(),
    "no quantized dtype": lambda t, q: t.quantize_per_tensor(t.ones(2), 0.1, 0, t.int8), "double": lambda t, q: t.quantize_per_tensor(t.ones(2).double(), 0.1, 0, t.qint8),
    "zero point": lambda t, q: t.quantize_per_tensor(t.ones(2), 0.1, 300, t.qint8), "channel axis": lambda t, q: t.quantize_per_channel(t.ones(2), t.ones(2), t.zeros(2), 1, t.qint8),
    "too few scales": lambda t, q: t.quantize_per_channel(t.ones(3), t.ones(2), t.zeros(2), 0, t.qint8),
    "scales and zero points": lambda t, q: t.quantize_per_channel(t.ones(3), t.ones(3), t.zeros(2), 0, t.qint8),
    "range of NaN": lambda t, q: t.quantize_per_tensor_dynamic(t.tensor([float("nan")]), t.quint8, True),
    "range of infinity": lambda t, q: t.quantize_per_tensor_dynamic(t.tensor([float("inf"), 1]), t.quint8, True),
    "range of nothing": lambda t, q: t.quantize_per_tensor_dynamic(t.ones(0), t.quint8, True), "promotion": lambda t, q: t.promote_types(t.qint8, t.float32),
    "qint32 by range": lambda t, q: t.quantize_per_tensor_dynamic(t.ones(2), t.qint32, True),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_of_pytorchs_types(name):
    """Something that PyTorch refuses is done, or is refused with another type of exception."""
    theirs, ours = refusals(lambda t: REFUSED[name](t, t.quantize_per_tensor(t.ones(3), 0.1, 3, t.quint8)))
    assert theirs is not None and ours is theirs


def test_a_refused_operation_says_what_to_do():
    """The error of an operation that quantized tensors lack does not name it, or does not say to dequantize."""
    q = flambeau.quantize_per_tensor(flambeau.ones(3), 0.1, 0, flambeau.qint8)
    with pytest.raises(NotImplementedError, match=r"'mul' on a quantized tensor \(torch.qint8\).*x\.dequantize\(\)"):
        q * 2
    with pytest.raises(NotImplementedError, match=r"'relu_'"):
        q.relu_()


def test_copies_and_pickles_bring_them_back():
    """copy.deepcopy, pickle or copy.copy loses integers or their meaning."""
    for q in samples(flambeau):
        for again in (copy.deepcopy(q), pickle.loads(pickle.dumps(q)), copy.copy(q)):
            assert repr(again) == repr(q) and flambeau.equal(again, q)


def test_files_are_exchanged_with_pytorch():
    """A file with quantized tensors of one framework is read differently by the other, or not with weights_only=True."""
    theirs, ours = both(lambda t: list(samples(t)))
    for tensors, save, load in (
        (theirs, torch.save, flambeau.load),
        (ours, flambeau.save, torch.load),
        (ours, flambeau.save, flambeau.load),
    ):
        file = io.BytesIO()
        save({"tensors": tensors, "view": tensors[0][1]}, file)
        file.seek(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = load(file)
        assert [repr(q) for q in found["tensors"]] == [repr(q) for q in theirs]
        np.testing.assert_array_equal(array(found["view"]), array(theirs[0][1]))
