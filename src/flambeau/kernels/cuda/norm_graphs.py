"""Batch norm of half precision by cuDNN, for images whose channels come last, with weights and statistics in float32: x is read as it is."""

from __future__ import annotations

from functools import lru_cache

import cupy

from flambeau.kernels import arrays, layout
from flambeau.kernels.cuda import cudnn
from flambeau.kernels.cuda.launch import empty, strided, where_it_is

Sizes = tuple[int, ...]
NUMBERED = {dtype.num: dtype for dtype in (cudnn.FLOAT16, cudnn.BFLOAT16)}
X, WEIGHT, BIAS, OLD_MEAN, OLD_VAR, OUT, MEAN, RSTD, NEW_MEAN, NEW_VAR, EPS, MOMENTUM, GRAD, OF_X, OF_WEIGHT, OF_BIAS = range(1, 17)
TOGETHER = 8  # channels that the library reads at a time


def takes(x, *numbers) -> bool:
    """Whether cuDNN may be asked about x, a weight, a bias and running averages like these."""
    if (
        x.dtype.num not in NUMBERED
        or x.ndim not in (4, 5)
        or not x.size
        or x.shape[1] % TOGETHER
        or x.size == x.shape[1]
        or not cudnn.is_used()
    ):
        return False
    if not layout.is_channels_last(*arrays.view_of(x)) or not all([_are_numbers(a, x) for a in numbers]):
        return False
    return _graph(_forward, x) is not None and _graph(_backward, x) is not None


def _are_numbers(a, x) -> bool:
    return (
        type(a) is cupy.ndarray and a.dtype == cudnn.FLOAT32 and a.shape == x.shape[1:2] and a.flags.c_contiguous
        and a.data.device_id == x.data.device_id
    )  # fmt: skip


def _graph(find, x) -> cudnn.Graph | None:
    return find(x.dtype.num, x.shape, x.strides, cudnn.deterministic(), x.data.device_id)


@where_it_is(0)
def forward(x, weight, bias, running_mean, running_var, momentum: float, eps: float) -> tuple:
    """(result, mean, 1 / sqrt(var + eps), the running averages moved towards these) of operands that are taken."""
    out, made = strided(x.shape, x.strides, x.dtype), [empty(x.shape[1:2], cudnn.FLOAT32) for _ in range(4)]
    x, weight, bias, running_mean, running_var = map(_aligned, (x, weight, bias, running_mean, running_var))
    given = {X: x, WEIGHT: weight, BIAS: bias, OLD_MEAN: running_mean, OLD_VAR: running_var, OUT: out} | dict(
        zip((MEAN, RSTD, NEW_MEAN, NEW_VAR), made, strict=True)
    )
    addresses = {number: a.data.ptr for number, a in given.items()}
    _graph(_forward, x).run(addresses | {EPS: cudnn.number(eps).ctypes.data, MOMENTUM: cudnn.number(momentum).ctypes.data})
    return out, *made


@where_it_is(1)
def backward(grad, x, weight, mean, rstd) -> tuple:
    """The gradients of x, weight and bias."""
    x, weight, mean, rstd = map(_aligned, (x, weight, mean, rstd))
    grad = grad if grad.strides == x.strides and not grad.data.ptr % cudnn.ALIGNED else _copied(grad, x)
    of_x, (of_weight, of_bias) = strided(x.shape, x.strides, x.dtype), (empty(x.shape[1:2], cudnn.FLOAT32) for _ in range(2))
    given = {X: x, WEIGHT: weight, MEAN: mean, RSTD: rstd, GRAD: grad, OF_X: of_x, OF_WEIGHT: of_weight, OF_BIAS: of_bias}
    _graph(_backward, x).run({number: a.data.ptr for number, a in given.items()})
    return of_x, of_weight, of_bias


@lru_cache(512)
def _forward(dtype: int, shape: Sizes, strides: Sizes, deterministic: bool, device: int) -> cudnn.Graph | None:
    graph, of_x, of_numbers = _started(dtype, shape, strides)
    weight, bias, mean, var = (graph.tensor(number, *of_numbers, cudnn.FLOAT32) for number in (WEIGHT, BIAS, OLD_MEAN, OLD_VAR))
    made = graph.nodes.batchnorm(
        name="batch_norm", input=graph.tensor(X, *of_x), scale=weight, bias=bias, in_running_mean=mean, in_running_var=var,
        epsilon=graph.number(EPS, len(shape)), momentum=graph.number(MOMENTUM, len(shape)),
    )  # fmt: skip
    graph.result(made[0], OUT, *of_x)
    for result, number in zip(made[1:], (MEAN, RSTD, NEW_MEAN, NEW_VAR), strict=True):
        graph.result(result, number, *of_numbers, cudnn.FLOAT32)
    return graph.planned(False)


@lru_cache(512)
def _backward(dtype: int, shape: Sizes, strides: Sizes, deterministic: bool, device: int) -> cudnn.Graph | None:
    graph, of_x, of_numbers = _started(dtype, shape, strides)
    weight, mean, rstd = (graph.tensor(number, *of_numbers, cudnn.FLOAT32) for number in (WEIGHT, MEAN, RSTD))
    made = graph.nodes.batchnorm_backward(
        name="batch_norm", grad=graph.tensor(GRAD, *of_x), input=graph.tensor(X, *of_x), scale=weight, mean=mean, inv_variance=rstd
    )
    graph.result(made[0], OF_X, *of_x)
    for result, number in zip(made[1:], (OF_WEIGHT, OF_BIAS), strict=True):
        graph.result(result, number, *of_numbers, cudnn.FLOAT32)
    return graph.planned(False)


def _aligned(x):
    """The array itself if the library can read it where it lies: plans are made for arrays at any address."""
    return _copied(x, x) if x.data.ptr % cudnn.ALIGNED else x


def _copied(x, like):
    """A copy that lies in memory as something packed does."""
    made = strided(like.shape, like.strides, like.dtype)
    arrays.write(made, x)
    return made


def _started(dtype: int, shape: Sizes, strides: Sizes) -> tuple[cudnn.Graph, tuple[Sizes, Sizes], tuple[Sizes, Sizes]]:
    """(graph, x as it sees it, numbers for each channel as it sees them)"""
    found = NUMBERED[dtype]
    others = (1,) * (len(shape) - 2)
    channels = shape[1]
    return (
        cudnn.Graph(found),
        (shape, tuple([step // found.itemsize for step in strides])),
        ((1, channels, *others), (channels, 1, *(channels for _ in others))),
    )
