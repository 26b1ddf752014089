"""Which in-place writes are refused, and with which words: where PyTorch refuses them, and nowhere else."""

from __future__ import annotations

import pytest
from history_oracle import agree, leaf, name, plain, questions, weigh

import flambeau

torch = pytest.importorskip("torch")


# -- what is refused -------------------------------------------------------------------------------------------------------


def leaf_written(T):
    leaf(T, 3).add_(1)


def leaf_item_assigned(T):
    leaf(T, 3)[0] = 1


def view_of_leaf_written(T):
    leaf(T, 3)[:2].add_(1)


def view_of_view_of_leaf_written(T):
    leaf(T, 3, 2).t()[0].add_(1)


def leaf_written_by_another(T):
    T.ones(3, dtype=T.float64).requires_grad_().mul_(leaf(T, 3))


def detached_leaf_written(T):
    w = leaf(T, 3)
    w.detach().add_(1)
    return w


def view_of_leaf_made_under_no_grad_written(T):
    w = leaf(T, 3)
    with T.no_grad():
        v = w[:2]
    v.add_(1)


def view_made_under_no_grad(T):
    w = leaf(T, 3)
    x = w * 2
    with T.no_grad():
        v = x[:2]
    return v.requires_grad, v.is_leaf, v._is_view()


def view_made_under_no_grad_written(T):
    x = leaf(T, 3) * 2
    with T.no_grad():
        v = x[:2]
    v.mul_(2)


def view_made_under_no_grad_written_under_no_grad(T):
    x = leaf(T, 3) * 2
    with T.no_grad():
        v = x[:2]
        v.mul_(2)
    return x


def plain_view_made_under_no_grad_written_with_grad(T):
    x = plain(T, 3)
    with T.no_grad():
        v = x[:2]
    v.mul_(leaf(T, 2))


def plain_view_made_under_no_grad_written_plainly(T):
    x = plain(T, 3)
    with T.no_grad():
        v = x[:2]
    v.mul_(2)
    return x


def _split_written(T, make, value=2):
    x = leaf(T, 4, 3) * 2
    make(x)[0].mul_(value)
    return x


def split_written(T):
    _split_written(T, lambda x: x.split(2))


def chunk_written(T):
    _split_written(T, lambda x: x.chunk(2))


def unbind_written(T):
    _split_written(T, lambda x: x.unbind(0))


def tensor_split_written(T):
    return _split_written(T, lambda x: x.tensor_split(2))


def hsplit_written(T):
    return _split_written(T, lambda x: x.hsplit(3))


def iterated_written(T):
    for row in leaf(T, 2, 2) * 1:
        row.add_(1)


def view_of_split_written(T):
    x = leaf(T, 4, 3) * 2
    x.split(2)[0][0].mul_(2)


def split_of_plain_written_plainly(T):
    x = plain(T, 4, 3)
    x.split(2)[0].mul_(2)
    return x


def split_of_plain_written_with_grad(T):
    x = plain(T, 4, 3)
    x.split(2)[0].mul_(leaf(T, 3))
    return x


def split_written_under_no_grad(T):
    x = leaf(T, 4, 3) * 2
    with T.no_grad():
        x.split(2)[0].mul_(2)
    return x


def split_made_before_written_under_no_grad(T):
    x = leaf(T, 4, 3) * 2
    first = x.split(2)[0]
    with T.no_grad():
        first.mul_(2)
    return x


def base_of_split_written(T):
    w = leaf(T, 4, 3)
    x = w * 2
    a, b = x.split(2)
    x.mul_(3)
    weigh(T, a * b).backward()
    return w.grad, name(a)


def unsafe_split_written(T):
    w = leaf(T, 4, 3)
    a, b = (w * 2).unsafe_split(2)
    a.mul_(2)
    weigh(T, a, b).backward()
    return w.grad


def unsafe_split_written_with_another(T):
    w = leaf(T, 4, 3)
    a, b = (w * 2).unsafe_split(2)
    a.mul_(b)
    weigh(T, a, b).backward()
    return w.grad, b._version


def expanded_written(T):
    plain(T, 3).expand(2, 3).add_(1)


def expanded_row_written(T):
    plain(T, 3).expand(2, 3)[:, 0].add_(1)


def expanded_item_written(T):
    x = plain(T, 3)
    x.expand(2, 3)[0, 0] = 9
    return x


def expanded_filled(T):
    x = plain(T, 3)
    x.expand(2, 3).fill_(1)
    return x


def expanded_zeroed(T):
    x = plain(T, 3)
    x.expand(2, 3).zero_()
    return x


def expanded_copied_into(T):
    plain(T, 3).expand(2, 3).copy_(plain(T, 2, 3))


def expanded_slice_assigned(T):
    plain(T, 3).expand(2, 3)[0:1] = plain(T, 3)


def partial_overlap(T):
    x = plain(T, 5)
    x[1:].add_(x[:-1])
    return x


def grown_in_place(T):
    plain(T, 3).add_(plain(T, 2, 3))


def int_written_with_float(T):
    T.arange(3).add_(1.5)


def int_written_with_grad(T):
    x = T.zeros(3, dtype=T.int64)
    x.copy_(leaf(T, 3))
    return x.requires_grad, x


def detach_view_in_place(T):
    (leaf(T, 3) * 2)[:2].detach_()


def detach_what_was_saved(T):
    x = leaf(T, 3).clone()
    y = x.sin()
    x.detach_()
    weigh(T, y).backward()


def detach_a_saved_result(T):
    w = leaf(T, 3)
    x = w.clone()
    y = x.exp()
    y.detach_()
    z = y.requires_grad_().sin()
    weigh(T, z).backward()
    return y.grad, w.grad


def detach_plain_view_in_place(T):
    v = plain(T, 3)[:2]
    return v.detach_()._is_view()


def detach_view_of_leaf_in_place(T):
    leaf(T, 3)[:2].detach_()


def requires_grad_of_view_of_plain(T):
    x = plain(T, 3)
    v = x[:2]
    v.requires_grad_()
    return v.requires_grad, v.is_leaf, x.requires_grad


def requires_grad_of_view_then_base_written(T):
    x = plain(T, 3)
    v = x[:2]
    v.requires_grad_()
    x.mul_(2)
    return v, v.is_leaf, x.requires_grad


def requires_grad_of_view_then_written(T):
    v = plain(T, 3)[:2]
    v.requires_grad_()
    v.mul_(2)


def switch_off_requires_grad_of_view(T):
    v = leaf(T, 3)[:2]
    v.requires_grad_(False)


def data_of_view_written(T):
    w = leaf(T, 3)
    w[:2].data.zero_()
    return w


def resize_of_grad(T):
    leaf(T, 3).resize_(4)


def set_data_of_another_dtype(T):
    w = leaf(T, 3)
    w.data = T.zeros(3, dtype=T.int64)


def out_with_grad(T):
    T.add(leaf(T, 3), 1, out=T.empty(3, dtype=T.float64))


def out_needs_grad(T):
    T.add(plain(T, 3), 1, out=leaf(T, 3))


def out_under_no_grad(T):
    out = leaf(T, 3)
    with T.no_grad():
        T.add(plain(T, 3), 1, out=out)
    return out


def out_is_a_view(T):
    x = T.zeros(2, 3, dtype=T.float64)
    T.mul(plain(T, 3), 2, out=x[1])
    return x


@questions(
    leaf_written, leaf_item_assigned, view_of_leaf_written, view_of_view_of_leaf_written, leaf_written_by_another, detached_leaf_written,
    view_of_leaf_made_under_no_grad_written, view_made_under_no_grad, view_made_under_no_grad_written,
    view_made_under_no_grad_written_under_no_grad, plain_view_made_under_no_grad_written_with_grad,
    plain_view_made_under_no_grad_written_plainly, split_written, chunk_written, unbind_written, tensor_split_written, hsplit_written,
    iterated_written, view_of_split_written, split_of_plain_written_plainly, split_of_plain_written_with_grad, split_written_under_no_grad,
    split_made_before_written_under_no_grad, base_of_split_written, unsafe_split_written, unsafe_split_written_with_another, expanded_written, expanded_row_written,
    expanded_item_written, expanded_filled, expanded_zeroed, expanded_copied_into, expanded_slice_assigned, partial_overlap, grown_in_place,
    int_written_with_float, int_written_with_grad, detach_view_in_place, detach_what_was_saved, detach_a_saved_result, detach_plain_view_in_place, detach_view_of_leaf_in_place,
    requires_grad_of_view_of_plain, requires_grad_of_view_then_base_written, requires_grad_of_view_then_written,
    switch_off_requires_grad_of_view, data_of_view_written, resize_of_grad, set_data_of_another_dtype, out_with_grad, out_needs_grad,
    out_under_no_grad, out_is_a_view,
)  # fmt: skip
def test_what_may_be_written(question):
    """A write that would lose a gradient, or hit one element twice, is refused where PyTorch refuses it, and nowhere else."""
    agree(question)


# -- the words of refusals, which programs match ---------------------------------------------------------------------------


def _view_made(T, how):
    x = leaf(T, 4) * 1
    if how == "multi":
        return x, x.unbind()[0]
    if how == "view of a view":
        with T.no_grad():
            part = x[:3]
        return x, part[:2]
    with T.no_grad() if how == "no_grad" else T.inference_mode():
        return x, x[:2]


WORDS = {
    "multi": "Output 0 of Unbind is a view and .* modified inplace. This view is the output of a function that returns multiple views",
    "view of a view": "Output 0 of Slice is a view of a view which was created in no_grad mode and .* modified inplace",
    "no_grad": "A view was created in no_grad mode and .* modified inplace with grad mode enabled.*inside the no_grad block",
    "inference": "A view was created in inference mode and .* modified inplace in normal mode.*inside the inference_mode block",
}


@pytest.mark.parametrize("T", (torch, flambeau), ids=("torch", "flambeau"))
@pytest.mark.parametrize("how", WORDS)
def test_words_of_refused_writes(T, how):
    """A write through a view that cannot be recorded is refused with other words than those programs know from PyTorch."""
    _, view = _view_made(T, how)
    with pytest.raises(RuntimeError, match=WORDS[how]):
        view.mul_(2)
    base, view = _view_made(T, how)
    with pytest.raises(RuntimeError, match=WORDS[how]):
        base.mul_(2)
        view.grad_fn  # noqa: B018
