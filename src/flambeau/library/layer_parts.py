"""Operators of PyTorch's that are pieces of layers here: normalizations, pooling, padding, interpolation. As in parts.py."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod

from flambeau import dtypes
from flambeau.library.parts import FOUND, enter, op, part


@part("_batch_norm_with_update")
def _batch_norm_with_update(input, **given):
    return *op("native_batch_norm")(input, training=True, **given), input.new_empty(0, dtype=dtypes.uint8)


@part("cudnn_batch_norm")
def cudnn_batch_norm(input, exponential_average_factor, epsilon, **given):
    found = op("native_batch_norm")(input, momentum=exponential_average_factor, eps=epsilon, **given)
    return *found, input.new_empty(0)


@part("embedding")
def embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse):
    return op("nn.functional.embedding")(indices, weight, None if padding_idx == -1 else padding_idx, None, 2.0, scale_grad_by_freq, sparse)


@part("rrelu_with_noise")
def rrelu_with_noise(self, noise, lower, upper, training, generator):
    if not training:
        return op("nn.functional.leaky_relu")(self, (lower + upper) / 2)
    slopes = self.new_empty(self.shape).uniform_(lower, upper, generator=generator)
    noise.copy_(slopes.where(self <= 0, slopes.new_ones(())))
    return self * noise


@part("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode):
    pool = op(f"nn.functional.max_pool{len(kernel_size)}d")
    return tuple(pool(self, kernel_size, stride or None, padding, dilation, ceil_mode, return_indices=True))


@part("fractional_max_pool2d", "fractional_max_pool3d")
def fractional_max_pool(self, kernel_size, output_size, random_samples):
    pool = op(f"nn.functional.fractional_max_pool{len(kernel_size)}d")
    return tuple(pool(self, kernel_size, output_size, return_indices=True, _random_samples=random_samples))


@part("max_unpool2d", "max_unpool3d")
def max_unpool(self, indices, output_size, stride=None, padding=None):
    kept = self.dim() - len(output_size)
    flat = self.new_zeros((*self.shape[:kept], prod(output_size)))
    filled = flat.scatter(-1, indices.reshape(*self.shape[:kept], -1), self.reshape(*self.shape[:kept], -1))
    return filled.view(*self.shape[:kept], *output_size)


def _upsamples(mode: str, antialias: bool = False) -> Callable:
    """The sizes are those asked for; scales are left to the sizes, as PyTorch does where none is given."""

    def upsample(self, output_size, align_corners=None, **scales):
        corners = align_corners if mode in ("linear", "bilinear", "bicubic", "trilinear") else None
        given = [s for s in scales.values() if s is not None]
        if len(given) == len(output_size):  # what PyTorch computes with, where it was given
            found = op("nn.functional.interpolate")(self, None, tuple(given), mode, corners, False, antialias)
            if list(found.shape[2:]) == list(output_size):
                return found
        return op("nn.functional.interpolate")(self, tuple(output_size), None, mode, corners, None, antialias)

    return upsample


def _upsamples_vec(mode: str, antialias: bool = False) -> Callable:
    def upsample(input, output_size, align_corners=None, scale_factors=None):
        corners = align_corners if mode in ("linear", "bilinear", "bicubic", "trilinear") else None
        size = None if output_size is None else tuple(output_size)
        factors = None if scale_factors is None else tuple(scale_factors)
        return op("nn.functional.interpolate")(input, size, factors, mode, corners, None, antialias)

    return upsample


_MODES = {
    "upsample_nearest1d": "nearest", "upsample_nearest2d": "nearest", "upsample_nearest3d": "nearest", "_upsample_nearest_exact1d": "nearest-exact",
    "_upsample_nearest_exact2d": "nearest-exact", "_upsample_nearest_exact3d": "nearest-exact", "upsample_linear1d": "linear",
    "upsample_bilinear2d": "bilinear", "upsample_bicubic2d": "bicubic", "upsample_trilinear3d": "trilinear",
}  # fmt: skip
for _name, _mode in _MODES.items():
    FOUND[_name], FOUND[f"{_name}.vec"] = _upsamples(_mode), _upsamples_vec(_mode)
for _name in ("bilinear", "bicubic"):
    FOUND[f"_upsample_{_name}2d_aa"], FOUND[f"_upsample_{_name}2d_aa.vec"] = _upsamples(_name, True), _upsamples_vec(_name, True)


SHORT: dict[str, Callable] = {
    "_softmax": lambda self, dim, half_to_float: (self.float() if half_to_float else self).softmax(dim),
    "_safe_softmax": lambda self, dim, dtype: self.softmax(dim, dtype).masked_fill((self == -inf).all(dim, keepdim=True), 0),
    "_log_softmax": lambda self, dim, half_to_float: (self.float() if half_to_float else self).log_softmax(dim),
    "_convolution": lambda benchmark=False, deterministic=False, cudnn_enabled=True, allow_tf32=True, **given: op("convolution")(**given),
    "_native_batch_norm_legit _native_batch_norm_legit_functional": lambda **given: op("native_batch_norm")(**given),
    "_native_batch_norm_legit.no_stats": lambda **given: op("native_batch_norm")(running_mean=None, running_var=None, **given),
    "_native_batch_norm_legit_no_training": lambda **given: op("native_batch_norm")(training=False, **given),
    "_prelu_kernel": lambda self, weight: self.where(self > 0, self * weight),
    "elu": lambda self, alpha, scale, input_scale: self.where(self > 0, ((self * input_scale).exp() - 1) * alpha) * scale,
    "log_sigmoid_forward": lambda self: (op("nn.functional.logsigmoid")(self), (-self.abs()).exp()),
    "log_sigmoid": lambda self: op("nn.functional.logsigmoid")(self),
    "adaptive_max_pool2d adaptive_max_pool3d": lambda self, output_size: tuple(
        op(f"nn.functional.adaptive_max_pool{len(output_size)}d")(self, output_size, return_indices=True)
    ),
    "_adaptive_avg_pool2d _adaptive_avg_pool3d": lambda self, output_size: op(f"nn.functional.adaptive_avg_pool{len(output_size)}d")(
        self, output_size
    ),
    "im2col": lambda self, **given: op("nn.functional.unfold")(self, **given),
    "col2im": lambda self, **given: op("nn.functional.fold")(self, **given),
    "reflection_pad1d reflection_pad2d reflection_pad3d": lambda self, padding: op("nn.functional.pad")(self, tuple(padding), "reflect"),
    "replication_pad1d replication_pad2d replication_pad3d": lambda self, padding: op("nn.functional.pad")(
        self, tuple(padding), "replicate"
    ),
    "grid_sampler_2d_cpu": lambda **given: op("grid_sampler")(**given),
}
enter(SHORT)
