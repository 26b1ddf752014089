"""Small questions about tensors that PyTorch asks as functions: is_tensor, is_floating_point, numel, broadcast_shapes, ..."""

from __future__ import annotations

from typing import Any

from flambeau.eager.overrides import overridable
from flambeau.kernels import layout
from flambeau.tensor.tensor import Size, Tensor


def is_tensor(obj: Any, /) -> bool:
    """Whether an object is a tensor."""
    return isinstance(obj, Tensor)


def _ask(name: str, doc: str):
    """The function form of a method."""

    def question(input, *args, **kwargs):
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}(): argument 'input' must be Tensor, found {type(input).__name__}")
        return getattr(input, name)(*args, **kwargs)

    question.__name__ = question.__qualname__ = name
    question.__doc__ = doc
    return overridable(question)


numel = _ask("numel", "The number of elements.")
is_floating_point = _ask("is_floating_point", "Whether the elements are real floating-point numbers.")
is_complex = _ask("is_complex", "Whether the elements are complex numbers.")
is_signed = _ask("is_signed", "Whether the elements can be negative.")
is_nonzero = _ask("is_nonzero", "Whether the one element of a tensor is not zero.")
is_inference = _ask("is_inference", "Whether a tensor was made in inference mode.")
is_conj = _ask("is_conj", "Whether it is a view of memory that is to be read conjugated.")
is_neg = _ask("is_neg", "Whether it is a view of memory that is to be read negated.")
is_distributed = _ask("is_distributed", "False.")
get_device = _ask("get_device", "The index of the GPU a tensor is on, -1 on the CPU.")
is_same_size = _ask("is_same_size", "Whether two tensors have the same shape.")
detach = _ask("detach", "The same memory without history: gradients stop here.")


@overridable
def _has_compatible_shallow_copy_type(input: Tensor, from_: Tensor) -> bool:
    """Whether `input.data = from_` is possible: both are dense, or both sparse in the same way, and both or neither have memory."""
    return input.layout is from_.layout and input.is_meta == from_.is_meta


def broadcast_shapes(*shapes) -> Size:
    """The shape that tensors of these shapes broadcast to. A number counts as a shape of one dimension."""
    if not all(hasattr(s, "__index__") or isinstance(s, (tuple, list)) for s in shapes):
        found = ", ".join(type(s).__name__ for s in shapes)
        raise RuntimeError(f"Input shapes should be of type ints, a tuple of ints, or a list of ints, got {found}")
    listed = [(s,) if hasattr(s, "__index__") else tuple(s) for s in shapes]
    if any(n < 0 for shape in listed for n in shape):
        raise ValueError(f"Attempting to broadcast a dimension with negative length! Found {', '.join(map(str, listed))}")
    try:
        return Size(layout.broadcast_shapes(*listed))
    except RuntimeError as problem:
        raise RuntimeError(f"Shape mismatch: every expected shape should be broadcastable to the others. {problem}") from None
