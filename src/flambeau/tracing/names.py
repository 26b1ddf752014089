"""What PyTorch calls an operation on a time line, and the part of it that computes.

Here `linear` is one step. There it is a frame around `addmm`, and people look for `addmm`. So an operation of the table gets an event inside,
over the same time, under the name of the kernel that would have run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

RENAMED = {
    "cross_entropy": "cross_entropy_loss", "nll_loss": "nll_loss_nd", "sum_to_size": "sum", "to_copy": "_to_copy", "unsafe_view": "_unsafe_view",
    "layer_norm_gradients": "native_layer_norm_backward", "embedding_backward": "embedding_dense_backward",
    "attention_backward": "_scaled_dot_product_flash_attention_for_cpu_backward", "convolution_of": "convolution",
    "attention": "_scaled_dot_product_flash_attention_for_cpu", "copy": "copy_", "zero": "zero_",
    "fill": "fill_", "noise": "bernoulli_", "spread": "max_pool2d_with_indices_backward", "by_channel_backward": "native_batch_norm_backward",
    "convolution_weight": "convolution_backward", "softmax_backward": "_softmax_backward_data", "log_softmax_backward": "_log_softmax_backward_data",
    "c2c": "_fft_c2c", "r2c": "_fft_r2c", "c2r": "_fft_c2r", "permutation": "randperm", "vector_norm": "linalg_vector_norm",
    "placed": "slice_backward", "scatter_value": "scatter", "index_put_in_place": "_index_put_impl_", "functional_embedding": "embedding", "search": "searchsorted",
    "stack_as": "stack",
}  # fmt: skip
INSIDE: dict[str, tuple[str, ...]] = {
    "relu": ("clamp_min",),
    "softmax": ("_softmax",),
    "log_softmax": ("_log_softmax",),
    "conv1d": ("convolution",),
    "conv2d": ("convolution",),
    "conv3d": ("convolution",),
    "layer_norm": ("native_layer_norm",),
    "group_norm": ("native_group_norm",),
    "batch_norm": ("native_batch_norm",),
    "max_pool2d": ("max_pool2d_with_indices",),
    "nll_loss_nd": ("nll_loss", "nll_loss_forward"),
    "randn": ("normal_",),
    "rand": ("uniform_",),
    "randint": ("random_",),
    "t": ("transpose",),
    "item": ("_local_scalar_dense",),
}


@cache
def of(what: Callable | str) -> str:
    """The name of an operation, without "aten::"; `what` is its function, or the name itself."""
    if isinstance(what, str):
        return what
    op: Any = what.op  # type: ignore[attr-defined]
    name = op.name.removeprefix("nn.functional.").removeprefix("Tensor.")
    if name == "_matmul":
        return "bmm"
    name = op.short if name.startswith("_") else name.replace(".", "_")
    own = getattr(what, "__name__", name)
    if own.endswith("_") and not name.endswith("_") and not own.startswith("__"):
        return name + "_"
    return RENAMED.get(name, name)


def inside(name: str, ranks: list[int], numbers: int) -> tuple[str, ...]:
    """The events inside an operation that has no parts of its own: of the tensors given, `ranks` are the dimensions."""
    if name == "linear":
        return ("addmm",) if numbers > 2 else ("matmul", "mm")
    if name == "matmul" and len(ranks) > 1:
        a, b = ranks[:2]
        return ("mm",) if a == b == 2 or b == 2 < a else ("dot",) if a == b == 1 else ("mv",) if b == 1 else ("bmm",)
    return INSIDE.get(name, ())
