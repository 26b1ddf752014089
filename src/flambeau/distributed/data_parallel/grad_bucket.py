"""GradBucket: what a communication hook is given, the gradients of a few parameters in one flat tensor."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.tensor import Tensor


class GradBucket:
    """Gradients on their way. A hook reads `buffer()`, and gives a Future of what the gradients are to become, which may be that same tensor."""

    __slots__ = ("_buffer", "_index", "_last", "_parameters")

    def __init__(self, index: int, buffer: Tensor, parameters: Sequence[Tensor], last: bool):
        self._index, self._buffer, self._parameters, self._last = index, buffer, parameters, last

    def index(self) -> int:
        """Its number: the bucket that is sent first is 0."""
        return self._index

    def buffer(self) -> Tensor:
        """All gradients, one after the other; a sparse tensor where it is that of one parameter."""
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Put another tensor in the place of the buffer."""
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        """The gradient of each parameter: views of the buffer, in the memory order of the parameters."""
        return [self._buffer] if self._buffer.is_sparse else views(self._buffer, self._parameters)

    def parameters(self) -> list[Tensor]:
        """Whose gradients they are."""
        return list(self._parameters)

    def is_last(self) -> bool:
        """Whether it is the last bucket of a backward pass."""
        return self._last


def views(flat: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """A piece of a flat tensor for each parameter, one after the other: of its shape, and lying in memory as it does, if that is dense."""
    found, start = [], 0
    for p in parameters:
        piece = flat[start : start + p.numel()]
        if p.is_contiguous() or not is_dense(p):
            found.append(piece.view(p.shape))
        else:
            found.append(piece.as_strided(p.shape, p.stride(), piece.storage_offset()))
        start += p.numel()
    return found


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill one stretch of memory, each place once, in whatever order of dimensions.

    >>> is_dense(torch.ones(2, 3).t()), is_dense(torch.ones(4)[::2])
    (True, False)
    """
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True
