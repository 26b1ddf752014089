"""Differentiation: backward, grad, accumulation, modes, hooks, checks and the graph behave as PyTorch's."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import warnings
import weakref

import numpy as np
import pytest
from history_oracle import agree, complex_leaf, leaf, name, plain, questions, weigh

import flambeau

torch = pytest.importorskip("torch")


# -- backward --------------------------------------------------------------------------------------------------------------


def twice_accumulates(T):
    w = leaf(T, 3)
    weigh(T, w * w).backward()
    first = w.grad.clone()
    weigh(T, w * w).backward()
    return first, w.grad


def zeroed_between(T):
    w = leaf(T, 3)
    weigh(T, w * w).backward()
    w.grad.zero_()
    weigh(T, w.sin()).backward()
    return w.grad


def weighted(T):
    w = leaf(T, 3)
    (w * w).backward(plain(T, 3, seed=1))
    return w.grad


def weights_broadcast_not(T):
    w = leaf(T, 2, 3)
    (w * w).backward(plain(T, 3))


def weights_of_another_dtype(T):
    w = leaf(T, 3)
    (w * w).backward(plain(T, 3).float())
    return w.grad


def weights_complex_for_real(T):
    w = leaf(T, 3)
    (w * w).backward(plain(T, 3) * 1j)


def weights_no_tensor(T):
    w = leaf(T, 3)
    (w * w).backward([1.0, 2.0, 3.0])


def not_a_scalar(T):
    leaf(T, 3).mul(2).backward()


def one_element_is_enough(T):
    w = leaf(T, 1, 1)
    (w * 3).backward()
    return w.grad


def complex_scalar(T):
    complex_leaf(T).mul(2).backward()


def nothing_recorded(T):
    plain(T).backward()


def recorded_under_no_grad(T):
    with T.no_grad():
        y = weigh(T, leaf(T, 3))
    y.backward()


def leaf_itself(T):
    w = leaf(T)
    w.backward()
    w.backward()
    return w.grad


def leaf_with_weight(T):
    w = leaf(T, 3)
    w.backward(plain(T, 3))
    return w.grad


def second_time(T):
    w = leaf(T, 3)
    y = weigh(T, w * w)
    y.backward()
    y.backward()


def second_time_retained(T):
    w = leaf(T, 3)
    y = weigh(T, w * w)
    y.backward(retain_graph=True)
    y.backward()
    return w.grad


def third_time_after_retained(T):
    w = leaf(T, 3)
    y = weigh(T, w * w)
    y.backward(retain_graph=True)
    y.backward()
    y.backward()


def shared_part_of_two_graphs(T):
    w = leaf(T, 3)
    y = w.exp()
    weigh(T, y).backward()
    weigh(T, y * 2).backward()


def several_tensors(T):
    w, v = leaf(T, 3), leaf(T, 2, seed=1)
    T.autograd.backward([weigh(T, w * w), v * v], [None, plain(T, 2)])
    return w.grad, v.grad


def several_tensors_with_common_parts(T):
    w = leaf(T, 3)
    y = w.sin()
    T.autograd.backward([weigh(T, y), weigh(T, y * y), w], [None, None, plain(T, 3)])
    return w.grad


def too_few_weights(T):
    w = leaf(T, 3)
    T.autograd.backward([w * 2, w * 3], [plain(T, 3)])


def into_chosen_leaves(T):
    w, v, u = leaf(T, 3), leaf(T, 3, seed=1), leaf(T, 3, seed=2)
    weigh(T, w * v * u).backward(inputs=[w, u])
    return w.grad, v.grad, u.grad


def into_one_leaf(T):
    w, v = leaf(T, 3), leaf(T, 3, seed=1)
    weigh(T, w * v).backward(inputs=v)
    return w.grad, v.grad


def into_an_inner_tensor(T):
    w, v = leaf(T, 3), leaf(T, 3, seed=1)
    x = w * w
    weigh(T, x.sin() * v).backward(inputs=[x, v])
    return w.grad, v.grad, x.grad, x.retains_grad


def into_nothing(T):
    weigh(T, leaf(T, 3)).backward(inputs=[])


def into_a_constant(T):
    c = plain(T, 3)
    weigh(T, leaf(T, 3) * c).backward(inputs=[c])


def diamond(T):
    w = leaf(T, 3)
    a, b = w.sin(), w.cos()
    c = a * b + a
    weigh(T, c * a, b).backward()
    return w.grad


def broadcast_operands(T):
    w, b, s, c = leaf(T, 2, 3), leaf(T, 3, seed=1), leaf(T, seed=2), leaf(T, 2, 1, seed=3)
    weigh(T, w * b + s * c).backward()
    return w.grad, b.grad, s.grad, c.grad


def mixed_dtypes(T):
    w = leaf(T, 3)
    v = plain(T, 3).float().requires_grad_()
    weigh(T, w * v).backward()
    return w.grad, v.grad


def half_precision(T):
    w = plain(T, 3).bfloat16().requires_grad_()
    v = plain(T, 3, seed=1).half().requires_grad_()
    (w * 2).sum().backward()
    (v * v).sum().backward()
    return w.grad, v.grad


def unused_output(T):
    w = leaf(T, 4, 3)
    values, _ = w.max(1)
    _a, b = values.split(2)
    weigh(T, b).backward()
    return w.grad


def one_of_several_outputs_unused(T):
    w = leaf(T, 3, 3)
    _u, s, _v = T.linalg.svd(w)
    s.sum().backward()
    return w.grad


def grad_assigned(T):
    w = leaf(T, 3)
    w.grad = plain(T, 3)
    weigh(T, w * 2).backward()
    return w.grad


def grad_deleted(T):
    w = leaf(T, 3)
    weigh(T, w * 2).backward()
    del w.grad
    return w.grad


def grad_of_wrong_shape(T):
    leaf(T, 3).grad = plain(T, 2)


def grad_of_wrong_dtype(T):
    leaf(T, 3).grad = plain(T, 3).float()


def grad_of_wrong_type(T):
    leaf(T, 3).grad = 3


def own_grad(T):
    w = leaf(T, 3)
    w.grad = w


def create_graph_keeps_history_in_grad(T):
    w = leaf(T, 3)
    weigh(T, w**3).backward(create_graph=True)
    first = w.grad
    weigh(T, first).backward()
    return first, w.grad, w.grad.requires_grad


def accumulation_keeps_the_same_tensor(T):
    w = leaf(T, 3)
    weigh(T, w * 2).backward()
    before = w.grad
    weigh(T, w * 2).backward()
    return before is w.grad, before._version


def accumulation_with_create_graph_makes_a_new_one(T):
    w = leaf(T, 3)
    weigh(T, w * 2).backward()
    before = w.grad
    weigh(T, w * w).backward(create_graph=True)
    return before is w.grad, before, w.grad


def strides_of_grad(T):
    w = plain(T, 3, 4).t().requires_grad_()
    (w * 2).sum().backward()
    v = plain(T, 3, 4)[:, ::2].requires_grad_()
    (v * v).sum().backward()
    u = plain(T, 3).expand(2, 3).requires_grad_()
    (u * u).sum().backward()
    return [x.grad.stride() for x in (w, v, u)], [x.grad for x in (w, v, u)]


def zero_elements(T):
    w = T.zeros(0, 3, dtype=T.float64).requires_grad_()
    (w.sum() + w.exp().sum()).backward()
    return w.grad


@questions(
    twice_accumulates, zeroed_between, weighted, weights_broadcast_not, weights_of_another_dtype, weights_complex_for_real,
    weights_no_tensor, not_a_scalar, one_element_is_enough, complex_scalar, nothing_recorded, recorded_under_no_grad, leaf_itself,
    leaf_with_weight, second_time, second_time_retained, third_time_after_retained, shared_part_of_two_graphs, several_tensors,
    several_tensors_with_common_parts, too_few_weights, into_chosen_leaves, into_one_leaf, into_an_inner_tensor, into_nothing,
    into_a_constant, diamond, broadcast_operands, mixed_dtypes, half_precision, unused_output, one_of_several_outputs_unused, grad_assigned,
    grad_deleted, grad_of_wrong_shape, grad_of_wrong_dtype, grad_of_wrong_type, own_grad, create_graph_keeps_history_in_grad,
    accumulation_keeps_the_same_tensor, accumulation_with_create_graph_makes_a_new_one, strides_of_grad, zero_elements,
)  # fmt: skip
def test_backward(question):
    """backward fills .grad as PyTorch does, and refuses what it refuses."""
    agree(question)


SECOND_BACKWARD = {
    "add": lambda T, x, w: x + w,
    "add a number": lambda T, x, w: x + 2,
    "multiply by a number": lambda T, x, w: x * 2,
    "multiply": lambda T, x, w: x * w,
    "divide by a number": lambda T, x, w: x / 2,
    "subtract from": lambda T, x, w: 3 - x,
    "neg": lambda T, x, w: -x,
    "exp": lambda T, x, w: x.exp(),
    "relu": lambda T, x, w: x.relu(),
    "matmul": lambda T, x, w: x @ w,
    "view": lambda T, x, w: x.view(9),
    "row": lambda T, x, w: x[0],
    "gather": lambda T, x, w: x[T.tensor([0, 1])],
    "sum": lambda T, x, w: x.sum(0),
    "mean": lambda T, x, w: x.mean(0),
    "clone": lambda T, x, w: x.clone(),
    "cat": lambda T, x, w: T.cat([x, x]),
    "where": lambda T, x, w: T.where(w > 0.5, x, w),
    "transpose": lambda T, x, w: x.t(),
    "to": lambda T, x, w: x.float(),
    "cumsum": lambda T, x, w: x.cumsum(0),
    "floor": lambda T, x, w: x.floor(),
    "softmax": lambda T, x, w: x.softmax(0),
    "tril": lambda T, x, w: x.tril(),
    "expand": lambda T, x, w: x.expand(2, 3, 3),
    "split": lambda T, x, w: x.split(2)[0],
    "sort": lambda T, x, w: x.sort()[0],
    "masked_fill": lambda T, x, w: x.masked_fill(w > 0.5, 0),
    "fill_": lambda T, x, w: (x * 1).fill_(2),
}


@pytest.mark.parametrize("op", SECOND_BACKWARD)
def test_second_backward(op):
    """A second backward is an error exactly where PyTorch had to keep a tensor."""

    def question(T):
        w = leaf(T, 3, 3)
        y = SECOND_BACKWARD[op](T, w, plain(T, 3, 3)).sum()
        y.backward()
        y.backward()
        return w.grad

    agree(question)


# -- never aliasing --------------------------------------------------------------------------------------------------------


def _grads(use):
    """All tensors that one backward leaves behind, each of which may be written to."""
    T = flambeau
    leaves = [leaf(T, 2, 3, seed=i) for i in range(4)]
    kept: list = []
    others = use(T, kept, *leaves) or []
    return [x.grad for x in leaves if x.grad is not None] + kept + others


def _given(T, kept, a, b, c, d):
    weights = T.ones(2, 3, dtype=T.float64)
    (a + b).backward(weights)
    return [weights]


def _retained(T, kept, a, b, c, d):
    x = a + b
    x.retain_grad()
    y = x.view(6)
    y.retain_grad()
    weigh(T, y * 2).backward()
    return [x.grad, y.grad]


def _kept_by_hooks(T, kept, a, b, c, d):
    a.register_hook(lambda g: kept.append(g))
    x = a + b
    x.register_hook(lambda g: kept.append(g.detach()))
    y = x * c
    y.register_hook(lambda g: kept.append(g[:1]))
    weigh(T, y - d).backward()
    kept[:] = []  # hooks may see the very tensors that flow; the leaves must still be apart from each other


def _views(T, kept, a, b, c, d):
    weigh(T, a.t() + b.t(), c.view(6), d.reshape(3, 2)).backward()


def _expanded(T, kept, a, b, c, d):
    (a + b + c.expand(4, 2, 3).sum(0) + d).sum().backward()


def _twice_the_same_leaf(T, kept, a, b, c, d):
    (a + a + b).sum().backward()


@pytest.mark.parametrize("use", [_given, _retained, _kept_by_hooks, _views, _expanded, _twice_the_same_leaf])
def test_gradients_share_no_memory(use):
    """Writing to one .grad changes no other tensor."""
    found = _grads(use)
    before = [x.detach().clone() for x in found]
    for i, x in enumerate(found):
        with flambeau.no_grad():
            x.detach().add_(1)
        for j, (y, old) in enumerate(zip(found, before, strict=True)):
            assert bool((y.detach() == old + (1 if j <= i else 0)).all()), f"writing to tensor {i} changed tensor {j}"


def test_a_gradient_nobody_else_holds_is_not_copied():
    """The memory that the last kernel wrote becomes .grad."""
    w = leaf(flambeau, 3)
    seen = []
    y = w * 2
    y.register_hook(lambda g: None)
    node = y.grad_fn
    original = node.apply
    node.apply = lambda *grads: seen.append(original(*grads)) or [seen[-1][0]]
    y.sum().backward()
    address = seen[0][0].data_ptr()
    assert w.grad.data_ptr() != address  # the test itself holds it: copied
    w.grad = None
    addresses = []
    node_again = (w * 2).grad_fn
    run = type(node_again).apply

    def watched(self, *grads):
        found = run(self, *grads)
        addresses.append(found[0].data_ptr())
        return found

    type(node_again).apply = watched
    try:
        (w * 2).sum().backward()
    finally:
        del type(node_again).apply
    assert w.grad.data_ptr() == addresses[0]


# -- grad ------------------------------------------------------------------------------------------------------------------


def grad_leaves_grad_alone(T):
    w = leaf(T, 3)
    return T.autograd.grad(weigh(T, w * w), w), w.grad


def grad_of_inner_tensor(T):
    w = leaf(T, 3)
    x = w * w
    y = x.sin()
    return T.autograd.grad(weigh(T, y), [x, y, w])


def grad_of_output_itself(T):
    w = leaf(T)
    y = w * 3
    return T.autograd.grad(y, [y, w])


def grad_of_leaf_itself(T):
    w = leaf(T)
    return T.autograd.grad(w, w)


def grad_same_input_twice(T):
    w = leaf(T, 3)
    return T.autograd.grad(weigh(T, w * w), [w, w])


def grad_several_outputs(T):
    w = leaf(T, 3)
    return T.autograd.grad([weigh(T, w * w), w.sin()], [w], [None, plain(T, 3)])


def grad_unused(T):
    w, v = leaf(T, 3), leaf(T, 3)
    return T.autograd.grad(weigh(T, w * w), [w, v])


def grad_unused_allowed(T):
    w, v = leaf(T, 3), leaf(T, 3)
    return T.autograd.grad(weigh(T, w * w), [w, v], allow_unused=True)


def grad_unused_materialized(T):
    w, v = leaf(T, 3), leaf(T, 2)
    return T.autograd.grad(weigh(T, w * w), [w, v], materialize_grads=True)


def grad_materialized_but_forbidden(T):
    w = leaf(T, 3)
    T.autograd.grad(weigh(T, w * w), [w], materialize_grads=True, allow_unused=False)


def grad_of_constant(T):
    T.autograd.grad(weigh(T, leaf(T, 3)), plain(T, 3))


def grad_of_nothing(T):
    T.autograd.grad(weigh(T, leaf(T, 3)), [])


def grad_twice_freed(T):
    w = leaf(T, 3)
    y = weigh(T, w * w)
    T.autograd.grad(y, w)
    T.autograd.grad(y, w)


def grad_twice_retained(T):
    w = leaf(T, 3)
    y = weigh(T, w * w)
    T.autograd.grad(y, w, retain_graph=True)
    return T.autograd.grad(y, w)


def grad_second_order(T):
    w = leaf(T, 3)
    (g,) = T.autograd.grad(weigh(T, w**3), w, create_graph=True)
    (h,) = T.autograd.grad(weigh(T, g), w, create_graph=True)
    (k,) = T.autograd.grad(weigh(T, h), w)
    return g, h, k


def grad_through_weights(T):
    w, v = leaf(T, 3), leaf(T, 3, seed=1)
    (g,) = T.autograd.grad(w * w, w, v, create_graph=True)
    return T.autograd.grad(weigh(T, g), [w, v])


def grad_batched(T):
    w = leaf(T, 3)
    y = w * w
    return T.autograd.grad(y, w, T.eye(3, dtype=T.float64), is_grads_batched=True)


def grad_batched_several(T):
    w, v = leaf(T, 3), leaf(T, 2)
    y, z = w.sin(), v * w[:2]
    rows = (plain(T, 4, 3), plain(T, 4, 2, seed=1))
    return T.autograd.grad([y, z], [w, v], rows, is_grads_batched=True, allow_unused=True)


def grad_runs_only_what_is_needed(T):
    calls = []
    w, v = leaf(T, 3), leaf(T, 3, seed=1)
    x, y = w * 2, v * 3
    x.register_hook(lambda g: calls.append("x"))
    y.register_hook(lambda g: calls.append("y"))
    z = x * y
    z.register_hook(lambda g: calls.append("z"))
    T.autograd.grad(weigh(T, z), w)
    return calls


def grad_sees_hooks_of_leaf(T):
    w = leaf(T, 3)
    w.register_hook(lambda g: g * 2)
    return T.autograd.grad(weigh(T, w * w), w)


def grad_sees_hooks_of_inner_tensor(T):
    w = leaf(T, 3)
    x = w * w
    x.register_hook(lambda g: g * 2)
    return T.autograd.grad(weigh(T, x * 3), [x, w])


def grad_from_gradient_edges(T):
    w = leaf(T, 3)
    x = w * w
    y = weigh(T, x.sin())
    edges = [T.autograd.graph.get_gradient_edge(t) for t in (w, x)]
    first = T.autograd.grad(y, edges, retain_graph=True)
    return first, T.autograd.grad(T.autograd.graph.get_gradient_edge(y), w)


def gradient_edge_of_constant(T):
    T.autograd.graph.get_gradient_edge(plain(T, 3))


@questions(
    grad_leaves_grad_alone, grad_of_inner_tensor, grad_of_output_itself, grad_of_leaf_itself, grad_same_input_twice, grad_several_outputs,
    grad_unused, grad_unused_allowed, grad_unused_materialized, grad_materialized_but_forbidden, grad_of_constant, grad_of_nothing,
    grad_twice_freed, grad_twice_retained, grad_second_order, grad_through_weights, grad_batched, grad_batched_several,
    grad_runs_only_what_is_needed, grad_sees_hooks_of_leaf, grad_sees_hooks_of_inner_tensor, grad_from_gradient_edges,
    gradient_edge_of_constant,
)  # fmt: skip
def test_grad(question):
    """autograd.grad returns what PyTorch returns."""
    agree(question)


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


# -- modes -----------------------------------------------------------------------------------------------------------------


def no_grad_nested(T):
    seen = [T.is_grad_enabled()]
    with T.no_grad():
        seen.append(T.is_grad_enabled())
        with T.enable_grad():
            seen.append((leaf(T, 3) * 2).requires_grad)
            with T.set_grad_enabled(False):
                seen.append((leaf(T, 3) * 2).requires_grad)
            seen.append(T.is_grad_enabled())
        seen.append((leaf(T, 3) * 2).requires_grad)
    return [*seen, T.is_grad_enabled()]


def no_grad_after_error(T):
    try:
        with T.no_grad():
            raise KeyError
    except KeyError:
        return T.is_grad_enabled()


def set_grad_enabled_as_function(T):
    T.set_grad_enabled(False)
    try:
        return T.is_grad_enabled(), repr(T.set_grad_enabled(True))[-28:]
    finally:
        T.set_grad_enabled(True)


def set_grad_enabled_wrong(T):
    T.set_grad_enabled("yes")


def decorators(T):
    @T.no_grad()
    def off(x):
        """doc"""
        return x * 2

    @T.no_grad
    def off_too(x):
        return x * 2

    @T.enable_grad()
    def on(x):
        return x * 2

    @T.set_grad_enabled(False)
    def off_again(x):
        return x * 2

    @T.inference_mode()
    def inferred(x):
        return x * 2

    @T.inference_mode
    def inferred_too(x):
        return x * 2

    w = leaf(T, 3)
    with T.no_grad():
        inside = on(w).requires_grad
    found = [f(w).requires_grad for f in (off, off_too, on, off_again, inferred, inferred_too)]
    return found, inside, off.__name__, off.__doc__, inferred(w).is_inference(), T.is_grad_enabled()


def decorated_method(T):
    class Model:
        @T.no_grad()
        def run(self, x):
            return x * 2

    return Model().run(leaf(T, 3))


def decorated_generator(T):
    @T.no_grad()
    def rows():
        got = yield T.is_grad_enabled()
        try:
            yield got, T.is_grad_enabled()
        except KeyError:
            yield "caught", T.is_grad_enabled()
        return 5

    def outer():
        result = yield from rows()
        yield result

    generator = outer()
    seen = [next(generator), T.is_grad_enabled(), generator.send("sent"), T.is_grad_enabled()]
    seen += [generator.throw(KeyError()), T.is_grad_enabled(), next(generator)]
    return seen


def generator_closed(T):
    seen = []

    @T.no_grad()
    def rows():
        try:
            yield 1
        finally:
            seen.append(T.is_grad_enabled())

    generator = rows()
    next(generator)
    generator.close()
    return seen, T.is_grad_enabled()


def other_threads_record(T):
    seen = []
    with T.no_grad():
        thread = threading.Thread(target=lambda: seen.append((T.is_grad_enabled(), (leaf(T, 3) * 2).requires_grad)))
        thread.start()
        thread.join()
    return seen


def inference_tensors(T):
    w = leaf(T, 3)
    y = w * 2
    with T.inference_mode():
        a, b = plain(T, 3), w * 2
        view, detached_ = y[:2], w.detach()
        inner = T.is_inference_mode_enabled(), T.is_grad_enabled()
        with T.inference_mode(False):
            outer = T.is_inference_mode_enabled(), T.is_grad_enabled(), plain(T, 3).is_inference(), (a * 2).is_inference()
        y.add_(1)
    tensors = (a, b, view, detached_, a[:2], a.clone(), a.exp(), a.detach(), a.contiguous())
    return [t.is_inference() for t in tensors], [t.requires_grad for t in tensors], inner, outer, y._version, name(y), view.is_leaf


def inference_tensor_saved(T):
    with T.inference_mode():
        a = plain(T, 3)
    return leaf(T, 3) * a


def inference_tensor_not_saved(T):
    with T.inference_mode():
        a = plain(T, 3)
    return leaf(T, 3) + a


def inference_tensor_written(T):
    with T.inference_mode():
        a = plain(T, 3)
        a.add_(1)
    a.add_(1)


def inference_tensor_written_through_view(T):
    with T.inference_mode():
        a = plain(T, 3)
    a[:2].add_(1)


def inference_tensor_requires_grad(T):
    with T.inference_mode():
        a = plain(T, 3)
    a.requires_grad_()


def inference_tensor_version(T):
    with T.inference_mode():
        a = plain(T, 3)
    return a._version


def inference_tensor_as_out(T):
    with T.inference_mode():
        a = plain(T, 3)
    T.add(plain(T, 3), 1, out=a)


def inference_tensor_as_leaf_inside(T):
    with T.inference_mode():
        b = T.ones(3, requires_grad=True)
        return b.requires_grad, b.is_inference(), (b * 2).requires_grad


def inference_view_written_outside(T):
    y = leaf(T, 3) * 2
    with T.inference_mode():
        v = y[:2]
    v.add_(1)


def inference_tensor_copied_from(T):
    with T.inference_mode():
        a = plain(T, 3)
    y = leaf(T, 3) * 2
    y.copy_(a)
    return y, name(y)


def inference_tensor_backward(T):
    with T.inference_mode():
        y = weigh(T, leaf(T, 3))
    y.backward()


@questions(
    no_grad_nested, no_grad_after_error, set_grad_enabled_as_function, set_grad_enabled_wrong, decorators, decorated_method,
    decorated_generator, generator_closed, other_threads_record, inference_tensors, inference_tensor_saved, inference_tensor_not_saved,
    inference_tensor_written, inference_tensor_written_through_view, inference_tensor_requires_grad, inference_tensor_version,
    inference_tensor_as_out, inference_tensor_as_leaf_inside, inference_view_written_outside, inference_tensor_copied_from,
    inference_tensor_backward,
)  # fmt: skip
def test_modes(question):
    """no_grad, enable_grad, set_grad_enabled and inference_mode hold where PyTorch's do: as contexts, decorators, in generators and threads."""
    agree(question)


def test_decorating_a_class_warns():
    """A mode around a class holds while objects are created, which is rarely meant."""
    with pytest.warns(FutureWarning, match="Decorating classes"):

        @flambeau.no_grad()
        class Thing:
            def __init__(self):
                self.enabled = flambeau.is_grad_enabled()

    assert not Thing().enabled


# -- hooks -----------------------------------------------------------------------------------------------------------------


def hooks_in_order(T):
    seen = []
    w = leaf(T, 2)
    w.register_hook(lambda g: seen.append(("first", g)))
    w.register_hook(lambda g: g * 2)
    w.register_hook(lambda g: seen.append(("third", g)))
    weigh(T, w * 3).backward()
    return seen, w.grad


def hook_removed(T):
    w = leaf(T, 2)
    first = w.register_hook(lambda g: g * 2)
    w.register_hook(lambda g: g + 1)
    first.remove()
    first.remove()
    weigh(T, w * 3).backward()
    return w.grad


def hook_in_a_with(T):
    w = leaf(T, 2)
    with w.register_hook(lambda g: g * 2):
        weigh(T, w * 3).backward()
    weigh(T, w * 3).backward()
    return w.grad


def hook_removes_itself(T):
    w = leaf(T, 2)
    calls = []

    def once(g):
        calls.append(1)
        handle.remove()

    handle = w.register_hook(once)
    for _ in range(3):
        weigh(T, w * 3).backward()
    return calls


def hook_of_inner(T):
    w = leaf(T, 2)
    x = w * 3
    x.register_hook(lambda g: g.clamp(max=1.0))
    weigh(T, x * x).backward()
    return w.grad


def hook_sees_the_sum(T):
    seen = []
    w = leaf(T, 2)
    w.register_hook(lambda g: seen.append(g))
    weigh(T, w * 2, w.sin(), w).backward()
    return seen


def hook_of_unused_output(T):
    seen = []
    a, b = (leaf(T, 4) * 2).split(2)
    a.register_hook(lambda g: seen.append("a"))
    b.register_hook(lambda g: seen.append("b"))
    weigh(T, b).backward()
    return seen


def hook_on_constant(T):
    plain(T, 2).register_hook(print)


def hook_returns_wrong_type(T):
    w = leaf(T, 2)
    w.register_hook(lambda g: 3)
    weigh(T, w * 3).backward()


def hook_returns_wrong_shape(T):
    w = leaf(T, 2)
    w.register_hook(lambda g: g[:1])
    weigh(T, w * 3).backward()


def hook_returns_wrong_dtype(T):
    w = leaf(T, 2)
    w.register_hook(lambda g: g.float())
    weigh(T, w * 3).backward()


def hook_raises(T):
    w = leaf(T, 2)

    def bad(g):
        raise KeyError("mine")

    w.register_hook(bad)
    weigh(T, w * 3).backward()


def hook_under_create_graph(T):
    w = leaf(T, 2)
    w.register_hook(lambda g: g * w)
    weigh(T, w**3).backward(create_graph=True)
    first = w.grad
    (h,) = T.autograd.grad(weigh(T, first), w)
    return first, h


def post_accumulate(T):
    seen = []
    w = leaf(T, 2)
    w.register_post_accumulate_grad_hook(lambda p: seen.append((p is w, p.grad.clone())))
    weigh(T, w * 2, w.sin()).backward()
    weigh(T, w).backward()
    return seen


def optimizer_in_backward(T):
    w, v = leaf(T, 2), leaf(T, 2, seed=1)

    def step(p):
        with T.no_grad():
            p.sub_(0.1 * p.grad)
        p.grad = None

    for p in (w, v):
        p.register_post_accumulate_grad_hook(step)
    weigh(T, w + v).backward()
    return w, v, w.grad, v.grad


def post_accumulate_on_inner(T):
    (leaf(T, 2) * 2).register_post_accumulate_grad_hook(print)


def post_accumulate_on_constant(T):
    plain(T, 2).register_post_accumulate_grad_hook(print)


def node_hooks(T):
    seen = []
    w = leaf(T, 2)
    x = w * 3
    x.grad_fn.register_prehook(lambda grads: seen.append(("pre", list(grads))))
    x.grad_fn.register_hook(lambda inputs, outputs: seen.append(("post", list(inputs), list(outputs))))
    weigh(T, x).backward()
    return seen


def node_hooks_replace(T):
    w = leaf(T, 2)
    x = w * 3
    x.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
    x.grad_fn.register_hook(lambda inputs, outputs: tuple(None if g is None else g + 1 for g in inputs))
    weigh(T, x).backward()
    return w.grad


def node_hooks_see_fitted_gradients(T):
    seen = []
    b = leaf(T, 3)
    x = plain(T, 2, 3) + b
    x.grad_fn.register_hook(lambda inputs, outputs: seen.append([None if g is None else tuple(g.shape) for g in inputs]))
    weigh(T, x).backward()
    return seen


def accumulator_hooks(T):
    seen = []
    w = leaf(T, 2)
    x = w * 3
    node = x.grad_fn.next_functions[0][0]
    node.register_prehook(lambda grads: (grads[0] * 2,))
    node.register_hook(lambda inputs, outputs: seen.append((len(inputs), outputs[0], w.grad.clone())))
    weigh(T, x).backward()
    return seen, w.grad, node.variable is w, node.name(), node is x.grad_fn.next_functions[0][0]


def order_of_all_hooks(T):
    seen = []
    w = leaf(T, 2)
    x = w * 3
    node = x.grad_fn.next_functions[0][0]
    node.register_hook(lambda i, o: seen.append("accumulator after"))
    w.register_post_accumulate_grad_hook(lambda p: seen.append("post accumulate"))
    node.register_prehook(lambda g: seen.append("accumulator before"))
    w.register_hook(lambda g: seen.append("leaf"))
    x.grad_fn.register_hook(lambda i, o: seen.append("node after"))
    x.grad_fn.register_prehook(lambda g: seen.append("node before"))
    x.register_hook(lambda g: seen.append("tensor"))
    weigh(T, x).backward()
    return seen


def leaf_hook_runs_early(T):
    seen = []
    w, v = leaf(T, 2), leaf(T, 2, seed=1)
    x = w * 3
    x.register_hook(lambda g: seen.append("x"))
    y = x * v
    v.register_hook(lambda g: seen.append("v"))
    w.register_hook(lambda g: seen.append("w"))
    weigh(T, y).backward()
    return seen


def multi_hook_all(T):
    seen = []
    ts = [leaf(T, 2, seed=i) for i in range(3)]
    handle = T.autograd.graph.register_multi_grad_hook(ts, lambda grads: seen.append(list(grads)))
    weigh(T, ts[0] * ts[1] * ts[2]).backward()
    weigh(T, ts[0] * ts[1]).backward()
    weigh(T, ts[0] * ts[1] * ts[2]).backward()
    handle.remove()
    weigh(T, ts[0] * ts[1] * ts[2]).backward()
    return seen


def multi_hook_any(T):
    seen = []
    ts = [leaf(T, 2, seed=i) for i in range(3)]
    T.autograd.graph.register_multi_grad_hook(ts, lambda grad: seen.append(tuple(grad.shape)), mode="any")
    weigh(T, ts[0] * ts[1] * ts[2]).backward()
    weigh(T, ts[2] * 2).backward()
    return seen


def multi_hook_bad_mode(T):
    T.autograd.graph.register_multi_grad_hook([leaf(T, 2)], print, mode="some")


@questions(
    hooks_in_order, hook_removed, hook_in_a_with, hook_removes_itself, hook_of_inner, hook_sees_the_sum, hook_of_unused_output,
    hook_on_constant, hook_returns_wrong_type, hook_returns_wrong_shape, hook_returns_wrong_dtype, hook_raises, hook_under_create_graph,
    post_accumulate, optimizer_in_backward, post_accumulate_on_inner, post_accumulate_on_constant, node_hooks, node_hooks_replace,
    node_hooks_see_fitted_gradients, accumulator_hooks, order_of_all_hooks, leaf_hook_runs_early, multi_hook_all, multi_hook_any,
    multi_hook_bad_mode,
)  # fmt: skip
def test_hooks(question):
    """Hooks on tensors, leaves and nodes are called when, with what and in the order PyTorch calls them."""
    agree(question)


# -- saved tensors ---------------------------------------------------------------------------------------------------------


def saved_hooks(T):
    seen = []

    def pack(x):
        seen.append(("pack", x.detach().clone(), x is w))
        return x.detach().clone() * 1

    def unpack(x):
        seen.append(("unpack", x))
        return x

    w = leaf(T, 2)
    with T.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = (w * w).exp()
    weigh(T, y).backward()
    return seen, w.grad


def saved_hooks_innermost(T):
    seen = []
    w = leaf(T, 2)

    def hooks(tag):
        return T.autograd.graph.saved_tensors_hooks(
            lambda x: (seen.append(f"pack {tag}"), x)[1], lambda x: (seen.append(f"unpack {tag}"), x)[1]
        )

    with hooks("outer"):
        x = w.sin()
        with hooks("inner"):
            y = x.exp()
        z = y.cos()
    weigh(T, z).backward()
    return seen, w.grad


def saved_hooks_second_derivative(T):
    w = leaf(T, 2)
    with T.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x):
        y = weigh(T, (w**3).exp() * w)
        (g,) = T.autograd.grad(y, w, create_graph=True)
    (h,) = T.autograd.grad(weigh(T, g), w)
    return g, h


def saved_hooks_to_list(T):
    w = leaf(T, 2)
    with T.autograd.graph.saved_tensors_hooks(lambda x: x.tolist(), lambda x: T.tensor(x, dtype=T.float64)):
        y = w.sin() * w
    weigh(T, y).backward()
    return w.grad


def saved_hooks_wrong_type(T):
    w = leaf(T, 2)
    with T.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: 3):
        y = w.sin()
    weigh(T, y).backward()


def saved_hooks_write(T):
    w = leaf(T, 2)
    with T.autograd.graph.saved_tensors_hooks(lambda x: x.mul_(2), lambda x: x):
        w.sin()


def saved_on_cpu(T):
    w = leaf(T, 2)
    with T.autograd.graph.save_on_cpu(pin_memory=False):
        y = w.sin() * w
    weigh(T, y).backward()
    return w.grad


def saved_hooks_disabled(T):
    with T.autograd.graph.disable_saved_tensors_hooks("not here"):
        weigh(T, leaf(T, 2).sin()).backward()
        with T.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
            pass


def mutation_allowed(T):
    w = leaf(T, 2)
    with T.autograd.graph.allow_mutation_on_saved_tensors():
        x = w * 1
        y = x * x
        x.add_(1)
        weigh(T, y).backward()
    return w.grad


def saved_attributes(T):
    w, v = leaf(T, 2), leaf(T, 2, seed=1)
    return (w * v).grad_fn._saved_self, (w * v).grad_fn._saved_other, w.exp().grad_fn._saved_result, w.sin().grad_fn._saved_self is w


def saved_attribute_freed(T):
    y = leaf(T, 2).sin()
    weigh(T, y).backward()
    return y.grad_fn._saved_self


def saved_attribute_unknown(T):
    return leaf(T, 2).sin().grad_fn._saved_nothing


def raw_saved_hooks(T):
    w = leaf(T, 2)
    y = w.sin()
    y.grad_fn._raw_saved_self.register_hooks(lambda x: x.clone(), lambda x: x * 2)
    weigh(T, y).backward()
    return w.grad


@questions(
    saved_hooks, saved_hooks_innermost, saved_hooks_second_derivative, saved_hooks_to_list, saved_hooks_wrong_type, saved_hooks_write,
    saved_on_cpu, saved_hooks_disabled, mutation_allowed, saved_attributes, saved_attribute_freed, saved_attribute_unknown, raw_saved_hooks,
)  # fmt: skip
def test_saved_tensors(question):
    """Tensors saved for backward can be packed, unpacked and looked at as in PyTorch."""
    agree(question)


# -- the graph -------------------------------------------------------------------------------------------------------------


def _structure(node, depth: int = 3):
    """A node as nested tuples of names."""
    if node is None:
        return None
    return node.name(), [(_structure(n, depth - 1), nr) for n, nr in node.next_functions] if depth else []


GRAPHS = {
    "add": lambda T, w, v: w + v,
    "add with alpha": lambda T, w, v: T.add(w, v, alpha=2),
    "add a number": lambda T, w, v: w + 1,
    "sub": lambda T, w, v: w - v,
    "mul": lambda T, w, v: w * v,
    "mul by a number": lambda T, w, v: w * 3,
    "div": lambda T, w, v: w / v,
    "pow of a number": lambda T, w, v: w**2,
    "pow of a tensor": lambda T, w, v: w**v,
    "neg": lambda T, w, v: -w,
    "matmul": lambda T, w, v: w @ v,
    "matmul of a vector": lambda T, w, v: w @ v[0],
    "dot": lambda T, w, v: w[0] @ v[0],
    "bmm": lambda T, w, v: T.bmm(w[None], v[None]),
    "linear": lambda T, w, v: w.t() @ v + v[0],
    "addmm": lambda T, w, v: T.addmm(w, w, v),
    "exp": lambda T, w, v: w.exp(),
    "log": lambda T, w, v: w.log(),
    "sqrt": lambda T, w, v: w.sqrt(),
    "sin": lambda T, w, v: w.sin(),
    "sigmoid": lambda T, w, v: w.sigmoid(),
    "tanh": lambda T, w, v: w.tanh(),
    "relu": lambda T, w, v: w.relu(),
    "abs": lambda T, w, v: w.abs(),
    "sum": lambda T, w, v: w.sum(),
    "sum over a dimension": lambda T, w, v: w.sum(0),
    "mean": lambda T, w, v: w.mean(),
    "mean over a dimension": lambda T, w, v: w.mean(1),
    "max": lambda T, w, v: w.max(),
    "max over a dimension": lambda T, w, v: w.max(1)[0],
    "var": lambda T, w, v: w.var(),
    "std": lambda T, w, v: w.std(),
    "softmax": lambda T, w, v: w.softmax(0),
    "log_softmax": lambda T, w, v: w.log_softmax(0),
    "logsumexp": lambda T, w, v: w.logsumexp(0),
    "prod": lambda T, w, v: w.prod(),
    "cumsum": lambda T, w, v: w.cumsum(0),
    "norm": lambda T, w, v: w.norm(),
    "view": lambda T, w, v: w.view(9),
    "reshape": lambda T, w, v: w.reshape(9),
    "reshape that copies": lambda T, w, v: w.t().reshape(9),
    "flatten": lambda T, w, v: w.flatten(),
    "t": lambda T, w, v: w.t(),
    "T": lambda T, w, v: w.T,
    "mT": lambda T, w, v: w.mT,
    "transpose": lambda T, w, v: w.transpose(0, 1),
    "permute": lambda T, w, v: w.permute(1, 0),
    "squeeze": lambda T, w, v: w[None].squeeze(0),
    "unsqueeze": lambda T, w, v: w.unsqueeze(0),
    "expand": lambda T, w, v: w.expand(2, 3, 3),
    "repeat": lambda T, w, v: w.repeat(2, 1),
    "row": lambda T, w, v: w[0],
    "slice": lambda T, w, v: w[:2],
    "gather by list": lambda T, w, v: w[[0, 1]],
    "mask": lambda T, w, v: w[v > 0.5],
    "index_select": lambda T, w, v: w.index_select(0, T.tensor([0])),
    "gather": lambda T, w, v: w.gather(0, T.tensor([[0, 1, 2]])),
    "cat": lambda T, w, v: T.cat([w, v]),
    "stack": lambda T, w, v: T.stack([w, v]),
    "split": lambda T, w, v: w.split(2)[0],
    "chunk": lambda T, w, v: w.chunk(2)[0],
    "unbind": lambda T, w, v: w.unbind()[0],
    "where": lambda T, w, v: T.where(w > v, w, v),
    "tril": lambda T, w, v: w.tril(),
    "diagonal": lambda T, w, v: w.diagonal(),
    "clone": lambda T, w, v: w.clone(),
    "contiguous": lambda T, w, v: w.t().contiguous(),
    "to": lambda T, w, v: w.float(),
    "maximum": lambda T, w, v: T.maximum(w, v),
    "floor": lambda T, w, v: w.floor(),
    "mul_": lambda T, w, v: (w * 1).mul_(v),
    "write to a row": lambda T, w, v: _row_written(w, v),
    "det": lambda T, w, v: T.linalg.det(w),
    "inverse": lambda T, w, v: T.linalg.inv(w),
    "topk": lambda T, w, v: w.topk(2)[0],
    "sort": lambda T, w, v: w.sort()[0],
    "flip": lambda T, w, v: w.flip(0),
    "roll": lambda T, w, v: w.roll(1),
    "detach in between": lambda T, w, v: w.detach() * v,
    "same operand twice": lambda T, w, v: w * w,
}


def _row_written(w, v):
    x = w * 1
    x[0] = v[0]
    return x


@pytest.mark.parametrize("op", GRAPHS)
def test_graph_has_pytorchs_names(op):
    """grad_fn and next_functions of common operations name what PyTorch's name."""
    agree(lambda T: _structure(GRAPHS[op](T, leaf(T, 3, 3), leaf(T, 3, 3, seed=1)).grad_fn))


def test_repr_of_history():
    """A tensor shows its grad_fn, or that it requires a gradient."""
    agree(lambda T: [repr(leaf(T, 2)), repr(leaf(T, 2) * 2), repr((leaf(T, 2, 2) * 1)[0])])


def test_node_as_an_object():
    """A node can be called, carries metadata, and its accumulators know their leaf."""

    def question(T):
        w, v = leaf(T, 3), leaf(T, 2, 3, seed=1)
        y = w * v
        node = y.grad_fn
        node.metadata["mine"] = 5
        found = node(plain(T, 2, 3))
        node.next_functions[0][0](plain(T, 3))
        return [g.detach() for g in found], y.grad_fn.metadata, w.grad, node is y.grad_fn, isinstance(node, T.autograd.graph.Node)

    agree(question)


@pytest.mark.parametrize("length", [100_000])
def test_long_chains(length):
    """Forward, backward and deallocation of a hundred thousand operations need no deep stack."""
    w = leaf(flambeau, 1)
    x = w
    for _ in range(length):
        x = x + 1
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(200)
    try:
        x.backward()
        assert w.grad.tolist() == [1.0]
        reference = weakref.ref(x.grad_fn)
        del x
        gc.collect()
        assert reference() is None
    finally:
        sys.setrecursionlimit(limit)


def test_wide_and_long_chain_of_views_and_writes():
    """A thousand writes through views of one base keep their gradients, without recursion."""
    w = leaf(flambeau, 4)
    x = w * 1
    for i in range(1000):
        x[i % 4 : i % 4 + 1].mul_(1.001)
    x.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), np.full(4, 1.001**250))


def test_memory_is_released_as_backward_goes():
    """When backward reaches the beginning, what the end had saved is gone."""
    T = flambeau
    w = leaf(T, 3)
    kept, alive = [], []
    x = w.sin()
    x.register_hook(lambda g: alive.extend(r() is not None for r in kept))
    y = x.clone()
    for _ in range(3):
        z = y.clone()
        kept.append(weakref.ref(z))
        y = z.exp()
        y = y * z
        del z
    total = y.sum()
    del y
    total.backward()
    assert alive == [False, False, False]


def test_memory_is_kept_with_retain_graph():
    """With retain_graph everything stays."""
    T = flambeau
    x = leaf(T, 3).clone()
    z = x.clone()
    reference = weakref.ref(z)
    total = (z * z).sum()
    del z
    total.backward(retain_graph=True)
    assert reference() is not None
    total.backward()
    assert reference() is None


def test_no_cycles_wait_for_the_garbage_collector():
    """A graph disappears with its last reference, even where operations have saved their results."""
    gc.disable()
    try:
        w = leaf(flambeau, 3)
        y = (w.exp().tanh().sigmoid() * w).softmax(0).sum()
        reference = weakref.ref(y.grad_fn)
        del y
        assert reference() is None
    finally:
        gc.enable()


def test_backward_from_several_threads():
    """Threads that run backward into the same leaf lose no gradient."""
    w = leaf(flambeau, 64)

    def work():
        for _ in range(50):
            (w * 1).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert w.grad.tolist() == [200.0] * 64


def test_backward_inside_backward():
    """A hook may run another backward, also through the same graph."""

    def question(T):
        w = leaf(T, 3)
        seen = []

        def again(g):
            v = leaf(T, 3, seed=1)
            with T.enable_grad():
                weigh(T, v * v).backward()
            seen.append((v.grad, T.is_grad_enabled()))

        x = w * w
        x.register_hook(again)
        weigh(T, x).backward()
        return seen, w.grad, T.is_grad_enabled()

    agree(question)


# -- anomaly mode ----------------------------------------------------------------------------------------------------------


def _sqrt_of_negative(w):
    return (w - 10).sqrt()  # this line makes the NaN


def test_anomaly_mode_names_the_forward_line():
    """The warning shows the line of the program that recorded the failing node."""
    w = leaf(flambeau, 3)
    with pytest.warns(UserWarning) as caught, flambeau.autograd.detect_anomaly():
        y = _sqrt_of_negative(w).sum()
        with pytest.raises(RuntimeError, match=r"Function 'SqrtBackward0' returned nan values in its 0th output"):
            y.backward()
    text = "\n".join(str(c.message) for c in caught)
    assert "Anomaly Detection has been enabled" in text
    assert "Error detected in SqrtBackward0" in text
    lines = text.rstrip().splitlines()
    assert "this line makes the NaN" in lines[-1], "the user's line comes last, without the framework's own frames"


def test_anomaly_mode_names_both_passes():
    """A failure in a second derivative shows the forward line and the backward call that made its node."""
    T = flambeau
    w = T.zeros(1, dtype=T.float64).requires_grad_()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with T.autograd.detect_anomaly():
            y = (w**1.5).sum()
            (g,) = T.autograd.grad(y, w, create_graph=True)
            z = (g * 0).sum()
            with pytest.raises(RuntimeError, match="nan"):
                z.backward()
    text = "\n".join(str(c.message) for c in caught)
    assert "was induced by" in text


def anomaly_without_forward(T):
    w = leaf(T, 3)
    y = (w - 10).sqrt().sum()
    with T.autograd.detect_anomaly():
        y.backward()


def anomaly_without_nan_check(T):
    w = leaf(T, 3)
    with T.autograd.detect_anomaly(check_nan=False):
        (w - 10).sqrt().sum().backward()
    return w.grad


def anomaly_states(T):
    seen = [T.is_anomaly_enabled()]
    with T.autograd.set_detect_anomaly(True):
        seen += [T.is_anomaly_enabled(), T.is_anomaly_check_nan_enabled()]
        with T.autograd.set_detect_anomaly(False, check_nan=False):
            seen += [T.is_anomaly_enabled(), T.is_anomaly_check_nan_enabled()]
        seen.append(T.is_anomaly_enabled())
    T.autograd.set_detect_anomaly(True)
    seen.append(T.is_anomaly_enabled())
    T.autograd.set_detect_anomaly(False)
    return [*seen, T.is_anomaly_enabled()]


@questions(anomaly_without_forward, anomaly_without_nan_check, anomaly_states)
def test_anomaly_mode(question):
    """Anomaly mode raises and is switched as PyTorch's."""
    agree(question)
