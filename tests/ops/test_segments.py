"""segment_reduce: values and gradients are PyTorch's, for lengths and offsets, batches, empty segments, NaN and zeros."""

from __future__ import annotations

import numpy as np
import pytest
from matrix_oracle import REAL, numbers, ours, torch

import flambeau

NAN = float("nan")


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "max", "min"])
@pytest.mark.parametrize("initial", [None, 0.5], ids=str)
@pytest.mark.parametrize("dtype", [REAL, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("how", ["lengths", "offsets"])
def test_segments(reduce, initial, dtype, how):
    """Every reduction along the first dimension or behind a batch, with what follows it side by side; gradients where segments are usual."""
    cases = [
        (numbers(6), [1, 2, 0, 3], 0),
        (numbers(6, 2, 3), [0, 6, 0], 0),
        (numbers(2, 5, 3), [[1, 0, 4], [2, 2, 1]], 1),
        (numbers(2, 2, 3), [[[1, 2], [0, 3]], [[3, 0], [2, 1]]], -1),
        (torch.tensor([1.0, 0.0, 3.0, 0.0, 0.0, 2.0, 2.0, NAN, 4.0]), [2, 3, 2, 2], 0),
        (torch.ones(0), [0, 0], 0),
    ]
    for data, lengths, axis in cases:
        segments = torch.tensor(lengths)
        if how == "offsets":
            segments = torch.cat([segments[..., :1] * 0, segments], -1).cumsum(-1)
        x = data.to(dtype).requires_grad_()
        y = ours(x.detach()).requires_grad_()
        expected = torch.segment_reduce(x, reduce, axis=axis, initial=initial, **{how: segments})
        found = flambeau.segment_reduce(y, reduce, axis=axis, initial=initial, **{how: ours(segments)})
        assert found.dtype is y.dtype and tuple(found.shape) == tuple(expected.shape)
        tolerance = {REAL: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
        np.testing.assert_allclose(found.detach().double().numpy(), expected.detach().double().numpy(), rtol=tolerance)
        weights = torch.arange(1.0, expected.numel() + 1).reshape(expected.shape)
        (expected * weights).sum().backward()
        (found * ours(weights)).sum().backward()
        np.testing.assert_allclose(y.grad.double().numpy(), x.grad.double().numpy(), rtol=tolerance, atol=tolerance)


def test_segments_that_leave_something_out():
    """unsafe lengths need not reach the end, and offsets need not begin at zero: what lies in no segment has a gradient of zero."""
    x = flambeau.arange(6.0).requires_grad_()
    found = flambeau.segment_reduce(x, "sum", lengths=flambeau.tensor([1, 3]), unsafe=True)
    found = found + flambeau.segment_reduce(x, "max", offsets=flambeau.tensor([2, 4, 5]))
    found.sum().backward()
    assert found.tolist() == [3.0, 10.0] and x.grad.tolist() == [1.0, 1.0, 1.0, 2.0, 1.0, 0.0]
    assert flambeau.autograd.gradcheck(
        lambda x: flambeau.segment_reduce(x, "prod", lengths=flambeau.tensor([2, 3]), unsafe=True, initial=3),
        x.detach().double().requires_grad_(),
    )


@pytest.mark.parametrize(
    "options",
    [
        {}, {"lengths": [1, 2]}, {"lengths": [-1, 4]}, {"lengths": [1, 2], "axis": 1}, {"indices": [0, 1, 2]}, {"lengths": [1.0, 2.0]},
        {"lengths": [3], "reduce": "median"}, {"lengths": [3], "whole": True},
    ],
    ids=str,
)  # fmt: skip
def test_segments_refused(options):
    """What PyTorch refuses is refused with its type of error; segments behind the end, which it reads, are refused too."""
    x = torch.arange(6).reshape(3, 2) if options.get("whole") else torch.ones(3, 2)
    reduce = options.get("reduce", "sum")
    if options.get("lengths") == [1, 2]:
        options = options | {"lengths": [1, 1]}
    given = {k: torch.tensor(v) if isinstance(v, list) else v for k, v in options.items() if k not in ("reduce", "whole")}
    with pytest.raises((RuntimeError, NotImplementedError)) as expected:
        torch.segment_reduce(x, reduce, **given)
    with pytest.raises(expected.type):
        flambeau.segment_reduce(ours(x), reduce, **{k: ours(v) for k, v in given.items()})
    for offsets in ([0, 4], [-1, 2], [2, 1]):
        with pytest.raises(RuntimeError):
            flambeau.segment_reduce(flambeau.ones(3), "sum", offsets=flambeau.tensor(offsets), unsafe=True)


def test_segments_of_meta_tensors():
    """A meta tensor answers with the shape, whether lengths have values or not."""
    x = flambeau.empty(2, 6, 5, device="meta")
    for lengths in (flambeau.tensor([[2, 4], [6, 0]]), flambeau.empty(2, 2, dtype=flambeau.int64, device="meta")):
        assert tuple(flambeau.segment_reduce(x, "max", lengths=lengths, axis=1).shape) == (2, 2, 5)


def test_its_older_name():
    """Libraries written for the years in which it was not public call it by that name."""
    assert flambeau._segment_reduce(flambeau.ones(3), "sum", lengths=flambeau.tensor([1, 2])).tolist() == [1, 2]
