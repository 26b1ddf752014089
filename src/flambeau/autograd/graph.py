"""Looking into and steering the recorded graph: hooks on saved tensors, edges as objects, hooks on many tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from flambeau.autograd import engine, modes
from flambeau.autograd.node import LEAF, Node, RemovableHandle, accumulator
from flambeau.tensor import Tensor


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
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    node = tensor.grad_fn
    return GradientEdge(accumulator(tensor), 0) if node is None else GradientEdge(node, tensor.output_nr)


class saved_tensors_hooks:
    """Within it, `pack_hook` decides what is kept of a tensor saved for backward, and `unpack_hook` gives the tensor back."""

    def __init__(self, pack_hook, unpack_hook):
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        if _disabled:
            raise RuntimeError(_disabled[-1])
        modes.state.pack_hooks.append((self.pack_hook, self.unpack_hook))
        modes.enter()

    def __exit__(self, *exc) -> None:
        modes.state.pack_hooks.pop()
        modes.leave()


_disabled: list[str] = []


class disable_saved_tensors_hooks:
    """Within it, using saved-tensor hooks is an error with the given message."""

    def __init__(self, error_message: str):
        self.message = error_message

    def __enter__(self) -> None:
        _disabled.append(self.message)

    def __exit__(self, *exc) -> None:
        _disabled.pop()


class save_on_cpu(saved_tensors_hooks):
    """Within it, tensors saved for backward are kept in main memory and brought back when backward needs them."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda"):
        def pack(tensor: Tensor):
            return tensor.device, tensor.to("cpu", copy=True) if tensor.device.type != "cpu" else tensor.clone()

        def unpack(packed):
            device, tensor = packed
            return tensor.to(device)

        super().__init__(pack, unpack)


def register_multi_grad_hook(tensors, fn, *, mode: str = "all") -> RemovableHandle:
    """Call fn once in every backward pass: when the gradients of all of `tensors` that get one are known, with the list of them (None for
    those that get none); or, in mode "any", when the first of them is, with that gradient."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = tuple(tensors)
    modes.watched = True
    return _Many([t.register_hook(hook) for t, hook in zip(tensors, (_All if mode == "all" else _Any)(tensors, fn).hooks(), strict=True)])


class _PerPass:
    """What several hooks have in common during one backward pass."""

    def __init__(self, tensors: tuple, fn: Callable):
        self.tensors, self.fn = tensors, fn
        self.task: Any = None

    def hooks(self) -> list[Callable]:
        """One hook for each tensor."""
        return [lambda grad, i=i: self._called(i, grad) for i in range(len(self.tensors))]

    def _called(self, i: int, grad) -> None:
        if self.task is not modes.state.task:
            self.task = modes.state.task
            self.begin()
        self.arrive(i, grad)

    def begin(self) -> None:
        raise NotImplementedError

    def arrive(self, i: int, grad) -> None:
        raise NotImplementedError


class _All(_PerPass):
    def begin(self) -> None:
        reached = engine.receivers()
        self.left = sum(id(t._edge()[0]) in reached for t in self.tensors)
        self.grads: list = [None] * len(self.tensors)

    def arrive(self, i: int, grad) -> None:
        self.grads[i] = grad
        self.left -= 1
        if not self.left:
            self.fn(self.grads)
            self.grads, self.task = [], None


class _Any(_PerPass):
    def begin(self) -> None:
        self.done = False

    def arrive(self, i: int, grad) -> None:
        if not self.done:
            self.done = True
            self.fn(grad)


class _Many(RemovableHandle):
    def __init__(self, handles):
        self.handles = handles

    def remove(self) -> None:
        for h in self.handles:
            h.remove()

    def __getstate__(self):
        return self.handles

    def __setstate__(self, state) -> None:
        self.handles = state


def increment_version(tensor) -> None:
    """Say that a tensor was changed in place by other means."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        t._bump()


class allow_mutation_on_saved_tensors:
    """Within it, tensors saved for backward may be changed in place: backward sees them as they were (they are copied when saved)."""

    def __enter__(self):
        self.hooks = saved_tensors_hooks(lambda t: t.clone(), lambda t: t)
        self.hooks.__enter__()

    def __exit__(self, *exc) -> None:
        self.hooks.__exit__(*exc)


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """Nothing to warn about: gradients are accumulated on the stream that computed them."""


def set_override_stale_capture_stream(enabled: bool) -> None:
    """Nothing to override: nodes hold no streams."""


__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
    "set_override_stale_capture_stream",
    "set_warn_on_accumulate_grad_stream_mismatch",
]
