"""Cross entropy and nll_loss: values, derivatives, weights, extremes, and the mistakes people make."""

from __future__ import annotations

import math

import numpy as np
import pytest
from loss_oracle import check, check_error, labels, mine, sample
from oracle import torch

import flambeau
from flambeau.kernels.native import native
from flambeau.ops.cross_entropy import gradients, losses

F, T = flambeau.nn.functional, torch.nn.functional
SHAPES = [((64, 10), (64,)), ((7, 65), (7,)), ((3, 1500), (3,)), ((5,), ()), ((3, 4, 5, 6), (3, 5, 6)), ((1, 1), (1,)), ((700, 65), (700,))]
OPTIONS = [
    {}, {"reduction": "sum"}, {"reduction": "none"}, {"label_smoothing": 0.2}, {"ignore_index": 0}, {"weight": True},
    {"weight": True, "reduction": "none"}, {"weight": True, "label_smoothing": 0.1, "ignore_index": 0},
    {"weight": True, "label_smoothing": 0.1, "reduction": "none"}, {"label_smoothing": 0.3, "reduction": "none", "ignore_index": 0},
]  # fmt: skip


def with_weight(options, n, dtype):
    return {**options, "weight": sample(n, dtype=dtype, seed=3).abs() + 0.1} if "weight" in options else options


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("shape", "target"), SHAPES)
def test_class_numbers(shape, target, options):
    """Cross entropy with class numbers is PyTorch's, and so are its first and second derivatives."""
    n = shape[1] if len(shape) > 1 else shape[0]
    wide = with_weight(options, n, torch.float64)
    check("cross_entropy", sample(*shape), labels(n, *target), second=math.prod(shape) < 1000, **wide)
    check("cross_entropy", sample(*shape, dtype=torch.float32), labels(n, *target), **with_weight(options, n, torch.float32))
    if "label_smoothing" not in options:
        check("nll_loss", sample(*shape), labels(n, *target), second=math.prod(shape) < 1000, **wide)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{}, {"reduction": "none"}, {"weight": True}], ids=str)
def test_half_precision(dtype, options):
    """Half precision is computed in float32 and rounded once."""
    check("cross_entropy", sample(16, 10, dtype=dtype), labels(10, 16), **with_weight(options, 10, dtype))
    check("nll_loss", sample(16, 10, dtype=dtype), labels(10, 16), **with_weight(options, 10, dtype))


@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"reduction": "none"}, {"label_smoothing": 0.2}, {"weight": True}], ids=str)
@pytest.mark.parametrize("shape", [(4, 6), (6,), (3, 4, 5)])
def test_probabilities(shape, options):
    """A target of the input's shape holds probabilities, and has a gradient itself."""
    n = shape[1] if len(shape) > 1 else shape[0]
    target = sample(*shape, seed=5).softmax(1 if len(shape) > 1 else 0)
    check("cross_entropy", sample(*shape), target, second=True, **with_weight(options, n, torch.float64))


def test_layouts():
    """Logits and targets that are not contiguous, and uint8 targets."""
    check("cross_entropy", sample(10, 8).t(), labels(10, 16)[::2])
    check("cross_entropy", sample(4, 6).expand(4, 6)[:, ::2], labels(3, 4).to(torch.uint8))
    check("cross_entropy", sample(1, 5).expand(4, 5), labels(5, 1).expand(4))


def test_read_only_memory():
    """Logits in memory that may only be read."""
    x, t = sample(6, 5, dtype=torch.float32).numpy(), labels(5, 6).numpy()
    x.flags.writeable = t.flags.writeable = False
    found = losses(x, t, -100, 0.0, True)[0]
    assert found == pytest.approx(T.cross_entropy(torch.tensor(x), torch.tensor(t)).item(), rel=1e-6)


@pytest.mark.parametrize(
    ("dtype", "size"), [("bfloat16", 1e4), ("float16", 1e4), ("float32", 1e30), ("float64", 1e300), ("float32", float("inf"))]
)
@pytest.mark.parametrize("classes", [6, 40, 1100])
def test_extremes(dtype, size, classes):
    """Huge logits, and -inf where a class is impossible, give PyTorch's losses and gradients."""
    x = torch.zeros(4, classes, dtype=getattr(torch, dtype))
    x[0, 1], x[1, 2], x[1, 3] = -size, size if size != float("inf") else 1, size if size != float("inf") else 1
    x[2] = -size
    x[2, 4] = 0
    target = torch.tensor([0, 2, 4, 1])
    check("cross_entropy", x, target, reduction="none")


def test_nan_spreads():
    """A NaN among the logits makes its row's loss NaN, and only that; a row of -inf too."""
    for n in (5, 40, 1100):
        x = sample(3, n, dtype=torch.float32)
        x[0, 3], x[1] = float("nan"), -float("inf")
        check("cross_entropy", x, labels(n, 3), reduction="none")


def test_nothing_counts():
    """No samples, or only ignored ones: the mean is NaN, the sum 0, and the gradients are zeros."""
    assert F.cross_entropy(flambeau.randn(0, 3), flambeau.zeros(0, dtype=flambeau.int64)).isnan()
    x = flambeau.randn(4, 3, requires_grad=True)
    loss = F.cross_entropy(x, flambeau.full((4,), -100))
    loss.backward()
    assert loss.isnan() and (x.grad == 0).all()
    check("cross_entropy", sample(4, 3), torch.full((4,), -100), reduction="sum")


def test_without_loops(monkeypatch):
    """Losses and gradients by NumPy are those of the compiled loops."""
    if native.lib is None:
        pytest.skip("nothing is compiled here")
    x, t = sample(9, 40, dtype=torch.float32).numpy(), labels(40, 9).numpy()
    t[4] = 7
    for smoothing in (0.0, 0.25):
        scale, total = np.arange(9, dtype=np.float32), np.array(8.0, np.float32)
        found, room = losses(x, t, 7, smoothing, True)
        back = gradients(x, t, room, scale / total, 7, smoothing)
        with monkeypatch.context() as without:
            without.setattr(native, "lib", None)
            plain, plain_room = losses(x, t, 7, smoothing, True)
            plain_back = gradients(x, t, plain_room, scale / total, 7, smoothing)
        np.testing.assert_allclose(found, plain, rtol=1e-5)
        np.testing.assert_allclose(room[:9], plain_room[:9], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(back, plain_back, rtol=1e-5, atol=1e-6)


def test_threads_do_not_matter():
    """The same bits with one thread and with two."""
    x, t = mine(sample(900, 70, dtype=torch.float32)), mine(labels(70, 900))
    before = flambeau.get_num_threads()
    try:
        found = []
        for n in (1, 2):
            flambeau.set_num_threads(n)
            leaf = x.clone().requires_grad_()
            loss = F.cross_entropy(leaf, t)
            loss.backward()
            found.append((loss.item(), leaf.grad))
    finally:
        flambeau.set_num_threads(before)
    assert found[0][0] == found[1][0] and (found[0][1] == found[1][1]).all()


X = torch.randn(4, 5)
L = torch.tensor([0, 1, 2, 3])


@pytest.mark.parametrize(
    ("input", "target", "options", "words"),
    [
        (X, L.float(), {}, r"Long or Byte.*target\.long\(\)"),
        (X, L.int(), {}, r"Long or Byte.*target\.long\(\)"),
        (X, L + 3, {}, "Target 5 is out of bounds.*position 2.*0 to 4"),
        (X, L - 1, {}, "Target -1 is out of bounds.*position 0"),
        (X, L[:3], {}, r"batch_size \(4\) to match target batch_size \(3\)"),
        (X, L[:, None], {}, r"multi-target not supported.*squeeze\(1\)"),
        (X, torch.zeros(4, 5, dtype=torch.int64), {}, r"probabilities.*argmax\(1\)"),
        (torch.randn(5), torch.tensor([0, 1]), {}, "must have size 1"),
        (torch.randn(4, 5, 3), L, {}, r"Expected target size \[4, 3\], got \[4\]"),
        (torch.randn(2, 3, 5), torch.zeros(2, 3, dtype=torch.int64), {}, r"transpose\(1, 2\)"),
        (X, L, {"weight": torch.ones(4)}, "all 5 classes"),
        (X, L, {"weight": torch.ones(5, dtype=torch.float64)}, "dtype"),
        (X, X.softmax(1), {"ignore_index": 0}, "ignore_index is not supported"),
        (X, L, {"label_smoothing": 1.5}, "between 0.0 and 1.0"),
        (X, L, {"reduction": "average"}, "average is not a valid value"),
        (X.long(), L, {}, r"input\.float\(\)"),
        (X[:, :0], L, {}, "out of bounds"),
    ],
)
def test_mistakes(input, target, options, words):
    """What people get wrong is answered in their terms, with PyTorch's exception."""
    check_error("cross_entropy", input, target, match=words, **options)


def test_nll_mistakes():
    """The same for nll_loss."""
    check_error("nll_loss", X, L.float(), match="Long or Byte")
    check_error("nll_loss", torch.tensor(1.0), torch.tensor(0), match="1 or more dimensions")
    check_error("nll_loss", X, L[:2], match="batch_size")
    check_error("nll_loss", X, L + 9, match="Target 9")


def test_old_arguments():
    """size_average and reduce are understood, with PyTorch's warning."""
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert F.cross_entropy(mine(X), mine(L), size_average=False).item() == pytest.approx(T.cross_entropy(X, L, reduction="sum").item())
    with pytest.warns(UserWarning, match="reduction='none'"):
        assert F.cross_entropy(mine(X), mine(L), reduce=False).shape == (4,)


def test_changed_logits_are_noticed():
    """Writing to the logits before backward is an error, as it is for every saved tensor."""
    x = flambeau.randn(4, 5, requires_grad=True)
    y = x * 1
    loss = F.cross_entropy(y, mine(L))
    y.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("options", [{}, {"reduction": "none"}, {"ignore_index": 1}, {"label_smoothing": 0.1}], ids=str)
def test_of_a_linear_layer(options):
    """linear_cross_entropy is the cross entropy of a linear layer's results, for several dimensions too."""
    for shape, bias, target in (((5, 3), None, (4,)), ((5, 3), (5,), (4,)), ((5, 2, 3), (5, 2), (4, 2))):
        x, w, b = sample(4, 3), sample(*shape, seed=1), None if bias is None else sample(*bias, seed=2)
        t = labels(5, *target)
        expected = T.linear_cross_entropy(x, w, t, linear_bias=b, **options)
        found = F.linear_cross_entropy(mine(x), mine(w), mine(t), linear_bias=mine(b), **options)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-10)


@pytest.mark.parametrize("options", [{}, {"reduction": "none"}, {"reduction": "sum", "ignore_index": 1}, {"weight": True}], ids=str)
@pytest.mark.parametrize("chunks", [{"batch_chunk_size": 3, "chunking_method": None}, {"chunking_method": "aspect_ratio:2"}, {}], ids=str)
def test_in_chunks(options, chunks):
    """In chunks it is the same, with the same gradients."""
    options = with_weight(options, 5, torch.float64)
    t, found = labels(5, 8), []
    for given in (None, flambeau.nn.LinearCrossEntropyOptions(**chunks)):
        leaves = [mine(a).requires_grad_() for a in (sample(8, 3), sample(5, 3, seed=1), sample(5, seed=2))]
        loss = F.linear_cross_entropy(leaves[0], leaves[1], mine(t), linear_bias=leaves[2], options=given, **mine(options))
        found.append([loss.detach(), *flambeau.autograd.grad((loss * loss).sum(), leaves)])
    for whole, chunked in zip(*found, strict=True):
        np.testing.assert_allclose(chunked.numpy(), whole.numpy(), rtol=1e-10, atol=1e-12)
    with pytest.warns(UserWarning, match="ignored"):
        F.linear_cross_entropy(
            mine(sample(8, 3)), mine(sample(5, 3)), mine(t), label_smoothing=0.1, options=flambeau.nn.LinearCrossEntropyOptions()
        )
    assert repr(flambeau.nn.LinearCrossEntropyOptions()) == repr(torch.nn.LinearCrossEntropyOptions())


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_the_loss_has_the_dtype_of_its_input(dtype):
    """Also where it was computed in a wider one."""
    for shape in ((4, 3), (4, 3, 2), (2, 3, 2, 2)):
        for reduction in ("mean", "sum", "none"):
            x, target = flambeau.randn(shape).to(getattr(flambeau, dtype)), flambeau.zeros((shape[0], *shape[2:]), dtype=flambeau.int64)
            assert flambeau.nn.functional.nll_loss(x, target, reduction=reduction).dtype is x.dtype
