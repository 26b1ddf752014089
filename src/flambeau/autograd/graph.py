"""Looking into and steering the recorded graph: hooks on saved tensors, edges as objects, hooks on many tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

from flambeau.autograd import modes
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
    """Call fn once the gradients of all (mode "all": fn(list)) or of any (mode "any": fn(grad)) of `tensors` are known."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = tuple(tensors)
    state = {"grads": [None] * len(tensors), "left": len(tensors), "done": False}

    def hook(i):
        def run(grad):
            if mode == "any":
                if not state["done"]:
                    state["done"] = True
                    fn(grad)
                return
            state["grads"][i] = grad
            state["left"] -= 1
            if state["left"] == 0:
                grads = state["grads"]
                state["grads"], state["left"] = [None] * len(tensors), len(tensors)
                fn(grads)

        return run

    handles = [t.register_hook(hook(i)) for i, t in enumerate(tensors)]
    return _Many(handles)


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
]
