"""Hooks on tensors, leaves, nodes and saved tensors: called when, with what and in the order PyTorch calls them."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from history_oracle import agree, leaf, plain, questions, weigh

import flambeau

torch = pytest.importorskip("torch")


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


def post_accumulate_that_answers(T):
    w = leaf(T, 2)
    w.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(2))
    weigh(T, w).backward()


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
    post_accumulate, optimizer_in_backward, post_accumulate_on_inner, post_accumulate_on_constant, post_accumulate_that_answers, node_hooks, node_hooks_replace,
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


# -- contexts that a hook leaves open --------------------------------------------------------------------------------------


def context_entered_in_backward(T):
    seen = []

    def unpack(x):
        context.__enter__()
        seen.append("unpacked")
        return x

    context = T.autograd.graph.saved_tensors_hooks(lambda x: x, unpack)
    w = leaf(T, 2)
    with context:
        loss = w.sin().sum()
    loss.backward()
    w.sin().sum().backward()
    return seen, w.grad


def context_left_in_backward(T):
    seen = []

    def unpack(x):
        context.__exit__()
        return x

    context = T.autograd.graph.saved_tensors_hooks(lambda x: x, unpack)
    w = leaf(T, 2)
    context.__enter__()
    w.sin().sum().backward()
    context.__exit__()
    with T.autograd.graph.saved_tensors_hooks(lambda x: seen.append("packed") or x, lambda x: x):
        w.sin().sum().backward()
    w.sin().sum().backward()
    return seen, w.grad


@questions(context_entered_in_backward, context_left_in_backward)
def test_backward_leaves_contexts_as_it_found_them(question):
    """A context that a hook enters or leaves during backward is still so afterwards, and spoils what has nothing to do with it."""
    agree(question)


def test_hooks_on_any_of_many_in_threads():
    """A hook on any of many tensors runs more or less than once for each of the backward passes that threads run at the same time."""
    a, b = leaf(flambeau, 50), leaf(flambeau, 50, seed=1)
    counts = {"any": 0, "all": 0}
    lock = threading.Lock()

    def count(mode, *grads):
        with lock:
            counts[mode] += 1

    for mode in counts:
        flambeau.autograd.graph.register_multi_grad_hook((a, b), partial(count, mode), mode=mode)
    loss = (a * b).sum()
    threads = [threading.Thread(target=lambda: [loss.backward(retain_graph=True) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {"any": 80, "all": 80}
