"""Images into tensors, tensors into images, bytes into fractions, fractions into standard scores."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from flambeau import dtypes
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import as_tensor
from flambeau.tensor.making.interop import from_numpy
from flambeau.vision.picture import Picture, image_from_array, is_pillow_image, pillow
from flambeau.vision.transforms.functional.images import is_numpy_image, largest

__all__ = ["convert_image_dtype", "normalize", "pil_to_tensor", "to_pil_image", "to_tensor"]


def to_tensor(pic: Any) -> Tensor:
    """An image, or an array (H, W, C), as a tensor (C, H, W); bytes become fractions from 0 to 1."""
    array = _pixels(pic, "to_tensor")
    if array.dtype not in (np.uint8, np.bool_):
        return from_numpy(_channels_first(array).copy())
    return fractions(array if array.ndim == 2 else _channels_first(array), array.ndim == 2)


def fractions(array: np.ndarray, one_channel: bool = False) -> Tensor:
    """Bytes, or bits, as fractions from 0 to 1 in the default dtype."""
    white = 255 if array.dtype == np.uint8 else 1
    dtype = dtypes.get_default_dtype()
    result = np.divide(array, white, dtype=np.float32 if dtype is dtypes.float32 else np.float64, order="C")
    tensor = from_numpy(result[None] if one_channel else result)
    return tensor if tensor.dtype is dtype else tensor.to(dtype)


def pil_to_tensor(pic: Any) -> Tensor:
    """An image of Pillow as a tensor (C, H, W) of the same numbers."""
    if not (is_pillow_image(pic) or isinstance(pic, Picture)):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    return from_numpy(_channels_first(_pixels(pic, "pil_to_tensor")).copy())


def _pixels(pic: Any, name: str) -> np.ndarray:
    if isinstance(pic, Picture):
        return pic.array
    if is_pillow_image(pic):
        array = np.asarray(pic)
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if isinstance(pic, np.ndarray):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        return pic
    hint = ": it is one already" if isinstance(pic, Tensor) else ""
    raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}{hint} ({name})")


def _channels_first(array: np.ndarray) -> np.ndarray:
    """(H, W) or (H, W, C) -> (C, H, W)"""
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


# -- back to images ------------------------------------------------------------------------------------------------

# (dtype, channels): Pillow's mode; the first of a row is the default
MODES = {
    ("uint8", 1): ("L",),
    ("int16", 1): ("I;16",),
    ("uint16", 1): ("I;16",),
    ("int32", 1): ("I",),
    ("float32", 1): ("F",),
    ("uint8", 2): ("LA",),
    ("uint8", 3): ("RGB", "YCbCr", "HSV"),
    ("uint8", 4): ("RGBA", "CMYK", "RGBX"),
}


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """The image of a tensor (C, H, W) or (H, W), or of an array (H, W, C) or (H, W). Fractions become bytes."""
    if isinstance(pic, Tensor):
        if pic.dim() not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.dim()} dimensions.")
        pic = pic.detach().cpu()
        if pic.dtype.is_floating_point and mode != "F":
            pic = pic.mul(255).to(dtypes.uint8)  # toward zero, as PyTorch's .byte()
        array = pic.numpy() if pic.dim() == 2 else pic.numpy().transpose(1, 2, 0)
    elif is_numpy_image(pic):
        array = pic
    elif isinstance(pic, np.ndarray):
        raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
    else:
        raise TypeError(f"pic should be Tensor or ndarray. Got {type(pic)}.")
    channels = 1 if array.ndim == 2 else array.shape[2]
    if channels > 4 or channels < 1:
        raise ValueError(f"pic should not have > 4 channels. Got {channels} channels.")
    array = np.ascontiguousarray(array[:, :, 0] if array.ndim == 3 and channels == 1 else array)
    return _image(array, channels, mode)


def _image(array: np.ndarray, channels: int, mode: str | None) -> Any:
    possible = [known for (_, n), row in MODES.items() if n == channels for known in row]
    if mode is not None and mode not in possible:
        raise ValueError(f"Only modes {possible} are supported for {channels} channels, not {mode}")
    modes = MODES.get((array.dtype.name, channels))
    if modes is None:
        raise TypeError(f"Input type {array.dtype} is not supported for an image of {channels} channels")
    if mode is not None and mode not in modes:
        raise ValueError(f"Incorrect mode ({mode}) supplied for input type {array.dtype}. Should be {' or '.join(modes)}")
    mode = mode or modes[0]
    if mode in ("L", "RGB"):
        return image_from_array(array)
    image = pillow("Image", f"an image of mode {mode}")
    # the mode is given by the number of channels, or is another reading of the same bytes
    return image.fromarray(array) if mode == modes[0] else image.frombytes(mode, array.shape[1::-1], array.tobytes())


# -- numbers into numbers ------------------------------------------------------------------------------------------


def convert_image_dtype(image: Tensor, dtype: dtypes.dtype = dtypes.float32) -> Tensor:
    """The same picture in another dtype: white stays white, 1 of fractions and the largest of whole numbers."""
    if not isinstance(image, Tensor):
        raise TypeError("Input img should be Tensor Image")
    if image.dtype is dtype:
        return image
    if image.dtype.is_floating_point:
        return image.to(dtype) if dtype.is_floating_point else _quantized(image, dtype)
    white = largest(image.dtype)
    if dtype.is_floating_point:
        return image.to(dtype) / white
    wanted = largest(dtype)
    if white > wanted:
        return image.div((white + 1) // (wanted + 1), rounding_mode="floor").to(dtype)
    return image.to(dtype) * ((wanted + 1) // (white + 1))


def _quantized(image: Tensor, dtype: dtypes.dtype) -> Tensor:
    wide = {dtypes.float32: (dtypes.int32, dtypes.int64), dtypes.float64: (dtypes.int64,)}
    if dtype in wide.get(image.dtype, ()):  # the fractions have fewer digits than the whole numbers
        raise RuntimeError(f"The cast from {image.dtype} to {dtype} cannot be performed safely.")
    # Just below white + 1, so that every whole number gets an equally wide range of fractions and 1.0 does not overflow.
    return image.mul(largest(dtype) + 1.0 - 1e-3).to(dtype)


def normalize(tensor: Tensor, mean: Any, std: Any, inplace: bool = False) -> Tensor:
    """(tensor - mean) / std, channel by channel. (..., C, H, W) -> the same"""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(tensor)}")
    if not tensor.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {tensor.dtype}. Try ToTensor() or ConvertImageDtype() before it")
    if tensor.dim() < 3:
        raise ValueError(f"Expected tensor to be a tensor image of size (..., C, H, W). Got tensor.size() = {tuple(tensor.shape)}")
    known = all(isinstance(values, (tuple, list)) and all(isinstance(v, (int, float)) for v in values) for values in (mean, std))
    columns = (
        _known_columns(tuple(mean), tuple(std), tensor.dtype, tensor.device) if known else _columns(mean, std, tensor.dtype, tensor.device)
    )
    if inplace:
        return tensor.sub_(columns[0]).div_(columns[1])
    channels = max(len(c) for c in columns if c.dim())
    if tensor.shape[-3] == 1 and channels > 1:
        raise RuntimeError(
            f"normalize: output with shape {list(tensor.shape)} does not fit {channels} channels of mean and std. "
            "Give one number for grey images, as in Normalize((0.5,), (0.5,)), or make three channels with Grayscale(3) before"
        )
    return tensor.sub(columns[0]).div_(columns[1])


def _columns(mean: Any, std: Any, dtype: dtypes.dtype, device: Any) -> tuple[Tensor, Tensor]:
    """Both as (C, 1, 1)."""
    mean, std = as_tensor(mean, dtype=dtype, device=device), as_tensor(std, dtype=dtype, device=device)
    if (std == 0).any():
        raise ValueError(f"std evaluated to zero after conversion to {dtype}, leading to division by zero.")
    return mean.view(-1, 1, 1) if mean.dim() == 1 else mean, std.view(-1, 1, 1) if std.dim() == 1 else std


# A data set is normalized with the same few numbers, image by image: making tensors of them took most of the time.
_known_columns = lru_cache(maxsize=64)(_columns)
