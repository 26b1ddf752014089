"""Differentiation: backward and grad fill, return and refuse what PyTorch does; leaves are its leaves."""

from __future__ import annotations

import pytest
from history_oracle import agree, complex_leaf, leaf, plain, questions, weigh

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


def grad_of_inner_tensor_leaves_its_own_history(T):
    w = leaf(T, 3)
    x = w * w
    first = T.autograd.grad(weigh(T, x.sin()), x)
    weigh(T, x).backward()
    return first, w.grad


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
    grad_leaves_grad_alone, grad_of_inner_tensor, grad_of_inner_tensor_leaves_its_own_history, grad_of_output_itself, grad_of_leaf_itself, grad_same_input_twice, grad_several_outputs,
    grad_unused, grad_unused_allowed, grad_unused_materialized, grad_materialized_but_forbidden, grad_of_constant, grad_of_nothing,
    grad_twice_freed, grad_twice_retained, grad_second_order, grad_through_weights, grad_batched, grad_batched_several,
    grad_runs_only_what_is_needed, grad_sees_hooks_of_leaf, grad_sees_hooks_of_inner_tensor, grad_from_gradient_edges,
    gradient_edge_of_constant,
)  # fmt: skip
def test_grad(question):
    """autograd.grad returns what PyTorch returns."""
    agree(question)


class _Silent(flambeau.autograd.Function):
    """A function that sends nothing back."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return None


def test_a_node_of_several_results_that_receives_nothing_sends_nothing():
    """Its derivative looked for the first gradient, and found none."""
    x = flambeau.ones(2, 2, requires_grad=True)
    loss = _Silent.apply(x.unbind(0)[0]).sum() + x.sum()
    assert flambeau.equal(flambeau.autograd.grad(loss, x, retain_graph=True)[0], flambeau.ones(2, 2))
    loss.backward()
    assert flambeau.equal(x.grad, flambeau.ones(2, 2))
