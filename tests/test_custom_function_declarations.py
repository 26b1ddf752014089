"""What a Function says of itself, default arguments of forward, and forward mode by its author's jvp, as in PyTorch."""

from __future__ import annotations

import weakref

import pytest
from custom_functions import function_of, square
from history_oracle import agree, leaf, plain, questions, weigh

import flambeau

torch = pytest.importorskip("torch")


# -- what newer programs say of their Functions ------------------------------------------------------------------------


def default_arguments_of_forward(T):
    class Power(T.autograd.Function):
        @staticmethod
        def forward(x, n=3):
            return x**n

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.n = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * ctx.n * x ** (ctx.n - 1), None

    a, b = leaf(T, 3), leaf(T, 3)
    weigh(T, Power.apply(a), Power.apply(b, 2)).backward()
    return a.grad, b.grad


def boxed_gradients(T):
    seen = []

    class Two(T.autograd.Function):
        boxed_grads_call = True

        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, grads):
            first, second = grads
            alive = weakref.ref(second)
            total = first * 2 + second * 3
            grads.clear()
            del second
            seen.append((type(grads).__name__, alive() is None))
            return total

    w = leaf(T, 3)
    a, b = Two.apply(w)
    weigh(T, a * 1, b * 1).backward()
    c, _ = Two.apply(w)
    weigh(T, c).backward()
    return w.grad, seen


def saved_tensors_read_once(T):
    class Once(T.autograd.Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, x, times):
            ctx.save_for_backward(x)
            ctx.times = times
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            for _ in range(ctx.times):
                (x,) = ctx.saved_tensors
            return grad * x, None

    w = leaf(T, 3)
    weigh(T, Once.apply(w, 1)).backward()
    try:
        weigh(T, Once.apply(w, 2)).backward()
    except RuntimeError as problem:
        return w.grad, "can only be accessed once" in str(problem)


def dirty_but_no_input(T):
    def forward(ctx, x):
        found = x.clone().view_as(x)
        ctx.mark_dirty(found)
        return found

    return function_of(T, forward).apply(leaf(T, 3).clone())


def history_of_what_is_differentiable_once(T):
    class Twice(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, n, y):
            return x * n + y

        @staticmethod
        @T.autograd.function.once_differentiable
        def backward(ctx, grad):
            return grad * 2, None, grad

    x, y = leaf(T, 2), leaf(T, 2)
    T.autograd.backward(Twice.apply(x, 2, y), T.ones(2, requires_grad=True), create_graph=True)
    copied = x.grad.grad_fn
    (_, _), (error, nr) = copied.next_functions
    try:
        x.grad.sum().backward()
    except RuntimeError as problem:
        said = "marked with @once_differentiable" in str(problem)
    return copied.name(), type(error).__name__, nr, [e and type(e).__name__ for e, _ in error.next_functions], said, x.grad.stride()


@questions(history_of_what_is_differentiable_once)
@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")
def test_history_of_what_is_differentiable_once(question):
    """The gradient of a Function that can be differentiated once leads nowhere, so that nobody asks for its gradient and hears of it."""
    agree(question)


@questions(default_arguments_of_forward, boxed_gradients, saved_tensors_read_once, dirty_but_no_input)
def test_what_functions_say_of_themselves(question):
    """A setting of a Function, or a default argument of its forward, is not heeded as in PyTorch."""
    agree(question)


def with_jvp(T, wrong: float = 0.0):
    """x, y -> x * y, x + y, whose forward-mode derivative alone is `wrong`."""

    class Pair(T.autograd.Function):
        @staticmethod
        def forward(x, y, n):
            return x * y * n, x + y, (x > 0).sum()

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, y, ctx.n = inputs
            ctx.mark_non_differentiable(output[2])
            ctx.save_for_forward(x, y)

        @staticmethod
        def jvp(ctx, x_t, y_t, n_t):
            x, y = ctx.saved_tensors
            assert n_t is None
            return (x_t * y + x * y_t) * ctx.n + wrong, x_t + y_t, None

    return Pair


def forward_by_the_authors_jvp(T):
    a, b, v, u = (plain(T, 3, seed=i) for i in range(4))
    pair = lambda x, y: with_jvp(T, 1.0).apply(x.sin(), y, 2)[:2]  # noqa: E731
    one = T.func.jvp(lambda x: pair(x, b), (a,), (v,))
    two = T.func.jvp(pair, (a, b), (v, u))
    with T.autograd.forward_ad.dual_level():
        x = T.autograd.forward_ad.make_dual(a, v)
        tangents = [T.autograd.forward_ad.unpack_dual(t).tangent for t in pair(x, b)]
    return one, two, tangents


def tangent_for_what_has_none(T):
    class Wrong(with_jvp(T)):
        @staticmethod
        def jvp(ctx, x_t, y_t, n_t):
            return x_t, y_t, x_t

    return T.func.jvp(lambda x: Wrong.apply(x, x, 2)[0], (plain(T, 3),), (plain(T, 3),))


@questions(forward_by_the_authors_jvp, tangent_for_what_has_none)
def test_forward_mode_asks_the_author(question):
    """Forward mode through a Function with a jvp of its own does not use it."""
    agree(question)


def forward_functions(T):
    class View(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, answer):
            ctx.answer = answer
            return x[:2]

        @staticmethod
        def jvp(ctx, x_t, _):
            return ctx.answer(x_t)

    class Write(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, answer):
            ctx.answer = answer
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def jvp(ctx, x_t, _):
            return ctx.answer(x_t)

    class Same(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, answer):
            ctx.answer = answer
            return x

        @staticmethod
        def jvp(ctx, x_t, _):
            return ctx.answer(x_t)

    return View, Write, Same


PUSHED = {
    "view": (0, lambda t: t[:2], None),
    "copy for a view": (0, lambda t: t[:2].clone(), "jvp is not returning a view"),
    "view of another": (0, lambda t: t.clone()[:2], "jvp is not returning a view of the given"),
    "write": (1, lambda t: t.mul_(2), None),
    "product for a write": (1, lambda t: t * 2, "not modifying the forward mode gradients inplace"),
    "nothing for a write": (1, lambda t: t, "jvp function must modify the corresponding gradient inplace"),
    "as it is": (2, lambda t: t.view_as(t), None),
    "product for what is returned as it is": (2, lambda t: t * 1, r"forward is returning a view \(or an input as-is\)"),
    "no jvp": (None, None, "must implement the jvp function"),
}


@pytest.mark.parametrize("T", (torch, flambeau), ids=("torch", "flambeau"))
@pytest.mark.parametrize("case", PUSHED)
@pytest.mark.parametrize("tracked", [False, True])
def test_jvp_is_asked_when_duals_come(T, case, tracked):
    """What a Function's jvp answers for duals is looked at when somebody asks for a tangent, or never; or the tangent is another tensor than its."""
    which, answer, words = PUSHED[case]
    apply = square(T).apply if which is None else lambda x: forward_functions(T)[which].apply(x, answer)
    fwd = T.autograd.forward_ad
    x, t = T.arange(3.0) + 1, T.arange(3.0) - 1
    with fwd.dual_level():
        dual = fwd.make_dual(x.requires_grad_(tracked) * 1, t)
        before = dual * 3
        if words is not None:
            with pytest.raises(RuntimeError, match=words):
                apply(dual)
            return
        out = apply(dual)
        primal, tangent = fwd.unpack_dual(out)
        further = fwd.unpack_dual(out * out).tangent
        assert fwd.unpack_dual(before).tangent.tolist() == [-3, 0, 3]
    scale, n = 2 if which == 1 else 1, 3 if which else 2
    assert (tangent is t) if which == 1 else tangent._base is t
    assert tangent.tolist() == [-scale, 0, scale][:n]
    assert further.tolist() == [2 * scale * scale * a * b for a, b in zip([1, 2, 3], [-1, 0, 1], strict=True)][:n]
    assert not tangent.requires_grad and primal.requires_grad == further.requires_grad == tracked


def test_forward_mode_twice_asks_the_author():
    """The second derivative by forward mode is not the derivative of the author's jvp. (PyTorch 2.13 answers zero here.)"""
    a, v = plain(flambeau, 3), plain(flambeau, 3, seed=1)

    def second(function):
        return flambeau.func.jvp(lambda x: flambeau.func.jvp(function, (x,), (v,))[1], (a,), (v,))[1]

    found, expected = second(lambda y: with_jvp(flambeau).apply(y, y.cos(), 2)[0]), second(lambda y: y * y.cos() * 2)
    flambeau.testing.assert_close(found, expected)
