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

import functools
import types
from collections.abc import Callable
from typing import Any

from flambeau.ops import contents
from flambeau.ops.declare import OPS, Op

PRODUCTS = """
conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution matmul mm bmm addmm addbmm baddbmm linear
linalg_vecdot prelu scaled_dot_product_attention rnn_tanh rnn_relu lstm
"""
LOSSES = """
binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy hinge_embedding_loss huber_loss kl_div l1_loss
margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss
"""
NORMALIZATIONS = "batch_norm embedding embedding_bag group_norm instance_norm native_batch_norm"
LISTS: dict[str, dict[str, str]] = {
    "cpu": {
        "half": PRODUCTS,
        "float32": LOSSES
        + """
            adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d binary_cross_entropy cdist cholesky cholesky_inverse
            cholesky_solve ctc_loss fake_quantize_per_tensor_affine fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft fft_ifft2 fft_ifftn fft_ihfft
            fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn fractional_max_pool2d
            fractional_max_pool3d geqrf grid_sample grid_sampler grid_sampler_2d grid_sampler_3d inverse
            linalg_cholesky linalg_cholesky_ex linalg_cond linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh linalg_householder_product
            linalg_inv linalg_inv_ex linalg_lstsq linalg_matrix_rank linalg_qr linalg_solve linalg_svd linalg_svdvals linalg_tensorinv
            linalg_tensorsolve lu_solve max_pool3d max_unpool1d max_unpool2d max_unpool3d nanquantile orgqr ormqr pinverse polar prod
            qr quantile stft svd trace triangular_solve view_as_complex""",
        "widest": "stack cat index_copy",
        "state": "gru gru_cell lstm_cell",
        "given": "addmv bilinear linalg_lu_solve layer_norm native_layer_norm rms_norm " + NORMALIZATIONS,
    },
    "cuda": {
        "half": PRODUCTS + "addmv addr chain_matmul einsum gru gru_cell linalg_multi_dot lstm_cell mv rnn_relu_cell rnn_tanh_cell",
        "float32": LOSSES
        + """
            acos asin cdist cosh cosine_similarity cumprod cumsum dist erfinv exp expm1 frobenius_norm group_norm layer_norm linalg_matrix_norm
            linalg_vector_norm log log10 log1p log2 log_softmax logsumexp native_layer_norm norm nuclear_norm pdist pow prod reciprocal renorm
            rms_norm rsqrt sinh softmax softplus sum tan""",
        "widest": "addcdiv addcmul atan2 bilinear cross dot grid_sample grid_sampler index_put scatter_add tensordot vdot",
        "given": "linalg_cross trace " + NORMALIZATIONS.replace("group_norm", ""),
        "refused": "binary_cross_entropy",
    },
}
RULES: dict[str, dict[str, str]] = {
    device: {name: rule for rule, names in lists.items() for name in names.split()} for device, lists in LISTS.items()
}


GIVEN = "given"
_known: dict[tuple, tuple] = {}  # (operation, device) -> (the function that tells its rule from the arguments, if there is one, its rule)


def rule(op, device: str, args: tuple, kwargs: dict) -> str | None:
    """What autocast on this device does with a call of `op`. None: look at what it is made of."""
    found = _known.get((op, device))
    if found is None:
        found = _known[op, device] = _rule(op, device)
    special, usual = found
    if special is None:
        return usual
    return special(device, dict(zip(op.parameters, args, strict=False)) | kwargs) or usual


def _rule(op, device: str) -> tuple[Callable | None, str | None]:
    name = _listed(op)
    special = SPECIAL.get(name)
    found = RULES[device].get(name) if special is None else None
    if found is None and (op.kind not in ("composite", "choice") or not reaches(op.forward, device)):
        found = GIVEN
    return special, found


def _listed(op: Op) -> str:
    return op.name.removeprefix("nn.functional.").replace(".", "_")


def reaches(function: Callable, device: str) -> bool:
    """Whether a function may come to an operation on the lists: its code, or that of a function it calls, has the name of one.

    Of a method, the name is all there is to see, so the answer may be a yes too many; that costs time, no cast.
    """
    names, seen, waiting = RULES[device].keys() | SPECIAL.keys(), set(), [function]
    while waiting:
        f = waiting.pop()
        f = f.func if isinstance(f, functools.partial) else f
        if not isinstance(f, types.FunctionType) or f in seen:
            continue
        seen.add(f)
        words, operators = _vocabulary(f.__code__)
        if ("@" in operators and "matmul" in names) or ("**" in operators and "pow" in names):
            return True
        for word in words:
            found = f.__globals__.get(word)
            if found is None:  # a method, or a key of OPS
                if word in names or (word in contents.METHODS and dict.get(OPS, word) is None):
                    return True  # the latter: its file was not read yet, nobody knows what it is made of
                found = dict.get(OPS, word)
            if isinstance(found, Op):
                if _listed(found) in names:
                    return True
                found = found.forward if found.kind in ("composite", "choice") else None
            waiting.append(found)
        waiting += [cell.cell_contents for cell in f.__closure__ or ()]
    return False


def _vocabulary(code: types.CodeType) -> tuple[set[str], set[str]]:
    """(names and short texts, binary operators) in a function's code, and in the functions inside it."""
    import dis  # 10 ms that only programs with autocast spend

    words = {*code.co_names, *(c for c in code.co_consts if isinstance(c, str) and c.isidentifier())}
    operators = {i.argrepr.rstrip("=") for i in dis.get_instructions(code) if i.opname == "BINARY_OP"}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            more = _vocabulary(inner)
            words, operators = words | more[0], operators | more[1]
    return words, operators


def _pad(device: str, given: dict[str, Any]) -> str | None:
    """The CPU's reflection and replication padding, but for the reflection of volumes."""
    mode, sides = given.get("mode", "constant"), len(given.get("pad", ())) // 2
    return "float32" if device == "cpu" and (mode == "replicate" or (mode == "reflect" and sides < 3)) else None


def _interpolate(device: str, given: dict[str, Any]) -> str | None:
    """CUDA's, except averaging over areas, which is a pooling."""
    return "float32" if device == "cuda" and given.get("mode", "nearest") != "area" else None


def _rdiv(device: str, given: dict[str, Any]) -> str | None:
    """number / tensor is the tensor's reciprocal, times the number."""
    return RULES[device].get("reciprocal")


def _vectors(device: str, given: dict[str, Any]) -> str | None:
    """inner of two vectors is no matrix product on the CPU."""
    return "given" if device == "cpu" and all(getattr(given.get(name), "ndim", 0) == 1 for name in ("input", "other")) else None


def _reduction(name: str):
    def rule(device: str, given: dict[str, Any]) -> str | None:
        return RULES[device].get(name) if given.get("dtype") is None else None  # the caller has chosen the dtype

    return rule


SPECIAL = {"pad": _pad, "interpolate": _interpolate, "inner": _vectors, "_rdiv": _rdiv} | {
    name: _reduction(name)
    for name in ("prod", "softmax", "log_softmax", "cumprod", "cumsum", "sum", "norm", "linalg_vector_norm", "linalg_matrix_norm")
}
