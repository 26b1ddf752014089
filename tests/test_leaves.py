"""Leaves: what their gradients are, and who may change what of them, as in PyTorch."""

from __future__ import annotations

import copy
import pickle

import pytest
from history_oracle import agree, leaf, name, plain, questions, weigh

import flambeau

torch = pytest.importorskip("torch")


# -- leaves ----------------------------------------------------------------------------------------------------------------


def requires_grad_of_integers(T):
    T.ones(3, dtype=T.int64).requires_grad_()


def requires_grad_of_integers_at_birth(T):
    T.ones(3, dtype=T.int64, requires_grad=True)


def requires_grad_set_as_attribute(T):
    x = plain(T, 3)
    x.requires_grad = True
    return x, x.is_leaf


def requires_grad_off_for_leaf(T):
    return leaf(T, 3).requires_grad_(False)


def requires_grad_off_for_inner(T):
    (leaf(T, 3) * 2).requires_grad_(False)


def requires_grad_on_for_inner(T):
    x = leaf(T, 3) * 2
    return x.requires_grad_() is x


def requires_grad_of_complex(T):
    return T.ones(2, dtype=T.complex64).requires_grad_()


def who_is_a_leaf(T):
    w = leaf(T, 3)
    x = w * 2
    with T.no_grad():
        y = w * 2
    return [t.is_leaf for t in (w, x, y, plain(T, 3), w.detach(), w[0], x.detach().requires_grad_())]


def detached(T):
    w = leaf(T, 3)
    d = w.detach()
    d.zero_()
    return d, w, d._is_view(), d.is_leaf


def detached_in_place(T):
    w = leaf(T, 3)
    x = w * 2
    y = x.detach_()
    return y is x, x, x.is_leaf, x.grad_fn


def detached_in_place_mid_graph(T):
    w = leaf(T, 3)
    x = w * 2
    y = x * 3
    x.detach_()
    weigh(T, y).backward()
    return w.grad


def retained(T):
    w = leaf(T, 3)
    x = w * w
    x.retain_grad()
    x.retain_grad()
    weigh(T, x.sin()).backward()
    return x.grad, x.retains_grad, w.grad


def retained_twice_accumulates(T):
    w = leaf(T, 3)
    x = w * w
    x.retain_grad()
    y = weigh(T, x.sin())
    y.backward(retain_graph=True)
    y.backward()
    return x.grad


def retained_leaf(T):
    w = leaf(T, 3)
    w.retain_grad()
    return w.retains_grad


def retained_constant(T):
    plain(T, 3).retain_grad()


def retained_after_hook(T):
    w = leaf(T, 3)
    x = w * w
    x.retain_grad()
    x.register_hook(lambda g: g * 2)
    weigh(T, x).backward()
    return x.grad, w.grad


def grad_of_inner_is_none(T):
    w = leaf(T, 3)
    x = w * w
    weigh(T, x).backward()
    return x.grad


def pickled_leaf(T):
    w = leaf(T, 3)
    weigh(T, w * w).backward()
    again = pickle.loads(pickle.dumps(w))
    return again, again.grad, again.is_leaf


def deep_copied_leaf(T):
    w = leaf(T, 3)
    weigh(T, w * w).backward()
    again = copy.deepcopy(w)
    again.grad.zero_()
    return again, again.grad, w.grad


def shallow_copied_leaf(T):
    w = leaf(T, 3)
    again = copy.copy(w)
    return again, again.is_leaf


def deep_copied_inner(T):
    copy.deepcopy(leaf(T, 3) * 2)


def deep_copied_inner_detached(T):
    return copy.deepcopy((leaf(T, 3) * 2).detach())


def item_of_grad(T):
    return leaf(T).item(), leaf(T, 3).tolist()


def numpy_of_grad(T):
    leaf(T, 3).numpy()


def numpy_of_detached(T):
    return leaf(T, 3).detach().numpy().tolist()


def new_tensor_has_no_history(T):
    w = leaf(T, 3)
    return w.new_zeros(2), T.zeros_like(w), T.zeros_like(w, requires_grad=True), w.clone().detach()


def tensor_of_tensor(T):
    return T.tensor(leaf(T, 3)), T.as_tensor(leaf(T, 3))


def to_keeps_history(T):
    w = leaf(T, 3)
    x = w.to(T.float32).to(T.float64)
    weigh(T, x * x).backward()
    return w.grad, name(w.float()), w.to(T.float64) is w


def integers_cut_history(T):
    w = leaf(T, 3)
    return (w * 10).long(), w > 0.5, w.argmax(), (w * 10).int().double()


@questions(
    requires_grad_of_integers, requires_grad_of_integers_at_birth, requires_grad_set_as_attribute, requires_grad_off_for_leaf,
    requires_grad_off_for_inner, requires_grad_on_for_inner, requires_grad_of_complex, who_is_a_leaf, detached, detached_in_place,
    detached_in_place_mid_graph, retained, retained_twice_accumulates, retained_leaf, retained_constant, retained_after_hook,
    grad_of_inner_is_none, pickled_leaf, deep_copied_leaf, shallow_copied_leaf, deep_copied_inner, deep_copied_inner_detached, item_of_grad,
    numpy_of_grad, numpy_of_detached, new_tensor_has_no_history, tensor_of_tensor, to_keeps_history, integers_cut_history,
)  # fmt: skip
def test_leaves(question):
    """What is a leaf, what requires a gradient, what keeps one: as PyTorch says."""
    agree(question)


def test_grad_of_an_inner_tensor_warns():
    """Asking for the .grad of a tensor that will never have one says how to get it."""
    x = leaf(flambeau, 3) * 2
    with pytest.warns(UserWarning, match="retain_grad"):
        assert x.grad is None


def test_gradients_of_leaves_without_data():
    """Backward on the meta device gives the leaves gradients without data, with their shapes and dtypes."""
    weight = flambeau.ones(3, 2, device="meta", requires_grad=True)
    bias = flambeau.ones(3, device="meta", dtype=flambeau.float64, requires_grad=True)
    for _ in range(2):
        (flambeau.nn.functional.linear(flambeau.ones(4, 2, device="meta"), weight).double() + bias).sum().backward()
    assert (weight.grad.device.type, weight.grad.shape, weight.grad.dtype) == ("meta", (3, 2), flambeau.float32)
    assert (bias.grad.device.type, bias.grad.shape, bias.grad.dtype) == ("meta", (3,), flambeau.float64)
