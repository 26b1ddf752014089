"""The short-time Fourier transform and its inverse: a signal cut into overlapping frames, each faded by a window and transformed.

signal (B, L)  ->  frames (B, T, n_fft), hop_length apart  ->  spectra (B, T, F)  ->  result (B, F, T)
"""

from __future__ import annotations

from math import sqrt

from flambeau import dtypes, errors
from flambeau.ops import fft
from flambeau.ops.declare import OPS, composite
from flambeau.ops.views import _unfold_backward, whole


@composite(autocast="cpu float32")
def stft(
    input, n_fft, hop_length=None, win_length=None, window=None, center=True, pad_mode="reflect", normalized=False, onesided=None,
    return_complex=None, align_to_window=None,
):  # fmt: skip
    """The spectra of frames of a signal. (L) or (B, L) -> (F, T) or (B, F, T), F = n_fft // 2 + 1 if `onesided`, else n_fft.

    center      frame t is centred at sample t * hop_length, the signal being continued at both ends (pad_mode)
    normalized  multiply by 1 / sqrt(n_fft)
    """
    is_complex = input.is_complex() or (window is not None and window.is_complex())
    if input.dtype.category < dtypes.FLOAT:
        raise RuntimeError(f"stft: the signal must be floating point or complex, found {input.dtype.name}. Try x.float()")
    if input.dim() not in (1, 2):
        raise RuntimeError(f"stft: expected a 1D or 2D tensor, found shape {tuple(input.shape)}. Try x.flatten(0, -2)")
    n_fft, hop_length, win_length = _lengths("stft", n_fft, hop_length, win_length, window)
    if return_complex is None:
        if not is_complex:
            raise RuntimeError("stft requires the return_complex parameter for a real signal. Try return_complex=True")
        return_complex = True
    onesided = not is_complex if onesided is None else bool(onesided)
    if onesided and is_complex:
        raise RuntimeError(
            "stft: half of the frequencies say all of a real signal only (onesided), and this one or its window is complex. Try "
            "onesided=False"
        )
    if align_to_window is not None and center:
        raise RuntimeError("stft align_to_window should only be set when center = false, found center = True")
    signal = input.unsqueeze(0) if input.dim() == 1 else input
    if center:
        signal = _continued(signal, n_fft // 2, n_fft // 2, pad_mode)
    elif align_to_window:  # the first window, not the first frame, begins with the signal
        before = (n_fft - win_length) // 2
        signal = _continued(signal, before, n_fft - win_length - before, "constant")
    if signal.shape[-1] < n_fft:
        raise RuntimeError(f"stft: expected 0 < n_fft <= {signal.shape[-1]}, the length of the signal, but got n_fft={n_fft}")
    frames = signal.unfold(-1, n_fft, hop_length)  # (B, T, n_fft)
    faded = _full_window(window, n_fft, win_length, signal)
    if faded is not None:
        frames = frames * faded
    norm = "ortho" if normalized else "backward"
    transform = fft._to_half if onesided else fft._complex
    result = transform("stft", frames, (2,), [None], norm, True).mT
    result = result.squeeze(0) if input.dim() == 1 else result
    return result if return_complex else OPS["view_as_real"](result)


def _lengths(name: str, n_fft, hop_length, win_length, window) -> tuple[int, int, int]:
    """The lengths, or what they are if not given; RuntimeError where they do not go together."""
    n_fft = whole(n_fft)
    hop_length = n_fft // 4 if hop_length is None else whole(hop_length)
    win_length = n_fft if win_length is None else whole(win_length)
    if n_fft <= 0 or hop_length <= 0:
        raise RuntimeError(f"{name}: expected n_fft > 0 and hop_length > 0, but got n_fft={n_fft}, hop_length={hop_length}")
    if not 0 < win_length <= n_fft:
        raise RuntimeError(f"{name}: a window has 1 to n_fft = {n_fft} elements, found win_length={win_length}")
    if window is not None and tuple(window.shape) != (win_length,):
        raise RuntimeError(f"{name}: expected a 1D window tensor of size win_length={win_length}, but got size {list(window.shape)}")
    if window is None:
        leak = f"A rectangular window will be applied by {name}, which leaks. Try window=torch.hann_window(win_length), for stft and istft"
        errors.warn(f"A window was not provided. {leak}")
    return n_fft, hop_length, win_length


def _full_window(window, n_fft: int, win_length: int, like):
    """The window in the middle of n_fft samples, zeros around it; None where it would be ones throughout."""
    if window is None:
        if win_length == n_fft:
            return None
        window = like.new_ones((win_length,), dtype=like.dtype.to_real())
    if win_length == n_fft:
        return window
    before = (n_fft - win_length) // 2
    return _continued(window.unsqueeze(0), before, n_fft - win_length - before, "constant").squeeze(0)


def _continued(signal, before: int, after: int, mode: str):
    """(B, L) -> (B, before + L + after), see `nn.functional.pad`."""
    return OPS["nn.functional.pad"](signal.unsqueeze(1), (before, after), mode).squeeze(1)


@composite
def istft(
    input, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, onesided=None, length=None,
    return_complex=False,
):  # fmt: skip
    """The signal whose stft is `input`: frames transformed back, added where they overlap, divided by the sum of squared windows there.

    (F, T) or (B, F, T) -> (L) or (B, L)
    """
    n_fft, hop_length, win_length = _lengths("istft", n_fft, hop_length, win_length, window)
    _check_istft(input, n_fft, onesided, return_complex)
    spectra = (input.unsqueeze(0) if input.dim() == 2 else input).mT  # (B, T, F)
    frames_count = spectra.shape[1]
    if return_complex:
        frames = fft._complex("istft", spectra, (2,), [None], "backward", False)
    else:  # of a whole spectrum only the first half is read
        frames = fft._from_half("istft", spectra, (2,), [n_fft], "backward", False)
    if normalized:
        frames = frames * sqrt(n_fft)
    real_window = _full_window(window, n_fft, win_length, frames)
    if real_window is None:
        real_window = frames.new_ones((n_fft,), dtype=frames.dtype.to_real())
    total = n_fft + hop_length * (frames_count - 1)
    signal = _overlapped(frames * real_window, total, hop_length)
    weight = _overlapped((real_window * real_window).expand(1, frames_count, n_fft), total, hop_length)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - n_fft // 2 if center else total
    reached = min(end, total)
    signal, weight = signal.narrow(-1, start, reached - start), weight.narrow(-1, start, reached - start)
    if weight.numel() and weight.detach().abs().min().item() <= 1e-11:
        raise RuntimeError("istft: window overlap add min: some samples are covered by no window (its sum of squares is 0 there)")
    signal = signal / weight
    if end > total:
        done = "the result is padded with zeros at its end, where no frame of this center and hop_length reaches."
        errors.warn(f"The length of signal is shorter than the length parameter. {done}")
        signal = _continued(signal, 0, end - total, "constant")
    return signal.squeeze(0) if input.dim() == 2 else signal


def _check_istft(input, n_fft: int, onesided, return_complex) -> None:
    if not input.is_complex():
        raise RuntimeError("istft takes complex frames, as stft(return_complex=True) gives them.")
    if not input.numel():
        raise RuntimeError("istft: input tensor cannot be empty.")
    if input.dim() not in (2, 3):
        raise RuntimeError(f"istft: expected (F, T) or (B, F, T), found {input.dim()} dimensions")
    bins = input.shape[-2]
    onesided = bins != n_fft if onesided is None else bool(onesided)
    expected = n_fft // 2 + 1 if onesided else n_fft
    if bins != expected:
        raise RuntimeError(f"istft: expected the frequency dimension to be {expected} when {n_fft=} and {onesided=}, but got {bins}")
    if return_complex and onesided:
        raise RuntimeError(
            "istft: half of the frequencies (onesided) make a real signal, and the window or return_complex asks for a complex "
            "one. Try onesided=False"
        )


def _overlapped(frames, total: int, hop_length: int):
    """Frames (B, T, n) laid `hop_length` apart and added. -> (B, total)"""
    return _unfold_backward(frames, (frames.shape[0], total), 1, frames.shape[-1], hop_length)
