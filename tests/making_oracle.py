"""One question about making tensors, asked of real torch and of Flambeau: a function of the framework, whose answers must agree."""

from __future__ import annotations

import math
import warnings

import pytest

import flambeau

torch = pytest.importorskip("torch")


def outcome(question, framework):
    """What a question gives, in terms that can be compared: tensors as (dtype, shape, stride, values), errors as their type."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return described(question(framework))
        except Exception as problem:
            return type(problem).__name__


def described(value):
    if isinstance(value, (torch.Tensor, flambeau.Tensor)):
        values = None if value.device.type == "meta" else repr(value.tolist())
        return str(value.dtype), tuple(value.shape), tuple(value.stride()), values, value.device.type, value.requires_grad
    if isinstance(value, (tuple, list)):
        return [described(v) for v in value]
    return str(value)


def agree(question) -> None:
    expected, found = outcome(question, torch), outcome(question, flambeau)
    assert found == expected


def questions(*listed):
    return pytest.mark.parametrize("question", listed, ids=range(len(listed)))


NAN, INF = math.nan, math.inf
