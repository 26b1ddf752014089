"""Brightness, contrast, colour and focus, changed at random."""

from __future__ import annotations

from numbers import Number
from typing import Any

from flambeau.tensor.making.random_factories import randperm
from flambeau.vision.transforms import functional as F
from flambeau.vision.transforms.base import Sometimes, Transform, chance, size_pair, uniform

__all__ = [
    "ColorJitter", "GaussianBlur", "Grayscale", "RandomAdjustSharpness", "RandomAutocontrast", "RandomEqualize", "RandomGrayscale",
    "RandomInvert", "RandomPosterize", "RandomSolarize",
]  # fmt: skip

ADJUSTMENTS = ("brightness", "contrast", "saturation", "hue")


class ColorJitter(Transform):
    """Brightness, contrast, saturation and hue, each changed by a factor from its range, in random order.

    A number b stands for (max(0, 1 - b), 1 + b); of hue, for (-b, b) with b at most 0.5.
    """

    shown = ADJUSTMENTS

    def __init__(self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0):
        super().__init__()
        self.brightness = _bounds(brightness, "brightness")
        self.contrast = _bounds(contrast, "contrast")
        self.saturation = _bounds(saturation, "saturation")
        self.hue = _bounds(hue, "hue", middle=0.0, limits=(-0.5, 0.5))

    @staticmethod
    def get_params(brightness: Any, contrast: Any, saturation: Any, hue: Any) -> tuple[Any, Any, Any, Any, Any]:
        """(order of the four, and a factor for each, None for what is left alone)"""
        order = randperm(4)
        factors = [None if bounds is None else uniform(bounds[0], bounds[1]) for bounds in (brightness, contrast, saturation, hue)]
        return order, *factors  # type: ignore[return-value]

    def forward(self, img: Any) -> Any:
        order, *factors = self.get_params(self.brightness, self.contrast, self.saturation, self.hue)
        for i in order.tolist():
            if factors[i] is not None:
                img = getattr(F, f"adjust_{ADJUSTMENTS[i]}")(img, factors[i])
        return img


def _bounds(value: Any, name: str, middle: float = 1.0, limits: tuple[float, float] = (0.0, float("inf"))) -> tuple[float, float] | None:
    if isinstance(value, Number):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be non negative.")
        low, high = middle - float(value), middle + float(value)  # type: ignore[arg-type]
        low = max(low, 0.0) if name != "hue" else low
    elif isinstance(value, (tuple, list)) and len(value) == 2:
        low, high = float(value[0]), float(value[1])
    else:
        raise TypeError(f"{name} should be a single number or a list/tuple with length 2.")
    if not limits[0] <= low <= high <= limits[1]:
        raise ValueError(f"{name} values should be between {limits}, but got {[low, high]}.")
    return None if low == high == middle else (low, high)


class Grayscale(Transform):
    """Greys instead of colours, in one channel or in three equal ones."""

    shown = ("num_output_channels",)

    def __init__(self, num_output_channels: int = 1):
        super().__init__()
        self.num_output_channels = num_output_channels

    def forward(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, self.num_output_channels)


class RandomGrayscale(Transform):
    """Greys instead of colours with probability p, in as many channels as before."""

    shown = ("p",)

    def __init__(self, p: float = 0.1):
        super().__init__()
        self.p = p

    def forward(self, img: Any) -> Any:
        channels = F.get_dimensions(img)[0]
        return F.rgb_to_grayscale(img, channels) if chance() < self.p else img


class GaussianBlur(Transform):
    """Out of focus, by a bell curve whose width is drawn between two."""

    shown = ("kernel_size", "sigma")

    def __init__(self, kernel_size: Any, sigma: Any = (0.1, 2.0)):
        super().__init__()
        self.kernel_size = size_pair(kernel_size, "Kernel size should be a tuple/list of two integers")
        if any(size <= 0 or size % 2 == 0 for size in self.kernel_size):
            raise ValueError("Kernel size value should be an odd and positive number.")
        if isinstance(sigma, Number):
            if sigma <= 0:
                raise ValueError("If sigma is a single number, it must be positive.")
            sigma = (sigma, sigma)
        elif not (isinstance(sigma, (tuple, list)) and len(sigma) == 2):
            raise TypeError("sigma should be a single number or a list/tuple with length 2.")
        if not 0.0 < sigma[0] <= sigma[1]:
            raise ValueError(f"sigma values should be positive and of the form (min, max). Got {sigma}")
        self.sigma = sigma

    @staticmethod
    def get_params(sigma_min: float, sigma_max: float) -> float:
        return uniform(sigma_min, sigma_max)

    def forward(self, img: Any) -> Any:
        sigma = self.get_params(self.sigma[0], self.sigma[1])
        return F.gaussian_blur(img, list(self.kernel_size), [sigma, sigma])


class RandomInvert(Sometimes, of=F.invert):
    """Black for white, with probability p."""


class RandomAutocontrast(Sometimes, of=F.autocontrast):
    """Stretched from black to white, with probability p."""


class RandomEqualize(Sometimes, of=F.equalize):
    """Levels made equally frequent, with probability p."""


class _WithAmount(Sometimes):
    """A change by an amount that is an option of its own, shown before p."""

    amount: str

    def change(self, img: Any) -> Any:
        return self.of(img, getattr(self, self.amount))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.amount}={getattr(self, self.amount)},p={self.p})"


class RandomPosterize(_WithAmount, of=F.posterize):
    """Only the highest bits kept, with probability p."""

    amount = "bits"

    def __init__(self, bits: int, p: float = 0.5):
        super().__init__(p)
        self.bits = bits


class RandomSolarize(_WithAmount, of=F.solarize):
    """Inverted above a threshold, with probability p."""

    amount = "threshold"

    def __init__(self, threshold: float, p: float = 0.5):
        super().__init__(p)
        self.threshold = threshold


class RandomAdjustSharpness(_WithAmount, of=F.adjust_sharpness):
    """Sharper or softer by a factor, with probability p."""

    amount = "sharpness_factor"

    def __init__(self, sharpness_factor: float, p: float = 0.5):
        super().__init__(p)
        self.sharpness_factor = sharpness_factor
