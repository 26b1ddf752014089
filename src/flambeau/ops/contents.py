"""The table of contents: which file of this room declares what, and which of them wait until they are asked for.

Files that every program needs are imported with the package. The others are imported when one of their names is first asked for, and
so have to be announced here: a third of the time of `import flambeau` is theirs. A test holds this list against the declarations.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

# In the order of their subjects; an operation may use those of any other file when it runs.
AT_ONCE = (
    "promotion", "arithmetic", "powers", "signs", "bounds", "comparison", "conditional", "bitwise", "transcendental", "rounding",
    "complex", "copying", "views", "shaping", "joining", "scattering", "masking", "indexing", "reductions", "products", "filling",
)  # fmt: skip

# name: a function and a method;  name(): a function only;  .name: a method only;  room.*: functions of that room
ON_DEMAND = {
    "special": """special.* xlogy logit erf erfc erfinv lgamma digamma polygamma mvlgamma igamma igammac
                  .xlogy_ .logit_ .erf_ .erfc_ .erfinv_ .lgamma_ .digamma_ .polygamma_ .mvlgamma_ .igamma_ .igammac_""",
    "gamma_series": "special.*",
    "bessel": "special.* i0 .i0_",
    "polynomials": "special.*",
    "activation": "nn.functional.* hardshrink prelu relu celu() selu() threshold() rrelu() rrelu_() .celu_ .relu_ .selu_ .threshold_",
    "softmax": "nn.functional.* special.* log_softmax softmax",
    "normalization": """nn.functional.* layer_norm() rms_norm() group_norm() batch_norm() instance_norm() native_layer_norm() native_group_norm()
                        native_batch_norm()""",
    "batch_norm": "",
    "rows": """nn.functional.* index_add index_copy index_fill index_reduce index_select embedding() embedding_renorm_()
               .index_add_ .index_copy_ .index_fill_ .index_reduce_""",
    "selection": "argwhere nonzero nonzero_static put take .put_",
    "triangular": "diag diag_embed diagflat tril triu .tril_ .triu_",
    "comparing": "allclose equal isclose",
    "extrema": "amax amin aminmax argmax argmin max min",
    "padding": "nn.functional.* constant_pad_nd() unravel_index()",
    "cumulative": "cumsum cumprod logcumsumexp cummax cummin .cumsum_ .cumprod_",
    "calculus": "diff gradient() trapezoid() trapz() cumulative_trapezoid()",
    "sorting": "sort argsort msort topk",
    "quantiles": "kthvalue mode median nanmedian quantile nanquantile",
    "searching": "searchsorted() bucketize() isin()",
    "counting": "unique unique_consecutive bincount hash_tensor histc histogram histogramdd()",
    "statistics": "var std var_mean() std_mean() cov corrcoef",
    "masked": "masked.*",
    "segments": "segment_reduce() _segment_reduce()",
    "tensor_products": "linalg.* tensordot() inner kron cross",
    "einsum": "einsum()",
    "norms": "linalg.* norm dist renorm .renorm_ frobenius_norm() nuclear_norm() norm_except_dim()",
    "solvers": "linalg.* inverse pinverse triangular_solve cholesky_solve cholesky_inverse",
    "decompositions": "linalg.* cholesky qr svd",
    "lu": "linalg.* lu lu_solve lu_unpack()",
    "householder": "linalg.* geqrf orgqr ormqr",
    "linalg": "linalg.* det slogdet logdet matrix_power matrix_exp trace chain_matmul()",
    "low_rank": "svd_lowrank() pca_lowrank()",
    "lobpcg": "lobpcg()",
    "distances": "nn.functional.* cdist() pdist() pairwise_distance()",
    "fft": "fft.*",
    "spectrogram": "stft istft",
    "sampling": """bernoulli multinomial poisson() binomial() .bernoulli_ .cauchy_ .exponential_ .geometric_ .log_normal_ .normal_ .random_
                   .uniform_""",
    "gamma_sampling": "_standard_gamma() _sample_dirichlet() _standard_gamma_grad() _dirichlet_grad()",
    "linear": "bilinear() _int_mm() nn.functional.*",
    "quantized": "",
    "fake_quantization": "fake_quantize_per_tensor_affine() fake_quantize_per_channel_affine()",
    "dropout": """nn.functional.* dropout() dropout_() feature_dropout() feature_dropout_() alpha_dropout() alpha_dropout_()
                  feature_alpha_dropout() feature_alpha_dropout_() native_dropout()""",
    "embedding_bags": "nn.functional.* embedding_bag()",
    "interpolation": "nn.functional.*",
    "grid_sampling": "nn.functional.* grid_sampler() grid_sampler_2d() grid_sampler_3d() affine_grid_generator()",
    "sliding": "nn.functional.*",
    "shuffling": "nn.functional.* pixel_shuffle() pixel_unshuffle() channel_shuffle() native_channel_shuffle()",
    "similarity": "nn.functional.* cosine_similarity()",
    "cross_entropy": "nn.functional.*",
    "linear_cross_entropy": "nn.functional.*",
    "losses": "nn.functional.*",
    "ctc": "nn.functional.*",
    "margin_losses": "nn.functional.*",
    "attention": "nn.functional.*",
    "multihead": "nn.functional.*",
    "recurrent": "lstm() gru() rnn_tanh() rnn_relu() lstm_cell() gru_cell() rnn_tanh_cell() rnn_relu_cell()",
    "convolution": """nn.functional.* conv1d() conv2d() conv3d() conv_transpose1d() conv_transpose2d() conv_transpose3d() convolution()
                      conv_tbc()""",
    "pooling": """nn.functional.* max_pool1d() max_pool1d_with_indices() max_pool2d() max_pool3d() avg_pool1d() adaptive_avg_pool1d()
                  adaptive_max_pool1d()""",
    "sparse_products": "",
    "grids": "nn.functional.* meshgrid() cartesian_prod() combinations block_diag() vander()",
}
SUBJECTS = (*AT_ONCE, *ON_DEMAND)
FUNCTIONS = {n.removesuffix("()"): s for s, names in ON_DEMAND.items() for n in names.split() if n[0] != "." and n[-1] != "*"}
METHODS = {n.removeprefix("."): s for s, names in ON_DEMAND.items() for n in names.split() if n[-1] not in ")*"}


def load(subject: str) -> None:
    """Import a file of this room, which declares its operations."""
    import_module(f"flambeau.ops.{subject}")


def load_room(prefix: str) -> None:
    """Import every file that has functions of `flambeau.<prefix>`."""
    for subject, names in ON_DEMAND.items():
        if f"{prefix}.*" in names.split():
            load(subject)


def homes(name: str) -> Iterator[str]:
    """Where an operation may be declared: in the file that announces it; building blocks are not announced and may be in any."""
    listed = FUNCTIONS.get(name)
    yield from ON_DEMAND if listed is None else (listed,)
