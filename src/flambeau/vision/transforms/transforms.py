"""Every transform, under torchvision's names."""

from __future__ import annotations

from flambeau.vision.transforms.colours import (
    ColorJitter,
    GaussianBlur,
    Grayscale,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomGrayscale,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from flambeau.vision.transforms.containers import Compose, Lambda, RandomApply, RandomChoice, RandomOrder
from flambeau.vision.transforms.conversions import ConvertImageDtype, LinearTransformation, Normalize, PILToTensor, ToPILImage, ToTensor
from flambeau.vision.transforms.crops import CenterCrop, FiveCrop, Pad, RandomCrop, RandomErasing, RandomResizedCrop, Resize, TenCrop
from flambeau.vision.transforms.functional.images import InterpolationMode
from flambeau.vision.transforms.warps import RandomAffine, RandomHorizontalFlip, RandomPerspective, RandomRotation, RandomVerticalFlip

__all__ = [
    "CenterCrop", "ColorJitter", "Compose", "ConvertImageDtype", "FiveCrop", "GaussianBlur", "Grayscale", "InterpolationMode", "Lambda",
    "LinearTransformation", "Normalize", "PILToTensor", "Pad", "RandomAdjustSharpness", "RandomAffine", "RandomApply", "RandomAutocontrast",
    "RandomChoice", "RandomCrop", "RandomEqualize", "RandomErasing", "RandomGrayscale", "RandomHorizontalFlip", "RandomInvert",
    "RandomOrder", "RandomPerspective", "RandomPosterize", "RandomResizedCrop", "RandomRotation", "RandomSolarize", "RandomVerticalFlip",
    "Resize", "TenCrop", "ToPILImage", "ToTensor",
]  # fmt: skip
