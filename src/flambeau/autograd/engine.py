"""Backward: gradients flow from the roots to the leaves, each node once, the latest recorded first.

A loop, not a recursion: `dependencies` counts how many gradients a node will receive, a heap ordered by sequence number holds the nodes
that have received all of theirs. The gradient of each output waits in `buffers[node]`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from flambeau.autograd import modes
from flambeau.autograd.node import LEAF, Node


def run_backward(
    roots: Sequence[tuple],
    grads: Sequence[Any],
    *,
    keep_graph: bool,
    create_graph: bool,
    capture: Sequence[tuple] | None = None,
    accumulate_into: set[int] | None = None,
) -> list[Any] | None:
    """Send `grads` into the edges `roots`.

    Without `capture`, gradients are added to the leaves (only to those whose ids are in `accumulate_into`, if given). With it, the
    gradients that arrive at those edges are returned instead, and the leaves are left alone.
    """
    before = modes.state.grad
    modes.set_grad(create_graph)
    try:
        return _Task(keep_graph, create_graph, capture, accumulate_into).run(roots, grads)
    finally:
        modes.set_grad(before)


class _Task:
    def __init__(self, keep_graph, create_graph, capture, accumulate_into):
        self.keep_graph, self.create_graph = keep_graph, create_graph
        self.accumulate_into = accumulate_into
        self.wanted = None if capture is None else {_key(edge): i for i, edge in enumerate(capture)}
        self.captured = None if capture is None else [None] * len(capture)
        self.dependencies: dict[Any, int] = {}  # node or leaf -> gradients still to come
        self.buffers: dict[Node, list] = {}
        self.leaves: dict[int, Any] = {}  # id of a leaf -> its gradient so far
        self.ready: list[tuple[int, int, Node]] = []
        self.queued: set[Node] = set()
        self.needed: set | None = None

    def run(self, roots, grads):
        self.count(roots)
        if self.wanted is not None or self.accumulate_into is not None:
            self.needed = self.mark_needed(roots)
        for edge, grad in zip(roots, grads, strict=True):
            self.receive(edge, grad)
        for target, nr in roots:
            if not self.dependencies.get(target):
                self.deliver(target) if nr == LEAF else self.push(target)
        while self.ready:
            self.step(heapq.heappop(self.ready)[2])
        return self.captured

    def count(self, roots) -> None:
        """How many gradients each node and leaf will receive from nodes (those of the roots are delivered at once)."""
        dependencies, seen = self.dependencies, set()
        stack = [target for target, nr in roots if nr != LEAF]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            for edge in node.edges:
                if edge is not None:
                    target = edge[0]
                    dependencies[target] = dependencies.get(target, 0) + 1
                    if edge[1] != LEAF and target not in seen:
                        stack.append(target)

    def mark_needed(self, roots) -> set:
        """The nodes on a path to something wanted: only these run. Depth first without recursion."""
        order, seen = [], set()
        stack = [(target, False) for target, nr in roots if nr != LEAF]
        while stack:
            node, done = stack.pop()
            if done:
                order.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack.extend((e[0], False) for e in node.edges if e is not None and e[1] != LEAF and e[0] not in seen)
        needed: set = set()
        for node in order:  # children before parents
            if any(e is not None and (self.is_wanted(e) or e[0] in needed) for e in node.edges):
                needed.add(node)
        return needed

    def is_wanted(self, edge) -> bool:
        if self.wanted is not None:
            return _key(edge) in self.wanted
        if edge[1] == LEAF:
            return id(edge[0]) in self.accumulate_into
        return False

    def push(self, node: Node) -> None:
        if node not in self.queued:
            self.queued.add(node)
            heapq.heappush(self.ready, (-node.sequence, id(node), node))

    def receive(self, edge, grad) -> None:
        """Add a gradient to the buffer of the output it belongs to."""
        target, nr = edge
        if grad is None:
            return
        if nr == LEAF:
            key = id(target)
            grad = target._fit_grad(grad, target._array.shape, target._array.dtype)
            have = self.leaves.get(key)
            self.leaves[key] = grad if have is None else have + grad
            return
        buffer = self.buffers.get(target)
        if target.n_outputs == 1:
            grad = grad._fit_grad(grad, target.shape, target.numpy_dtype)
            if buffer is None:
                self.buffers[target] = [grad]
            else:
                buffer[0] = grad if buffer[0] is None else buffer[0] + grad
            return
        grad = grad._fit_grad(grad, target.shape[nr], target.numpy_dtype[nr])
        if buffer is None:
            buffer = self.buffers[target] = [None] * target.n_outputs
        buffer[nr] = grad if buffer[nr] is None else buffer[nr] + grad

    def step(self, node: Node) -> None:
        """Run one node whose gradients have all arrived."""
        grads = self.buffers.pop(node, None)
        if grads is None:
            grads = [None] * node.n_outputs
        if node.tensor_hooks is not None or node.retains is not None:
            _run_tensor_hooks(node, grads)
        if self.wanted is not None:
            self.capture(node, grads)
        if self.needed is not None and node not in self.needed:
            self.pass_on(node, None)
            return
        if node.pre_hooks:
            grads = _run_pre_hooks(node, grads)
        if all(g is None for g in grads) and not getattr(node, "runs_without_grad", False):
            sent = None
        else:
            sent = node.apply(*grads) if not modes.state.anomaly else _apply_watched(node, grads)
        if not self.keep_graph:
            node.release()
        if node.post_hooks:
            sent = _run_post_hooks(node, sent, grads)
        self.pass_on(node, sent)

    def pass_on(self, node: Node, sent) -> None:
        """Hand the gradients on to the inputs; a node that has now received all of its own becomes ready."""
        dependencies = self.dependencies
        for i, edge in enumerate(node.edges):
            if edge is None:
                continue
            if sent is not None and sent[i] is not None:
                self.receive(edge, sent[i])
            target = edge[0]
            left = dependencies[target] = dependencies[target] - 1
            if left == 0:
                self.deliver(target) if edge[1] == LEAF else self.push(target)

    def capture(self, node: Node, grads) -> None:
        for nr, grad in enumerate(grads):
            at = self.wanted.get((id(node), nr))
            if at is not None:
                self.captured[at] = grad

    def deliver(self, leaf) -> None:
        """All gradients of a leaf have arrived."""
        grad = self.leaves.pop(id(leaf), None)
        if grad is None:
            return
        if self.wanted is not None:
            at = self.wanted.get((id(leaf), LEAF))
            if at is not None:
                self.captured[at] = leaf._run_grad_hooks(grad)
        elif self.accumulate_into is None or id(leaf) in self.accumulate_into:
            leaf._accumulate(grad)


def _apply_watched(node: Node, grads):
    """Anomaly mode: what goes wrong in a node is reported with the line that recorded it."""
    from flambeau.autograd import anomaly

    try:
        sent = node.apply(*grads)
        if modes.state.check_nan:
            anomaly.check(node, sent)
    except Exception:
        anomaly.explain(node)
        raise
    return sent


def _key(edge) -> tuple[int, int]:
    return id(edge[0]), edge[1]


def _run_tensor_hooks(node: Node, grads: list) -> None:
    """Hooks of the output tensors, in the order they were registered, then retain_grad."""
    for nr, hooks in (node.tensor_hooks or {}).items():
        if grads[nr] is None:
            continue
        for hook in list(hooks.values()):
            replaced = hook(grads[nr])
            if replaced is not None:
                grads[nr] = replaced
    for nr, reference in (node.retains or {}).items():
        tensor = reference()
        if tensor is not None and grads[nr] is not None:
            tensor._retain(grads[nr])


def _run_pre_hooks(node: Node, grads: list) -> list:
    for hook in list(node.pre_hooks.values()):
        replaced = hook(tuple(grads))
        if replaced is not None:
            grads = list(replaced) if isinstance(replaced, (tuple, list)) else [replaced]
    return grads


def _run_post_hooks(node: Node, sent, grads) -> tuple:
    sent = (None,) * len(node.edges) if sent is None else sent
    for hook in list(node.post_hooks.values()):
        replaced = hook(tuple(sent), tuple(grads))
        if replaced is not None:
            sent = tuple(replaced) if isinstance(replaced, (tuple, list)) else (replaced,)
    return sent
