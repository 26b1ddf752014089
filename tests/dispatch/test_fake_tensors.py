"""FakeTensorMode: what would come out, on which device, without computing it."""

from __future__ import annotations

from importlib import import_module

import pytest
from history_oracle import agree

torch = pytest.importorskip("torch")


def fakes(T):
    return import_module(f"{T.__name__}._subclasses.fake_tensor")


def look(T, value):
    """What a fake shows."""
    if isinstance(value, T.Tensor):
        return tuple(value.shape), value.stride(), str(value.dtype), str(value.device), value.requires_grad
    return type(value)([look(T, v) for v in value]) if isinstance(value, (list, tuple)) else value


QUESTIONS = {
    "factories": lambda T: (
        T.ones(2, 3),
        T.zeros(2, device="cuda"),
        T.randn(4, dtype=T.float64),
        T.arange(5),
        T.empty(3, requires_grad=True),
    ),
    "pointwise": lambda T: (T.ones(2, 1) + T.ones(3), T.ones(2).exp(), T.ones(2, dtype=T.int64) / 2),
    "products": lambda T: (T.ones(2, 3) @ T.ones(3, 4), T.nn.functional.linear(T.ones(5, 3), T.ones(4, 3), T.ones(4))),
    "views": lambda T: (T.ones(2, 3).t(), T.ones(2, 3).view(6), T.ones(4, 4)[1:, ::2], T.ones(2, 3).unsqueeze(1)),
    "on cuda": lambda T: (T.ones(2, device="cuda") * 2, T.ones(2, device="cuda").cpu(), T.ones(2).to("cuda:1")),
    "zero-dim": lambda T: T.ones(2, device="cuda") + T.tensor(1.0),
    "in place": lambda T: (T.ones(2, 3).add_(1), T.ones(2, 3).transpose_(0, 1)),
    "conv": lambda T: T.nn.functional.conv2d(T.ones(1, 3, 8, 8), T.ones(4, 3, 3, 3), padding=1),
    "module": lambda T: T.nn.Sequential(T.nn.Linear(4, 8), T.nn.ReLU(), T.nn.Linear(8, 2))(T.ones(3, 4)),
    "sorts": lambda T: tuple(T.ones(2, 3).sort(1)),
    "lists": lambda T: (T.cat([T.ones(2), T.ones(3)]), T.stack([T.ones(2)] * 3), T.ones(6).split(4)),
    "item": lambda T: T.ones(1).item(),
    "bool": lambda T: bool(T.ones(1) > 0),
    "nonzero": lambda T: T.ones(3).nonzero(),
    "wrong shapes": lambda T: T.ones(2, 3) @ T.ones(2, 3),
    "two devices": lambda T: T.ones(2, device="cuda") + T.ones(2),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_what_would_come_out(question) -> None:
    """Another shape, stride, dtype or device than PyTorch's fakes have, or another error."""

    def asked(T):
        with fakes(T).FakeTensorMode():
            return look(T, question(T))

    agree(asked)


def test_fakes_of_tensors() -> None:
    """A fake does not look like its tensor, or two views of one memory become fakes apart."""

    def question(T):
        mode = fakes(T).FakeTensorMode()
        x = T.arange(6.0).reshape(2, 3)
        a, b = mode.from_tensor(x), mode.from_tensor(x.t())
        again = mode.from_tensor(x)
        return look(T, (a, b, a + a, a @ b)), a is again, fakes(T).is_fake(a), fakes(T).is_fake(x)

    agree(question)


def test_gradients_of_fakes() -> None:
    """Backward on fakes computes, fails, or gives gradients that look otherwise."""

    def question(T):
        with fakes(T).FakeTensorMode():
            model = T.nn.Linear(4, 2)
            model(T.ones(3, 4)).sum().backward()
            return [look(T, p.grad) for p in model.parameters()]

    agree(question)


def test_plain_tensors_are_refused() -> None:
    """A tensor with data meets fakes unnoticed."""

    def question(T):
        x = T.ones(2)
        with fakes(T).FakeTensorMode() as mode:
            return mode.from_tensor(x) + x

    agree(question)
