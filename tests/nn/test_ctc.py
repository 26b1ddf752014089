"""CTC: losses and gradients in all conventions of its arguments."""

from __future__ import annotations

import numpy as np
import pytest
from loss_oracle import check_error, labels, mine, sample
from oracle import torch

import flambeau

F, T = flambeau.nn.functional, torch.nn.functional


def both(logits, targets, times, lengths, dtype=torch.float64, **options):
    """(loss, gradient of the logits) in both frameworks."""
    found = []
    for framework, convert in ((torch, lambda a: a), (flambeau, mine)):
        leaf = convert(logits.to(dtype).clone()).requires_grad_()
        given = [convert(a) if isinstance(a, torch.Tensor) else a for a in (targets, times, lengths)]
        loss = framework.nn.functional.ctc_loss(leaf.log_softmax(-1), *given, **options)
        loss.sum().backward()
        found.append((loss.detach().numpy(), leaf.grad.numpy()))
    room = 1e-9 if dtype is torch.float64 else 2e-4
    for theirs, ours in zip(*found, strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=room, atol=room)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("blank", [0, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_conventions(reduction, blank, dtype):
    """Blank first or last, texts as rows or one after another, lengths as tensors, tuples or lists."""
    logits, texts = sample(12, 3, 5), labels(4, 3, 4) + (blank == 0)
    times, lengths = (12, 9, 10), (4, 3, 1)
    joined = torch.cat([row[:n] for row, n in zip(texts, lengths, strict=True)])
    for targets in (texts, texts.int(), joined):
        both(logits, targets, times, lengths, dtype, blank=blank, reduction=reduction)
    both(logits, texts, torch.tensor(times), torch.tensor(lengths), dtype, blank=blank, reduction=reduction)
    both(logits, joined, list(times), list(lengths), dtype, blank=blank, reduction=reduction)


def test_repeated_letters():
    """Between equal letters there must be a blank, so that they need more moments."""
    both(sample(7, 2, 4), torch.tensor([[1, 1, 1], [2, 2, 3]]), (7, 7), (3, 3), reduction="none")
    both(sample(5, 1, 4), torch.tensor([[1, 1, 1]]), (5,), (3,), reduction="none")


def test_empty_texts():
    """A text of no letters is all blanks; one moment is enough for it."""
    both(sample(6, 3, 4), torch.tensor([[1, 2], [3, 1], [1, 1]]), (6, 1, 4), (0, 0, 2), reduction="none")
    both(sample(6, 2, 4), torch.zeros(2, 0, dtype=torch.int64), (6, 5), (0, 0), reduction="none")


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_impossible_texts(reduction):
    """A text longer than its moments has an infinite loss, or with zero_infinity neither loss nor gradient."""
    arguments = sample(4, 2, 5), torch.tensor([[1, 2, 3, 4, 1, 2], [1, 2, 0, 0, 0, 0]]), (4, 4), (6, 2)
    both(*arguments, reduction=reduction, zero_infinity=True)
    found = F.ctc_loss(mine(arguments[0]).log_softmax(-1), mine(arguments[1]), *arguments[2:], reduction="none")
    assert found[0] == float("inf") and found[1] < 100


def test_no_moments():
    """No moments spell the empty text, and no other."""
    found = F.ctc_loss(mine(sample(4, 2, 3)).log_softmax(-1), mine(labels(2, 2, 2) + 1), (0, 0), (0, 1), reduction="none")
    assert found.tolist() == [0, float("inf")]


def test_one_sample():
    """A single sample needs no batch dimension."""
    logits, text = sample(8, 5), labels(4, 3) + 1
    both(logits, text, torch.tensor(8), torch.tensor(3))
    both(logits, text, (8,), (3,), reduction="none")


def test_impossible_letters():
    """Letters of probability zero make no NaN where others spell the text."""
    logs = mine(sample(5, 1, 3)).log_softmax(-1)
    logs[2, 0, 1] = -float("inf")
    logs.requires_grad_()
    F.ctc_loss(logs, flambeau.tensor([[1]]), (5,), (1,)).backward()
    assert logs.grad.isfinite().all()


def test_no_second_derivative():
    """PyTorch has no second derivative of it, and neither have we: it says so."""
    logs = mine(sample(5, 1, 3)).requires_grad_()
    (grad,) = flambeau.autograd.grad(F.ctc_loss(logs.log_softmax(-1), flambeau.tensor([[1]]), (5,), (1,)), logs, create_graph=True)
    with pytest.raises(RuntimeError, match="not implemented"):
        grad.sum().backward()


LOGS, TEXTS = torch.randn(6, 2, 4).log_softmax(2), torch.tensor([[1, 2, 2], [3, 1, 2]])


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((LOGS, TEXTS, (7, 6), (1, 2)), {}, "at most 6"),
        ((LOGS, TEXTS.reshape(-1)[:2], (6, 6), (1, 2)), {}, "size 3"),
        ((LOGS, TEXTS, (6, 6), (1, 4)), {}, "at least 4"),
        ((LOGS, TEXTS, (6, 6), (1, -2)), {}, "at least 0"),
        ((LOGS, TEXTS, (6, 6), (1, 2)), {"blank": 4}, "label range"),
        ((LOGS, TEXTS, (6,), (1, 2)), {}, "batch"),
        ((LOGS, TEXTS, torch.tensor([6.0, 6.0]), torch.tensor([1, 2])), {}, "integral"),
        ((LOGS.bfloat16(), TEXTS, (6, 6), (1, 2)), {}, "float"),
        ((LOGS[:0], TEXTS, (6, 6), (1, 2)), {}, "empty"),
        ((LOGS, TEXTS, (6, 6), (1, 2)), {"reduction": "max"}, "max is not a valid"),
    ],
)
def test_mistakes(arguments, options, words):
    """What is wrong with lengths, targets and blank is said, with PyTorch's exception."""
    check_error("ctc_loss", *arguments, match=words, **options)


def test_a_letter_that_is_none():
    """A target outside of the classes is refused (PyTorch reads beyond the array)."""
    with pytest.raises(RuntimeError, match="target 7 is out of bounds"):
        F.ctc_loss(mine(LOGS), mine(TEXTS + 6), (6, 6), (3, 3))


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", [(12, 3, 6), (12, 6)])
def test_last_step(shape, reduction, zero_infinity):
    """print(loss) says the grad_fn that PyTorch's says."""
    names = []
    for package in (flambeau, torch):
        log_probs = package.randn(*shape, requires_grad=True).log_softmax(-1)
        if len(shape) == 3:
            given = package.ones(3, 5, dtype=package.int64), package.tensor([12] * 3), package.tensor([4, 3, 5])
        else:
            given = package.ones(5, dtype=package.int64), package.tensor(12), package.tensor(5)
        loss = package.nn.functional.ctc_loss(log_probs, *given, reduction=reduction, zero_infinity=zero_infinity)
        names.append(loss.grad_fn.name())
    assert names[0] == names[1]
