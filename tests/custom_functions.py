"""Functions that the tests of custom Functions share."""

from __future__ import annotations


def square(T):
    """x -> x * x, with everything spelled out."""

    class Square(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 2 * x

    return Square


def function_of(T, body, answer=lambda ctx, *grads: grads[0]):
    """A Function with this forward and backward."""
    return type("Made", (T.autograd.Function,), {"forward": staticmethod(body), "backward": staticmethod(answer)})
