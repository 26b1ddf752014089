"""Small random programs of operations, views and in-place writes: every value, every gradient, every refusal is PyTorch's.

hypothesis draws a program as a list of numbers. Both frameworks run it step by step over a growing pool of tensors; a step that PyTorch
refuses must be refused, and leaves everything as it was. At the end all that is alive is differentiated.
FLAMBEAU_FUZZ=5000 draws that many programs, at random; otherwise they are few and always the same.
"""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest
from history_oracle import array, numbers, weigh
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flambeau

torch = pytest.importorskip("torch")

MANY = int(os.environ.get("FLAMBEAU_FUZZ", "0"))
fuzz = settings(
    max_examples=MANY or 250, derandomize=not MANY, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False
)

UNARY = ["sin", "tanh", "sigmoid", "exp", "neg", "relu", "abs", "sqrt", "square", "clone", "detach", "contiguous"]
BINARY = ["add", "mul", "sub", "maximum", "atan2"]
WRITES = ["sin_", "tanh_", "sigmoid_", "neg_", "relu_", "abs_", "square_", "zero_"]
WRITES_WITH = ["add_", "mul_", "sub_", "copy_", "atan2_"]


# -- steps: (framework, pool, a, b, c) -> new tensors ------------------------------------------------------------------


def unary(T, pool, a, b, c):
    return [getattr(pick(pool, a), UNARY[b % len(UNARY)])()]


def binary(T, pool, a, b, c):
    return [getattr(T, BINARY[c % len(BINARY)])(pick(pool, a), pick(pool, b))]


def reduce(T, pool, a, b, c):
    x = pick(pool, a)
    return [x.sum() if not x.dim() or c % 3 == 0 else x.sum(b % x.dim()) if c % 3 == 1 else x.mean(b % x.dim(), keepdim=True)]


def view(T, pool, a, b, c):
    x = pick(pool, a)
    d = b % max(x.dim(), 1)
    n = x.shape[d] if x.dim() else 1
    choices = [
        lambda: x.view(-1),
        lambda: x.reshape(-1),
        lambda: x.transpose(0, d),
        lambda: x.unsqueeze(d),
        lambda: x.squeeze(),
        lambda: x[c % n],
        lambda: x[c % n :],
        lambda: x[..., ::2],
        lambda: x.narrow(d, c % n, 1),
        lambda: x.expand(2, *x.shape),
        lambda: x.diagonal(),
        lambda: x.unfold(d, min(2, n), 1),
        lambda: x.flatten(),
        lambda: x.movedim(0, d),
        lambda: T.as_strided(x, (2, 2), (1, 1)),
    ]
    return [choices[(b * 7 + c) % len(choices)]()]


def several_views(T, pool, a, b, c):
    x = pick(pool, a)
    return list([x.split(2), x.chunk(2), x.unbind()][c % 3][:2])


def write(T, pool, a, b, c):
    getattr(pick(pool, a), WRITES[b % len(WRITES)])()
    return []


def write_with(T, pool, a, b, c):
    x = pick(pool, a)
    getattr(x, WRITES_WITH[c % len(WRITES_WITH)])(apart(x, pick(pool, b)))
    return []


def apart(x, y):
    """`y`, copied where it is a part of `x` that is broadcast: PyTorch then reads what it has just written, in no particular order."""
    shares = x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    return y.clone() if shares and y.numel() != x.numel() else y


def write_number(T, pool, a, b, c):
    x = pick(pool, a)
    [lambda: x.mul_(0.5), lambda: x.add_(0.25), lambda: x.fill_(0.75), lambda: x.clamp_(0.2, 0.9), lambda: x.pow_(2)][c % 5]()
    return []


def assign(T, pool, a, b, c):
    x = pick(pool, a)
    y = apart(x, pick(pool, b))
    if c % 4 == 0:
        x[0] = y
    elif c % 4 == 1:
        x[..., -1:] = 0.5
    elif c % 4 == 2:
        x[x > 0.6] = 0.1
    else:
        x[T.tensor([0])] = y
    return []


def augment(T, pool, a, b, c):
    x = pick(pool, a)
    x[c % 2 :] *= 1.5
    return []


def without_grad(T, pool, a, b, c):
    with T.no_grad():
        return STEPS[c % 7](T, pool, a, b, c)


def gather(T, pool, a, b, c):
    x = pick(pool, a)
    return [[lambda: x[T.tensor([0, -1])], lambda: x[x > 0.5], lambda: x.index_select(0, T.tensor([0, 0]))][c % 3]()]


def join(T, pool, a, b, c):
    return [T.cat([pick(pool, a), pick(pool, b)]) if c % 2 else T.stack([pick(pool, a), pick(pool, a)])]


STEPS = [
    unary, binary, view, write, write_with, assign, write_number,
    view, several_views, augment, reduce, gather, join, without_grad, view, write_with,
]  # fmt: skip


def pick(pool, i):
    return pool[i % len(pool)]


# -- running -----------------------------------------------------------------------------------------------------------


def attempt(T, pool, step):
    """The new tensors of a step, or the exception it raises."""
    kind, a, b, c = step
    try:
        return STEPS[kind % len(STEPS)](T, pool, a, b, c)
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as problem:
        return problem


def start(T):
    """Two leaves, a computed tensor and a plain one, all small."""
    w, v = (T.tensor(array(2, 3, seed=s)).requires_grad_() for s in (0, 1))
    return [w, v], [w, v, w * 1, T.tensor(array(3, seed=2))]


def same(mine, theirs, where: str) -> None:
    assert tuple(mine.shape) == tuple(theirs.shape) and mine.requires_grad == theirs.requires_grad, where
    np.testing.assert_allclose(numbers(mine), numbers(theirs), rtol=1e-9, atol=1e-11, err_msg=where)


@fuzz
@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=12))
@pytest.mark.filterwarnings("ignore")
def test_programs(program):
    """Values after every step, and gradients at the end."""
    our_leaves, ours = start(flambeau)
    their_leaves, theirs = start(torch)
    done = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in program:
            done.append((STEPS[step[0] % len(STEPS)].__name__, *step[1:]))
            found, expected = attempt(flambeau, ours, step), attempt(torch, theirs, step)
            where = f"after {done}"
            if isinstance(expected, Exception) or isinstance(found, Exception):
                assert type(found).__name__ == type(expected).__name__, f"{where}: torch {expected!r}, Flambeau {found!r}"
                continue
            for mine, other in zip(found, expected, strict=True):
                same(mine, other, where)
            ours.extend(x for x in found if x.is_floating_point() and x.numel() <= 60)
            theirs.extend(x for x in expected if x.is_floating_point() and x.numel() <= 60)
            for mine, other in zip(ours, theirs, strict=True):
                same(mine, other, where)
        for mine, other in zip(ours, theirs, strict=True):
            compare_gradients(mine, other, our_leaves, their_leaves, f"gradient of a tensor of shape {tuple(other.shape)} after {done}")


def compare_gradients(mine, other, our_leaves, their_leaves, where: str) -> None:
    """Differentiate one tensor with respect to the leaves in both frameworks."""
    if not other.requires_grad:
        return
    answers = []
    for T, x, leaves in ((flambeau, mine, our_leaves), (torch, other, their_leaves)):
        try:
            answers.append(T.autograd.grad(weigh(T, x), leaves, retain_graph=True, allow_unused=True))
        except RuntimeError as problem:
            answers.append(problem)
    found, expected = answers
    if isinstance(expected, Exception) or isinstance(found, Exception):
        assert type(found) is type(expected), f"{where}: torch {expected!r}, Flambeau {found!r}"
        return
    for g, h in zip(found, expected, strict=True):
        assert (g is None) == (h is None), f"{where}: torch {h}, Flambeau {g}"
        if h is not None:
            np.testing.assert_allclose(numbers(g), numbers(h), rtol=1e-8, atol=1e-10, err_msg=where)
