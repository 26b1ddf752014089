"""Batch norm of half precision on a GPU, by cuDNN, where it takes it: x is not made wide first, and read twice altogether.

All other batches go through `_by_channel` in normalization.py, which is also what the second derivative is made of.
"""

from __future__ import annotations

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.ops import specs
from flambeau.ops.declare import OPS, on_arrays


def by_library(input, weight, bias, running_mean, running_var, momentum, eps):
    """(output, mean, rstd) of a batch in training, and running averages moved; None where this is not for cuDNN."""
    numbers = weight, bias, running_mean, running_var
    if input.dtype.itemsize != 2 or momentum is None or any([n is None for n in numbers]) or not arrays.on_gpu(input._array):
        return None
    if not arrays.cuda_room.norm_graphs.takes(input._array, *[n._array for n in numbers]):
        return None
    out, mean, rstd, *moved = _batch_norm_of_halves(input, *numbers, float(momentum), float(eps))
    for running, new in zip((running_mean, running_var), moved, strict=True):
        _replaced.call_inplace(running, new)
    return out, mean, rstd


@on_arrays(public=False, method=False, returns="out mean rstd moved_mean moved_var", grad_name="CudnnBatchNormBackward0")
def _batch_norm_of_halves(input, weight, bias, running_mean, running_var, momentum, eps):
    """((x - mean) * rstd * weight + bias, mean, rstd, running averages moved towards these). (N, C, *), (C,) four times."""
    return arrays.cuda_room.norm_graphs.forward(input, weight, bias, running_mean, running_var, momentum, eps)


@_batch_norm_of_halves.meta
def _(input, weight, bias, running_mean, running_var, momentum, eps):
    return [specs.like(input), *[(weight.shape, weight.dtype)] * 4]


@_batch_norm_of_halves.joint
def _(grads, input, weight, bias, mean, rstd, eps, again):
    grad = grads[0]
    if grad is None:
        return {}
    if again:  # the statistics are functions of x, too
        x, g = (t.to(dtypes.float32) for t in (input, grad))
        _, mean, rstd, _ = OPS["_by_channel"](x, weight, bias, eps, 0, None)
        of_input, of_weight, of_bias = OPS["_by_channel_backward"](g, x, weight, mean, rstd, 0)
        found = of_input.to(input.dtype), of_weight, of_bias
    else:
        found = _batch_norm_of_halves_backward(grad, input, weight, mean, rstd)
    return dict(zip(("input", "weight", "bias"), found, strict=True))


@on_arrays(public=False, method=False, returns="input weight bias", differentiable=False)
def _batch_norm_of_halves_backward(grad, input, weight, mean, rstd):
    """The gradients of the three."""
    return arrays.cuda_room.norm_graphs.backward(grad, input, weight, mean, rstd)


_batch_norm_of_halves_backward.meta(lambda grad, input, weight, mean, rstd: [specs.like(input), *[(weight.shape, weight.dtype)] * 2])


@on_arrays(public=False, method=False, onto=arrays.copy, differentiable=False, shown="copy_")
def _replaced(running, new):
    """The running averages, moved."""
    arrays.write(running, new)
