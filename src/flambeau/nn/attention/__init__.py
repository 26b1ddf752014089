"""Which way attention may be computed, by PyTorch's names. One way of ours stands for several of them (kernels/templates/attention.py), and is refused
where all of these are forbidden."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum

from flambeau.ops import attention as _attention

__all__ = ["WARN_FOR_UNFUSED_KERNELS", "SDPBackend", "sdpa_kernel"]
WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(IntEnum):
    """The ways PyTorch knows, by its numbers."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_allowed: tuple[SDPBackend, ...] = (
    SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION,
)  # fmt: skip


@contextmanager
def sdpa_kernel(backends: SDPBackend | Sequence[SDPBackend], set_priority: bool = False) -> Iterator[None]:
    """Within it, scaled_dot_product_attention may run by these ways only. Every way gives the same result here, or an error if there is
    none left: the CPU has MATH and FLASH_ATTENTION.

    >>> with sdpa_kernel(SDPBackend.MATH):
    ...     pass
    """
    chosen = (backends,) if isinstance(backends, SDPBackend) else tuple(backends)
    if not all(isinstance(way, SDPBackend) for way in chosen):
        raise AssertionError(f"backends must be a SDPBackend or a list of them, got {backends!r}")
    before = _allowed
    _allow(chosen)
    try:
        yield
    finally:
        _allow(before)


def _allow(ways: tuple[SDPBackend, ...]) -> None:
    global _allowed
    _allowed = ways
    _attention.allow(way.name for way in ways)


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    """Those allowed now."""
    return list(_allowed)
