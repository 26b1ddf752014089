"""CRC-32, the checksum of zip files: fast where the extension is compiled (tens of GB/s), zlib's elsewhere."""

from __future__ import annotations

import zlib
from functools import lru_cache

from flambeau.kernels.native import native

crc32 = zlib.crc32
is_compiled = native.lib is not None and native.lib.crc32(b"", 0) is not NotImplemented
if is_compiled:

    def crc32(data, value: int = 0, /) -> int:
        """The checksum of `data`, continuing that of what came before it."""
        return native.lib.crc32(data, value)


def combine(first: int, second: int, length: int) -> int:
    """The checksum of two pieces of which the second has `length` bytes, from theirs.

    A checksum is a remainder modulo a polynomial P over bits, so appending `length` bytes multiplies the first by x^(8 length).
    """
    return _times(_power(8 * length), first) ^ second


def _times(a: int, b: int) -> int:
    """a b mod P. Bit 31 is the coefficient of x^0, as CRC-32 numbers them."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (0xEDB88320 if b & 1 else 0)
    return product


@lru_cache(64)
def _power(n: int) -> int:
    """x^n mod P."""
    result, square = 1 << 31, 1 << 30
    while n:
        if n & 1:
            result = _times(result, square)
        square = _times(square, square)
        n >>= 1
    return result
