"""Operators of PyTorch's that are pieces of layers here: normalizations, pooling, padding, interpolation. As in parts.py."""

from __future__ import annotations

from collections.abc import Callable

from flambeau.library.parts import FOUND, dtype_named, op, part, product


@part("_softmax")
def _softmax(self, dim, half_to_float):
    return (self.float() if half_to_float else self).softmax(dim)


@part("_safe_softmax")
def _safe_softmax(self, dim, dtype):
    return self.softmax(dim, dtype).masked_fill((self == float("-inf")).all(dim, keepdim=True), 0)


@part("_log_softmax")
def _log_softmax(self, dim, half_to_float):
    return (self.float() if half_to_float else self).log_softmax(dim)


@part("_convolution")
def _convolution(
    input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, benchmark=False, deterministic=False, cudnn_enabled=True,
    allow_tf32=True,
):  # fmt: skip
    return op("convolution")(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


@part("convolution")
def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    return op("convolution")(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


@part("_native_batch_norm_legit", "_native_batch_norm_legit_functional")
def _native_batch_norm_legit(input, weight, bias, running_mean, running_var, training, momentum, eps):
    return op("native_batch_norm")(input, weight, bias, running_mean, running_var, training, momentum, eps)


@part("_native_batch_norm_legit.no_stats")
def _native_batch_norm_no_stats(input, weight, bias, training, momentum, eps):
    return op("native_batch_norm")(input, weight, bias, None, None, training, momentum, eps)


@part("_native_batch_norm_legit_no_training")
def _native_batch_norm_no_training(input, weight, bias, running_mean, running_var, momentum, eps):
    return op("native_batch_norm")(input, weight, bias, running_mean, running_var, False, momentum, eps)


@part("_batch_norm_with_update")
def _batch_norm_with_update(input, weight, bias, running_mean, running_var, momentum, eps):
    found = op("native_batch_norm")(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return (*found, input.new_empty(0, dtype=dtype_named("uint8")))


@part("cudnn_batch_norm")
def cudnn_batch_norm(input, weight, bias, running_mean, running_var, training, exponential_average_factor, epsilon):
    return (
        *op("native_batch_norm")(input, weight, bias, running_mean, running_var, training, exponential_average_factor, epsilon),
        input.new_empty(0),
    )


@part("embedding")
def embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse):
    return op("nn.functional.embedding")(indices, weight, None if padding_idx == -1 else padding_idx, None, 2.0, scale_grad_by_freq, sparse)


@part("_prelu_kernel")
def _prelu_kernel(self, weight):
    return self.where(self > 0, self * weight)


@part("elu")
def elu(self, alpha, scale, input_scale):
    return self.where(self > 0, ((self * input_scale).exp() - 1) * alpha) * scale


@part("log_sigmoid_forward")
def log_sigmoid_forward(self):
    return op("nn.functional.logsigmoid")(self), (-self.abs()).exp()


@part("log_sigmoid")
def log_sigmoid(self):
    return op("nn.functional.logsigmoid")(self)


@part("rrelu_with_noise")
def rrelu_with_noise(self, noise, lower, upper, training, generator):
    if not training:
        return op("nn.functional.leaky_relu")(self, (lower + upper) / 2)
    slopes = self.new_empty(self.shape).uniform_(lower, upper, generator=generator)
    noise.copy_(slopes.where(self <= 0, slopes.new_ones(())))
    return self * noise


@part("native_dropout")
def native_dropout(input, p, train):
    return op("native_dropout")(input, p, train)


@part("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode):
    pool = op(f"nn.functional.max_pool{len(kernel_size)}d")
    return tuple(pool(self, kernel_size, stride or None, padding, dilation, ceil_mode, return_indices=True))


@part("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(self, output_size):
    return tuple(op(f"nn.functional.adaptive_max_pool{len(output_size)}d")(self, output_size, return_indices=True))


@part("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def _adaptive_avg_pool(self, output_size):
    return op(f"nn.functional.adaptive_avg_pool{len(output_size)}d")(self, output_size)


@part("fractional_max_pool2d", "fractional_max_pool3d")
def fractional_max_pool(self, kernel_size, output_size, random_samples):
    pool = op(f"nn.functional.fractional_max_pool{len(kernel_size)}d")
    return tuple(pool(self, kernel_size, output_size, return_indices=True, _random_samples=random_samples))


@part("max_unpool2d", "max_unpool3d")
def max_unpool(self, indices, output_size, stride=None, padding=None):
    kept = self.dim() - len(output_size)
    flat = self.new_zeros((*self.shape[:kept], product(output_size)))
    filled = flat.scatter(-1, indices.reshape(*self.shape[:kept], -1), self.reshape(*self.shape[:kept], -1))
    return filled.view(*self.shape[:kept], *output_size)


@part("im2col")
def im2col(self, kernel_size, dilation, padding, stride):
    return op("nn.functional.unfold")(self, kernel_size, dilation, padding, stride)


@part("col2im")
def col2im(self, output_size, kernel_size, dilation, padding, stride):
    return op("nn.functional.fold")(self, output_size, kernel_size, dilation, padding, stride)


def _pads(mode: str) -> Callable:
    def pad(self, padding):
        return op("nn.functional.pad")(self, tuple(padding), mode)

    return pad


for _places in (1, 2, 3):
    FOUND[f"reflection_pad{_places}d"], FOUND[f"replication_pad{_places}d"] = _pads("reflect"), _pads("replicate")


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


@part("grid_sampler_2d_cpu")
def grid_sampler_2d_cpu(input, grid, interpolation_mode, padding_mode, align_corners):
    return op("grid_sampler")(input, grid, interpolation_mode, padding_mode, align_corners)
