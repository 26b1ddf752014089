"""The recorded computation: a `Node` per operation, edges to where its operands came from.

An edge is a pair `(target, nr)`: the node that made the operand and which of its outputs it was, or, for a leaf that accumulates its
gradient, the leaf itself with nr = LEAF. An operand that needs no gradient has None for an edge. Nodes and leaves know the shape and
dtype of what they made, so that a gradient can be summed back over broadcast dimensions and cast back when it arrives.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

LEAF = -1
next_sequence = itertools.count().__next__


class Node:
    """One recorded operation. Subclasses say in `apply` how gradients of outputs become gradients of inputs."""

    edges: tuple = ()  # one per tensor input
    saved: Any = None  # what the derivative needs; `freed` once backward has used it
    n_outputs = 1
    shape: Any = None  # of the output (a list, one each, if there are several)
    numpy_dtype: Any = None
    sequence = 0
    pre_hooks: dict | None = None  # called with the gradients that arrive, may replace them
    post_hooks: dict | None = None  # called with (gradients sent on, gradients that arrived), may replace the former
    tensor_hooks: dict | None = None  # output number -> hooks registered on that output tensor
    retains: dict | None = None  # output number -> weak reference to a tensor that retains its gradient
    metadata_: dict | None = None

    def apply(self, *grads):
        """Gradients of the inputs, one per edge; None where nothing flows."""
        raise NotImplementedError

    def release(self) -> None:
        """Forget what was saved: a second backward through this node is an error. A node that saved nothing can run again."""
        if self.saved is not None:
            self.saved = FREED

    # -- what users see

    def name(self) -> str:
        """The name PyTorch gives this kind of node, such as 'MulBackward0'."""
        return type(self).__name__

    @property
    def next_functions(self) -> tuple:
        """((node, output number), ...) one per input; leaves appear as AccumulateGrad nodes."""
        return tuple((None, 0) if e is None else (accumulator(e[0]), 0) if e[1] == LEAF else e for e in self.edges)

    @property
    def metadata(self) -> dict:
        """A dictionary for whatever one wants to attach to the node."""
        if self.metadata_ is None:
            self.metadata_ = {}
        return self.metadata_

    def _sequence_nr(self) -> int:
        return self.sequence

    def __call__(self, *grads):
        return self.apply(*grads)

    def register_hook(self, fn: Callable) -> RemovableHandle:
        """Call fn(grad_inputs, grad_outputs) after the node has run; what it returns replaces grad_inputs."""
        if self.post_hooks is None:
            self.post_hooks = {}
        return RemovableHandle(self.post_hooks, fn)

    def register_prehook(self, fn: Callable) -> RemovableHandle:
        """Call fn(grad_outputs) before the node runs; what it returns replaces them."""
        if self.pre_hooks is None:
            self.pre_hooks = {}
        return RemovableHandle(self.pre_hooks, fn)

    def __repr__(self) -> str:
        return f"<{self.name()} object at {hex(id(self))}>"


class _Freed:
    def __repr__(self) -> str:
        return "<freed by backward>"


FREED = _Freed()


def freed_error() -> RuntimeError:
    return RuntimeError(
        "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). "
        "Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if "
        "you need to backward through the graph a second time or if you need to access saved tensors after calling backward."
    )


class AccumulateGrad(Node):
    """The face a leaf shows in `next_functions`. The engine itself adds to `leaf.grad` directly."""

    def __init__(self, leaf):
        self.variable = leaf

    def apply(self, *grads):
        self.variable._accumulate(grads[0])
        return ()

    def register_hook(self, fn: Callable) -> RemovableHandle:
        """Call fn(grad_inputs, grad_outputs) after the gradient has been accumulated."""
        return self.variable._register_accumulator_hook("post", fn)

    def register_prehook(self, fn: Callable) -> RemovableHandle:
        """Call fn(grad_outputs) before the gradient is accumulated."""
        return self.variable._register_accumulator_hook("pre", fn)

    def __eq__(self, other) -> bool:
        return isinstance(other, AccumulateGrad) and self.variable is other.variable

    def __hash__(self) -> int:
        return id(self.variable)


def accumulator(leaf) -> AccumulateGrad:
    """The AccumulateGrad node of a leaf."""
    return AccumulateGrad(leaf)


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
