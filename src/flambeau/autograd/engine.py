"""Backward: gradients flow from the roots to the leaves, each node once, the latest recorded first.

A loop, not a recursion. Every node was recorded after those its inputs came from, so its number is larger than theirs: of the nodes that have
received a gradient, the one with the largest number can receive no more, and it is the next to run. A heap finds it. The gradients of a node's
outputs wait in `buffers[node]`, those of a leaf in `arrived`, until all its uses, which are counted beforehand, have sent theirs; so a leaf
has its `.grad` as early as possible, and hooks on it can work while backward goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

from flambeau import dtypes
from flambeau.autograd import modes
from flambeau.autograd.accumulate import accumulate, add_to_grad, run_grad_hooks, run_hooks
from flambeau.autograd.node import LEAF, Node

state = modes.state


def run_backward(
    roots: Sequence[tuple],
    grads: Sequence[Any],
    *,
    keep_graph: bool,
    create_graph: bool,
    capture: Sequence[tuple] | None = None,
    only: Sequence[tuple] | None = None,
) -> list[Any] | None:
    """Send `grads` into the edges `roots`.

    Without `capture`, gradients are added to the leaves (if `only` is given, just those that lead to its edges are computed). With it, the
    gradients that arrive at those edges are returned instead, and the leaves are left alone.
    """
    before = state.grad
    state.grad = create_graph
    try:
        goal = None if capture is None and only is None else Goal(roots, capture, only)
        flow(roots, list(grads), keep_graph, goal)
        return None if goal is None else goal.captured
    finally:
        state.grad = before


def flow(edges: Sequence, sent: list, keep_graph: bool, goal: Goal | None) -> None:
    """Run backward: `sent` are the gradients for `edges`. The roots count as the edges of a node that has already run."""
    uses = count_uses(edges)
    arrived: dict[int, Any] = {}
    buffers: dict[Node, list] = {}
    ready: list[tuple[int, Node]] = []
    node: Any = None
    while True:
        for i, edge in enumerate(edges):
            if edge is None:
                continue
            grad = sent[i]
            sent[i] = None  # so that a gradient that ends in a leaf is nobody else's: see Note [stealing gradients]
            target, nr = edge
            if goal is not None and id(target) not in goal.visited:
                continue
            if nr == LEAF:
                key = id(target)
                left = uses[key] = uses[key] - 1
                if grad is not None:
                    own = target._array
                    if grad._array.shape != own.shape or grad._array.dtype is not own.dtype:
                        grad = fit(grad, own.shape, own.dtype, node, i)
                if key in arrived:
                    have = arrived.pop(key)
                    grad = have if grad is None else have + grad
                if left:
                    if grad is not None:
                        arrived[key] = grad
                elif grad is None:
                    continue
                elif goal is not None and goal.wanted is not None:
                    goal.keep(target, LEAF, run_grad_hooks(target, grad))
                elif target._hooks or target._accumulator_hooks or target._post_accumulate:
                    accumulate(target, grad)
                else:
                    add_to_grad(target, grad)
                continue
            several = target.n_outputs > 1
            if grad is not None:
                shape, dtype = (target.shape[nr], target.numpy_dtype[nr]) if several else (target.shape, target.numpy_dtype)
                if grad._array.shape != shape or grad._array.dtype is not dtype:
                    grad = fit(grad, shape, dtype, node, i)
            buffer = buffers.get(target)
            if buffer is None:
                buffer = buffers[target] = [None] * target.n_outputs if several else [grad]
                if several:
                    buffer[nr] = grad
                heappush(ready, (-target.sequence, target))
            elif grad is not None:
                buffer[nr] = grad if buffer[nr] is None else buffer[nr] + grad
        if not ready:
            return
        grad = None
        node = heappop(ready)[1]
        grads = buffers.pop(node)
        if node.tensor_hooks is not None or node.retains is not None:
            _run_tensor_hooks(node, grads)
        if goal is not None and not goal.passes(node, grads):
            edges = ()
            continue
        if node.pre_hooks:
            grads = _run_pre_hooks(node, grads)
        if grads[0] is None and not node.runs_without_grad and all(g is None for g in grads):
            sent = [None] * len(node.edges)
        elif modes.special and state.anomaly:
            sent = _apply_watched(node, grads)
        else:
            sent = node.apply(*grads)
        if not keep_graph:
            node.release()
        if node.post_hooks:
            sent = _run_post_hooks(node, sent, grads)
        grads = None
        edges = node.edges


def count_uses(roots: Sequence) -> dict[int, int]:
    """How many gradients each leaf (by its id) will receive."""
    uses: dict[int, int] = {}
    seen: set[Node] = set()
    stack: list[Sequence] = [roots]
    while stack:
        for edge in stack.pop():
            if edge is not None:
                target, nr = edge
                if nr == LEAF:
                    uses[id(target)] = uses.get(id(target), 0) + 1
                elif target not in seen:
                    seen.add(target)
                    stack.append(target.edges)
    return uses


class Goal:
    """What a backward pass is for, where it is not for all leaves: gradients to return, or leaves and nodes to reach."""

    def __init__(self, roots: Sequence[tuple], capture: Sequence[tuple] | None, only: Sequence[tuple] | None):
        self.wanted = None if capture is None else {(id(target), nr): i for i, (target, nr) in enumerate(capture)}
        self.captured: list | None = None if capture is None else [None] * len(capture)
        aims = (capture if only is None else only) or ()
        self.visited = {id(target) for target, _ in aims}  # what receives gradients
        self.running: set[int] = set() if only is None else {id(target) for target, nr in only if nr != LEAF}
        self._mark(roots)
        self.visited |= self.running

    def _mark(self, roots: Sequence[tuple]) -> None:
        """Only nodes on a way to an aim run. Going by their numbers, a node comes after all it leads to."""
        nodes: dict[int, Node] = {id(target): target for target, nr in roots if nr != LEAF}
        stack = list(nodes.values())
        while stack:
            for edge in stack.pop().edges:
                if edge is not None and edge[1] != LEAF and id(edge[0]) not in nodes:
                    nodes[id(edge[0])] = edge[0]
                    stack.append(edge[0])
        for node in sorted(nodes.values(), key=lambda n: n.sequence):
            for edge in node.edges:
                if edge is not None and (id(edge[0]) in self.running or id(edge[0]) in self.visited):
                    self.running.add(id(node))
                    break

    def keep(self, target, nr: int, grad) -> None:
        """Note the gradient of something wanted."""
        at = self.wanted.get((id(target), nr))
        if at is not None:
            self.captured[at] = grad

    def passes(self, node: Node, grads: list) -> bool:
        """Whether the node is to run, after what is wanted of the gradients that arrived has been noted."""
        if self.wanted is not None:
            for nr, grad in enumerate(grads):
                self.keep(node, nr, grad)
        return id(node) in self.running


# -- fitting -------------------------------------------------------------------------------------------------------


def fit(grad, shape: tuple, numpy_dtype, node: Node | None = None, position: int = 0):
    """A gradient summed over broadcast dimensions and cast back to what it is the gradient of."""
    array = grad._array
    if array.shape != shape:
        try:
            grad = grad.sum_to_size(shape)
        except RuntimeError:
            raise RuntimeError(
                f"Function {'backward' if node is None else type(node).__name__} returned an invalid gradient at index {position} - got "
                f"{list(array.shape)} but expected shape compatible with {list(shape)}"
            ) from None
    if array.dtype != numpy_dtype:
        if array.dtype.kind == "c" and numpy_dtype.kind != "c":
            grad = grad.real
        grad = grad.to(dtypes.OF_NUMPY[numpy_dtype])
    return grad


def fit_all(node: Node, sent: Sequence) -> list:
    """The gradients a node sends, each fitted to what it is the gradient of."""
    found: list = []
    for i, (edge, grad) in enumerate(zip(node.edges, sent, strict=True)):
        if edge is not None and grad is not None:
            target, nr = edge
            if nr == LEAF:
                grad = fit(grad, target._array.shape, target._array.dtype, node, i)
            elif target.n_outputs > 1:
                grad = fit(grad, target.shape[nr], target.numpy_dtype[nr], node, i)
            else:
                grad = fit(grad, target.shape, target.numpy_dtype, node, i)
        found.append(grad)
    return found


# -- hooks ---------------------------------------------------------------------------------------------------------


def _run_tensor_hooks(node: Node, grads: list) -> None:
    """Hooks of the output tensors, in the order they were registered, then retain_grad."""
    for nr, hooks in (node.tensor_hooks or {}).items():
        if grads[nr] is not None:
            grads[nr] = run_hooks(hooks, grads[nr])
    for nr, reference in (node.retains or {}).items():
        tensor = reference()
        if tensor is not None and grads[nr] is not None:
            have = tensor._grad
            tensor._grad = grads[nr].clone() if have is None else have + grads[nr]


def _run_pre_hooks(node: Node, grads: list) -> list:
    for hook in list(node.pre_hooks.values()):
        replaced = hook(tuple(grads))
        if replaced is not None:
            grads = list(replaced) if isinstance(replaced, (tuple, list)) else [replaced]
    return grads


def _run_post_hooks(node: Node, sent: list, grads: list) -> list:
    sent = fit_all(node, sent)
    for hook in list(node.post_hooks.values()):
        replaced = hook(tuple(sent), tuple(grads))
        if replaced is not None:
            sent = list(replaced) if isinstance(replaced, (tuple, list)) else [replaced]
    return sent


def _apply_watched(node: Node, grads: list) -> list:
    """Anomaly mode: what goes wrong in a node is reported with the line that recorded it."""
    from flambeau.autograd import anomaly

    outer, state.running = state.running, node
    try:
        sent = node.apply(*grads)
        if state.check_nan:
            anomaly.check(node, sent)
    except Exception:
        anomaly.explain(node)
        raise
    finally:
        state.running = outer
    return sent
