"""Every transform, under torchvision's names."""

from __future__ import annotations

from flambeau.vision.transforms import autoaugment, colours, containers, conversions, crops, warps
from flambeau.vision.transforms.autoaugment import *
from flambeau.vision.transforms.colours import *
from flambeau.vision.transforms.containers import *
from flambeau.vision.transforms.conversions import *
from flambeau.vision.transforms.crops import *
from flambeau.vision.transforms.functional.images import InterpolationMode
from flambeau.vision.transforms.warps import *

__all__ = [
    "InterpolationMode",
    *autoaugment.__all__,
    *colours.__all__,
    *containers.__all__,
    *conversions.__all__,
    *crops.__all__,
    *warps.__all__,
]
