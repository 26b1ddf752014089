"""The directions of Sobol's sequence: how they follow from the table of S. Joe and F. Y. Kuo, how they are scrambled, and points from them.

Every dimension has a primitive polynomial x^s + a_1 x^(s-1) + ... + a_(s-1) x + 1 over the bits and s odd numbers m_1 .. m_s, m_j < 2^j. The rest follows:

    m_j = 2 a_1 m_(j-1) ^ 4 a_2 m_(j-2) ^ ... ^ 2^(s-1) a_(s-1) m_(j-s+1) ^ 2^s m_(j-s) ^ m_(j-s)         direction_j = m_j 2^(30 - j)

joe_kuo.bin is that table, bit after bit with the highest first: 19 bits for the polynomial of each dimension, x^s being the highest; then
for j = 1, 2, ... the bits of (m_j - 1) / 2, of which there are j - 1, for each dimension with s >= j. Its source and licence: JOE_KUO.txt.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

BITS, DIMENSIONS, DEGREES = 30, 21201, 18


@cache
def table() -> tuple[np.ndarray, np.ndarray]:
    """(polynomials, (DIMENSIONS,); numbers m_1 .. m_18, 0 beyond a dimension's degree, (DIMENSIONS, 18))"""
    bits = np.unpackbits(np.frombuffer(Path(__file__).with_name("joe_kuo.bin").read_bytes(), np.uint8))
    start = 0

    def take(count: int, width: int) -> np.ndarray:
        nonlocal start
        found = bits[start : start + count * width].reshape(count, width) @ np.left_shift(1, np.arange(width))[::-1]
        start += count * width
        return found

    polynomials = take(DIMENSIONS, DEGREES + 1)
    numbers = np.zeros((DIMENSIONS, DEGREES), np.int64)
    for j in range(DEGREES):
        has = _degrees(polynomials) > j
        numbers[has, j] = 2 * take(int(has.sum()), j) + 1
    return polynomials, numbers


def _degrees(polynomials: np.ndarray) -> np.ndarray:
    return np.floor(np.log2(polynomials)).astype(np.int64)


def unscrambled(dimension: int) -> np.ndarray:
    """The directions of the first dimensions. -> (dimension, BITS)"""
    polynomials, numbers = (part[:dimension] for part in table())
    found = np.zeros((dimension, BITS), np.int64)
    found[:, : numbers.shape[1]] = numbers
    degrees = _degrees(polynomials)
    for s in np.unique(degrees[1:]):
        rows = np.flatnonzero(degrees == s)
        m, polynomial = found[rows], polynomials[rows]
        for j in range(s, BITS):
            m[:, j] = m[:, j - s]
            for k in range(1, s + 1):
                m[:, j] ^= (m[:, j - k] << k) * (polynomial >> (s - k) & 1)
        found[rows] = m
    found[0] = 1  # the first dimension has no polynomial: its directions are the bits themselves
    return found << np.arange(BITS)[::-1]


def scrambled(found: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """Every direction as a vector of bits, the highest first, times the lower triangle of its dimension's matrix with a diagonal of ones."""
    lower = np.tril(matrices, -1) + np.eye(BITS, dtype=np.int64)  # (dimension, BITS, BITS)
    weights = np.left_shift(1, np.arange(BITS))[::-1]
    rows = lower @ weights  # each row as a number: (dimension, BITS)
    bits = np.bitwise_count(rows[:, None, :] & found[:, :, None]) & 1  # (dimension, direction, bit)
    return bits @ weights


def points(found: np.ndarray, shift: np.ndarray, first: int, count: int) -> np.ndarray:
    """The points `first` and following, in units of 2^-BITS. -> (count, dimension)"""
    gray = first ^ first >> 1
    start = np.bitwise_xor.reduce(found[:, [b for b in range(BITS) if gray >> b & 1]], axis=1) ^ shift
    steps = np.arange(first + 1, first + max(count, 1))
    lowest = np.bitwise_count((steps & -steps) - 1)  # which bit of the Gray code changes: the lowest one of i
    walk = np.concatenate([start[None], found.T[lowest]])
    return np.bitwise_xor.accumulate(walk, axis=0)[:count]
