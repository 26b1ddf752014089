"""Images out of focus."""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.nn import functional as F
from flambeau.tensor import Tensor
from flambeau.tensor.making.ranges import linspace
from flambeau.vision.transforms.functional.conversions import pil_to_tensor, to_pil_image
from flambeau.vision.transforms.functional.images import in_floats, on_images

__all__ = ["gaussian_blur"]


def gaussian_blur(img: Any, kernel_size: Any, sigma: Any = None) -> Any:
    """Each pixel becomes the mean of those around it, weighted by a bell curve of width sigma = (x, y); borders are mirrored."""
    if not isinstance(kernel_size, (int, list, tuple)):
        raise TypeError(f"kernel_size should be int or a sequence of integers. Got {type(kernel_size)}")
    sizes = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
    if len(sizes) != 2:
        raise ValueError(f"If kernel_size is a sequence its length should be 2. Got {len(sizes)}")
    if any(size % 2 == 0 or size < 0 for size in sizes):
        raise ValueError(f"kernel_size should have odd and positive integers. Got {sizes}")
    if sigma is None:
        sigma = [size * 0.15 + 0.35 for size in sizes]
    elif not isinstance(sigma, (int, float, list, tuple)):
        raise TypeError(f"sigma should be either float or sequence of floats. Got {type(sigma)}")
    sigmas = [float(sigma)] * 2 if isinstance(sigma, (int, float)) else [float(s) for s in sigma]
    if len(sigmas) not in (1, 2):
        raise ValueError(f"If sigma is a sequence, its length should be 2. Got {len(sigmas)}")
    if any(s <= 0.0 for s in sigmas):
        raise ValueError(f"sigma should have positive values. Got {sigmas}")
    return _blurred(img, sizes, [sigmas[0], sigmas[-1]])


@on_images
def _blurred(img: Any, sizes: list[int], sigmas: list[float]) -> Any:
    dtype = img.dtype if img.is_floating_point() else dtypes.float32
    across, down = (_bell(size, sigma, dtype) for size, sigma in zip(sizes, sigmas, strict=True))
    kernel = (down[:, None] * across).to(img.device)
    margins = [sizes[0] // 2, sizes[0] // 2, sizes[1] // 2, sizes[1] // 2]

    def blurred(x: Tensor) -> Tensor:
        channels = x.shape[1]
        return F.conv2d(F.pad(x, margins, mode="reflect"), kernel.expand(channels, 1, *kernel.shape), groups=channels)

    return in_floats(blurred, img, dtype)


@_blurred.pillow
def _(img: Any, sizes: list[int], sigmas: list[float]) -> Any:
    return to_pil_image(_blurred(pil_to_tensor(img), sizes, sigmas), mode=img.mode)


def _bell(size: int, sigma: float, dtype: dtypes.dtype) -> Tensor:
    """exp(-x^2 / 2 sigma^2) at `size` whole numbers around 0, with sum 1."""
    half = (size - 1) * 0.5
    bell = (-0.5 * (linspace(-half, half, size, dtype=dtype) / sigma) ** 2).exp()
    return bell / bell.sum()
