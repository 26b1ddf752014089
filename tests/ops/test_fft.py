"""Fourier transforms of all kinds, their norms, sizes and derivatives; the short-time transform and its inverse."""

# ruff: noqa: B023 - every lambda is called before its loop goes on

from __future__ import annotations

import numpy as np
import pytest
from matrix_oracle import COMPLEX, REAL, check, check_raises, numbers, ours, plain, torch

import flambeau
from flambeau.kernels.templates import fourier

NORMS = [None, "backward", "ortho", "forward"]
COMPLEX_TO_COMPLEX, REAL_TO_HALF, HALF_TO_REAL = ("fft", "ifft"), ("rfft", "ihfft"), ("irfft", "hfft")


def _takes(name: str):
    return REAL if name.rstrip("2n") in REAL_TO_HALF else COMPLEX


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", COMPLEX_TO_COMPLEX + REAL_TO_HALF + HALF_TO_REAL)
def test_one_dimension(name, norm):
    """Transforms of one dimension: even and odd lengths, cut off and continued with zeros, along any dimension."""
    x = numbers(3, 5, 6, dtype=_takes(name))
    for n in (None, 1, 4, 5, 9):
        for dim in (-1, 1):
            check(lambda t, x: getattr(t.fft, name)(x, n, dim, norm), x)
    check(lambda t, x: getattr(t.fft, name)(x), x.transpose(0, 2)[::2], second=False)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", COMPLEX_TO_COMPLEX + REAL_TO_HALF + HALF_TO_REAL)
def test_several_dimensions(name, norm):
    """Transforms of two and of several dimensions."""
    x = numbers(3, 4, 5, dtype=_takes(name))
    check(lambda t, x: getattr(t.fft, name + "2")(x, norm=norm), x)
    check(lambda t, x: getattr(t.fft, name + "2")(x, (3, 6), (0, 1), norm), x)
    check(lambda t, x: getattr(t.fft, name + "n")(x, norm=norm), x)
    check(lambda t, x: getattr(t.fft, name + "n")(x, (2, -1, 7), norm=norm), x)
    check(lambda t, x: getattr(t.fft, name + "n")(x, dim=(2, 0), norm=norm), x)
    check(lambda t, x: getattr(t.fft, name + "n")(x, (3, 4), norm=norm), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64, torch.int32, torch.bool, REAL], ids=str)
def test_dtypes(dtype):
    """Real numbers are transformed too, integers become floats, and precision is kept."""
    x = numbers(2, 6, dtype=dtype) if dtype is not torch.bool else numbers(2, 6) > 0
    for name in ("fft", "ifft", "irfft", "hfft"):
        check(lambda t, x: getattr(t.fft, name)(x), x, second=False)
    if not dtype.is_complex:
        check(lambda t, x: t.fft.rfftn(x), x, second=False)


def test_shifts():
    """fftshift moves the zero frequency to the middle, ifftshift back, along any dimensions."""
    x = numbers(4, 5)
    for dim in (None, 0, (0, 1), [-1]):
        check(lambda t, x: t.fft.fftshift(x, dim), x, second=False)
        check(lambda t, x: t.fft.ifftshift(x, dim), x, second=False)


def test_frequencies():
    """fftfreq and rfftfreq are PyTorch's."""
    for n in (1, 4, 5):
        for name in ("fftfreq", "rfftfreq"):
            np.testing.assert_allclose(plain(getattr(flambeau.fft, name)(n, 0.1)), plain(getattr(torch.fft, name)(n, 0.1)))


def test_out():
    """out= receives the spectrum; a real tensor cannot."""
    x = ours(numbers(6))
    out = flambeau.empty(0, dtype=flambeau.complex128)
    assert flambeau.fft.fft(x, out=out) is out
    np.testing.assert_allclose(plain(out), np.fft.fft(plain(x)))
    with pytest.raises(RuntimeError):
        flambeau.fft.fft(x, out=flambeau.empty(6, dtype=flambeau.float64))


ERRORS = {
    "half": lambda t, x: t.fft.fft(x.half()),
    "no samples": lambda t, x: t.fft.fft(x, 0),
    "norm": lambda t, x: t.fft.fft(x, norm="loud"),
    "a number": lambda t, x: t.fft.fft(x[0, 0]),
    "dimension": lambda t, x: t.fft.fft(x, dim=5),
    "rfft of complex": lambda t, x: t.fft.rfft(x + 0j),
    "ihfft of complex": lambda t, x: t.fft.ihfft(x + 0j),
    "irfft of one": lambda t, x: t.fft.irfft(x[:, :1]),
    "too many sizes": lambda t, x: t.fft.fftn(x, s=(2, 2, 2)),
    "sizes and dims": lambda t, x: t.fft.fftn(x, s=(2, 2), dim=(0,)),
    "a dim twice": lambda t, x: t.fft.fftn(x, dim=(0, 0)),
    "no dim": lambda t, x: t.fft.rfftn(x, dim=()),
    "stft of integers": lambda t, x: t.stft(x[0].long(), 4, return_complex=True),
    "stft of three dimensions": lambda t, x: t.stft(x[None], 4, return_complex=True),
    "stft of nothing said": lambda t, x: t.stft(x, 4),
    "stft's hop": lambda t, x: t.stft(x, 4, 0, return_complex=True),
    "stft's window": lambda t, x: t.stft(x, 4, window=t.ones(3), return_complex=True),
    "stft's win_length": lambda t, x: t.stft(x, 4, win_length=5, return_complex=True),
    "stft too short": lambda t, x: t.stft(x, 100, return_complex=True),
    "stft's padding": lambda t, x: t.stft(x, 4, pad_mode="loud", return_complex=True),
    "onesided complex": lambda t, x: t.stft(x + 0j, 4, onesided=True, return_complex=True),
    "istft of real": lambda t, x: t.istft(x, 4),
    "istft's bins": lambda t, x: t.istft(x + 0j, 20),
}


@pytest.mark.filterwarnings("ignore:A window was not provided")
@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    """What PyTorch refuses is refused, with its type of exception."""
    check_raises(ERRORS[name], numbers(4, 12))


# -- short-time transforms -------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:A window was not provided")
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("onesided", [True, False])
@pytest.mark.parametrize("normalized", [True, False])
def test_stft_and_back(center, onesided, normalized):
    """stft with and without a window, and istft of it, are PyTorch's; istft finds the signal again."""
    signal, window = numbers(2, 50), torch.hann_window(12, dtype=REAL) + 0.1
    options = {"center": center, "onesided": onesided, "normalized": normalized}
    check(lambda t, x: t.stft(x, 16, return_complex=True, **options), signal)
    check(lambda t, x, w: t.stft(x, 16, 4, 12, w, return_complex=True, **options), signal, window)
    check(lambda t, x: t.stft(x, 15, 5, return_complex=True, **options), signal[0])

    def there_and_back(t, x, w):
        return t.istft(t.stft(x, 16, 4, 16, w, return_complex=True, **options), 16, 4, 16, w, **options)

    window = torch.hann_window(16, dtype=REAL) + 0.1
    check(there_and_back, signal, window)
    found = there_and_back(flambeau, ours(signal), ours(window))
    np.testing.assert_allclose(plain(found), signal.numpy()[:, : found.shape[-1]], atol=1e-12)


@pytest.mark.filterwarnings("ignore:A window was not provided", "ignore:stft with return_complex=False")
def test_stft_options():
    """Padding modes, real results, complex signals, a given length."""
    x = numbers(40)
    for mode in ("reflect", "constant", "replicate", "circular"):
        check(lambda t, x: t.stft(x, 8, pad_mode=mode, return_complex=True), x, second=False)
    check(lambda t, x: t.stft(x, 8, return_complex=False), x, second=False)
    check(lambda t, x: x.stft(8, return_complex=True), x, gradient=False)
    check(lambda t, x: t.stft(x, 8, return_complex=True), numbers(40, dtype=COMPLEX), second=False)
    check(lambda t, x: t.stft(x, 8, 2, 5, center=False, align_to_window=True, return_complex=True), x, second=False)
    check(lambda t, x: t.istft(x, 8, length=30), numbers(5, 21, dtype=COMPLEX), second=False)
    check(lambda t, x: t.istft(x, 8, return_complex=True, onesided=False), numbers(2, 8, 21, dtype=COMPLEX), second=False)
    with pytest.warns(UserWarning, match="A window was not provided"):
        flambeau.stft(flambeau.ones(40), 9, return_complex=True)
    with pytest.warns(UserWarning, match="padded with zeros"):
        assert tuple(flambeau.istft(ours(numbers(5, 21, dtype=COMPLEX)), 8, length=60).shape) == (60,)


ORDERS = [
    lambda x: x, lambda x: x.permute(2, 0, 1), lambda x: x.transpose(0, 1), lambda x: x[:, ::2], lambda x: x.mT[1:],
]  # fmt: skip


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", COMPLEX_TO_COMPLEX + REAL_TO_HALF + HALF_TO_REAL)
def test_results_lie_in_memory_as_pytorchs_do(name, compiled, monkeypatch):
    """A result has other strides than PyTorch's, so that whatever draws in the order of memory, such as dropout, draws otherwise."""
    if not compiled:
        monkeypatch.setattr(fourier, "_applies", lambda array: False)
    for order in ORDERS:
        for dim in (0, 1, 2):
            found = []
            for t in (torch, flambeau):
                y = getattr(t.fft, name)(order(t.arange(4 * 6 * 10.0).reshape(4, 6, 10)), dim=dim)
                t.manual_seed(0)
                found.append((y.stride(), (t.nn.functional.dropout(y.abs() + 1) == 0).tolist()))
            assert found[0] == found[1]
        for dims in ((0, 1), (2, 0), (1, 2), (1, 0, 2)):
            strides = [getattr(t.fft, name + "n")(order(t.ones(4, 6, 10)), dim=dims).stride() for t in (torch, flambeau)]
            assert strides[0] == strides[1], (dims, strides)


@pytest.mark.filterwarnings("ignore:A window was not provided")
def test_one_of_several_dimensions():
    """A size and a dimension may be plain numbers where several are taken; complex input of real transforms is refused in PyTorch's words."""
    x = numbers(4, 6)
    for name in ("fftn", "ifftn", "rfftn", "hfftn"):
        check(lambda t, x, name=name: getattr(t.fft, name)(x, s=5, dim=1), x)
    for t, z in ((torch, x + 1j), (flambeau, ours(x + 1j))):
        for name, words in (("rfft2", "rfftn expects a real-valued input"), ("rfft", "rfft expects a real input tensor")):
            with pytest.raises(RuntimeError, match=words):
                getattr(t.fft, name)(z)
        with pytest.raises(RuntimeError, match="stft align_to_window should only be set when center = false"):
            z.real.reshape(-1).stft(10, center=True, return_complex=True, align_to_window=True)


@pytest.mark.parametrize(
    "make", [lambda t, out: t.arange(4, out=out), lambda t, out: t.fft.fftfreq(4, out=out), lambda t, out: t.fft.rfftfreq(4, out=out)]
)
def test_out_with_a_computed_number_of_elements(make):
    """An out= of another number of elements is resized with a warning, an empty one without."""
    for t in (torch, flambeau):
        with pytest.warns(UserWarning, match="out tensor will be resized"):
            found = make(t, t.empty(2))
        assert make(t, t.empty(0)).tolist() == found.tolist()
