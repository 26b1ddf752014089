"""Gradients in 8 bits on their way: each rank sends its integers with their scale and zero, to all others, and adds up what it receives."""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.distributed.data_parallel.arguments import default_group
from flambeau.distributed.data_parallel.grad_bucket import GradBucket
from flambeau.futures import Future
from flambeau.ops.joining import cat, stack
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import zeros, zeros_like

LEVELS = 255


def quantization_pertensor_hook(process_group: Any, bucket: GradBucket) -> Future[Tensor]:
    """One scale for the whole bucket."""
    return _exchanged(process_group, bucket.buffer()[None], bucket)


def quantization_perchannel_hook(process_group: Any, bucket: GradBucket, bucket_size: int = 512) -> Future[Tensor]:
    """One scale for each `bucket_size` elements."""
    flat = bucket.buffer()
    rest = -len(flat) % bucket_size
    padded = cat([flat, zeros(rest, dtype=flat.dtype, device=flat.device)]) if rest else flat
    return _exchanged(process_group, padded.view(-1, bucket_size), bucket)


def _exchanged(process_group: Any, rows: Tensor, bucket: GradBucket) -> Future[Tensor]:
    group = process_group if process_group is not None else default_group(None, None)
    scale, zero = _observed(rows)
    own_scales = stack([scale, zero])
    scales = _get_allgather_out_list(own_scales, group.size())
    group.allgather([scales], [own_scales]).wait()
    integers = _quantize_per_channel_backend(rows, scale, zero)
    everyone = _get_allgather_out_list(integers, group.size())
    buffer = bucket.buffer()

    def added(future: Future) -> Tensor:
        future.value()
        total = zeros_like(rows)
        for found, (scale, zero) in zip(everyone, scales, strict=True):
            total += _dequantize_per_channel_backend(found, scale, zero)
        return buffer.copy_((total / group.size()).reshape(-1)[: len(buffer)])

    return group.allgather([everyone], [integers]).get_future().then(added)


def _observed(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The scale and the zero of each row, so that its least element becomes 0 and its greatest 255; zero itself is always met exactly."""
    low, high = rows.amin(1).clamp(max=0.0), rows.amax(1).clamp(min=0.0)
    scale = ((high - low) / LEVELS).clamp(min=1.1920928955078125e-07)
    return scale, (-low / scale).round().clamp(0, LEVELS)


def _quantize_per_tensor_backend(x: Tensor, scale: Any, zero_point: Any) -> Tensor:
    """8-bit integers: x / scale + zero_point, rounded."""
    return (x / scale).round().add(zero_point).clamp(0, LEVELS).to(dtypes.uint8)


def _dequantize_per_tensor_backend(y: Tensor, scale: Any, zero_point: Any) -> Tensor:
    """Back: (y - zero_point) * scale."""
    return scale * (y.to(dtypes.float32) - zero_point)


def _quantize_per_channel_backend(x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """The same with a scale for each row."""
    return _quantize_per_tensor_backend(x, scale[:, None], zero_point[:, None])


def _dequantize_per_channel_backend(y: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """Back, with a scale for each row."""
    return _dequantize_per_tensor_backend(y, scale[:, None], zero_point[:, None])


def _get_allgather_out_list(all_gather_in_list: Tensor, world_size: int) -> list[Tensor]:
    """Room for everyone's."""
    return [zeros_like(all_gather_in_list) for _ in range(world_size)]
