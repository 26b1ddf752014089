"""Switches of work on GPUs: how exact products are, and which way attention runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from flambeau import cuda as _cuda
from flambeau import settings as _settings
from flambeau.kernels import libraries as _libraries
from flambeau.nn import attention as _attention
from flambeau.nn.attention import SDPBackend

__all__ = ["allow_fp16_bf16_reduction_math_sdp", "fp16_bf16_reduction_math_sdp_allowed", "is_built", "is_flash_attention_available", "matmul",
           "preferred_blas_library", "preferred_linalg_library", "sdp_kernel"]  # fmt: skip


def is_built() -> bool:
    """Whether GPUs can be used if there are any: CuPy is installed. `torch.cuda.is_available` says whether there are any."""
    return _cuda.choosing.installed()


def _product_switch(bit: int, opposite: bool, meaning: str) -> property:
    """A switch of products, as an attribute; `opposite` where the bit says that something is not allowed."""

    def get(self) -> bool:
        return bool(_libraries.products & bit) != opposite

    def switch(self, allowed: bool) -> None:
        _libraries.switch_products(bit, bool(allowed) != opposite)

    return property(get, switch, doc=meaning)


class _Matmul:
    """How exact matrix products on GPUs are. Other names than these are refused, so that a misspelt one is noticed."""

    __slots__ = ("_word",)

    def __init__(self) -> None:
        self._word = "none"

    allow_fp16_reduced_precision_reduction = _product_switch(
        _libraries.WIDE_SUMS_OF_FLOAT16, True, "Whether parts of a long sum may be added up in float16."
    )
    allow_bf16_reduced_precision_reduction = _product_switch(
        _libraries.WIDE_SUMS_OF_BFLOAT16, True, "Whether parts of a long sum may be added up in bfloat16."
    )
    allow_fp16_accumulation = _product_switch(
        _libraries.SUMS_IN_FLOAT16, False, "Whether products of float16 may be added up in float16 altogether."
    )

    @property
    def allow_tf32(self) -> bool:
        """Whether products of float32 may shorten their factors: `set_float32_matmul_precision`, by another name."""
        return _settings.get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        self.fp32_precision = "tf32" if allowed else "ieee"

    @property
    def fp32_precision(self) -> str:
        """The same as a word: "tf32" or "ieee"; "none" as long as nobody has said anything."""
        return "tf32" if self.allow_tf32 else self._word

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        if precision not in ("none", "ieee", "tf32"):
            raise RuntimeError(f"Invalid precision {precision!r} for CUDA's products: there are 'none', 'ieee' and 'tf32'")
        _settings.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        self._word = "ieee" if precision == "tf32" else precision


matmul = _Matmul()


def preferred_linalg_library(backend: str | None = None) -> str:
    """Which library solves systems on a GPU: cuSOLVER, which is the default. Others are refused."""
    return _only("default", backend, ("default", "cusolver") if _cuda.is_available() else ("default",), ("magma", "cusolver"))


def preferred_blas_library(backend: str | None = None) -> str:
    """Which library multiplies matrices on a GPU: cuBLAS, of which cuBLASLt is a part. Others are refused."""
    return _only("cublas", backend, ("default", "cublas"), ("cublaslt", "ck", "hipblaslt"))


def _only(answer: str, asked: str | None, here: tuple[str, ...], elsewhere: tuple[str, ...]) -> str:
    if asked is not None and asked not in here:
        if asked in elsewhere:
            raise RuntimeError(f"Cannot set preferred backend to {asked}: Flambeau runs without it. Try one of {', '.join(here)}")
        raise RuntimeError(f"Unknown input value {asked!r}. Choose from: {', '.join(here)}")
    return answer


# -- attention: what is asked for is remembered, and every way gives the same result ------------------------------------------------------


def _switch(name: str, way: SDPBackend) -> tuple[Callable[[bool], None], Callable[[], bool]]:
    """enable_..._sdp(enabled) and ..._sdp_enabled() of one way."""

    def enable(enabled: bool) -> None:
        others = tuple(w for w in _attention._allowed if w is not way)
        _attention._allow((*others, way) if enabled else others)

    def is_enabled() -> bool:
        return way in _attention._allowed

    enable.__name__, enable.__doc__ = f"enable_{name}_sdp", f"Allow attention to run by {way.name}, or forbid it."
    is_enabled.__name__, is_enabled.__doc__ = f"{name}_sdp_enabled", f"Whether attention may run by {way.name}."
    return enable, is_enabled


enable_flash_sdp, flash_sdp_enabled = _switch("flash", SDPBackend.FLASH_ATTENTION)
enable_mem_efficient_sdp, mem_efficient_sdp_enabled = _switch("mem_efficient", SDPBackend.EFFICIENT_ATTENTION)
enable_math_sdp, math_sdp_enabled = _switch("math", SDPBackend.MATH)
enable_cudnn_sdp, cudnn_sdp_enabled = _switch("cudnn", SDPBackend.CUDNN_ATTENTION)
_short_sums = False


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Remember the answer of `fp16_bf16_reduction_math_sdp_allowed`; sums are always taken in float32."""
    global _short_sums
    _short_sums = bool(enabled)


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """What `allow_fp16_bf16_reduction_math_sdp` was told."""
    return _short_sums


def is_flash_attention_available() -> bool:
    """Whether PyTorch's own kernel of that name is there: no, Flambeau has its own."""
    return False


def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
) -> AbstractContextManager[Any]:
    """Allow these ways within a `with`; `torch.nn.attention.sdpa_kernel` is the newer form."""
    warnings.warn(
        "`torch.backends.cuda.sdp_kernel()` is deprecated: `torch.nn.attention.sdpa_kernel()` takes the list of the ways to allow",
        FutureWarning,
        stacklevel=2,
    )
    chosen = {
        SDPBackend.FLASH_ATTENTION: enable_flash, SDPBackend.MATH: enable_math,
        SDPBackend.EFFICIENT_ATTENTION: enable_mem_efficient, SDPBackend.CUDNN_ATTENTION: enable_cudnn,
    }  # fmt: skip
    return _attention.sdpa_kernel([way for way, wanted in chosen.items() if wanted])
