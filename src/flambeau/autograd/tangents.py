"""`no_grad` where tangents are carried along: forward mode does not know it.

Tangents are found by differentiating twice (see forward_ad.py), which needs all that was computed recorded. So inside of `dual_level` and `func.jvp`,
`no_grad` does not stop the recording. What no tangent flows into is computed without a history, as always; what one flows into is recorded
behind a `Hush`, through which only the search for tangents passes: to every other gradient it is as if nothing had been recorded. The tangents
that are found there are `Still`: they were computed inside of no_grad, too, and so are constants to whoever differentiates them in turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flambeau import modes
from flambeau.autograd.engine import edges_from
from flambeau.eager import record
from flambeau.eager.arguments import tensors_in
from flambeau.eager.saved import with_history
from flambeau.interpreters import stack
from flambeau.tensor import Tensor, wrap
from flambeau.tensor.node import Node, next_sequence

state = modes.state


class Hush(Node):
    """Lets gradients through while tangents are searched for."""

    @property
    def closed(self) -> bool:
        return not state.searching

    def apply(self, grad):
        return [None if self.closed else behind(Still(), alias(grad))]


class Still(Node):
    """Where a search has passed a `Hush`: the tangent that comes back here is a constant, but for a search around this one."""

    def apply(self, tangent):
        return [tangent.detach() if state.carried is None else behind(Hush(), alias(tangent))]


def alias(tensor: Tensor) -> Tensor:
    """The same memory as another tensor with the same history, and no view."""
    array = tensor._array
    same = array.as_tensor() if hasattr(array, "as_tensor") else wrap(array)
    same._storage = tensor._shared_storage()
    edge = tensor._edge()
    return same if edge is None else with_history(same, *edge)


def behind(node: Node, tensor: Tensor) -> Tensor:
    """The tensor, with its history, if it has one, behind this node."""
    if tensor._node is not None:
        record.start(node, ((tensor._node, tensor._nr),), [tensor._array])
        tensor._node, tensor._nr = node, 0
    return tensor


class Carried(stack.Interpreter):
    """The tensors at which tangents begin, and what `no_grad` does there: it records what depends on them."""

    by_operations = False

    def __init__(self, sources: Iterable[Tensor], outer: Carried | None):
        self.sources: list[Tensor] = [*sources, *(() if outer is None else outer.sources)]
        self.outer = outer
        self.quiet = False  # within no_grad
        self.duals = False  # whether it is a dual_level, in which the tangents are known from the beginning

    def switch(self, on: bool) -> None:
        """Begin or end what is within no_grad."""
        if self.quiet is on:
            self.quiet = not on
            if self.quiet:
                stack.push(self)
            else:
                stack.remove(self)

    def handle(self, function: Callable, args: tuple, kwargs: dict, next: Callable) -> Any:
        if not any(self.reaches(t) for t in tensors_in((args, kwargs))):
            recording = state.grad  # not inside of inference_mode
            modes.set_recording(False)
            try:
                return next(*args, **kwargs)
            finally:
                modes.set_recording(recording)
        before = next_sequence()
        args, kwargs = self._parted(args), self._parted(kwargs)
        found = next(*args, **kwargs)
        for tensor in tensors_in(found):
            node = tensor._node
            if node is not None and node.sequence > before and tensor._base is None:
                behind(Hush(), tensor)
        return found

    def _parted(self, values: Any) -> Any:
        """Arguments, those into which no tangent flows without a history."""
        if isinstance(values, Tensor):
            return values if not values.requires_grad or self.reaches(values) else values.detach()
        if type(values) in (list, tuple):
            return type(values)(map(self._parted, values))
        return {name: self._parted(value) for name, value in values.items()} if type(values) is dict else values

    def reaches(self, tensor: Tensor) -> bool:
        """Whether a tangent flows into it."""
        return reached(tensor, self.sources)


def reached(tensor: Tensor | None, sources: Iterable[Tensor]) -> bool:
    """Whether a tangent flows into the tensor from one of the sources."""
    begins = {id(s if s._node is None else s._node) for s in sources}
    while tensor is not None:
        edge = tensor._edge() if tensor.requires_grad else None
        with searching():
            if edge is not None and any(id(target) in begins for target, _ in edges_from((edge,))):
                return True
        tensor = getattr(tensor, "value", None)  # inside vmap: what it wraps
    return False


def begin(sources: Iterable[Tensor] = ()) -> None:
    """Tangents begin at these tensors, and at those that are added to `state.carried.sources`."""
    state.carried = Carried(sources, state.carried)


def end() -> None:
    """What began last is over."""
    state.carried.switch(True)
    state.carried = state.carried.outer


@contextlib.contextmanager
def carried(sources: Iterable[Tensor]) -> Iterator[None]:
    """Tangents begin at these tensors, until the end of the context."""
    begin(sources)
    try:
        yield
    finally:
        end()


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """As if what began last had not."""
    within = state.carried  # None in a thread that did not begin it
    state.carried = within and within.outer
    try:
        yield
    finally:
        state.carried = within


@contextlib.contextmanager
def searching() -> Iterator[None]:
    """A backward pass that looks for tangents, and passes through all there is."""
    before, state.searching = state.searching, True
    try:
        yield
    finally:
        state.searching = before
