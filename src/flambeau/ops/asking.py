"""Questions about values that decide which way an operation goes, or whether its arguments make sense."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flambeau.kernels import arrays
from flambeau.operators import ABOVE

# The tensor layer says of this thread,
recording: Callable[[], bool] = bool  # whether operations are recorded,
is_watched: Callable[[], bool] = bool  # and whether somebody wants to see the operations that others are made of.


def is_recorded(*tensors) -> bool:
    """Whether backward may ask for a derivative by one of these."""
    return recording() and any([t is not None and t.requires_grad for t in tensors])


def pulled_back(function: Callable, operands: dict, grads: Sequence) -> dict:
    """How gradients of the results of function(**operands) reach the operands, by what it is made of: for derivatives that are differentiated again."""
    tensors = {name: x for name, x in operands.items() if x is not None}
    wanted = [i for i, g in enumerate(grads) if g is not None]

    def results(*given):
        found = function(**operands | dict(zip(tensors, given, strict=True)))
        return tuple([found[i] for i in wanted])

    back = ABOVE["named"]("func").vjp(results, *tensors.values())[1]
    return dict(zip(tensors, back(tuple([grads[i] for i in wanted])), strict=True))


def anywhere(mask) -> bool:
    """Whether any element of a mask is true; inside vmap, any element of any sample: all samples go the same way.

    Of a tensor without data nothing is known: it is taken to hold what is usual, and nothing that is wrong."""
    mask = of_all_samples(mask)
    if hasattr(mask, "fake_mode"):
        return False
    return not mask.is_meta and bool(mask.any().item())


def geometry(tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape, strides in elements)."""
    return tuple(tensor.shape), tensor.stride()


def array_of(tensor):
    """The array of a tensor, for questions to kernels: whether there is a loop for it, what lies where. This room looks at no other."""
    return None if tensor is None else tensor._array


def numbers_of(tensor):
    """The elements as an array; inside vmap, those of all samples."""
    return arrays.plain(of_all_samples(tensor)._array)


def is_batched(tensor) -> bool:
    """Whether the tensor stands for many samples, inside vmap."""
    return hasattr(tensor._array, "as_tensor")


def of_all_samples(tensor):
    """The tensor itself; inside vmap, the one that holds all samples."""
    while hasattr(tensor._array, "as_tensor") and not hasattr(tensor._array, "owner"):  # the latter answers for itself
        tensor = tensor._array.value
    return tensor
