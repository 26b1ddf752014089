"""`tensor.describe()`: a tensor at a glance.

>>> import flambeau as torch
>>> torch.tensor([0.0, 1.0, 2.0, 3.0, float("nan")]).describe()
float32 tensor of shape (5,) on cpu: 5 elements, 20 B
  range  0 .. 3      mean 1.5      std 1.291
  1 NaN (20 %), 0 infinite, 1 zero (20 %)
  █        █        █        █  0 .. 3
"""

from __future__ import annotations

import html
from typing import Any

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.tensor.tensor import Tensor

BLOCKS = " ▁▂▃▄▅▆▇█"
BINS = 28


class Description:
    """What `describe` found: shape, dtype, device, min, max, mean, std (without what is not finite), and counts of nan, inf and zeros."""

    def __init__(self, tensor: Tensor):
        self.shape, self.dtype, self.device = tuple(tensor.shape), tensor.dtype, tensor.device
        self.numel, self.nbytes = tensor.numel(), tensor.numel() * tensor.element_size()
        self.requires_grad = False
        self.grad_fn: str | None = None
        self.min: Any = None
        self.max: Any = None
        self.mean: float | None = None
        self.std: float | None = None
        self.nan = self.inf = self.zeros = 0
        self.histogram: list[int] = []
        if self.numel and tensor.device.type != "meta":
            self._measure(arrays.plain(tensor.cpu()._array))

    def _measure(self, array: Any) -> None:
        self.zeros = int((array == 0).sum())
        if array.dtype.kind == "c":
            array = np.abs(array)
        values = array.astype(np.float64).ravel()
        self.nan, self.inf = int(np.isnan(values).sum()), int(np.isinf(values).sum())
        finite = values[np.isfinite(values)] if self.nan or self.inf else values
        if finite.size:
            number = (lambda v: v) if self.dtype.is_floating_point or self.dtype.is_complex else int
            self.min, self.max = number(float(finite.min())), number(float(finite.max()))
            self.mean = float(finite.mean())
            self.std = float(finite.std(ddof=1)) if finite.size > 1 else 0.0
            if self.max > self.min:
                self.histogram = np.histogram(finite, BINS, (self.min, self.max))[0].tolist()

    def bars(self) -> str:
        """The histogram, a character for each of its bins; what is not empty shows."""
        most = max(self.histogram, default=0)
        return "".join(BLOCKS[0 if n == 0 else max(1, round(n / most * 8))] for n in self.histogram)

    def __repr__(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        first = f"{name} tensor of shape {self.shape} on {self.device}: {self.numel:,} element{'s' if self.numel != 1 else ''}, {size(self.nbytes)}"
        if self.grad_fn or self.requires_grad:
            first += f", from {self.grad_fn}" if self.grad_fn else ", requires grad"
        lines = [first]
        if self.min is not None and self.dtype is dtypes.bool:
            lines.append(f"  {self.numel - self.zeros:,} True ({share(self.numel - self.zeros, self.numel)}), {self.zeros:,} False")
            return "\n".join(lines)
        if self.min is not None:
            what = "absolute value" if self.dtype.is_complex else "range"
            lines.append(f"  {what}  {short(self.min)} .. {short(self.max)}      mean {short(self.mean)}      std {short(self.std)}")
        if self.numel and self.device.type != "meta":
            nan = f"{self.nan:,} NaN" + (f" ({share(self.nan, self.numel)})" if self.nan else "")
            inf = f"{self.inf:,} infinite" + (f" ({share(self.inf, self.numel)})" if self.inf else "")
            zero = f"{self.zeros:,} zero" + (f" ({share(self.zeros, self.numel)})" if self.zeros else "")
            lines.append(f"  {nan}, {inf}, {zero}")
        if self.histogram:
            lines.append(f"  {self.bars()}  {short(self.min)} .. {short(self.max)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def describe(self: Tensor) -> Description:
    """The tensor at a glance: shape, dtype, range, mean, std, how many NaN, infinities and zeros, a small histogram."""
    found = Description(self.detach())
    found.requires_grad, found.grad_fn = self.requires_grad, None if self.grad_fn is None else type(self.grad_fn).__name__
    return found


def short(value: Any) -> str:
    """A number in a few characters."""
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def share(part: int, whole: int) -> str:
    """A part of a whole in percent, never rounded to nothing."""
    percent = 100 * part / whole
    return f"{percent:.2g} %" if percent < 10 else f"{percent:.0f} %"


def size(count: float) -> str:
    """Bytes in the unit that suits them."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError
