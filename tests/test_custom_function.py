"""Functions of the user's own: what forward may return and save, what backward may answer, as in PyTorch."""

from __future__ import annotations

import weakref

import pytest
from history_oracle import agree, leaf, name, plain, questions, weigh

import flambeau

torch = pytest.importorskip("torch")


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


# -- the usual -------------------------------------------------------------------------------------------------------------


def forward_and_backward(T):
    w = leaf(T, 3)
    y = square(T).apply(w)
    weigh(T, y).backward()
    return y, name(y), type(y.grad_fn).__name__, repr(y.grad_fn).partition(" at 0x")[0], w.grad


def double_backward(T):
    w = leaf(T, 3)
    (g,) = T.autograd.grad(weigh(T, square(T).apply(w).sin()), w, create_graph=True)
    weigh(T, g).backward()
    return g, w.grad


def result_is_saved(T):
    class Exp(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            (y,) = ctx.saved_tensors
            return grad * y

    w = leaf(T, 3)
    (g,) = T.autograd.grad(weigh(T, Exp.apply(w)), w, create_graph=True)
    weigh(T, g).backward()
    return g, w.grad


def saved_result_is_changed(T):
    class Exp(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0]

    y = Exp.apply(leaf(T, 3))
    y.add_(1)
    weigh(T, y).backward()


def saved_input_is_changed(T):
    x = leaf(T, 3) * 1
    y = square(T).apply(x)
    x.add_(1)
    weigh(T, y).backward()


def attributes_on_ctx(T):
    class Scale(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor, flag=True):
            ctx.factor, ctx.flag = factor, flag
            return x * factor

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.factor, None, None

    w = leaf(T, 3)
    y = Scale.apply(w, 3.0)
    weigh(T, y).backward()
    return w.grad, y.grad_fn.factor, y.grad_fn.flag


def fewer_gradients_than_arguments_with_defaults(T):
    class Scale(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor=2.0):
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.factor

    w = leaf(T, 3)
    weigh(T, Scale.apply(w)).backward()
    return w.grad


def setup_context(T):
    class Mul(T.autograd.Function):
        @staticmethod
        def forward(x, y):
            return x * y

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            return grad * y, grad * x

    w, v = leaf(T, 3), leaf(T, 3, seed=1)
    weigh(T, Mul.apply(w, v)).backward()
    return w.grad, v.grad


def vjp_instead_of_backward(T):
    class Double(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def vjp(ctx, grad):
            return grad * 2

    w = leaf(T, 3)
    weigh(T, Double.apply(w)).backward()
    return w.grad


def needs_input_grad(T):
    seen = []

    class Mul(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, y, factor):
            seen.append(ctx.needs_input_grad)
            ctx.save_for_backward(x, y)
            return x * y * factor

        @staticmethod
        def backward(ctx, grad):
            seen.append(ctx.needs_input_grad)
            x, y = ctx.saved_tensors
            return grad * y if ctx.needs_input_grad[0] else None, grad * x if ctx.needs_input_grad[1] else None, None

    w = leaf(T, 3)
    weigh(T, Mul.apply(w, plain(T, 3), 1.0)).backward()
    with T.no_grad():
        y = Mul.apply(w, plain(T, 3), 1.0)
    return seen, w.grad, y


def several_results(T):
    class SinCos(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin(), x.cos()

        @staticmethod
        def backward(ctx, of_sin, of_cos):
            (x,) = ctx.saved_tensors
            return of_sin * x.cos() - of_cos * x.sin()

    w = leaf(T, 3)
    s, c = SinCos.apply(w)
    weigh(T, s).backward(retain_graph=True)
    first = w.grad.clone()
    weigh(T, s * c).backward()
    return type(SinCos.apply(w)), s.output_nr, c.output_nr, first, w.grad


def results_without_gradient_are_zeros(T):
    seen = []

    class Two(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1, x[:2].float()

        @staticmethod
        def backward(ctx, first, second):
            seen.append((first, second))
            return first

    a, _ = Two.apply(leaf(T, 3))
    weigh(T, a).backward()
    return seen


def zeros_for_what_has_no_gradient(T):
    class Two(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, flag):
            fixed = x.sign()
            ctx.mark_non_differentiable(fixed)
            if flag is not None:
                ctx._materialize_non_diff_grads = flag
            return x * 1, fixed

        @staticmethod
        def backward(ctx, grad, other):
            seen.append(other)
            return grad, None

    seen = []
    for flag in (None, True, False):
        Two.apply(leaf(T, 3), flag)[0].sum().backward()
    return seen


def results_without_gradient_are_none(T):
    seen = []

    class Two(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, first, second):
            seen.append((first, second))
            return first

    a, _ = Two.apply(leaf(T, 3))
    weigh(T, a).backward()
    return seen


def marked_non_differentiable(T):
    class Sort(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            values, indices = x.sort()
            other = x * 2
            ctx.mark_non_differentiable(indices, other)
            ctx.save_for_backward(indices)
            return values, indices, other

        @staticmethod
        def backward(ctx, of_values, of_indices, of_other):
            (indices,) = ctx.saved_tensors
            seen.append((of_indices, of_other))
            return T.zeros_like(of_values).scatter(0, indices, of_values)

    seen = []
    w = leaf(T, 3)
    values, indices, other = Sort.apply(w)
    weigh(T, values).backward()
    return indices, other.requires_grad, other.is_leaf, values.requires_grad, w.grad, seen


def integer_results(T):
    class Count(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return (x * 10).long(), x * 2

        @staticmethod
        def backward(ctx, of_count, grad):
            seen.append(of_count)
            return grad * 2

    seen = []
    w = leaf(T, 3)
    n, y = Count.apply(w)
    weigh(T, y).backward()
    return n, w.grad, seen


def results_that_are_no_tensors(T):
    class Mixed(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, "text", None

        @staticmethod
        def backward(ctx, grad, *rest):
            return grad * 2

    w = leaf(T, 3)
    y, text, nothing = Mixed.apply(w)
    weigh(T, y).backward()
    return text, nothing, w.grad


def list_of_results(T):
    class Listed(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return [x * 2, x * 3]

        @staticmethod
        def backward(ctx, a, b):
            return a * 2 + b * 3

    w = leaf(T, 3)
    found = Listed.apply(w)
    return type(found)


def tensors_inside_lists_are_not_tracked(T):
    class Total(T.autograd.Function):
        @staticmethod
        def forward(ctx, tensors):
            return sum(tensors)

        @staticmethod
        def backward(ctx, grad):
            return None

    return Total.apply([leaf(T, 3), leaf(T, 3)])


def nothing_requires_grad(T):
    y = square(T).apply(plain(T, 3))
    return y, name(y)


def under_no_grad(T):
    with T.no_grad():
        return square(T).apply(leaf(T, 3))


def forward_runs_without_recording(T):
    seen = []

    class Peek(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            seen.append((T.is_grad_enabled(), y.requires_grad, x.requires_grad))
            return y

        @staticmethod
        def backward(ctx, grad):
            seen.append(T.is_grad_enabled())
            return grad * 2

    w = leaf(T, 3)
    weigh(T, Peek.apply(w)).backward()
    T.autograd.grad(weigh(T, Peek.apply(w)), w, create_graph=True)
    return seen


def recording_inside_forward(T):
    class Inner(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with T.enable_grad():
                x = x.detach().requires_grad_()
                y = x * x
            ctx.x, ctx.y = x, y
            return y.detach()

        @staticmethod
        def backward(ctx, grad):
            return T.autograd.grad(ctx.y, ctx.x, grad)

    w = leaf(T, 3)
    weigh(T, Inner.apply(w)).backward()
    return w.grad


def no_gradient_is_returned(T):
    class Stop(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return None

    w = leaf(T, 3)
    weigh(T, Stop.apply(w)).backward()
    return w.grad


def nodes_before_a_stop_still_run(T):
    seen = []

    class Stop(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return None

    class Watch(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            seen.append(grad)
            return grad

    w = leaf(T, 3)
    weigh(T, Stop.apply(Watch.apply(w))).backward()
    return seen, w.grad


def gradient_is_cast_and_summed(T):
    class Add(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, grad):
            return grad.float(), grad

    w, v = leaf(T, 2, 3), leaf(T, 3, seed=1)
    weigh(T, Add.apply(w, v)).backward()
    return w.grad, v.grad


def saved_tensors_without_backward(T):
    w = leaf(T, 3)
    y = square(T).apply(w)
    return y.grad_fn.saved_tensors[0] is w, list(y.grad_fn.saved_tensors)


def saved_none(T):
    class Keep(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, None)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            _x, nothing = ctx.saved_tensors
            seen.append(nothing)
            return grad * 2

    seen = []
    weigh(T, Keep.apply(leaf(T, 3))).backward()
    return seen


def saved_intermediate(T):
    class Keep(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            middle = x.exp()
            ctx.save_for_backward(middle)
            return middle * 2

        @staticmethod
        def backward(ctx, grad):
            (middle,) = ctx.saved_tensors
            return grad * middle * 2

    w = leaf(T, 3)
    weigh(T, Keep.apply(w)).backward()
    return w.grad


def function_of_functions(T):
    Square = square(T)
    w = leaf(T, 3)
    y = Square.apply(Square.apply(w) + w)
    weigh(T, y).backward()
    return w.grad


def hooks_on_the_node(T):
    seen = []
    w = leaf(T, 3)
    y = square(T).apply(w)
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append((list(inputs), list(outputs))))
    y.register_hook(lambda g: g * 2)
    weigh(T, y).backward()
    return seen, w.grad


def saved_hooks_apply(T):
    seen = []
    w = leaf(T, 3)
    with T.autograd.graph.saved_tensors_hooks(lambda x: (seen.append("pack"), x)[1], lambda x: (seen.append("unpack"), x)[1]):
        y = square(T).apply(w)
    weigh(T, y).backward()
    return seen, w.grad


def broadcasting_inputs_of_other_classes(T):
    class Add(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, options):
            return x + options["shift"]

        @staticmethod
        def backward(ctx, grad):
            return grad, None

    w = leaf(T, 3)
    weigh(T, Add.apply(w, {"shift": plain(T, 3)})).backward()
    return w.grad


@questions(
    forward_and_backward, double_backward, result_is_saved, saved_result_is_changed, saved_input_is_changed, attributes_on_ctx,
    fewer_gradients_than_arguments_with_defaults, setup_context, vjp_instead_of_backward, needs_input_grad, several_results,
    results_without_gradient_are_zeros, zeros_for_what_has_no_gradient, results_without_gradient_are_none, marked_non_differentiable, integer_results,
    results_that_are_no_tensors, list_of_results, tensors_inside_lists_are_not_tracked, nothing_requires_grad, under_no_grad,
    forward_runs_without_recording, recording_inside_forward, no_gradient_is_returned, nodes_before_a_stop_still_run,
    gradient_is_cast_and_summed, saved_tensors_without_backward, saved_none, saved_intermediate, function_of_functions, hooks_on_the_node,
    saved_hooks_apply, broadcasting_inputs_of_other_classes,
)  # fmt: skip
def test_functions(question):
    """forward, ctx and backward of a custom Function work as in PyTorch."""
    agree(question)


# -- inputs, views and writes ----------------------------------------------------------------------------------------------


def _function(T, body, answer=lambda ctx, *grads: grads[0]):
    """A Function with this forward and backward."""
    return type("Made", (T.autograd.Function,), {"forward": staticmethod(body), "backward": staticmethod(answer)})


def input_returned_as_it_is(T):
    w = leaf(T, 3)
    y = _function(T, lambda ctx, x: x).apply(w)
    weigh(T, y * 2).backward()
    return y is w, y, y.data_ptr() == w.data_ptr(), y._is_view(), name(y), w.grad


def input_returned_beside_a_result(T):
    w = leaf(T, 3)
    a, b = _function(T, lambda ctx, x: (x, x * 2), lambda ctx, g, h: g + 2 * h).apply(w)
    weigh(T, a, b).backward()
    return w.grad, a is w


def input_returned_twice(T):
    w = leaf(T, 3)
    a, b = _function(T, lambda ctx, x: (x, x), lambda ctx, g, h: g + 2 * h).apply(w)
    weigh(T, a * 3, b).backward()
    return w.grad


def input_without_gradient_returned(T):
    w, c = leaf(T, 3), plain(T, 3)
    y = _function(T, lambda ctx, x, c: c, lambda ctx, g: (g, None)).apply(w, c)
    weigh(T, y).backward()
    return y.requires_grad, w.grad, c.requires_grad


def returned_input_is_written(T):
    y = _function(T, lambda ctx, x: x).apply(leaf(T, 3) * 1)
    y.add_(1)


def view_returned(T):
    w = leaf(T, 2, 3)
    y = _function(T, lambda ctx, x: x.view(6), lambda ctx, g: g.view(2, 3) * 5).apply(w)
    weigh(T, y).backward()
    return y, name(y), y._is_view(), w.grad


def returned_view_is_written(T):
    y = _function(T, lambda ctx, x: x[:2], lambda ctx, g: T.cat([g, g[:1]])).apply(leaf(T, 3) * 1)
    y.add_(1)


def base_of_returned_view_is_written(T):
    w = leaf(T, 3)
    x = w * 1
    y = _function(T, lambda ctx, x: x[:2], lambda ctx, g: T.cat([g, g[:1]])).apply(x)
    x.add_(1)
    return y * 2


def view_of_nothing_that_needs_a_gradient(T):
    y = _function(T, lambda ctx, x: x[:2]).apply(plain(T, 3))
    y.add_(1)
    return y


def detached_input_returned(T):
    w = leaf(T, 3)
    y = _function(T, lambda ctx, x: x.detach()).apply(w)
    weigh(T, y * 2).backward()
    return y.requires_grad, w.grad


def _dirty(ctx, x):
    ctx.mark_dirty(x)
    return x.mul_(2)


def written_in_place(T):
    w = leaf(T, 3)
    x = w * 1
    y = _function(T, _dirty, lambda ctx, g: g * 2).apply(x)
    weigh(T, x, y).backward()
    return y is x, x, name(x), x._version, w.grad


def leaf_written_in_place(T):
    _function(T, _dirty, lambda ctx, g: g * 2).apply(leaf(T, 3))


def view_written_in_place(T):
    w = leaf(T, 4)
    x = w * 1
    v = x[1:3]
    y = _function(T, _dirty, lambda ctx, g: g * 2).apply(v)
    weigh(T, x).backward()
    return y is v, name(x), x, w.grad


def plain_written_in_place(T):
    x = plain(T, 3)
    y = _function(T, _dirty, lambda ctx, g: g * 2).apply(x)
    return y is x, x, x._version


def plain_written_with_a_gradient(T):
    def body(ctx, x, w):
        ctx.mark_dirty(x)
        return x.mul_(w)

    w, x = leaf(T, 3), plain(T, 3)
    before = x.clone()
    y = _function(T, body, lambda ctx, g: (None, g * before)).apply(x, w)
    weigh(T, y).backward()
    return y is x, x.requires_grad, w.grad


def dirty_but_not_returned(T):
    def body(ctx, x):
        ctx.mark_dirty(x)
        x.mul_(2)
        return x * 1

    y = _function(T, body).apply(leaf(T, 3) * 1)
    weigh(T, y).backward()


def dirty_beside_a_result(T):
    def body(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2), x * 3

    w = leaf(T, 3)
    x = w * 1
    a, b = _function(T, body, lambda ctx, g, h: g * 2 + h * 6).apply(x)
    weigh(T, a, b).backward()
    return w.grad


def returned_as_output_and_saved(T):
    def body(ctx, x):
        ctx.save_for_backward(x)
        return x

    w = leaf(T, 3)
    y = _function(T, body, lambda ctx, g: g * ctx.saved_tensors[0]).apply(w)
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
    weigh(T, _function(T, lambda ctx, x: x * 2, lambda ctx, g: (g, g)).apply(leaf(T, 3))).backward()


def too_many_but_none(T):
    w = leaf(T, 3)
    weigh(T, _function(T, lambda ctx, x: x * 2, lambda ctx, g: (g, None, None)).apply(w)).backward()
    return w.grad


def too_few_gradients(T):
    weigh(T, _function(T, lambda ctx, x, y: x * y).apply(leaf(T, 3), leaf(T, 3))).backward()


def gradient_for_a_number(T):
    weigh(T, _function(T, lambda ctx, x, n: x * n, lambda ctx, g: (g, g)).apply(leaf(T, 3), 2)).backward()


def gradient_for_a_constant(T):
    w = leaf(T, 3)
    weigh(T, _function(T, lambda ctx, x, c: x * c, lambda ctx, g: (g, g)).apply(w, plain(T, 3))).backward()
    return w.grad


def gradient_that_is_no_tensor(T):
    weigh(T, _function(T, lambda ctx, x: x * 2, lambda ctx, g: 2.0).apply(leaf(T, 3))).backward()


def gradient_of_wrong_shape(T):
    weigh(T, _function(T, lambda ctx, x: x * 2, lambda ctx, g: g[:2]).apply(leaf(T, 3))).backward()


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
    y = _function(T, lambda ctx, x: x * 2).apply(w).sum()
    y.backward()
    y.backward()
    return w.grad


def save_what_is_no_tensor(T):
    _function(T, lambda ctx, x: ctx.save_for_backward(3) or x * 2).apply(leaf(T, 3))


def error_in_backward(T):
    def bad(ctx, grad):
        raise KeyError("mine")

    weigh(T, _function(T, lambda ctx, x: x * 2, bad).apply(leaf(T, 3))).backward()


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


class Swap(flambeau.autograd.function.NestedIOFunction):
    def forward_extended(self, pair, factor):
        self.save_for_backward(pair, [factor])
        return {"first": pair[1] * factor, "second": (pair[0] * 2,)}

    def backward_extended(self, grads):
        (_, b), (factor,) = self.saved_tensors
        return (grads["second"][0] * 2, grads["first"] * factor), (grads["first"] * b).sum()


def test_functions_of_nested_arguments():
    """NestedIOFunction gives arguments, results, saved tensors and gradients in the containers they came in."""
    a, b, factor = (flambeau.tensor(v, requires_grad=True) for v in ([1.0, 2.0], [3.0, 4.0], 5.0))
    found = Swap.apply((a, b), factor)
    assert found["first"].tolist() == [15, 20] and found["second"][0].tolist() == [2, 4]
    (found["first"].sum() + 10 * found["second"][0].sum()).backward()
    assert (a.grad.tolist(), b.grad.tolist(), factor.grad.item()) == ([20, 20], [5, 5], 7)

    class Short(Swap):
        def backward_extended(self, grads):
            return grads["first"]

    with pytest.raises(RuntimeError, match="returned 1 gradients for 3 inputs"):
        Short.apply((a, b), factor)["first"].sum().backward()
    with pytest.raises(NotImplementedError, match="forward_extended"):
        flambeau.autograd.NestedIOFunction.apply(a)


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

    return _function(T, forward).apply(leaf(T, 3).clone())


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


def test_views_made_where_nothing_is_recorded():
    """A view that a Function made of an input without a gradient is written to, and its backward passed by."""
    apply = _function(flambeau, lambda ctx, x: x.view_as(x)).apply
    for write in (lambda view, b: view.add_(b), lambda view, b: view.copy_(b)):
        with pytest.raises(RuntimeError, match="This view was created inside a custom Function"):
            write(apply(plain(flambeau, 2)), leaf(flambeau, 2))
        write(apply(plain(flambeau, 2)), plain(flambeau, 2))


def test_saved_variables_are_called_tensors():
    """The old name of ctx.saved_tensors is read without a word."""
    w = leaf(flambeau, 2)
    with pytest.warns(DeprecationWarning, match="'saved_variables' is deprecated"):
        assert square(flambeau).apply(w).grad_fn.saved_variables[0] is w
