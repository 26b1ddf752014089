"""FlopCounterMode counts what PyTorch's counts, forward and backward, by module."""

from __future__ import annotations

import pytest

import flambeau

torch = pytest.importorskip("torch")


def count(t, work, backward: bool):
    """(all operations, operations by module) of work(t)."""
    from importlib import import_module

    mode = import_module(f"{t.__name__}.utils.flop_counter").FlopCounterMode
    t.manual_seed(0)
    model, x = work(t)
    with mode(display=False) as counter:
        result = model(x)
        if backward:
            result.sum().backward()
    return counter.get_total_flops(), {name: sum(found.values()) for name, found in counter.get_flop_counts().items()}


def convolutions(t):
    layers = t.nn.Sequential(
        t.nn.Conv2d(3, 8, 3, stride=2), t.nn.ReLU(), t.nn.Conv2d(8, 4, 3, padding=1), t.nn.Flatten(), t.nn.Linear(36, 5)
    )
    return layers, t.randn(2, 3, 8, 8)


def nested(t):
    inner = t.nn.Sequential(t.nn.Linear(6, 7), t.nn.Tanh(), t.nn.Linear(7, 6, bias=False))
    return t.nn.Sequential(inner, t.nn.Linear(6, 2)), t.randn(4, 6)


def products(t):
    w = t.randn(2, 5, 3, requires_grad=True)
    return (
        lambda x: t.einsum("bij,bjk->bik", x, w).sum() + (x @ w).sum() + (x[0] @ w[0]).sum() + t.addmm(t.ones(3), x[0], w[0]).sum(),
        t.randn(2, 4, 5),
    )


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("work", [convolutions, nested, products])
def test_it_counts_what_pytorch_counts(work, backward):
    """The total, and forward the part of every module, are PyTorch's numbers."""
    ours, theirs = count(flambeau, work, backward), count(torch, work, backward)
    assert ours[0] == theirs[0] > 0
    if not backward:  # which of the modules around one of its operations PyTorch counts in backward depends on the order of hooks
        assert ours[1] == {name: number for name, number in theirs[1].items() if number}


def test_attention_is_counted_whole():
    """Scores and their product with the values, and backward two and a half times that."""
    from flambeau.utils.flop_counter import FlopCounterMode

    q = flambeau.randn(1, 2, 5, 4, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        result = flambeau.nn.functional.scaled_dot_product_attention(q, q, q)
    forward = 2 * (2 * 2 * 5 * 5 * 4)
    assert counter.get_total_flops() == forward
    with FlopCounterMode(display=False) as counter:
        flambeau.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()
    assert counter.get_total_flops() == forward * 3.5 and result.shape == q.shape


def test_products_in_the_backward_of_a_function():
    """What a custom function computes in its backward is left out."""
    from flambeau.utils.flop_counter import FlopCounterMode

    class Square(flambeau.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x @ x

        @staticmethod
        def backward(ctx, grad):
            return grad @ grad + grad.mm(grad)

    with FlopCounterMode(display=False) as counter:
        Square.apply(flambeau.randn(5, 5, requires_grad=True)).sum().backward()
    assert counter.get_total_flops() == 750


def test_the_table_is_printed_at_the_end(capsys):
    """display=True prints modules, numbers and shares; nothing is counted after the block."""
    from flambeau.utils.flop_counter import FlopCounterMode

    model = flambeau.nn.Sequential(flambeau.nn.Linear(2, 3))
    with FlopCounterMode() as counter:
        model(flambeau.ones(1, 2))
    model(flambeau.ones(1, 2))
    text = capsys.readouterr().out
    assert "Sequential.0" in text and "aten.addmm" in text and "100.00%" in text and counter.get_total_flops() == 12
    with pytest.raises(NotImplementedError, match="custom_mapping"):
        FlopCounterMode(custom_mapping={1: 2})
