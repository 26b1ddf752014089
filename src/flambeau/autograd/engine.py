"""Backward: gradients flow from the roots to the leaves, each node once, the latest recorded first.

A loop, not a recursion. Every node was recorded after those its inputs came from, so its number is larger than theirs: of the nodes that have
received a gradient, the one with the largest number can receive no more, and it is the next to run. A heap finds it; `buffers` holds the
gradients of the outputs of nodes that have not run yet.

A leaf adds each gradient to its `.grad` as it arrives. Where some leaf has hooks, which want to see the sum, the uses of leaves are counted
beforehand, and a leaf waits for the last of them: its hooks still run as early as possible, while backward goes on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache as cache
from heapq import heappop, heappush
from operator import attrgetter
from time import perf_counter_ns as now
from typing import Any

from flambeau import dtypes, modes
from flambeau.autograd.accumulate import add_to_grad, hooked, plus, run_hooks, run_hooks_after, run_hooks_before
from flambeau.interpreters import stack
from flambeau.kernels.arrays import plain
from flambeau.kernels.native import memory_guard
from flambeau.kernels.reductions.reduce import reduce
from flambeau.tensor import wrap
from flambeau.tensor.node import LEAF, Hooks, Node, refuse_swapped
from flambeau.tracing import kinds

state = modes.state


def run_backward(
    roots: Sequence[tuple], grads: Sequence[Any], *, keep_graph: bool, create_graph: bool, capture: Sequence[tuple] | None = None,
    only: Sequence[tuple] | None = None,
) -> list[Any] | None:  # fmt: skip
    """Send `grads` into the edges `roots`.

    Without `capture`, gradients are added to the leaves (if `only` is given, just those that lead to its edges are computed). With it, the
    gradients that arrive at those edges are returned instead, and the leaves are left alone.
    """
    goal = None if capture is None and only is None else Goal(roots, capture, only)
    before = state.grad
    packing = state.pack_hooks if modes.special else ()
    modes.set_recording(create_graph)
    task = state.task = Task(roots, goal, state.task)
    try:
        recorder, start = stack.at(stack.PROFILE) if modes.special else None, now()
        try:
            flow(roots, list(grads), keep_graph, goal)
        finally:
            if recorder is not None:
                recorder.ended(start, "backward", kinds.BACKWARD)
        for callback in task.callbacks:  # the list may grow on the way
            callback()
        return None if goal is None else goal.captured
    except MemoryError as problem:  # NumPy's own: programs that try a smaller batch next catch RuntimeError
        raise memory_guard.as_ours(problem) from None
    finally:
        modes.set_recording(before)
        if modes.special and state.pack_hooks is not packing:  # a hook has entered or left a context: that ends with the pass
            modes.set_pack_hooks(packing)
        state.task = task.outer


class Task:
    """One backward pass, for hooks that want to know who takes part (`receivers`), to tell one pass from another, or to do something at its end.

    number     no other pass has the same
    outer      the pass inside of which this one runs, if there is one
    notes      what hooks keep for as long as the pass runs
    callbacks  what is called when all gradients have arrived
    """

    __slots__ = ("callbacks", "goal", "notes", "number", "outer", "roots")
    next_number = itertools.count().__next__

    def __init__(self, roots: Sequence[tuple], goal: Goal | None, outer: Task | None):
        self.roots, self.goal, self.outer, self.number = roots, goal, outer, Task.next_number()
        self.notes: dict[Any, Any] = {}
        self.callbacks: list[Callable[[], None]] = []


def queue_callback(callback: Callable[[], None]) -> None:
    """Call `callback()` when the backward pass that is running has sent all its gradients: for hooks that have something to finish."""
    if state.task is None:
        raise RuntimeError("queue_callback: no backward pass is running. Call it from a hook or from a Function's backward")
    state.task.callbacks.append(callback)


def flow(edges: Sequence, sent: list, keep_graph: bool, goal: Goal | None) -> None:
    """Run backward: `sent` are the gradients for `edges`. The roots count as the edges of a node that has already run."""
    buffers: dict[Node, Any] = {}  # the gradient of a node with one output; a list of them for one with several
    ready: list[tuple[int, Node]] = []
    recorder = stack.at(stack.PROFILE) if modes.special else None
    note = None if recorder is None else recorder.note
    quickly = recorder is not None and recorder.plain and goal is None  # to be noted, with nothing but times
    waiting = Waiting(edges, goal) if goal is not None or modes.leaf_hooks else None
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
                if grad is not None:
                    array = target._array
                    if grad._array.shape != array.shape or grad._array.dtype is not array.dtype or modes.leaf_dtypes:
                        grad = fit(grad, array.shape, dtype_of_grad(target, grad), node, i)
                if waiting is not None:
                    grad = waiting.arrive(target, grad, node)
                if grad is None:
                    continue
                if waiting is not None and hooked(target):
                    grad = run_hooks_before(target, grad)
                    add_to_grad(target, grad)
                    run_hooks_after(target, grad)
                elif note is None:
                    add_to_grad(target, grad)
                else:
                    start = now()
                    add_to_grad(target, grad)
                    note((start, now(), kinds.LEAF, None, None, None))
            elif target.n_outputs == 1:
                if grad is not None and (grad._array.shape != target.shape or grad._array.dtype is not target.numpy_dtype):
                    grad = fit(grad, target.shape, target.numpy_dtype, node, i)
                if target not in buffers:
                    buffers[target] = grad
                    heappush(ready, (-target.sequence, target))
                elif grad is not None:
                    have = buffers[target]
                    buffers[target] = grad if have is None else plus(have, grad)
            else:
                if target not in buffers:
                    buffers[target] = [None] * target.n_outputs
                    heappush(ready, (-target.sequence, target))
                if grad is not None:
                    grad = fit(grad, target.shape[nr], target.numpy_dtype[nr], node, i)
                    buffer = buffers[target]
                    buffer[nr] = grad if buffer[nr] is None else plus(buffer[nr], grad)
        if not ready:
            return
        grad = have = buffer = None
        node = heappop(ready)[1]
        grads = buffers.pop(node)
        if quickly and modes.special == 1 and grads is not None and node.n_outputs == 1 and node.hooks is None:
            sent = recorder.run_node(node, grads)
        elif node.hooks is not None or modes.special or (goal is not None and goal.asks_of(node)):
            grads = grads if node.n_outputs > 1 else [grads]
            sent = run_node(node, grads, goal)
            if sent is None:
                edges = ()
                continue
        elif node.n_outputs == 1 and (grads is not None or node.runs_without_grad):
            sent = node.apply(grads)
        elif node.n_outputs > 1 and (node.runs_without_grad or any([g is not None for g in grads])):
            sent = node.apply(*grads)
        else:
            sent = [None] * len(node.edges)
        if not keep_graph:
            node.release()
        grads = None
        edges = node.edges


def run_node(node: Node, grads: list, goal: Goal | None) -> list | None:
    """Run one node with all that can go with it: hooks, gradients to be noted, anomaly mode. None if only its gradients were wanted."""
    hooks = node.hooks
    runs = goal is None or goal.passes(node, grads)
    if hooks is not None:
        run_tensor_hooks(hooks, grads)
    if not runs:
        return None
    if hooks is not None:
        grads = run_pre_hooks(hooks, grads)
    if not node.runs_without_grad and all(g is None for g in grads):
        sent = [None] * len(node.edges)
    else:
        sent = stack.walk_node(node, grads) if modes.special else node.apply_boxed(grads)
    return sent if hooks is None else run_post_hooks(node, hooks, sent, grads)


class Waiting:
    """Gradients of leaves that wait until all of a leaf's uses have sent theirs."""

    def __init__(self, roots: Sequence, goal: Goal | None):
        self.goal = goal
        self.uses = reached(roots)[1] if goal is None else dict(goal.uses)  # id of a leaf -> gradients still to come
        self.sums: dict[int, Any] = {}

    def arrive(self, leaf, grad, node: Node | None):
        """One use of the leaf, `node`, has sent its gradient (or None). The sum, if it was the last; None if it was not, or is to be returned."""
        if leaf._swapped_at is not None:
            refuse_swapped(leaf, node)
        key = id(leaf)
        self.uses[key] -= 1
        have = self.sums.pop(key, None)
        if have is not None and grad is not None and grad.dtype is not have.dtype:  # the first decides, as in `add_to_grad`
            grad = grad.to(have.dtype)
        total = grad if have is None else have if grad is None else plus(have, grad)
        if not self.uses[key]:
            if self.goal is None or self.goal.wanted is None:
                return total
            if total is not None:
                self.goal.keep(leaf, LEAF, run_hooks(leaf._hooks, total))
        elif total is not None:
            self.sums[key] = total
        return None


_sequence = attrgetter("sequence")


class Goal:
    """What a backward pass is for, where it is not for all leaves: gradients to return, or leaves and nodes to reach."""

    def __init__(self, roots: Sequence[tuple], capture: Sequence[tuple] | None, only: Sequence[tuple] | None):
        self.wanted = None if capture is None else {(id(target), nr): i for i, (target, nr) in enumerate(capture)}
        self.captured: list | None = None if capture is None else [None] * len(capture)
        aims = (capture if only is None else only) or ()
        self.visited = {id(target) for target, _ in aims}  # what receives gradients
        self.running: set[int] = set() if only is None else {id(target) for target, nr in only if nr != LEAF}
        self.asked = {id(target) for target, _ in capture or ()}
        self._mark(roots)

    def _mark(self, roots: Sequence[tuple]) -> None:
        """Only nodes on a way to an aim run. Going by their numbers, a node comes after all it leads to."""
        running, visited = self.running, self.visited
        visited |= running
        nodes, self.uses = reached(roots)
        for node in sorted(nodes, key=_sequence):
            for edge in node.edges:
                if edge is not None and id(edge[0]) in visited:
                    running.add(id(node))
                    visited.add(id(node))
                    break

    def keep(self, target, nr: int, grad) -> None:
        """Note the gradient of something wanted."""
        at = self.wanted.get((id(target), nr))
        if at is not None:
            self.captured[at] = grad

    def asks_of(self, node: Node) -> bool:
        """Whether a node is not simply to run: its gradients are wanted, or nothing that it leads to."""
        return id(node) in self.asked or id(node) not in self.running

    def passes(self, node: Node, grads: list) -> bool:
        """Whether the node is to run, after what is wanted of the gradients that arrived has been noted."""
        if self.wanted is not None:
            for nr, grad in enumerate(grads):
                self.keep(node, nr, grad)
        return id(node) in self.running


def receivers() -> set[int]:
    """The ids of all nodes and leaves to which gradients go in the backward pass that is running."""
    task = state.task
    return {id(target) for target, _ in edges_from(task.roots) if task.goal is None or id(target) in task.goal.visited}


def reached(roots: Sequence) -> tuple[set[Node], dict[int, int]]:
    """The nodes that edges lead to, and how many edges lead to each leaf, by its id. `edges_from` without its pauses, for what every pass asks."""
    nodes: set[Node] = set()
    uses: dict[int, int] = {}
    stack: list[Sequence] = [roots]
    while stack:
        for edge in stack.pop():
            if edge is None:
                continue
            target, nr = edge
            if nr == LEAF:
                uses[id(target)] = uses.get(id(target), 0) + 1
            elif target not in nodes:
                nodes.add(target)
                if not target.closed:
                    stack.append(target.edges)
    return nodes, uses


def edges_from(roots: Sequence) -> Iterator[tuple]:
    """Every edge that can be reached from these, themselves included: each node's edges once."""
    seen: set[Node] = set()
    stack: list[Sequence] = [roots]
    while stack:
        for edge in stack.pop():
            if edge is not None:
                yield edge
                if edge[1] != LEAF and edge[0] not in seen and not edge[0].closed:
                    seen.add(edge[0])
                    stack.append(edge[0].edges)


# -- fitting -------------------------------------------------------------------------------------------------------


def fit(grad, shape: tuple, numpy_dtype, node: Node | None = None, position: int = 0):
    """A gradient summed over broadcast dimensions and cast back to what it is the gradient of."""
    array = grad._array
    if array.shape != shape:
        summed = summed_dims(array.shape, shape)
        if summed is None:
            name = "backward" if node is None else type(node).__name__
            found = f"got {list(array.shape)} but expected shape compatible with {list(shape)}"
            raise RuntimeError(f"Function {name} returned an invalid gradient at index {position} - {found}")
        if state.grad or hasattr(array, "as_tensor") or grad.is_meta:
            grad = grad.sum_to_size(shape)
        else:
            found = reduce("sum", plain(array), *summed, array.dtype)
            grad = wrap(found if found.shape == shape else found.reshape(shape))
    if array.dtype != numpy_dtype:
        if array.dtype.kind == "c" and numpy_dtype.kind != "c":
            grad = grad.real
        grad = grad.to(dtypes.OF_NUMPY[numpy_dtype])
    return grad


def dtype_of_grad(leaf, grad) -> Any:
    """The NumPy dtype that the gradient of a leaf has: see Tensor.grad_dtype."""
    own = leaf.__dict__.get("_grad_dtype", leaf.dtype) if modes.leaf_dtypes else leaf.dtype
    return grad._array.dtype if own is None else own.numpy


@cache
def summed_dims(shape: tuple, wanted: tuple) -> tuple[tuple[int, ...], bool] | None:
    """(the dimensions that broadcasting `wanted` to `shape` has added or stretched, whether to keep them); None where it does not broadcast."""
    lead = len(shape) - len(wanted)
    if lead < 0 or any(n != 1 and n != shape[lead + i] for i, n in enumerate(wanted)):
        return None
    stretched = [lead + i for i, n in enumerate(wanted) if n == 1 and shape[lead + i] != 1]
    return (*range(lead), *stretched), bool(stretched)


def fit_all(node: Node, sent: Sequence) -> list:
    """The gradients a node sends, each fitted to what it is the gradient of."""
    pairs = enumerate(zip(node.edges, sent, strict=True))
    return [grad if edge is None or grad is None else fit(grad, *looks(*edge), node, i) for i, (edge, grad) in pairs]


def looks(target, nr: int) -> tuple[Any, Any]:
    """(shape, numpy dtype) of what an edge leads to."""
    if nr == LEAF:
        return target._array.shape, target._array.dtype
    return (target.shape[nr], target.numpy_dtype[nr]) if target.n_outputs > 1 else (target.shape, target.numpy_dtype)


# -- hooks ---------------------------------------------------------------------------------------------------------


def run_tensor_hooks(hooks: Hooks, grads: list) -> None:
    """Hooks of the output tensors, in the order they were registered, then retain_grad."""
    for nr, listed in hooks.of_tensors.items():
        grads[nr] = run_hooks(listed, grads[nr])  # with None, too, where an output among several was not used: PyTorch does so
    for nr, reference in hooks.retaining.items():
        tensor = reference()
        if tensor is not None and grads[nr] is not None:
            have = tensor._grad
            tensor._grad = grads[nr].clone() if have is None else plus(have, grads[nr])


def run_pre_hooks(hooks: Hooks, grads: list) -> list:
    """What the node receives."""
    for hook in list(hooks.before.values()):
        grads = _replaced(hook, hook(tuple(grads)), grads)
    return grads


def run_post_hooks(node: Node, hooks: Hooks, sent: list, grads: list) -> list:
    """What the node sends."""
    if hooks.after:
        sent = fit_all(node, sent)
    for hook in list(hooks.after.values()):
        sent = _replaced(hook, hook(tuple(sent), tuple(grads)), sent)
    return sent


def _replaced(hook: Any, answer: Any, grads: list) -> list:
    """The gradients that a hook has returned, or those it was given if it returned None."""
    if answer is None:
        return grads
    found = list(answer) if isinstance(answer, (tuple, list)) else [answer]
    if len(found) != len(grads):
        name = getattr(hook, "__name__", type(hook).__name__)
        raise RuntimeError(f"hook {name!r} returned too many or too few gradients: (got {len(found)}, but expected {len(grads)})")
    return found
