"""Views and in-place writes: values, gradients, histories and refusals are PyTorch's, in every combination people write."""

from __future__ import annotations

import numpy as np
import pytest
from history_oracle import agree, complex_leaf, leaf, name, plain, questions, weigh

import flambeau

torch = pytest.importorskip("torch")


# -- writing through views -------------------------------------------------------------------------------------------------


def write_to_a_row(T):
    w = leaf(T, 3, 4)
    x = w * 2
    x[1].mul_(3)
    weigh(T, x).backward()
    return x, w.grad


def write_to_a_row_with_a_tensor(T):
    w, v = leaf(T, 3, 4), leaf(T, 4, seed=1)
    x = w * 2
    x[1].mul_(v)
    weigh(T, x).backward()
    return x, w.grad, v.grad


def view_of_view_of_view(T):
    w, v = leaf(T, 4, 6), leaf(T, 3, seed=1)
    x = w.exp()
    part = x.view(2, 2, 6).transpose(0, 1)[1].narrow(1, 1, 3)
    part.mul_(v)
    weigh(T, x, part).backward()
    return x, part, name(x), w.grad, v.grad


def overlapping_siblings(T):
    w = leaf(T, 6)
    x = w * 1
    a, b = x[:4], x[2:]
    a.mul_(2)
    b.add_(a[:1].expand(4))
    c = a * b
    weigh(T, x, a, b, c).backward()
    return x, a, b, w.grad


def base_written_then_view_used(T):
    w = leaf(T, 5)
    x = w * 2
    v = x[1:4]
    before = name(v)
    x.sin_()
    after = name(v)
    weigh(T, v).backward()
    return before, after, v, w.grad


def view_written_then_base_used(T):
    w = leaf(T, 5)
    x = w * 2
    v = x[1:4]
    v.exp_()
    weigh(T, x).backward()
    return name(v), name(x), x, w.grad


def view_and_base_written_by_turns(T):
    w = leaf(T, 2, 3)
    x = w + 0
    v = x.t()
    v.mul_(2)
    x.add_(1)
    v[0].pow_(3)
    x.mul_(v.t())
    weigh(T, x, v).backward()
    return x, v, w.grad


def copy_into_view(T):
    w, s = leaf(T, 3, 3), leaf(T, 3, seed=2)
    x = w * 1
    x[:, 1].copy_(s * 2)
    weigh(T, x).backward()
    return name(x), x, w.grad, s.grad


def copy_into_view_of_a_plain_tensor(T):
    s = leaf(T, 3, seed=2)
    x = T.zeros(3, 3, dtype=T.float64)
    x[1].copy_(s)
    weigh(T, x * x).backward()
    return name(x), x.requires_grad, x.is_leaf, s.grad


def copy_into_whole_plain_tensor(T):
    s = leaf(T, 3, seed=2)
    x = T.zeros(2, 3, dtype=T.float64)
    x.copy_(s)
    weigh(T, x * x).backward()
    return name(x), x.requires_grad, s.grad


def copy_converts(T):
    s = leaf(T, 3, seed=2)
    x = T.zeros(2, 3, dtype=T.float32)
    x.copy_(s)
    (x * x).sum().backward()
    return x, s.grad


def view_made_before_base_got_history(T):
    s = leaf(T, 3)
    x = T.zeros(3, 3, dtype=T.float64)
    row = x[1]
    x.add_(s)
    return row.requires_grad, name(row), row


def write_view_before_base_got_history(T):
    s = leaf(T, 3)
    x = T.zeros(3, 3, dtype=T.float64)
    row = x[1]
    row.add_(s)
    weigh(T, x, row).backward()
    return name(row), x.requires_grad, s.grad


def assign_items(T):
    w = leaf(T, 4)
    x = T.zeros(4, 4, dtype=T.float64)
    for i in range(4):
        x[i, i] = w[i] * i
    x[0] = w
    x[:, 3] = 2.5
    weigh(T, x).backward()
    return x, w.grad


def assign_with_mask_and_indices(T):
    w, v = leaf(T, 4, 3), leaf(T, 2, seed=3)
    x = w * 1
    x[x > 1] = 0.0
    x[T.tensor([0, 2]), T.tensor([1, 2])] = v
    weigh(T, x * x).backward()
    return x, w.grad, v.grad


def augmented_item(T):
    w = leaf(T, 4)
    x = w * 1
    x[1:3] += w[:2]
    x[0] *= 3
    x[::2] -= 1
    weigh(T, x).backward()
    return x, w.grad


def detached_view_is_written(T):
    w = leaf(T, 4)
    x = w * 2
    x.detach()[1:3].zero_()
    weigh(T, x).backward()
    return x, w.grad


def no_grad_write_through_view(T):
    w = leaf(T, 4)
    x = w * 2
    v = x[1:3]
    with T.no_grad():
        v.zero_()
    weigh(T, x).backward()
    return x, name(v), w.grad


def no_grad_write_to_leaf(T):
    w = leaf(T, 4)
    with T.no_grad():
        w.mul_(3)
        w[1:] = 0
    weigh(T, w).backward()
    return w, w.is_leaf, w._version, w.grad


def data_write(T):
    w = leaf(T, 4)
    y = w * w
    w.data.zero_()
    weigh(T, y).backward()
    return w, w._version, w.grad


def data_exchanged(T):
    w = leaf(T, 4)
    y = w * w
    w.data = T.ones(4, dtype=T.float64)
    weigh(T, y).backward()
    return w, w.grad


def diagonal_written(T):
    w = leaf(T, 3, 3)
    x = w * 1
    x.diagonal().mul_(2)
    T.diagonal(x, 1).zero_()
    weigh(T, x).backward()
    return x, w.grad


def transposed_written(T):
    w = leaf(T, 3, 2)
    x = (w * 1).t()
    x += T.arange(6.0, dtype=T.float64).reshape(2, 3)
    x.t().mul_(2)
    weigh(T, x).backward()
    return x, w.grad


def real_and_imag_written(T):
    z = complex_leaf(T, 3)
    x = z * 1
    x.real.mul_(2)
    x.imag.copy_(x.real)
    T.view_as_real(x)[0].zero_()
    weigh(T, x).backward()
    return x, z.grad


def complex_view_of_pairs_written(T):
    w = leaf(T, 3, 2)
    x = w * 1
    T.view_as_complex(x).mul_(1j)
    weigh(T, x).backward()
    return x, w.grad


def unfolded_read_after_write(T):
    w = leaf(T, 6)
    x = w * 1
    windows = x.unfold(0, 3, 1)
    x.mul_(2)
    weigh(T, windows).backward()
    return windows, w.grad


def expanded_read_after_write(T):
    w = leaf(T, 3)
    x = w * 1
    e = x.expand(2, 3)
    x[1] = 5.0
    weigh(T, e).backward()
    return e, w.grad


def squeeze_and_unsqueeze_in_place(T):
    w = leaf(T, 1, 3)
    x = w * 1
    x.squeeze_(0).unsqueeze_(1)
    x.mul_(2)
    weigh(T, x).backward()
    return x, w.grad


def transpose_in_place(T):
    w = leaf(T, 2, 3)
    x = w * 1
    x.transpose_(0, 1)
    x[0].mul_(3)
    x.t_()
    weigh(T, x).backward()
    return x, w.grad


def fill_and_zero_through_view(T):
    w, f = leaf(T, 4), leaf(T)
    x = w * 1
    x[:2].fill_(3.0)
    x[3:].zero_()
    x[2:3].fill_(f)
    weigh(T, x).backward()
    return x, w.grad, f.grad


def masked_fill_through_view(T):
    w = leaf(T, 4, 3)
    x = w * 1
    x[1:].masked_fill_(T.tensor([True, False, True]), 7.0)
    weigh(T, x).backward()
    return x, w.grad


def index_add_through_view(T):
    w, s = leaf(T, 4, 3), leaf(T, 2, 3, seed=1)
    x = w * 1
    x[1:].index_add_(0, T.tensor([0, 2]), s)
    weigh(T, x).backward()
    return x, w.grad, s.grad


def scatter_through_view(T):
    w, s = leaf(T, 3, 3), leaf(T, 2, 3, seed=1)
    x = w * 1
    x.t().scatter_(0, T.tensor([[0, 1, 2], [1, 2, 0]]), s)
    weigh(T, x).backward()
    return x, w.grad, s.grad


def write_while_source_is_part_of_base(T):
    w = leaf(T, 4)
    x = w * 1
    x[:2].mul_(x[2:])
    x[2:] = x[:2] * 2
    weigh(T, x).backward()
    return x, w.grad


def self_times_self(T):
    w = leaf(T, 4)
    x = w * 1
    x.mul_(x)
    x[1:].mul_(x[1:])
    weigh(T, x).backward()
    return x, w.grad


def reshape_copies_and_write_stays_apart(T):
    w = leaf(T, 2, 3)
    x = w * 1
    y = x.t().reshape(6)
    y.mul_(2)
    weigh(T, x, y).backward()
    return y._is_view(), x, y, w.grad


def contiguous_of_contiguous_is_itself(T):
    w = leaf(T, 2, 3)
    x = w * 1
    x.contiguous().mul_(2)
    weigh(T, x).backward()
    return x, w.grad


def second_derivative_through_view_write(T):
    w, v = leaf(T, 3), leaf(T, 2, seed=4)
    x = w * w
    x[1:].mul_(v * v)
    (g,) = T.autograd.grad(weigh(T, x.sin()), w, create_graph=True)
    weigh(T, g).backward()
    return g.detach(), w.grad, v.grad


def gradients_of_base_and_view_apart(T):
    w = leaf(T, 4)
    x = w * 1
    v = x[1:3]
    v.mul_(2)
    return T.autograd.grad(weigh(T, v), [x, v, w], allow_unused=True)


def gradient_with_respect_to_view_of_leaf(T):
    w = leaf(T, 4)
    v = w[1:3]
    return T.autograd.grad(weigh(T, v * v), [v]), T.autograd.grad(weigh(T, w * w), [v], allow_unused=True)


def retained_gradient_follows_write(T):
    w = leaf(T, 3)
    x = w * 2
    x.retain_grad()
    x.mul_(3)
    weigh(T, x).backward()
    return x.grad, x.retains_grad, w.grad


def retained_gradient_follows_write_to_view(T):
    w = leaf(T, 3)
    x = w * 2
    x.retain_grad()
    x[1:].mul_(3)
    weigh(T, x).backward()
    return x.grad, w.grad


def hook_stays_with_old_value(T):
    seen = []
    w = leaf(T, 3)
    x = w * 2
    x.register_hook(lambda g: seen.append(("old", g)))
    x.mul_(3)
    x.register_hook(lambda g: seen.append(("new", g)))
    weigh(T, x).backward()
    return seen


@questions(
    write_to_a_row, write_to_a_row_with_a_tensor, view_of_view_of_view, overlapping_siblings, base_written_then_view_used,
    view_written_then_base_used, view_and_base_written_by_turns, copy_into_view, copy_into_view_of_a_plain_tensor,
    copy_into_whole_plain_tensor, copy_converts, view_made_before_base_got_history, write_view_before_base_got_history, assign_items,
    assign_with_mask_and_indices, augmented_item, detached_view_is_written, no_grad_write_through_view, no_grad_write_to_leaf, data_write,
    data_exchanged, diagonal_written, transposed_written, real_and_imag_written, complex_view_of_pairs_written, unfolded_read_after_write,
    expanded_read_after_write, squeeze_and_unsqueeze_in_place, transpose_in_place, fill_and_zero_through_view, masked_fill_through_view,
    index_add_through_view, scatter_through_view, write_while_source_is_part_of_base, self_times_self, reshape_copies_and_write_stays_apart,
    contiguous_of_contiguous_is_itself, second_derivative_through_view_write, gradients_of_base_and_view_apart,
    gradient_with_respect_to_view_of_leaf, retained_gradient_follows_write, retained_gradient_follows_write_to_view,
    hook_stays_with_old_value,
)  # fmt: skip
def test_writes_through_views(question):
    """A write through a view changes its base and everything that looks at it, in value and in gradient."""
    agree(question)


# -- in-place forms --------------------------------------------------------------------------------------------------------


UNARY = """abs acos asin atan ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 floor frac lgamma log log10 log1p log2 neg reciprocal relu
round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc sinc logit nan_to_num deg2rad i0""".split()


BINARY = """add sub mul div pow remainder fmod atan2 hypot xlogy copysign""".split()


def _written(T, x, w, write):
    """Values and gradients of a write to x, which came from w, and to part of it."""
    write(x)
    weigh(T, x).backward()
    return x, name(x), w.grad


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("where", ["whole", "view"])
def test_unary_in_place(op, where):
    """x.op_() has the derivative at what x was before the write."""

    def question(T):
        w = T.tensor(np.linspace(0.1, 0.9, 6).reshape(2, 3)).requires_grad_()
        x = w * 1
        getattr(x if where == "whole" else x[1], f"{op}_")()
        weigh(T, x).backward()
        return x, w.grad

    agree(question)


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("where", ["whole", "view"])
@pytest.mark.parametrize("needs", ["both", "self", "other", "number"])
def test_binary_in_place(op, where, needs):
    """x.op_(y) has the derivatives at what x was before the write, whoever needs them."""

    def question(T):
        w, y = plain(T, 2, 3), plain(T, 3, seed=5)
        if needs != "other":
            w.requires_grad_()
        if needs in ("both", "other"):
            y.requires_grad_()
        x = w * 1
        getattr(x if where == "whole" else x[1], f"{op}_")(1.7 if needs == "number" else y)
        weigh(T, x).backward()
        return x, w.grad, y.grad

    agree(question)


@questions(
    lambda T, x, y: x.add_(y, alpha=3),
    lambda T, x, y: x.sub_(y, alpha=2),
    lambda T, x, y: x.addcmul_(y, y, value=2),
    lambda T, x, y: x.addcdiv_(x, y, value=2),
    lambda T, x, y: x.lerp_(y, 0.3),
    lambda T, x, y: x.lerp_(y, x * 0 + 0.3),
    lambda T, x, y: x.clamp_(0.5, 1.0),
    lambda T, x, y: x.clamp_(min=y),
    lambda T, x, y: x.pow_(2),
    lambda T, x, y: x.pow_(0),
    lambda T, x, y: x.pow_(y),
    lambda T, x, y: x.masked_fill_(y > 0.7, 2.0),
    lambda T, x, y: x.masked_scatter_(y > 0.7, y * 2),
    lambda T, x, y: x.index_fill_(1, T.tensor([0]), 2.0),
    lambda T, x, y: x.index_copy_(1, T.tensor([1]), y[:1].expand(2, 1)),
    lambda T, x, y: x.index_put_((T.tensor([0, 1]), T.tensor([1, 1])), y[:2], accumulate=True),
    lambda T, x, y: x.scatter_add_(0, T.tensor([[0, 1, 0]]), y[None]),
    lambda T, x, y: x.tril_(),
    lambda T, x, y: x.cumsum_(1),
    lambda T, x, y: x.cumprod_(1),
    lambda T, x, y: T.relu_(x),
    lambda T, x, y: T.sigmoid_(x),
    lambda T, x, y: x.zero_(),
    lambda T, x, y: x.fill_(2.0),
    lambda T, x, y: x.copy_(y),
    lambda T, x, y: x.div_(y, rounding_mode="floor"),
    lambda T, x, y: x.addmm_(x[:, :2] * 1, x[:2] * 1),
    lambda T, x, y: x.baddbmm_(x, x) if x.dim() == 3 else x.add_(1),
    lambda T, x, y: x.renorm_(2, 0, 0.5),
    lambda T, x, y: x.mul_(2).add_(y).sigmoid_().mul_(x),
)
def test_in_place_forms_with_arguments(question):
    """In-place operations with arguments have the gradients of their out-of-place forms."""

    def asked(T):
        w, y = leaf(T, 2, 3), leaf(T, 3, seed=6)
        x = w * 1
        question(T, x, y)
        weigh(T, x).backward()
        return x, w.grad, y.grad

    agree(asked)


def test_copying_a_number():
    """copy_ takes a number too, in any dtype, and what was there gets no gradient."""
    for value in (3, 2.7, True):
        for dtype in ("float32", "int32", "bool"):
            found = [t.ones(2, 2, dtype=getattr(t, dtype)).copy_(value).tolist() for t in (flambeau, torch)]
            assert found[0] == found[1]
    x = flambeau.ones(2, requires_grad=True)
    (x * 2).copy_(5.0).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]


def test_views_asked_for_again():
    """A view, a copy or the tensor itself: the second call gives what the first one gave, with a history of its own."""

    def asked(T):
        w = leaf(T, 3, 4)
        x, found = w * 1, []
        for _ in range(2):
            turned = x.t()
            found += [turned.reshape(12), turned.reshape(12)._is_view(), x.flatten(1) is x, x.flatten(), x.reshape(2, -1), turned.t()]
            found += [x.view(size=(6, 2)), x.unsqueeze(dim=1), x.squeeze(0), x.expand(2, -1, -1), x.chunk(2, 1)]
            with T.no_grad():
                found += [x.view(12), x.flatten(1) is x]
        weigh(T, *[v for v in found if isinstance(v, T.Tensor)]).backward()
        return [list(v) if isinstance(v, tuple) else v for v in found], w.grad

    agree(asked)


def test_sizes_are_torchs():
    """x.shape is the same kind of tuple every time, whatever the tensor is made of."""
    for x in (flambeau.ones(2, 3), flambeau.ones(3, 2).t(), flambeau.ones(2, 3, device="meta"), flambeau.ones(2, 3).to_sparse()):
        for shape in (x.shape, x.shape, x.size()):
            assert type(shape) is flambeau.Size and shape == (2, 3) and [type(n) for n in shape] == [int, int]


@pytest.mark.parametrize("name", ["eq_", "ne_", "lt_", "ge_", "floor_", "sign_"])
def test_writes_without_a_derivative_end_the_history(name):
    """What was written over by an operation without a derivative still sends gradients to what it was."""

    def question(T):
        w, other = leaf(T, 3, 4), plain(T, 3, 4, seed=1)
        x, y = w * 2, w * 3

        def written(t, *row):
            return getattr(t, name)() if name in ("floor_", "sign_") else getattr(t, name)(other[row])

        written(x)
        written(y[0], 0)
        weigh(T, x * w, y).backward()
        return x, y, w.grad

    agree(question)


@pytest.mark.parametrize("name, below, above", [("elu", (-1.0,), (1.0,)), ("leaky_relu", (-0.5,), (0.0,)), ("celu", (-1.0,), (1.0,))])
def test_negative_slopes_in_place(name, below, above):
    """The in-place form with a negative slope has a gradient, where PyTorch refuses to tell one; or one with another slope is refused."""
    for T in (torch, flambeau):
        call = getattr(T.nn.functional, name)
        w = leaf(T, 3)
        weigh(T, call(w - 0.6, *below)).backward()
        weigh(T, call(w - 0.6, *above, inplace=True)).backward()
        written = call(w - 0.6, *below, inplace=True)
        with pytest.raises(RuntimeError, match=r"In-place .* backward calculation is triggered with a negative slope"):
            weigh(T, written).backward()
