"""The CPU, as kernels see it."""

from __future__ import annotations

from flambeau.kernels.native import native

_NAMES = {"avx2": "AVX2", "avx512": "AVX512"}


def get_cpu_capability() -> str:
    """Which variant of the kernels is in use: "DEFAULT", "AVX2" or "AVX512"."""
    return _NAMES.get(native.lib.variant() if native.lib is not None else "", "DEFAULT")
