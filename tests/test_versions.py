"""Version counters: backward refuses a saved tensor that was written to since."""

from __future__ import annotations

import pytest
from history_oracle import agree, leaf, plain, questions, weigh

torch = pytest.importorskip("torch")


# -- version counters ------------------------------------------------------------------------------------------------------


def saved_operand_changed(T):
    w = leaf(T, 3)
    x = w * 1
    y = x * x
    x.add_(1)
    weigh(T, y).backward()


def saved_operand_changed_through_view(T):
    w = leaf(T, 3)
    x = w * 1
    y = x * x
    x[:1].add_(1)
    weigh(T, y).backward()


def saved_operand_changed_through_detached(T):
    w = leaf(T, 3)
    y = w * w
    w.detach().add_(1)
    weigh(T, y).backward()


def saved_view_changed_through_base(T):
    w = leaf(T, 3)
    x = w * 1
    y = x[:2].sin()
    x.add_(1)
    weigh(T, y).backward()


def saved_result_changed(T):
    y = leaf(T, 3).exp()
    y.add_(1)
    weigh(T, y).backward()


def unread_operand_changed(T):
    w = leaf(T, 3)
    x = w * 1
    y = x + 2
    x.mul_(5)
    weigh(T, y).backward()
    return w.grad


def operand_of_constant_factor_changed(T):
    w, c = leaf(T, 3), plain(T, 3)
    y = w * c
    w_changed = y * 1
    w_changed.mul_(2)
    weigh(T, y).backward()
    return w.grad


def constant_factor_changed(T):
    w, c = leaf(T, 3), plain(T, 3)
    y = w * c
    c.add_(1)
    weigh(T, y).backward()


def changed_under_no_grad(T):
    w = leaf(T, 3)
    y = w * w
    with T.no_grad():
        w.add_(1)
    weigh(T, y).backward()


def optimizer_step_between(T):
    w = leaf(T, 3)
    loss = weigh(T, w * w)
    loss.backward(retain_graph=True)
    with T.no_grad():
        w.sub_(w.grad)
    loss.backward()


def versions(T):
    x = plain(T, 4)
    found = [x._version]
    x.add_(1)
    v = x[:2]
    found += [x._version, v._version]
    v.mul_(2)
    d = x.detach()
    d.zero_()
    x.data.add_(1)
    x[0] = 5
    found += [x._version, v._version, d._version, x.data._version, x.clone()._version]
    T.autograd.graph.increment_version(x)
    return [*found, x._version]


@questions(
    saved_operand_changed, saved_operand_changed_through_view, saved_operand_changed_through_detached, saved_view_changed_through_base,
    saved_result_changed, unread_operand_changed, operand_of_constant_factor_changed, constant_factor_changed, changed_under_no_grad,
    optimizer_step_between, versions,
)  # fmt: skip
def test_versions(question):
    """Backward refuses to use a saved tensor that was written to, and only such."""
    agree(question)


def test_the_error_of_a_changed_tensor_says_which():
    """The message names dtype, shape, node and versions."""
    import flambeau

    y = leaf(flambeau, 3).exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*\[3\].*output 0 of Exp,.*version 1; expected version 0"):
        y.sum().backward()
