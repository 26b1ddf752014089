"""Tensors as the wire takes them: dense arrays of one dimension, on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from flambeau import modes
from flambeau.tensor import Tensor


def flat(tensor: Tensor) -> np.ndarray:
    """The elements in C order: the tensor's own memory where that is dense, else a copy."""
    array = tensor._array
    if type(array) is not np.ndarray:
        if tensor.layout.__str__() != "torch.strided":
            raise NotImplementedError(f"collectives move dense tensors, got one of layout {tensor.layout}: send its indices() and values()")
        with modes.no_grad():
            array = tensor.detach().resolve_conj().resolve_neg().cpu()._array
    return np.ascontiguousarray(array).reshape(-1)


def is_flat(tensor: Tensor) -> bool:
    """Whether flat() gives the tensor's own memory."""
    array = tensor._array
    return type(array) is np.ndarray and array.flags.c_contiguous


def store(array: np.ndarray, tensor: Tensor) -> None:
    """Write the elements back, if `array` is not where the tensor has them anyway."""
    if is_flat(tensor):
        own = tensor._array.reshape(-1)
        if own.__array_interface__["data"] != array.__array_interface__["data"]:
            own[:] = array
    elif type(tensor._array) is np.ndarray:
        tensor._array[...] = array.reshape(tensor._array.shape)
    else:
        from flambeau.tensor.making.interop import from_numpy

        with modes.no_grad():
            tensor.detach().copy_(from_numpy(array).view(tensor.dtype).view(tensor.shape))


def together(tensors: Sequence[Tensor]) -> tuple[np.ndarray, Callable[[np.ndarray], None]]:
    """Several tensors one after the other in one array, and how that is taken apart again."""
    parts = [flat(tensor) for tensor in tensors]
    bounds = np.cumsum([0, *map(len, parts)])

    def apart(array: np.ndarray) -> None:
        for tensor, start, end in zip(tensors, bounds, bounds[1:], strict=False):
            store(array[start:end], tensor)

    return np.concatenate(parts) if len(parts) != 1 else parts[0].copy(), apart
