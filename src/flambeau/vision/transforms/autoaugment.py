"""Augmentation without a search: a few changes out of a list, drawn anew for each image.

    RandAugment          num_ops of them, all by the same magnitude                  (Cubuk et al., 2020)
    TrivialAugmentWide   one, by a magnitude that is drawn too, from wider ranges    (Müller and Hutter, 2021)

Magnitudes are numbered from 0, no change, to num_magnitude_bins - 1; those of turns, shears, moves and blends get a random sign.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from flambeau.tensor.making.ranges import arange, linspace
from flambeau.vision.transforms import functional as F
from flambeau.vision.transforms.base import Transform, whole
from flambeau.vision.transforms.functional.images import InterpolationMode, largest

__all__ = ["RandAugment", "TrivialAugmentWide"]

# A list of changes: (name; magnitudes by number, or None for a change that has none; whether the sign is random)
Changes = list[tuple[str, list[float] | None, bool]]


@lru_cache(maxsize=64)
def changes(bins: int, shear: float, across: float, down: float, turn: float, blend: float, bits: int, white: float) -> Changes:
    """The fourteen changes, each from nothing to the strongest that is named. The order is part of what a seed means."""

    def up_to(strongest: float) -> list[float]:
        return linspace(0.0, strongest, bins).tolist()

    return [
        ("Identity", None, False),
        ("ShearX", up_to(shear), True),
        ("ShearY", up_to(shear), True),
        ("TranslateX", up_to(across), True),
        ("TranslateY", up_to(down), True),
        ("Rotate", up_to(turn), True),
        ("Brightness", up_to(blend), True),
        ("Color", up_to(blend), True),
        ("Contrast", up_to(blend), True),
        ("Sharpness", up_to(blend), True),
        ("Posterize", (8 - (arange(bins) / ((bins - 1) / bits)).round()).tolist(), False),
        ("Solarize", linspace(white, 0.0, bins).tolist(), False),
        ("AutoContrast", None, False),
        ("Equalize", None, False),
    ]


def change(img: Any, name: str, magnitude: float, mode: InterpolationMode, fill: Any) -> Any:
    """One of the changes of the list."""

    def moved(**parts: Any) -> Any:
        """An affine map that changes nothing but the parts that are given."""
        whole_map = {"angle": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0], **parts}
        return F.affine(img, **whole_map, interpolation=mode, fill=fill)

    slant = math.degrees(math.atan(magnitude))
    match name:
        case "ShearX":  # around the corner, as the paper's code does
            return moved(shear=[slant, 0.0], center=[0, 0])
        case "ShearY":
            return moved(shear=[0.0, slant], center=[0, 0])
        case "TranslateX":
            return moved(translate=[int(magnitude), 0])
        case "TranslateY":
            return moved(translate=[0, int(magnitude)])
        case "Rotate":
            return F.rotate(img, magnitude, mode, fill=fill)
        case "Brightness" | "Contrast" | "Sharpness":
            return getattr(F, f"adjust_{name.lower()}")(img, 1.0 + magnitude)
        case "Color":
            return F.adjust_saturation(img, 1.0 + magnitude)
        case "Posterize":
            return F.posterize(img, int(magnitude))
        case "Solarize":
            return F.solarize(img, magnitude)
        case "AutoContrast":
            return F.autocontrast(img)
        case "Equalize":
            return F.equalize(img)
    return img


class _FromTheList(Transform):
    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)}' for name in self.shown)})"

    def drawn(self, img: Any, known: Changes, number: int | None) -> Any:
        """A change of the list, of the magnitude of this number or, for None, of one that is drawn; then its sign."""
        name, magnitudes, signed = known[whole(0, len(known))]
        if magnitudes is None:
            return change(img, name, 0.0, self.interpolation, self.fill)
        magnitude = magnitudes[whole(0, len(magnitudes)) if number is None else number]
        return change(img, name, -magnitude if signed and whole(0, 2) else magnitude, self.interpolation, self.fill)


class RandAugment(_FromTheList):
    """`num_ops` changes, each drawn from the list, all of magnitude number `magnitude`."""

    shown = ("num_ops", "magnitude", "num_magnitude_bins", "interpolation", "fill")

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: InterpolationMode = InterpolationMode.NEAREST,
        fill: Any = None,
    ):
        super().__init__()
        if not 0 <= magnitude < num_magnitude_bins:
            raise ValueError(f"magnitude is a number from 0 to num_magnitude_bins - 1 = {num_magnitude_bins - 1}, not {magnitude}")
        self.num_ops, self.magnitude, self.num_magnitude_bins = num_ops, magnitude, num_magnitude_bins
        self.interpolation, self.fill = interpolation, fill

    def forward(self, img: Any) -> Any:
        _, h, w = F.get_dimensions(img)
        known = changes(self.num_magnitude_bins, 0.3, 150.0 / 331.0 * w, 150.0 / 331.0 * h, 30.0, 0.9, 4, _white(img))
        for _ in range(self.num_ops):
            img = self.drawn(img, known, self.magnitude)
        return img


class TrivialAugmentWide(_FromTheList):
    """One change drawn from the list, of a magnitude that is drawn too."""

    shown = ("num_magnitude_bins", "interpolation", "fill")

    def __init__(self, num_magnitude_bins: int = 31, interpolation: InterpolationMode = InterpolationMode.NEAREST, fill: Any = None):
        super().__init__()
        self.num_magnitude_bins, self.interpolation, self.fill = num_magnitude_bins, interpolation, fill

    def forward(self, img: Any) -> Any:
        return self.drawn(img, changes(self.num_magnitude_bins, 0.99, 32.0, 32.0, 135.0, 0.99, 6, _white(img)), None)


def _white(img: Any) -> float:
    return largest(img.dtype) if hasattr(img, "dtype") else 255
