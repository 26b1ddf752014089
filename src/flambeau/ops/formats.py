"""Memory formats: the order of the elements of a tensor in memory."""

from __future__ import annotations

from flambeau.dtypes import Constant
from flambeau.kernels import layout


class memory_format(Constant):
    """An order of memory. There are four: `contiguous_format`, `preserve_format`, `channels_last`, `channels_last_3d`."""


contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")


def is_format(value) -> bool:
    return isinstance(value, memory_format)


def strides_for(format: memory_format, shape, strides) -> tuple[int, ...]:
    """The strides of a dense copy in this format."""
    if format is preserve_format:
        return layout.preserve_format_strides(tuple(shape), tuple(strides))
    if format is contiguous_format:
        return layout.contiguous_strides(tuple(shape))
    wanted = 4 if format is channels_last else 5
    if len(shape) != wanted:
        raise RuntimeError(f"required rank {wanted} tensor to use {format.name} format, found {len(shape)} dimensions")
    return layout.channels_last_strides(tuple(shape))


def holds(shape, strides, format: memory_format | None) -> bool:
    """Whether a tensor of this geometry is in the format (None means contiguous)."""
    if format in (None, contiguous_format, preserve_format):
        return layout.is_contiguous(tuple(shape), tuple(strides))
    return len(shape) == (4 if format is channels_last else 5) and layout.is_channels_last(tuple(shape), tuple(strides))
