"""Functions of the user's own: inputs that are returned, views of them and writes to them, and what is refused, as in PyTorch."""

from __future__ import annotations

import pytest
from custom_functions import function_of, square
from history_oracle import agree, leaf, name, plain, questions, weigh

import flambeau

torch = pytest.importorskip("torch")


# -- inputs, views and writes ----------------------------------------------------------------------------------------------


def input_returned_as_it_is(T):
    w = leaf(T, 3)
    y = function_of(T, lambda ctx, x: x).apply(w)
    weigh(T, y * 2).backward()
    return y is w, y, y.data_ptr() == w.data_ptr(), y._is_view(), name(y), w.grad


def input_returned_beside_a_result(T):
    w = leaf(T, 3)
    a, b = function_of(T, lambda ctx, x: (x, x * 2), lambda ctx, g, h: g + 2 * h).apply(w)
    weigh(T, a, b).backward()
    return w.grad, a is w


def input_returned_twice(T):
    w = leaf(T, 3)
    a, b = function_of(T, lambda ctx, x: (x, x), lambda ctx, g, h: g + 2 * h).apply(w)
    weigh(T, a * 3, b).backward()
    return w.grad


def input_without_gradient_returned(T):
    w, c = leaf(T, 3), plain(T, 3)
    y = function_of(T, lambda ctx, x, c: c, lambda ctx, g: (g, None)).apply(w, c)
    weigh(T, y).backward()
    return y.requires_grad, w.grad, c.requires_grad


def returned_input_is_written(T):
    y = function_of(T, lambda ctx, x: x).apply(leaf(T, 3) * 1)
    y.add_(1)


def view_returned(T):
    w = leaf(T, 2, 3)
    y = function_of(T, lambda ctx, x: x.view(6), lambda ctx, g: g.view(2, 3) * 5).apply(w)
    weigh(T, y).backward()
    return y, name(y), y._is_view(), w.grad


def returned_view_is_written(T):
    y = function_of(T, lambda ctx, x: x[:2], lambda ctx, g: T.cat([g, g[:1]])).apply(leaf(T, 3) * 1)
    y.add_(1)


def base_of_returned_view_is_written(T):
    w = leaf(T, 3)
    x = w * 1
    y = function_of(T, lambda ctx, x: x[:2], lambda ctx, g: T.cat([g, g[:1]])).apply(x)
    x.add_(1)
    return y * 2


def view_of_nothing_that_needs_a_gradient(T):
    y = function_of(T, lambda ctx, x: x[:2]).apply(plain(T, 3))
    y.add_(1)
    return y


def detached_input_returned(T):
    w = leaf(T, 3)
    y = function_of(T, lambda ctx, x: x.detach()).apply(w)
    weigh(T, y * 2).backward()
    return y.requires_grad, w.grad


def _dirty(ctx, x):
    ctx.mark_dirty(x)
    return x.mul_(2)


def written_in_place(T):
    w = leaf(T, 3)
    x = w * 1
    y = function_of(T, _dirty, lambda ctx, g: g * 2).apply(x)
    weigh(T, x, y).backward()
    return y is x, x, name(x), x._version, w.grad


def leaf_written_in_place(T):
    function_of(T, _dirty, lambda ctx, g: g * 2).apply(leaf(T, 3))


def view_written_in_place(T):
    w = leaf(T, 4)
    x = w * 1
    v = x[1:3]
    y = function_of(T, _dirty, lambda ctx, g: g * 2).apply(v)
    weigh(T, x).backward()
    return y is v, name(x), x, w.grad


def plain_written_in_place(T):
    x = plain(T, 3)
    y = function_of(T, _dirty, lambda ctx, g: g * 2).apply(x)
    return y is x, x, x._version


def plain_written_with_a_gradient(T):
    def body(ctx, x, w):
        ctx.mark_dirty(x)
        return x.mul_(w)

    w, x = leaf(T, 3), plain(T, 3)
    before = x.clone()
    y = function_of(T, body, lambda ctx, g: (None, g * before)).apply(x, w)
    weigh(T, y).backward()
    return y is x, x.requires_grad, w.grad


def dirty_but_not_returned(T):
    def body(ctx, x):
        ctx.mark_dirty(x)
        x.mul_(2)
        return x * 1

    y = function_of(T, body).apply(leaf(T, 3) * 1)
    weigh(T, y).backward()


def dirty_beside_a_result(T):
    def body(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2), x * 3

    w = leaf(T, 3)
    x = w * 1
    a, b = function_of(T, body, lambda ctx, g, h: g * 2 + h * 6).apply(x)
    weigh(T, a, b).backward()
    return w.grad


def returned_as_output_and_saved(T):
    def body(ctx, x):
        ctx.save_for_backward(x)
        return x

    w = leaf(T, 3)
    y = function_of(T, body, lambda ctx, g: g * ctx.saved_tensors[0]).apply(w)
    weigh(T, y).backward()
    return w.grad


@questions(
    input_returned_as_it_is, input_returned_beside_a_result, input_returned_twice, input_without_gradient_returned,
    returned_input_is_written, view_returned, returned_view_is_written, base_of_returned_view_is_written,
    view_of_nothing_that_needs_a_gradient, detached_input_returned, written_in_place, leaf_written_in_place, view_written_in_place,
    plain_written_in_place, plain_written_with_a_gradient, dirty_but_not_returned, dirty_beside_a_result, returned_as_output_and_saved,
)  # fmt: skip
def test_inputs_views_and_writes(question):
    """Inputs returned as they are, views of them and writes to them are handled as in PyTorch."""
    agree(question)


# -- what is refused -------------------------------------------------------------------------------------------------------


def too_many_gradients(T):
    weigh(T, function_of(T, lambda ctx, x: x * 2, lambda ctx, g: (g, g)).apply(leaf(T, 3))).backward()


def too_many_but_none(T):
    w = leaf(T, 3)
    weigh(T, function_of(T, lambda ctx, x: x * 2, lambda ctx, g: (g, None, None)).apply(w)).backward()
    return w.grad


def too_few_gradients(T):
    weigh(T, function_of(T, lambda ctx, x, y: x * y).apply(leaf(T, 3), leaf(T, 3))).backward()


def gradient_for_a_number(T):
    weigh(T, function_of(T, lambda ctx, x, n: x * n, lambda ctx, g: (g, g)).apply(leaf(T, 3), 2)).backward()


def gradient_for_a_constant(T):
    w = leaf(T, 3)
    weigh(T, function_of(T, lambda ctx, x, c: x * c, lambda ctx, g: (g, g)).apply(w, plain(T, 3))).backward()
    return w.grad


def gradient_that_is_no_tensor(T):
    weigh(T, function_of(T, lambda ctx, x: x * 2, lambda ctx, g: 2.0).apply(leaf(T, 3))).backward()


def gradient_of_wrong_shape(T):
    weigh(T, function_of(T, lambda ctx, x: x * 2, lambda ctx, g: g[:2]).apply(leaf(T, 3))).backward()


def no_backward(T):
    class Half(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    weigh(T, Half.apply(leaf(T, 3))).backward()


def no_forward(T):
    class Nothing(T.autograd.Function):
        pass

    Nothing.apply(leaf(T, 3))


def instantiated(T):
    square(T)()(leaf(T, 3))


def called(T):
    square(T)(leaf(T, 3))


def keyword_arguments(T):
    square(T).apply(x=leaf(T, 3))


def once_differentiable_twice(T):
    class Once(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @T.autograd.function.once_differentiable
        def backward(ctx, grad):
            return grad * 2 * ctx.saved_tensors[0]

    w = leaf(T, 3)
    weigh(T, Once.apply(w)).backward()
    (g,) = T.autograd.grad(weigh(T, Once.apply(w)), w, create_graph=True)
    first = w.grad, g.requires_grad
    try:
        weigh(T, g).backward()
    except RuntimeError as problem:
        return first, "once_differentiable" in str(problem)


def saved_after_backward(T):
    y = square(T).apply(leaf(T, 3))
    weigh(T, y).backward()
    return y.grad_fn.saved_tensors


def backward_twice(T):
    y = weigh(T, square(T).apply(leaf(T, 3)))
    y.backward()
    y.backward()


def backward_twice_with_nothing_saved(T):
    w = leaf(T, 3)
    y = function_of(T, lambda ctx, x: x * 2).apply(w).sum()
    y.backward()
    y.backward()
    return w.grad


def save_what_is_no_tensor(T):
    function_of(T, lambda ctx, x: ctx.save_for_backward(3) or x * 2).apply(leaf(T, 3))


def error_in_backward(T):
    def bad(ctx, grad):
        raise KeyError("mine")

    weigh(T, function_of(T, lambda ctx, x: x * 2, bad).apply(leaf(T, 3))).backward()


def instance_method_as_forward(T):
    class Old(T.autograd.Function):
        def forward(self, x):
            return x * 2

        def backward(self, grad):
            return grad * 2

    w = leaf(T, 3)
    weigh(T, Old.apply(w)).backward()
    return w.grad


@questions(
    too_many_gradients, too_many_but_none, too_few_gradients, gradient_for_a_number, gradient_for_a_constant, gradient_that_is_no_tensor,
    gradient_of_wrong_shape, no_backward, no_forward, instantiated, called, keyword_arguments, once_differentiable_twice,
    saved_after_backward, backward_twice, backward_twice_with_nothing_saved, save_what_is_no_tensor, error_in_backward,
    instance_method_as_forward,
)  # fmt: skip
def test_refusals(question):
    """A Function that answers wrongly is refused as in PyTorch."""
    agree(question)


def test_views_made_where_nothing_is_recorded():
    """A view that a Function made of an input without a gradient is written to, and its backward passed by."""
    apply = function_of(flambeau, lambda ctx, x: x.view_as(x)).apply
    for write in (lambda view, b: view.add_(b), lambda view, b: view.copy_(b)):
        with pytest.raises(RuntimeError, match="This view was created inside a custom Function"):
            write(apply(plain(flambeau, 2)), leaf(flambeau, 2))
        write(apply(plain(flambeau, 2)), plain(flambeau, 2))
