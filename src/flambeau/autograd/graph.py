"""Looking into and steering the recorded graph: hooks on saved tensors, edges as objects, hooks on many tensors."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from flambeau import modes
from flambeau.autograd import engine
from flambeau.tensor import Tensor
from flambeau.tensor.node import LEAF, Node, RemovableHandle, accumulator


class GradientEdge(NamedTuple):
    """Where a gradient flows in: output number `output_nr` of `node`."""

    node: Any
    output_nr: int
    ownership_token: Any = None

    def _edge(self):
        if hasattr(self.node, "variable"):
            return self.node.variable, LEAF
        return self.node, self.output_nr

    @property
    def requires_grad(self) -> bool:
        return True


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge of a tensor, which can stand for it in `autograd.grad` and `backward`."""
    if not tensor.requires_grad:
        raise RuntimeError("get_gradient_edge: the tensor does not require gradients, so it has no edge")
    node = tensor.grad_fn
    return GradientEdge(accumulator(tensor), 0) if node is None else GradientEdge(node, tensor.output_nr)


class saved_tensors_hooks:
    """Within it, `pack_hook` decides what is kept of a tensor saved for backward, and `unpack_hook` gives the tensor back."""

    def __init__(self, pack_hook, unpack_hook):
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        if modes.state.no_pack_hooks:
            raise RuntimeError(modes.state.no_pack_hooks[-1])
        modes.set_pack_hooks((*modes.state.pack_hooks, (self.pack_hook, self.unpack_hook)))

    def __exit__(self, *exc) -> None:
        modes.set_pack_hooks(modes.state.pack_hooks[:-1])


class disable_saved_tensors_hooks:
    """Within it, using saved-tensor hooks is an error with the given message."""

    def __init__(self, error_message: str):
        self.message = error_message

    def __enter__(self) -> None:
        if modes.state.pack_hooks:
            raise RuntimeError(self.message)
        modes.state.no_pack_hooks.append(self.message)

    def __exit__(self, *exc) -> None:
        modes.state.no_pack_hooks.pop()


class save_on_cpu(saved_tensors_hooks):
    """Within it, tensors saved for backward are kept in main memory and brought back when backward needs them."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda"):
        super().__init__(lambda tensor: (tensor.device, tensor.to("cpu", copy=True)), lambda packed: packed[1].to(packed[0]))


def register_multi_grad_hook(tensors, fn, *, mode: str = "all") -> RemovableHandle:
    """Call fn once in every backward pass: when the gradients of all of `tensors` that get one are known, with the list of them (None for
    those that get none); or, in mode "any", when the first of them is, with that gradient."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = tuple(tensors)
    arrive = _Arrivals(tensors, fn, wait=mode == "all").arrive
    return _Many([t.register_hook(partial(arrive, i)) for i, t in enumerate(tensors)])


class _Arrivals:
    """The gradients of several tensors: in every backward pass fn is called with all of them, or (without `wait`) with the first.

    What has arrived is kept by the pass, so that passes in several threads do not see each other's."""

    def __init__(self, tensors: tuple, fn: Callable, wait: bool):
        self.tensors, self.fn, self.wait = tensors, fn, wait

    def arrive(self, i: int, grad) -> None:
        notes = modes.state.task.notes
        grads = notes.get(self)
        if grads is None:
            grads = notes[self] = {}  # number of a tensor -> its gradient
            if self.wait:
                reached = engine.receivers()
                notes[self, "all"] = sum(id(t._edge()[0]) in reached for t in self.tensors)
        grads[i] = grad
        if not self.wait and len(grads) == 1:
            self.fn(grad)
        elif self.wait and len(grads) == notes[self, "all"]:
            del notes[self]
            self.fn([grads.get(k) for k in range(len(self.tensors))])


class _Many(RemovableHandle):
    def __init__(self, handles):
        self.handles = handles

    def remove(self) -> None:
        for h in self.handles:
            h.remove()

    def __reduce__(self):
        return _Many, (self.handles,)


def increment_version(tensor) -> None:
    """Say that a tensor was changed in place by other means."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        t._bump()


class allow_mutation_on_saved_tensors(saved_tensors_hooks):
    """Within it, tensors saved for backward may be changed in place: backward, within it as well, sees them as they were. They are copied when
    somebody is about to write to them, and not before.

    tid_to_weakhandle   (a saved tensor, its version) -> what backward will ask for it
    cloned              what had to be copied
    """

    def __init__(self):
        super().__init__(self._pack, self._unpack)
        self.tid_to_weakhandle: weakref.WeakValueDictionary[tuple, _Saved] = weakref.WeakValueDictionary()
        self.cloned: weakref.WeakKeyDictionary[_Saved, Tensor] = weakref.WeakKeyDictionary()

    def __enter__(self) -> allow_mutation_on_saved_tensors:
        if modes.state.keeping is not None:
            raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
        super().__enter__()
        modes.state.keeping = self
        return self

    def __exit__(self, *exc) -> None:
        modes.state.keeping = None
        super().__exit__(*exc)
        self.tid_to_weakhandle.clear()
        self.cloned.clear()

    def _pack(self, tensor: Tensor) -> _Saved:
        key = (id(tensor), tensor._version)
        found = self.tid_to_weakhandle.get(key)
        if found is None:
            found = self.tid_to_weakhandle[key] = _Saved(tensor)
        return found

    def _unpack(self, saved: _Saved) -> Tensor:
        if modes.state.keeping is not self:
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was recorded"
            )
        return self.cloned[saved] if saved.tensor is None else saved.tensor

    def about_to_write(self, tensor: Tensor) -> None:
        """Copy what shares the memory of this tensor."""
        for saved in list(self.tid_to_weakhandle.values()):
            if saved.tensor is not None and saved.tensor._shared_storage() is tensor._shared_storage():
                with modes.no_grad():
                    self.cloned[saved] = saved.tensor.detach().clone()
                saved.tensor = None


class _Saved:
    """A saved tensor, until it is copied."""

    def __init__(self, tensor: Tensor):
        self.tensor: Tensor | None = tensor


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """Nothing to warn about: gradients are accumulated on the stream that computed them."""


def set_override_stale_capture_stream(enabled: bool) -> None:
    """Nothing to override: nodes hold no streams."""


__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version",
    "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks", "set_override_stale_capture_stream",
    "set_warn_on_accumulate_grad_stream_mismatch",
]  # fmt: skip
