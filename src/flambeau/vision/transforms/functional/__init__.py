"""The transforms as plain functions, on tensors (..., C, H, W), Pillow's images and Pictures, with torchvision's names."""

from __future__ import annotations

from flambeau.vision.transforms.functional import blurring, colours, conversions, images, resizing, warping
from flambeau.vision.transforms.functional.blurring import *
from flambeau.vision.transforms.functional.colours import *
from flambeau.vision.transforms.functional.conversions import *
from flambeau.vision.transforms.functional.images import *
from flambeau.vision.transforms.functional.resizing import *
from flambeau.vision.transforms.functional.warping import *

__all__ = [*blurring.__all__, *colours.__all__, *conversions.__all__, *images.__all__, *resizing.__all__, *warping.__all__]
