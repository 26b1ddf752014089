"""What autocast does with which operation, on which device: PyTorch's lists.

    half     floating operands become the region's dtype: the product is what half precision is for
    float32  they become float32: half precision would overflow, or lose what matters
    widest   they become float32 if one of them is, else the region's dtype
    state    the dtype of the recurrent state, or float32 where that is wider: weights follow it
    given    nothing, nor for what it is made of here: in PyTorch it is not made of other operations
    refused  an error: no dtype is safe

float64, integers and complex numbers are never touched. An operation on no list runs in the dtypes it is given; if it is made of others
(`einsum` of `bmm`), those are looked up in their turn. In-place and out= forms are on no list: the user has chosen their dtype.

The names are the functions' own, `linalg.inv` written linalg_inv. The lists of the two devices differ much: the CPU's follow what its half
precision kernels lack, CUDA's follow what is safe to sum in float16.
"""

from __future__ import annotations

from typing import Any

PRODUCTS = """
conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution matmul mm bmm addmm addbmm baddbmm linear
linalg_vecdot prelu scaled_dot_product_attention rnn_tanh rnn_relu lstm
"""
LOSSES = """
binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy hinge_embedding_loss huber_loss kl_div l1_loss
margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss
"""
LISTS: dict[str, dict[str, str]] = {
    "cpu": {
        "half": PRODUCTS,
        "float32": LOSSES
        + """
            adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d binary_cross_entropy cdist cholesky cholesky_inverse
            cholesky_solve ctc_loss fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft fft_ifft2 fft_ifftn fft_ihfft
            fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn fractional_max_pool2d
            fractional_max_pool3d geqrf grid_sample grid_sampler grid_sampler_2d grid_sampler_3d inverse
            linalg_cholesky linalg_cholesky_ex linalg_cond linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh linalg_householder_product
            linalg_inv linalg_inv_ex linalg_lstsq linalg_matrix_rank linalg_qr linalg_solve linalg_svd linalg_svdvals linalg_tensorinv
            linalg_tensorsolve lu_solve max_pool3d max_unpool1d max_unpool2d max_unpool3d nanquantile orgqr ormqr pinverse polar prod
            qr quantile stft svd trace triangular_solve view_as_complex""",
        "widest": "stack cat index_copy",
        "state": "gru gru_cell lstm_cell",
        "given": "addmv bilinear linalg_lu_solve linear_cross_entropy",
    },
    "cuda": {
        "half": PRODUCTS + "addmv addr chain_matmul einsum gru gru_cell linalg_multi_dot lstm_cell mv rnn_relu_cell rnn_tanh_cell",
        "float32": LOSSES
        + """
            acos asin cdist cosh cosine_similarity cumprod cumsum dist erfinv exp expm1 frobenius_norm group_norm layer_norm linalg_matrix_norm
            linalg_vector_norm log log10 log1p log2 log_softmax logsumexp native_layer_norm norm nuclear_norm pdist pow prod reciprocal renorm
            rms_norm rsqrt sinh softmax softplus sum tan""",
        "widest": "addcdiv addcmul atan2 bilinear cross dot grid_sample grid_sampler index_put scatter_add tensordot vdot",
        "given": "linalg_cross linear_cross_entropy trace",
        "refused": "binary_cross_entropy",
    },
}
RULES: dict[str, dict[str, str]] = {
    device: {name: rule for rule, names in lists.items() for name in names.split()} for device, lists in LISTS.items()
}


_names: dict[Any, str] = {}


def rule(op, device: str, args: tuple, kwargs: dict) -> str | None:
    """What autocast on this device does with a call of `op`; None: nothing."""
    name = _names.get(op)
    if name is None:
        name = _names[op] = op.name.removeprefix("nn.functional.").replace(".", "_")
    special = SPECIAL.get(name)
    return RULES[device].get(name) if special is None else special(device, dict(zip(op.parameters, args, strict=False)) | kwargs)


def _pad(device: str, given: dict[str, Any]) -> str | None:
    """The CPU's reflection and replication padding, but for the reflection of volumes."""
    mode, sides = given.get("mode", "constant"), len(given.get("pad", ())) // 2
    return "float32" if device == "cpu" and (mode == "replicate" or (mode == "reflect" and sides < 3)) else None


def _interpolate(device: str, given: dict[str, Any]) -> str | None:
    """CUDA's, except averaging over areas, which is a pooling."""
    return "float32" if device == "cuda" and given.get("mode", "nearest") != "area" else None


def _div(device: str, given: dict[str, Any]) -> str | None:
    """number / tensor is the tensor's reciprocal, times the number."""
    return RULES[device].get("reciprocal") if isinstance(given.get("input"), (int, float)) else None


def _vectors(device: str, given: dict[str, Any]) -> str | None:
    """inner of two vectors is no matrix product on the CPU."""
    return "given" if device == "cpu" and all(getattr(given.get(name), "ndim", 0) == 1 for name in ("input", "other")) else None


def _reduction(name: str):
    def rule(device: str, given: dict[str, Any]) -> str | None:
        return RULES[device].get(name) if given.get("dtype") is None else None  # the caller has chosen the dtype

    return rule


SPECIAL = {"pad": _pad, "interpolate": _interpolate, "inner": _vectors, "_div": _div} | {
    name: _reduction(name)
    for name in ("prod", "softmax", "log_softmax", "cumprod", "cumsum", "sum", "norm", "linalg_vector_norm", "linalg_matrix_norm")
}
