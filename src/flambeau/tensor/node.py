"""The recorded computation: a `Node` per operation, edges to where its operands came from.

An edge is a pair `(target, nr)`: the node that made the operand and which of its outputs it was, or, for a leaf that accumulates its
gradient, the leaf itself with nr = LEAF. An operand that needs no gradient has None for an edge. Nodes and leaves know the shape and
dtype of what they made, so that a gradient can be summed back over broadcast dimensions and cast back when it arrives.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

from flambeau import modes

LEAF = -1
next_sequence = itertools.count().__next__


class Node:
    """One recorded operation. Subclasses say in `apply` how gradients of outputs become gradients of inputs."""

    # What the engine reads of every node has a slot; the rest is rare.
    __slots__ = ("__dict__", "__weakref__", "edges", "hooks", "n_outputs", "numpy_dtype", "saved", "sequence", "shape")
    edges: Any  # one per tensor input
    saved: Any  # what the derivative needs; `freed` once backward has used it
    n_outputs: int
    shape: Any  # of the output (a list, one each, if there are several)
    numpy_dtype: Any
    sequence: int
    hooks: Hooks | None
    hidden: frozenset[int] = frozenset()  # inputs that `next_functions` does not show, such as indices: no gradient can ever flow there
    called: Callable[[], str] | None = None  # the name users see, where it depends on what the operation was given: see `shown`
    metadata_: dict | None = None
    runs_without_grad = False  # whether it runs even if no gradient has arrived
    requires_grad = True
    closed: Any = False  # whether nothing flows on from it

    def __init__(self):
        self.edges: Any = ()
        self.saved = self.hooks = self.shape = self.numpy_dtype = None
        self.n_outputs, self.sequence = 1, 0

    def apply(self, *grads) -> list:
        """Gradients of the inputs, one per edge; None where nothing flows. The list is the engine's to empty."""
        raise NotImplementedError

    def apply_boxed(self, grads: list) -> list:
        """The same of gradients in a list that nobody else holds."""
        return self.apply(*grads)

    def release(self) -> None:
        """Forget what was saved: a second backward through this node is an error. A node that saved nothing can run again."""
        if self.saved is not None:
            self.saved = FREED

    # -- what users see

    def name(self) -> str:
        """The name PyTorch gives this kind of node, such as 'MulBackward0'."""
        return type(self).__name__ if type(self).__name__ not in _PREFIXED else f"torch::autograd::{type(self).__name__}"

    @property
    def next_functions(self) -> tuple:
        """((node, output number), ...) one per input; leaves appear as AccumulateGrad nodes."""
        edges = [e for i, e in enumerate(self.edges) if i not in self.hidden]
        return tuple((None, 0) if e is None else (accumulator(e[0]), 0) if e[1] == LEAF else (shown(e[0]), e[1]) for e in edges)

    @property
    def metadata(self) -> dict:
        """A dictionary for whatever one wants to attach to the node."""
        if self.metadata_ is None:
            self.metadata_ = {}
        return self.metadata_

    def _sequence_nr(self) -> int:
        return self.sequence

    def _set_sequence_nr(self, value: int) -> None:
        self.sequence = value

    def __call__(self, *grads):
        """Run this one node: gradients of its outputs in, gradients of its inputs out."""
        if len(grads) != self.n_outputs:
            raise TypeError(f"{self.name()} expected {self.n_outputs} arguments, got {len(grads)} instead: one gradient for each output")
        found = tuple(self.apply(*grads))
        return found[0] if len(found) == 1 else found

    def register_hook(self, fn: Callable) -> RemovableHandle:
        """Call fn(grad_inputs, grad_outputs) after the node has run; what it returns replaces grad_inputs."""
        return RemovableHandle(self._hooks().after, fn)

    def register_prehook(self, fn: Callable) -> RemovableHandle:
        """Call fn(grad_outputs) before the node runs; what it returns replaces them."""
        return RemovableHandle(self._hooks().before, fn)

    def _hooks(self) -> Hooks:
        if self.hooks is None:
            self.hooks = Hooks()
        return self.hooks

    def __lt__(self, other: Node) -> bool:
        return id(self) < id(other)  # for the engine's heap, where numbers that are equal must not be an error

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {hex(id(self))}>"


def shown(node: Node | None) -> Any:
    """The node as users see it: where its name depends on what the operation was given, it gets it when somebody first looks."""
    if node is not None and node.called is not None:
        rename(node, node.called())
    return node


def operation(node: Node | None) -> str:
    """What the node recorded, as PyTorch's messages call it: MulBackward0 is of 'Mul', SumBackward1 of 'Sum1'."""
    if node is None:
        return "this function"
    name, _, number = type(node).__name__.rpartition("Backward")
    return f"{name}{number.strip('0')}" if name else type(node).__name__


def rename(node: Any, name: str | None) -> None:
    """Show the node under this name."""
    if name is not None and type(node).__name__ != name:
        kind: Any = type(node)
        node.__class__ = _renamed(kind, name)


@cache
def _renamed(cls: type[Node], name: str) -> type[Node]:
    return type(name, (cls,), {"__slots__": ()})


class Hooks:
    """What users want called when a node runs.

    of_tensors  output number -> hooks registered on that output tensor
    retaining   output number -> weak reference to a tensor that retains its gradient
    before      called with the gradients that arrive, may replace them
    after       called with (gradients sent on, gradients that arrived), may replace the former
    """

    def __init__(self):
        self.of_tensors: dict[int, dict] = {}
        self.retaining: dict[int, Any] = {}
        self.before: dict[int, Callable] = {}
        self.after: dict[int, Callable] = {}


_PREFIXED = {"AccumulateGrad", "CopySlices", "CopyBackwards"}  # PyTorch wrote these by hand, inside a namespace


FREED: Any = object()  # stands for what a node saved, after backward has used it


def freed_error() -> RuntimeError:
    return RuntimeError(
        "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
        "freed). backward() and autograd.grad() free them: with retain_graph=True they do not. Specify retain_graph=True in "
        "the first call."
    )


def refuse_swapped(leaf, node: Node | None) -> None:
    """An error where `node` was recorded before the leaf became another tensor: see Note [graphs of swapped tensors]."""
    if node is not None and node.sequence < leaf._swapped_at:
        raise RuntimeError(
            "Trying to execute AccumulateGrad node that was poisoned by swap_tensors: the leaf has become another tensor since the forward pass. "
            "Convert a model, or load it, before forward or after backward, not in between."
        )


class AccumulateGrad(Node):
    """The face a leaf shows in `next_functions`. The engine itself adds to `leaf.grad` directly; the hooks are kept by the leaf."""

    def __init__(self, leaf):
        super().__init__()
        self.variable = leaf
        self.shape, self.numpy_dtype = leaf._array.shape, leaf._array.dtype

    def __call__(self, *grads):
        self.apply(*grads)

    def register_hook(self, fn: Callable) -> RemovableHandle:
        """Call fn(grad_inputs, grad_outputs) after the gradient has been accumulated."""
        return RemovableHandle(self._of_leaf("post"), fn)

    def register_prehook(self, fn: Callable) -> RemovableHandle:
        """Call fn(grad_outputs) before the gradient is accumulated; what it returns replaces them."""
        return RemovableHandle(self._of_leaf("pre"), fn)

    def _of_leaf(self, when: str) -> dict:
        leaf = self.variable
        modes.leaf_hooks = True
        if leaf._accumulator_hooks is None:
            leaf._accumulator_hooks = {"pre": {}, "post": {}}
        return leaf._accumulator_hooks[when]


_accumulators: weakref.WeakValueDictionary[int, AccumulateGrad] = weakref.WeakValueDictionary()


def accumulator(leaf) -> AccumulateGrad:
    """The AccumulateGrad node of a leaf: the same object as long as somebody holds it."""
    found = _accumulators.get(id(leaf))
    if found is None:
        found = _accumulators[id(leaf)] = AccumulateGrad(leaf)
    return found


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook off again; also a context manager."""

    next_id = 0

    def __init__(self, hooks_dict: dict, hook: Any = None, *, extra_dict: Any = None):
        self.hooks = hooks_dict
        self.extra = extra_dict
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        if hook is not None:
            hooks_dict[self.id] = hook

    def hooks_dict_ref(self) -> dict:
        """The dictionary that the hook is in, with its fellows."""
        return self.hooks

    def remove(self) -> None:
        """Take the hook off. Doing it twice is harmless."""
        self.hooks.pop(self.id, None)
        extra = self.extra if isinstance(self.extra, (list, tuple)) else [self.extra]
        for other in extra:
            if other is not None:
                other.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc) -> None:
        self.remove()

    def __getstate__(self):
        return (self.hooks, self.id) if self.extra is None else (self.hooks, self.id, self.extra)

    def __setstate__(self, state) -> None:
        self.hooks, self.id = state[:2]
        self.extra = state[2] if len(state) > 2 else None
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)
