"""The compiled Fourier transforms: every length, layout and kind, against transforms in higher precision."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau.kernels import arrays, layout
from flambeau.kernels.native import native
from flambeau.kernels.templates import fourier

pytestmark = pytest.mark.skipif(native.lib is None, reason="there are no compiled loops")
WIDE = {np.dtype(np.complex64): np.complex128, np.dtype(np.complex128): np.clongdouble}
DTYPES = [np.complex64, np.complex128]
LENGTHS = [
    *range(1, 18),
    21,
    26,
    31,
    32,
    48,
    64,
    77,
    96,
    98,
    100,
    128,
    143,
    150,
    256,
    257,
    360,
    512,
    1000,
    1001,
    1018,
    1024,
    4096,
    8192,
    12288,
]


def _numbers(*shape: int, dtype) -> np.ndarray:
    random = np.random.default_rng(sum(shape))
    return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(dtype)


def _close(found, expected) -> None:
    assert found.shape == expected.shape
    assert layout.is_non_overlapping_and_dense(found.shape, arrays.element_strides(found))
    error = np.linalg.norm((found - expected).ravel()) / max(np.linalg.norm(expected.ravel()), 1e-300)
    assert error < 2.5 * np.finfo(found.dtype).eps, f"relative error {error}"


@pytest.mark.parametrize("dtype", DTYPES, ids=["complex64", "complex128"])
@pytest.mark.parametrize("n", LENGTHS)
def test_every_length(n, dtype):
    """Rows and columns, few and many, forward and backward, complex and real, are as exact as their dtype."""
    for batch in (1, 3, 37) if n < 2000 else (1, 2):
        x = _numbers(batch, n, dtype=dtype)
        wide = x.astype(WIDE[x.dtype])
        _close(fourier.complex_to_complex(x, (1,), 1.0, True), np.fft.fft(wide))
        _close(fourier.complex_to_complex(x, (1,), 0.5, False), np.fft.ifft(wide, norm="forward") * 0.5)
        columns = np.ascontiguousarray(x.T)
        _close(fourier.complex_to_complex(columns, (0,), 2.0, True), np.fft.fft(wide).T * 2)
        _close(fourier.complex_to_complex(columns.T, (1,), 1.0, False), np.fft.ifft(wide, norm="forward"))
        _close(fourier.real_to_half(x.real, (1,), 1.0), np.fft.rfft(wide.real))
        _close(fourier.real_to_half(columns.imag.copy(), (0,), 3.0), np.fft.rfft(wide.imag).T * 3)
        half = wide[:, : n // 2 + 1]
        back = np.fft.irfft(half, n, norm="forward")
        _close(fourier.half_to_real(x[:, : n // 2 + 1], (1,), 1.0, n), back)
        _close(fourier.half_to_real(np.ascontiguousarray(x.T[: n // 2 + 1]), (0,), 0.5, n), back.T * 0.5)


@pytest.mark.parametrize("dims", [(0,), (1,), (3,), (1, 2), (3, 0), (0, 1, 2, 3)], ids=str)
def test_several_dimensions_of_any_layout(dims):
    """Reversed, transposed, repeated and broadcast inputs are read where they lie, and not changed."""
    base = _numbers(4, 18, 10, 33, dtype=np.complex64)
    layouts = [base, base[::-1, :, ::2], base.transpose(2, 0, 3, 1), np.broadcast_to(base[:1, :, :1], base.shape), base[..., 5:25]]
    for x in layouts:
        before, wide = x.copy(), x.astype(np.complex128)
        _close(fourier.complex_to_complex(x, dims, 1.0, True), np.fft.fftn(wide, axes=dims))
        _close(fourier.real_to_half(x.real, dims, 1.0), np.fft.rfftn(wide.real, axes=dims))
        n = x.shape[dims[-1]]
        sizes = [x.shape[d] for d in dims[:-1]] + [2 * n - 2]
        if n > 1:
            _close(fourier.half_to_real(x, dims, 1.0, 2 * n - 2), np.fft.irfftn(wide, s=sizes, axes=dims, norm="forward"))
        np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("shape", [(300, 256), (7, 1000), (2, 65536), (3000, 16), (50, 257)], ids=str)
def test_threads_change_no_bit(shape):
    """The bits are the same with any number of threads, and a row's do not depend on its neighbours."""
    x = _numbers(*shape, dtype=np.complex64)
    threads = flambeau.get_num_threads()
    try:
        found = []
        for n in (1, 2, 3):
            flambeau.set_num_threads(n)
            found.append([fourier.complex_to_complex(x, (1,), 1.0, True), fourier.real_to_half(x.real, (1,), 1.0)])
    finally:
        flambeau.set_num_threads(threads)
    for more in found[1:]:
        for one, other in zip(found[0], more, strict=True):
            np.testing.assert_array_equal(one, other)
    x[1] = np.nan
    assert np.isnan(fourier.complex_to_complex(np.full_like(x[:1], np.inf), (1,), 1.0, True)).any()  # and no warning
    spoiled = fourier.complex_to_complex(x, (1,), 1.0, True)
    assert np.isnan(spoiled[1]).all()
    np.testing.assert_array_equal(np.delete(spoiled, 1, 0), np.delete(found[0][0], 1, 0))


def test_what_numpy_does():
    """Empty arrays, other dtypes and unaligned memory are left to NumPy, and work."""
    assert fourier.complex_to_complex(np.zeros((0, 4), np.complex64), (1,), 1.0, True) is None
    assert fourier.complex_to_complex(np.zeros(4, np.clongdouble), (0,), 1.0, True) is None
    unaligned = np.zeros(33, np.uint8)[1:].view(np.complex64)
    assert fourier.complex_to_complex(unaligned, (0,), 1.0, True) is None
    assert flambeau.fft.fft(flambeau.zeros(0, 4)).shape == (0, 4)


def test_roots_are_exact():
    """The roots of unity are right to the last bit or so, on every eighth of the circle."""
    for n in (8, 12, 1000, 1021):
        k = np.arange(-n, 2 * n)
        angle = -2 * np.pi * (k.astype(np.longdouble) % n) / n
        expected = np.cos(angle) + 1j * np.sin(angle)
        found = fourier.roots(k, n)
        assert abs(found - expected).max() < 4e-16
        np.testing.assert_allclose([complex(*fourier.root(int(j), n)) for j in k], found, rtol=0, atol=2e-16)
