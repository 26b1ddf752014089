"""Images into tensors and back, and tensors into the numbers a model wants."""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.tensor import Tensor
from flambeau.vision.transforms import functional as F
from flambeau.vision.transforms.base import Transform

__all__ = ["ConvertImageDtype", "LinearTransformation", "Normalize", "PILToTensor", "ToPILImage", "ToTensor"]


class ToTensor:
    """An image, or an array (H, W, C), as a tensor (C, H, W); bytes become fractions from 0 to 1."""

    def __call__(self, pic: Any) -> Tensor:
        return F.to_tensor(pic)

    def __repr__(self) -> str:
        return "ToTensor()"


class PILToTensor:
    """An image of Pillow as a tensor (C, H, W) of the same numbers."""

    def __call__(self, pic: Any) -> Tensor:
        return F.pil_to_tensor(pic)

    def __repr__(self) -> str:
        return "PILToTensor()"


class ToPILImage:
    """The image of a tensor (C, H, W) or of an array (H, W, C), in the mode that is given or follows from its shape and dtype."""

    def __init__(self, mode: str | None = None):
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        return F.to_pil_image(pic, self.mode)

    def __repr__(self) -> str:
        return f"ToPILImage({'' if self.mode is None else f'mode={self.mode}'})"


class ConvertImageDtype(Transform):
    """The same picture in another dtype: white is 1 in fractions, and the largest of whole numbers."""

    def __init__(self, dtype: dtypes.dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, image: Tensor) -> Tensor:
        return F.convert_image_dtype(image, self.dtype)


class Normalize(Transform):
    """(tensor - mean) / std, channel by channel. (..., C, H, W) -> the same"""

    shown = ("mean", "std")

    def __init__(self, mean: Any, std: Any, inplace: bool = False):
        super().__init__()
        self.mean, self.std, self.inplace = mean, std, inplace

    def forward(self, tensor: Tensor) -> Tensor:
        return F.normalize(tensor, self.mean, self.std, self.inplace)


class LinearTransformation(Transform):
    """Subtract a mean from all numbers of an image and multiply by a matrix: whitening, with the matrix from a data set's covariance.

    (..., C, H, W) -> the same, with a matrix (D, D) and a mean (D,), D = C * H * W
    """

    def __init__(self, transformation_matrix: Tensor, mean_vector: Tensor):
        super().__init__()
        if transformation_matrix.shape[0] != transformation_matrix.shape[1]:
            raise ValueError(f"transformation_matrix should be square. Got {tuple(transformation_matrix.shape)} rectangular matrix.")
        if mean_vector.shape[0] != transformation_matrix.shape[0]:
            raise ValueError(
                f"mean_vector should have the same length {mean_vector.shape[0]} as any one of the dimensions of the transformation_matrix "
                f"{tuple(transformation_matrix.shape)}"
            )
        self.transformation_matrix, self.mean_vector = transformation_matrix, mean_vector

    def forward(self, tensor: Tensor) -> Tensor:
        length = tensor.shape[-3] * tensor.shape[-2] * tensor.shape[-1]
        if length != self.transformation_matrix.shape[0]:
            raise ValueError(
                f"Input tensor and transformation matrix have incompatible shape: {tuple(tensor.shape[-3:])} are {length} numbers, the matrix "
                f"takes {self.transformation_matrix.shape[0]}"
            )
        flat = tensor.reshape(-1, length) - self.mean_vector
        return flat.mm(self.transformation_matrix).reshape(tensor.shape)

    def __repr__(self) -> str:
        matrix, mean = self.transformation_matrix.tolist(), self.mean_vector.tolist()
        return f"LinearTransformation(transformation_matrix={matrix}, mean_vector={mean})"
