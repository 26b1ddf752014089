"""SyncBatchNorm's forward and backward: a batch norm over a batch whose parts lie on several ranks. The name of this file is PyTorch's.

    mean = sum of x / n,    var = sum of (x - mean)^2 / n            over all ranks, n elements of each channel
    y    = (x - mean) / sqrt(var + eps) * weight + bias

Note [statistics of parts]: every rank sends the mean, the sum of squared deviations from that mean, and the number of elements of its part. The
squares of the whole are those of the parts, and what their means deviate from the mean of all: no large numbers are subtracted from each other.

    M = sum of M_r + sum of n_r (mean_r - mean)^2

Note [derivative of a batch norm]: with x' = (x - mean) / sqrt(var + eps), and averages over all ranks,

    dx = weight / sqrt(var + eps) * (g - average(g) - x' * average(g x'))

so backward sends the sums of g and of g (x - mean) for each channel. The gradients of weight and bias are those of this rank's part: whoever averages
gradients averages these, too.
"""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.autograd.function import Function, once_differentiable
from flambeau.nn import functional as F
from flambeau.ops.joining import cat
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import zeros


class SyncBatchNorm(Function):
    """A batch norm in training, whose statistics are those of all ranks of a process group. (N, C, *) -> the same."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
        eps: float, momentum: float, process_group: Any, world_size: int,
    ) -> Tensor:  # fmt: skip
        mean, squares, count = statistics(input)
        channels = input.shape[1]
        own = cat([mean, squares, mean.new_full((1,), count)])
        everyone = [zeros(own.shape, dtype=own.dtype, device=own.device) for _ in range(world_size)]
        process_group.allgather([everyone], [own]).wait()
        mean, var, total = whole(everyone, channels)
        if total <= 1:
            raise ValueError(
                f"Expected more than 1 value per channel when training, got input size {tuple(input.shape)} on this rank, {total:g} on all"
            )
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_((var * (total / (total - 1))).to(running_var.dtype), momentum)
        ctx.save_for_backward(input, weight, mean, (var + eps).rsqrt())
        ctx.process_group, ctx.total = process_group, total
        ctx.has_bias = bias is not None
        stored = mean.to(input.dtype), var.to(input.dtype)
        if input.dtype in (dtypes.float16, dtypes.bfloat16):  # statistics and parameters stay in float32
            stored = mean, var
        return F.batch_norm(input, *stored, weight, bias, False, 0.0, eps) if input.numel() else input.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        input, weight, mean, invstd = ctx.saved_tensors
        dims = [0, *range(2, input.dim())]
        shape = [1, -1] + [1] * (input.dim() - 2)
        g = grad.to(mean.dtype)
        centred = input.to(mean.dtype) - mean.view(shape)
        sum_g, sum_gx = g.sum(dims), (g * centred).sum(dims)
        grad_weight = (sum_gx * invstd).to(weight.dtype) if weight is not None and ctx.needs_input_grad[1] else None
        grad_bias = sum_g.to(grad.dtype if weight is None else weight.dtype) if ctx.has_bias and ctx.needs_input_grad[2] else None
        grad_input = None
        if ctx.needs_input_grad[0]:
            both = cat([sum_g, sum_gx])
            ctx.process_group.allreduce([both]).wait()
            average_g, average_gx = (both / ctx.total).chunk(2)
            scale = invstd if weight is None else invstd * weight.to(mean.dtype)
            change = g - average_g.view(shape) - centred * (average_gx * invstd * invstd).view(shape)
            grad_input = (change * scale.view(shape)).to(input.dtype)
        return grad_input, grad_weight, grad_bias, None, None, None, None, None, None


def statistics(input: Tensor) -> tuple[Tensor, Tensor, int]:
    """Of one part, by channel: (mean, sum of squared deviations from it, number of elements). float32 at least."""
    wide = input.float() if input.dtype in (dtypes.float16, dtypes.bfloat16) else input
    channels = input.shape[1]
    count = input.numel() // channels
    if not count:
        nothing = zeros(channels, dtype=wide.dtype, device=input.device)
        return nothing, nothing, 0
    dims = [0, *range(2, input.dim())]
    mean = wide.mean(dims)
    deviations = wide - mean.view([1, -1] + [1] * (input.dim() - 2))
    return mean, (deviations * deviations).sum(dims), count


def whole(parts: list[Tensor], channels: int) -> tuple[Tensor, Tensor, float]:
    """(mean, variance, number of elements) from those of the parts: see Note [statistics of parts]."""
    counts = [part[-1].item() for part in parts]
    total = sum(counts)
    means = [part[:channels] for part in parts]
    mean = zeros(channels, dtype=parts[0].dtype, device=parts[0].device)
    for count, one in zip(counts, means, strict=True):
        mean += one * (count / max(total, 1))
    squares = zeros(channels, dtype=parts[0].dtype, device=parts[0].device)
    for count, one, part in zip(counts, means, parts, strict=True):
        squares += part[channels : 2 * channels] + count * (one - mean) ** 2
    return mean, squares / max(total, 1), total
