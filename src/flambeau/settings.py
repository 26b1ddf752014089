"""Switches of the whole program: threads, matmul precision, warnings."""

from __future__ import annotations

import os
import warnings

from flambeau.kernels import libraries
from flambeau.kernels.native import native

# -- threads -------------------------------------------------------------------------------------------------------

_interop = os.cpu_count() or 1


def get_num_threads() -> int:
    """How many threads share the work of one large operation."""
    return native.lib.get_num_threads() if native.lib is not None else 1


def set_num_threads(n: int, /) -> None:
    """Let `n` threads share the work of one large operation. Results are the same bits with any number."""
    if isinstance(n, bool) or not hasattr(n, "__index__"):
        raise RuntimeError(f"set_num_threads expects an int, but got {type(n).__name__}")
    if n <= 0:
        raise RuntimeError(f"set_num_threads expects a positive integer, found {n}")
    if n >= 2**63:
        raise ValueError(f"set_num_threads: {n} does not fit into 64 bits")
    if native.lib is not None:
        native.lib.set_num_threads(n.__index__())


def get_num_interop_threads() -> int:
    """The number PyTorch would use to run independent operations at once; kept for programs that ask."""
    return _interop


def set_num_interop_threads(n: int, /) -> None:
    """Remember a number for `get_num_interop_threads`: operations run one after another here, so nothing else follows from it."""
    global _interop
    if n <= 0:
        raise RuntimeError(f"Expected positive number of threads, found {n}")
    if n >= 2**63:
        raise ValueError(f"set_num_interop_threads: {n} does not fit into 64 bits")
    _interop = n


# -- precision -----------------------------------------------------------------------------------------------------

_matmul_precision = "highest"


def set_float32_matmul_precision(precision: str) -> None:
    """Allow float32 matrix products to use shorter formats inside, where the device has them: "highest" (never), "high", "medium"."""
    global _matmul_precision
    if precision not in ("highest", "high", "medium"):
        warnings.warn(f"there is no precision {precision}, but 'highest', 'high' and 'medium'; the setting is kept", stacklevel=2)
        return
    _matmul_precision = precision
    libraries.switch_products(libraries.TF32, precision != "highest")


def get_float32_matmul_precision() -> str:
    """The setting of `set_float32_matmul_precision`."""
    return _matmul_precision


def set_flush_denormal(mode: bool, /) -> bool:
    """False: denormal numbers keep their values, and whether they do is not changed."""
    return False


# -- transformers --------------------------------------------------------------------------------------------------

encoder_fastpath = True  # see torch.backends.mha

# -- warnings ------------------------------------------------------------------------------------------------------

_warn_always = False


def set_warn_always(b: bool, /) -> None:
    """Remember whether repeated warnings are wanted; Python's own filters decide here, see the `warnings` module."""
    global _warn_always
    _warn_always = bool(b)


def is_warn_always_enabled() -> bool:
    """The setting of `set_warn_always`."""
    return _warn_always
