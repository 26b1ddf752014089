"""Images mirrored, turned, moved, sheared or seen from an angle, at random."""

from __future__ import annotations

from numbers import Number
from typing import Any

from flambeau.vision.transforms import functional as F
from flambeau.vision.transforms.base import Sometimes, Transform, angles, chance, sequence_of, uniform, whole
from flambeau.vision.transforms.functional.images import InterpolationMode, interpolation_mode

__all__ = ["RandomAffine", "RandomHorizontalFlip", "RandomPerspective", "RandomRotation", "RandomVerticalFlip"]


class RandomHorizontalFlip(Sometimes, of=F.hflip):
    """Left and right exchanged, with probability p."""


class RandomVerticalFlip(Sometimes, of=F.vflip):
    """Above and below exchanged, with probability p."""


class RandomRotation(Transform):
    """Turned by an angle between two, or between -degrees and degrees; counter-clockwise."""

    def __init__(
        self,
        degrees: Any,
        interpolation: InterpolationMode = InterpolationMode.NEAREST,
        expand: bool = False,
        center: Any = None,
        fill: Any = 0,
    ):
        super().__init__()
        self.degrees = angles(degrees, "degrees")
        if center is not None:
            sequence_of(center, "center", (2,))
        self.interpolation, self.expand, self.center = interpolation_mode(interpolation), expand, center
        self.fill = _filling(fill)

    shown = ("degrees", "interpolation", "expand", "fill")

    def __repr__(self) -> str:
        shown = super().__repr__()
        return shown if self.center is None else shown.replace(", fill=", f", center={self.center}, fill=")

    @staticmethod
    def get_params(degrees: list[float]) -> float:
        return uniform(float(degrees[0]), float(degrees[1]))

    def forward(self, img: Any) -> Any:
        return F.rotate(img, self.get_params(self.degrees), self.interpolation, self.expand, self.center, self.fill)


class RandomAffine(Transform):
    """Turned, moved by parts of the size, enlarged and sheared, each by as much as two bounds allow; what is None is left as it is."""

    def __init__(
        self,
        degrees: Any,
        translate: Any = None,
        scale: Any = None,
        shear: Any = None,
        interpolation: InterpolationMode = InterpolationMode.NEAREST,
        fill: Any = 0,
        center: Any = None,
    ):
        super().__init__()
        self.degrees = angles(degrees, "degrees")
        if translate is not None:
            sequence_of(translate, "translate", (2,))
            if not all(0.0 <= t <= 1.0 for t in translate):
                raise ValueError("translation values should be between 0 and 1")
        if scale is not None:
            sequence_of(scale, "scale", (2,))
            if not all(s > 0 for s in scale):
                raise ValueError("scale values should be positive")
        self.shear = None if shear is None else angles(shear, "shear", (2, 4))
        if center is not None:
            sequence_of(center, "center", (2,))
        self.translate, self.scale, self.center = translate, scale, center
        self.interpolation, self.fill = interpolation_mode(interpolation), _filling(fill)

    @staticmethod
    def get_params(
        degrees: list[float], translate: Any, scale_ranges: Any, shears: Any, img_size: list[int]
    ) -> tuple[float, tuple[int, int], float, tuple[float, float]]:
        """(angle, moves, scale, shears) of an image of width and height `img_size`."""
        angle = uniform(float(degrees[0]), float(degrees[1]))
        moves = [0, 0]
        if translate is not None:
            moves = [round(uniform(-bound, bound)) for bound in (float(part * n) for part, n in zip(translate, img_size, strict=True))]
        scale = 1.0 if scale_ranges is None else uniform(scale_ranges[0], scale_ranges[1])
        across = down = 0.0
        if shears is not None:
            across = uniform(shears[0], shears[1])
            down = uniform(shears[2], shears[3]) if len(shears) == 4 else 0.0
        return angle, (moves[0], moves[1]), scale, (across, down)

    def forward(self, img: Any) -> Any:
        _, h, w = F.get_dimensions(img)
        drawn = self.get_params(self.degrees, self.translate, self.scale, self.shear, [w, h])
        return F.affine(img, *drawn, interpolation=self.interpolation, fill=self.fill, center=self.center)

    def __repr__(self) -> str:
        named = [f"{name}={getattr(self, name)}" for name in ("translate", "scale", "shear") if getattr(self, name) is not None]
        if self.interpolation is not InterpolationMode.NEAREST:
            named.append(f"interpolation={self.interpolation.value}")
        named += [f"fill={self.fill}"] if self.fill != 0 else []
        named += [f"center={self.center}"] if self.center is not None else []
        return f"RandomAffine({', '.join([f'degrees={self.degrees}', *named])})"


class RandomPerspective(Transform):
    """With probability p, the corners move inward by up to half of `distortion_scale` of the size."""

    shown = ("p",)

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        fill: Any = 0,
    ):
        super().__init__()
        self.distortion_scale, self.p, self.fill = distortion_scale, p, _filling(fill)
        self.interpolation = interpolation_mode(interpolation)

    @staticmethod
    def get_params(width: int, height: int, distortion_scale: float) -> tuple[list[list[int]], list[list[int]]]:
        """The corners, clockwise from the upper left, and where they go."""
        across, down = int(distortion_scale * (width // 2)) + 1, int(distortion_scale * (height // 2)) + 1
        left, right, top, bottom = (0, across), (width - across, width), (0, down), (height - down, height)
        places = [[whole(*x), whole(*y)] for x, y in ((left, top), (right, top), (right, bottom), (left, bottom))]
        return [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], places

    def forward(self, img: Any) -> Any:
        _, h, w = F.get_dimensions(img)
        if chance() >= self.p:
            return img
        return F.perspective(img, *self.get_params(w, h, self.distortion_scale), self.interpolation, self.fill)


def _filling(fill: Any) -> Any:
    """What takes the place of pixels that came from outside."""
    if not isinstance(fill, (Number, tuple, list, type(None))):
        raise TypeError("Fill should be either a sequence or a number.")
    return 0 if fill is None else fill
