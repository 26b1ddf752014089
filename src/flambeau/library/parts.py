"""Operators of PyTorch's that are pieces of operations here, or that mean something else than the function of their name.

Each is a function with the arguments of the schema, by their names there; an annotation says no more than the schema does, so there is none.
What differentiates is in derivatives.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import devices
from flambeau.ops import OPS
from flambeau.ops.overloads import OpOverload, aten
from flambeau.tensor import Tensor

FOUND: dict[str, Callable] = {}


def find(overload: OpOverload) -> Callable | None:
    """The function for an overload, by its name or that of all overloads; by rule, where the name says what it is made of."""
    from flambeau.library import derivatives

    found = FOUND.get(overload.__name__) or FOUND.get(overload._opname)
    if found is not None:
        return _into_out(overload, found) if overload._is_out else found
    if overload._opname.endswith("_copy"):
        return _copies(overload)
    return derivatives.of(overload)


def part(*names: str) -> Callable[[Callable], Callable]:
    """The function is what these operators, or overloads, mean; its own name, if none is given."""

    def note(function: Callable) -> Callable:
        for name in names or (function.__name__,):
            FOUND[name] = function
        return function

    return note


def op(name: str) -> Callable:
    """Our operation of this name."""
    return OPS[name]


def _into_out(overload: OpOverload, function: Callable) -> Callable:
    """The function, its results copied into the tensors given for them."""
    names = [a.name for a in overload._schema.arguments if a.is_out]

    def run(**bound: Any) -> Any:
        places = [bound.pop(name) for name in names]
        results = function(**bound)
        results = results if isinstance(results, tuple) else (results,)
        for place, result in zip(places, results, strict=True):
            place.resize_(result.shape).copy_(result)
        return places[0] if len(places) == 1 else tuple(places)

    return run


def _copies(overload: OpOverload) -> Callable | None:
    """`x_copy` is x, with memory of its own."""
    base = getattr(aten, overload._opname.removesuffix("_copy"), None)
    if base is None or overload._is_out or overload._overloadname not in base.overloads():
        return None
    view = getattr(base, overload._overloadname)

    def run(**bound: Any) -> Any:
        from flambeau.library.aten import runner

        found = runner(view)(**bound)
        return [t.clone() for t in found] if isinstance(found, list | tuple) else found.clone()

    return run


# -- the same elements, or copies of them --------------------------------------------------------------------------------------------------


@part()
def _to_copy(self, dtype, layout, device, pin_memory, non_blocking, memory_format):
    options = {} if memory_format is None else {"memory_format": memory_format}
    made = self.to(device=device, dtype=dtype, copy=True, non_blocking=non_blocking, **options)
    return made.pin_memory() if pin_memory else made


@part("to.device", "to.dtype")
def to(self, dtype, non_blocking, copy, memory_format, device=None):
    options = {} if memory_format is None else {"memory_format": memory_format}
    return self.to(device=device, dtype=dtype, copy=copy, non_blocking=non_blocking, **options)


@part("to.dtype_layout")
def to_options(self, dtype, layout, device, pin_memory, non_blocking, copy, memory_format):
    return to(self, dtype, non_blocking, copy, memory_format, device)


@part("to.other")
def to_other(self, other, non_blocking, copy, memory_format):
    return to(self, other.dtype, non_blocking, copy, memory_format, other.device)


@part("alias", "lift", "lift_fresh", "_conj_physical.alias")
def alias(self):
    return self.view_as(self)


@part("lift_fresh_copy")
def lift_fresh_copy(self):
    return self.clone()


@part("view.default", "_unsafe_view", "_reshape_alias")
def view(self, size, stride=None):
    return self.view(size)


@part("view.dtype")
def view_dtype(self, dtype):
    return self.view(dtype)


@part("slice.Tensor")
def slice_tensor(self, dim, start, end, step):
    index: list = [slice(None)] * self.dim()
    index[_dimension(self, dim)] = slice(start, end, step)
    return self[tuple(index)]


def _dimension(self: Tensor, dim: int) -> int:
    if self.dim() == 0:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    if not -self.dim() <= dim < self.dim():
        raise IndexError(f"Dimension out of range (expected to be in range of [{-self.dim()}, {self.dim() - 1}], but got {dim})")
    return dim % self.dim()


@part("index.Tensor", "_unsafe_index.Tensor")
def index(self, indices):
    return self[tuple([slice(None) if i is None else i for i in indices])]


@part("index_put", "_unsafe_index_put")
def index_put(self, indices, values, accumulate):
    return index_put_(self.clone(), indices, values, accumulate)


@part("index_put_", "_index_put_impl_")
def index_put_(self, indices, values, accumulate, unsafe=False):
    if any(i is None for i in indices):
        where = tuple([slice(None) if i is None else i for i in indices])
        if not accumulate:
            self[where] = values
            return self
        rows = _positions(self)[where]  # which elements are meant, counted in row-major order
        flat = self.reshape(-1).index_add(0, rows.reshape(-1), values.expand(rows.shape).reshape(-1))
        return self.copy_(flat.view(self.shape))
    return self.index_put_(tuple(indices), values, accumulate)


def _positions(self: Tensor) -> Tensor:
    return self.new_ones(self.numel(), dtype=_dtype("int64")).cumsum(0).sub(1).view(self.shape)


def _dtype(name: str) -> Any:
    from flambeau import dtypes

    return getattr(dtypes, name)


@part("_unsafe_masked_index")
def _unsafe_masked_index(self, mask, indices, fill):
    return index(self, [None if i is None else i.where(mask, i.new_zeros(())) for i in indices]).masked_fill(~mask, fill)


@part("split.sizes")
def split_sizes(self, split_size, dim):
    return list(self.split_with_sizes(split_size, dim))


@part("unsafe_split.Tensor", "split.Tensor")
def split_tensor(self, split_size, dim):
    return list(self.split(split_size, dim))


@part("squeeze.dims")
def squeeze_dims(self, dim):
    return self.squeeze(tuple(dim))


@part("unfold")
def unfold(self, dimension, size, step):
    return self.unfold(dimension, size, step)


@part("_conj")
def _conj(self):
    return self.conj()


@part("_conj_physical")
def _conj_physical(self):
    return self.conj_physical()


@part("_neg_view")
def _neg_view(self):
    return op("_neg_view")(self)


@part("_local_scalar_dense", "item")
def _local_scalar_dense(self):
    return self.item()


@part("copy_.default", "copy_.Tensor")
def copy_(self, src=None, non_blocking=False, other=None):
    source = other if src is None else src
    return self.copy_(source, non_blocking) if isinstance(source, Tensor) else self.fill_(source)


@part("copy")
def copy(self, src, non_blocking):
    return copy_(self.clone(), src, non_blocking)


@part("fill.Scalar", "fill.Tensor")
def fill(self, value):
    return self.clone().fill_(value)


@part("zero")
def zero(self):
    return self.clone().zero_()


@part("zeros_like")
def zeros_like(self, dtype, layout, device, pin_memory, memory_format):
    made = self.new_zeros(self.shape, dtype=dtype, device=device)
    return made if memory_format is None else made.contiguous(memory_format=memory_format)


@part("_efficientzerotensor")
def _efficientzerotensor(size, dtype, layout, device, pin_memory):
    return _named("zeros")(size, dtype=dtype, device=device)


def _named(name: str) -> Callable:
    from flambeau.ops import ABOVE

    return ABOVE["named"](name)


@part("empty.memory_format")
def empty(size, dtype, layout, device, pin_memory, memory_format):
    options = {} if memory_format is None else {"memory_format": memory_format}
    return _named("empty")(size, dtype=dtype, layout=layout, device=device, pin_memory=bool(pin_memory), **options)


@part("is_pinned")
def is_pinned(self, device):
    return self.is_pinned()


@part("_pin_memory", "pin_memory")
def _pin_memory(self, device):
    return self.pin_memory()


@part("record_stream")
def record_stream(self, s):
    self.record_stream(s)


@part("set_.source_Storage_storage_offset")
def set_storage(self, source, storage_offset, size, stride):
    return self.set_(source, storage_offset, size, stride)


@part("set_.source_Tensor_storage_offset")
def set_tensor(self, source, storage_offset, size, stride):
    return self.set_(source, storage_offset, size, stride or None)


@part("resize_")
def resize_(self, size, memory_format):
    return self.resize_(size) if memory_format is None else self.resize_(size, memory_format=memory_format)


@part("sym_size.int")
def sym_size(self, dim):
    return self.size(dim)


@part("sym_size.default", "size.default")
def sym_sizes(self):
    return list(self.shape)


@part("sym_stride.int")
def sym_stride(self, dim):
    return self.stride(dim)


@part("sym_stride.default")
def sym_strides(self):
    return list(self.stride())


@part("sym_numel")
def sym_numel(self):
    return self.numel()


@part("sym_storage_offset")
def sym_storage_offset(self):
    return self.storage_offset()


@part("is_contiguous", "sym_is_contiguous", "is_contiguous.memory_format", "is_strides_like_format")
def is_contiguous(self, memory_format=None):
    return (
        self.is_contiguous() if memory_format is None or isinstance(memory_format, int) else self.is_contiguous(memory_format=memory_format)
    )


@part("prim_device")
def device(self):
    return devices.device(self.device)


# -- pieces of layers ----------------------------------------------------------------------------------------------------------------------


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
    return (*found, input.new_empty(0, dtype=_dtype("uint8")))


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
    flat = self.new_zeros((*self.shape[:kept], _product(output_size)))
    filled = flat.scatter(-1, indices.reshape(*self.shape[:kept], -1), self.reshape(*self.shape[:kept], -1))
    return filled.view(*self.shape[:kept], *output_size)


def _product(sizes: list[int]) -> int:
    found = 1
    for size in sizes:
        found *= size
    return found


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


# -- losses and distances ------------------------------------------------------------------------------------------------------------------

REDUCTIONS = ("none", "mean", "sum")


def _reduces(name: str) -> Callable:
    def loss(self, target, reduction=1, **options):
        return op(f"nn.functional.{name}")(
            self, target, reduction=REDUCTIONS[reduction], **{k: v for k, v in options.items() if v is not None}
        )

    return loss


for _name in (
    "mse_loss",
    "smooth_l1_loss",
    "huber_loss",
    "soft_margin_loss",
    "binary_cross_entropy",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "l1_loss",
):
    FOUND[_name] = _reduces(_name)


@part("multilabel_margin_loss_forward")
def multilabel_margin_loss_forward(self, target, reduction):
    listed = (target < 0).cumsum(-1) == 0  # what stands before the first -1
    is_target = self.new_zeros(self.shape).scatter_add(-1, target.where(listed, target.new_zeros(())), listed.to(self.dtype)).clamp(max=1)
    return FOUND["multilabel_margin_loss"](self, target, reduction), is_target


@part("nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(self, target, weight, reduction, ignore_index):
    found = op("nn.functional.nll_loss")(self, target, weight, ignore_index=ignore_index, reduction=REDUCTIONS[reduction])
    return found, _total_weight(self, target, weight, reduction, ignore_index)


def _total_weight(self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int) -> Tensor:
    if reduction == 0:
        return self.new_zeros(())
    kept = target != ignore_index
    if weight is None:
        return kept.sum().to(self.dtype)
    return weight[target.where(kept, target.new_zeros(()))].masked_fill(~kept, 0).sum()


@part("nll_loss", "nll_loss2d", "nll_loss_nd")
def nll_loss(self, target, weight, reduction, ignore_index):
    return op("nn.functional.nll_loss")(self, target, weight, ignore_index=ignore_index, reduction=REDUCTIONS[reduction])


@part("cross_entropy_loss")
def cross_entropy_loss(self, target, weight, reduction, ignore_index, label_smoothing):
    return op("nn.functional.cross_entropy")(
        self, target, weight, ignore_index=ignore_index, reduction=REDUCTIONS[reduction], label_smoothing=label_smoothing
    )


@part("_cdist_forward")
def _cdist_forward(x1, x2, p, compute_mode):
    return _named("cdist")(x1, x2, p)


@part("_pdist_forward")
def _pdist_forward(self, p):
    return _named("pdist")(self, p)


@part("_trilinear")
def _trilinear(i1, i2, i3, expand1, expand2, expand3, sumdim, unroll_dim):
    a, b, c = i1, i2, i3
    for t, dims in enumerate((expand1, expand2, expand3)):
        for dim in dims:
            a, b, c = [v.unsqueeze(dim) if at == t else v for at, v in enumerate((a, b, c))]
    product = a * b * c
    return product.sum(sumdim) if sumdim else product


# -- unique, attention, linear algebra, Fourier --------------------------------------------------------------------------------------------


@part("_unique")
def _unique(self, sorted, return_inverse):
    values, inverse = _named("unique")(self, sorted=sorted, return_inverse=True)
    return values, inverse if return_inverse else inverse.new_empty(0)


@part("_unique2")
def _unique2(self, sorted, return_inverse, return_counts):
    values, inverse, counts = _named("unique")(self, sorted=sorted, return_inverse=True, return_counts=True)
    return values, inverse if return_inverse else inverse.new_empty(0), counts if return_counts else counts.new_empty(0)


@part("unique_dim")
def unique_dim(self, dim, sorted, return_inverse, return_counts):
    return tuple(_named("unique")(self, sorted=sorted, return_inverse=True, return_counts=True, dim=dim))


@part("unique_consecutive")
def unique_consecutive(self, return_inverse, return_counts, dim):
    values, inverse, counts = _named("unique_consecutive")(self, return_inverse=True, return_counts=True, dim=dim)
    return values, inverse if return_inverse else inverse.new_empty(0), counts if return_counts else counts.new_empty(0)


@part("scaled_dot_product_attention", "_scaled_dot_product_attention_math")
def scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, dropout_mask=None, scale=None, enable_gqa=False):
    return op("nn.functional.scaled_dot_product_attention")(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


@part("_linalg_det")
def _linalg_det(A):
    factors, pivots = op("linalg.lu_factor")(A)
    return op("linalg.det")(A), factors, pivots


@part("_linalg_slogdet")
def _linalg_slogdet(A):
    sign, logabsdet = op("linalg.slogdet")(A)
    return sign, logabsdet, *op("linalg.lu_factor")(A)


@part("_linalg_eigh")
def _linalg_eigh(A, UPLO, compute_v):
    if compute_v:
        return tuple(op("linalg.eigh")(A, UPLO))
    return op("linalg.eigvalsh")(A, UPLO), A.new_empty(0)


@part("_linalg_svd")
def _linalg_svd(A, full_matrices, compute_uv, driver):
    if compute_uv:
        return tuple(op("linalg.svd")(A, full_matrices, driver=driver))
    return A.new_empty(0), op("linalg.svdvals")(A, driver=driver), A.new_empty(0)


@part("_linalg_solve_ex")
def _linalg_solve_ex(A, B, left, check_errors):
    result, info = op("linalg.solve_ex")(A, B, left=left, check_errors=check_errors)
    return result, *op("linalg.lu_factor")(A), info


def _scaled(found: Tensor, sizes: list[int], normalization: int) -> Tensor:
    n = _product(sizes)
    return found if normalization == 0 else found / n**0.5 if normalization == 1 else found / n


@part("_fft_c2c")
def _fft_c2c(self, dim, normalization, forward):
    transform = op("fft.fftn" if forward else "fft.ifftn")
    found = transform(self, dim=tuple(dim), norm="backward" if forward else "forward")
    return _scaled(found, [self.shape[d] for d in dim], normalization)


@part("_fft_r2c")
def _fft_r2c(self, dim, normalization, onesided):
    found = op("fft.rfftn" if onesided else "fft.fftn")(self, dim=tuple(dim))
    return _scaled(found, [self.shape[d] for d in dim], normalization)


@part("_fft_c2r")
def _fft_c2r(self, dim, normalization, last_dim_size):
    sizes = [*[self.shape[d] for d in dim[:-1]], last_dim_size]
    return _scaled(op("fft.irfftn")(self, s=sizes, dim=tuple(dim), norm="forward"), sizes, normalization)


@part("_histogramdd_bin_edges")
def _histogramdd_bin_edges(self, bins, range, weight, density):
    return list(op("histogramdd")(self, bins, range=range, weight=weight, density=density)[1])


@part("_histogramdd_from_bin_cts")
def _histogramdd_from_bin_cts(self, bins, range, weight, density):
    return op("histogramdd")(self, bins, range=range, weight=weight, density=density)[0]


@part("_histogramdd_from_bin_tensors")
def _histogramdd_from_bin_tensors(self, bins, weight, density):
    return op("histogramdd")(self, tuple(bins), weight=weight, density=density)[0]
