"""Functions of the user's own: what forward may return and save, what backward may answer, as in PyTorch."""

from __future__ import annotations

import pytest
from custom_functions import square
from history_oracle import agree, leaf, name, plain, questions, weigh

import flambeau

torch = pytest.importorskip("torch")


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


def test_saved_variables_are_called_tensors():
    """The old name of ctx.saved_tensors is read without a word."""
    w = leaf(flambeau, 2)
    with pytest.warns(DeprecationWarning, match="'saved_variables' is deprecated"):
        assert square(flambeau).apply(w).grad_fn.saved_variables[0] is w
