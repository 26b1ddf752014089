"""Pictures of tensors: many in a grid, into a file, with boxes drawn on them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO, Any

from flambeau import dtypes
from flambeau.modes import no_grad
from flambeau.ops.joining import stack
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import as_tensor
from flambeau.vision.picture import pillow
from flambeau.vision.transforms.functional import pil_to_tensor, to_pil_image

__all__ = ["draw_bounding_boxes", "draw_segmentation_masks", "make_grid", "save_image"]


@no_grad()
def make_grid(
    tensor: Tensor | Sequence[Tensor],
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: tuple[float, float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
) -> Tensor:
    """Images beside each other, `nrow` in a row, in one image. (N, C, H, W), or a list of (C, H, W) -> (3 or C, H', W')

    normalize=True brings the values into the range from 0 to 1: from `value_range`, or from their lowest and highest, of all images or,
    with scale_each=True, of each.
    """
    images = _batch(tensor)
    if normalize:
        if value_range is not None and not isinstance(value_range, tuple):
            raise TypeError("value_range has to be a tuple (min, max) if specified. min and max are numbers")
        images = stack([_scaled(image, value_range) for image in images]) if scale_each else _scaled(images, value_range)
    n, channels, h, w = images.shape
    if n == 1:
        return images.squeeze(0)
    columns = min(nrow, n)
    rows = -(-n // columns)
    grid = images.new_full((channels, rows * (h + padding) + padding, columns * (w + padding) + padding), pad_value)
    for i in range(n):
        top, left = (i // columns) * (h + padding) + padding, (i % columns) * (w + padding) + padding
        grid[:, top : top + h, left : left + w] = images[i]
    return grid


def _batch(tensor: Any) -> Tensor:
    """Whatever was given as (N, C, H, W), with three channels instead of one."""
    if not isinstance(tensor, Tensor):
        if not (isinstance(tensor, (list, tuple)) and all(isinstance(t, Tensor) for t in tensor)):
            raise TypeError(f"tensor or list of tensors expected, got {type(tensor)}")
        tensor = stack(list(tensor))
    if tensor.dim() not in (2, 3, 4):
        raise ValueError(f"make_grid takes (N, C, H, W), (C, H, W) or (H, W), not {tuple(tensor.shape)}")
    images = tensor.reshape(*([1] * (4 - tensor.dim())), *tensor.shape)
    return images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images


def _scaled(image: Tensor, value_range: tuple[float, float] | None) -> Tensor:
    low, high = value_range if value_range is not None else (float(image.min()), float(image.max()))
    return image.clamp(low, high).sub(low).div(max(high - low, 1e-5))


@no_grad()
def save_image(tensor: Tensor | Sequence[Tensor], fp: str | os.PathLike | IO[bytes], format: str | None = None, **kwargs: Any) -> None:
    """Write an image, or several as `make_grid(tensor, **kwargs)` arranges them, into a file; values from 0 to 1."""
    grid = make_grid(tensor, **kwargs)
    pixels = grid.mul(255).add(0.5).clamp(0, 255).to("cpu", dtypes.uint8)
    pillow("Image", "save_image").fromarray(pixels.permute(1, 2, 0).contiguous().numpy()).save(fp, format=format)


@no_grad()
def draw_bounding_boxes(
    image: Tensor,
    boxes: Tensor,
    labels: Sequence[str | None] | None = None,
    colors: Any = None,
    fill: bool | None = False,
    width: int = 1,
    font: str | None = None,
    font_size: int | None = None,
) -> Tensor:
    """Rectangles (N, 4) of corners xmin, ymin, xmax, ymax drawn on an image (3 or 1, H, W), one colour for all or one for each."""
    if not isinstance(image, Tensor):
        raise TypeError(f"Tensor expected, got {type(image)}")
    if not (image.dtype is dtypes.uint8 or image.is_floating_point()):
        raise ValueError(f"The image dtype must be uint8 or float, got {image.dtype}")
    if image.dim() != 3 or image.shape[0] not in (1, 3):
        raise ValueError(f"Pass individual grey or RGB images (3, H, W), not {tuple(image.shape)}")
    if len(boxes) and ((boxes[:, 0] > boxes[:, 2]).any() or (boxes[:, 1] > boxes[:, 3]).any()):
        raise ValueError("Boxes need to be in (xmin, ymin, xmax, ymax) format. Try flambeau.vision.ops.box_convert")
    if labels is not None and len(labels) != len(boxes):
        raise ValueError(f"The number of boxes ({len(boxes)}) and labels ({len(labels)}) mismatch. Please specify labels for each box.")
    if not len(boxes):
        return image.clone()
    canvas = to_pil_image(image.expand(3, -1, -1))
    draw = pillow("ImageDraw", "draw_bounding_boxes").Draw(canvas, "RGBA" if fill else None)
    text_font = pillow("ImageFont").truetype(font, font_size or 10) if font else None
    for box, label, color in zip(boxes.to(dtypes.int64).tolist(), labels or [None] * len(boxes), _colours(colors, len(boxes)), strict=True):
        draw.rectangle(box, width=width, outline=color, fill=(*color, 100) if fill else None)
        if label is not None:
            draw.text((box[0] + width + 1, box[1] + width + 1), label, fill=color, font=text_font)
    drawn = pil_to_tensor(canvas)
    return drawn.to(image.dtype) / 255 if image.is_floating_point() else drawn


@no_grad()
def draw_segmentation_masks(image: Tensor, masks: Tensor, alpha: float = 0.8, colors: Any = None) -> Tensor:
    """Masks (N, H, W) or (H, W), bool, laid over an RGB image (3, H, W): alpha 1 hides what is below, 0 the masks. Where masks meet, black."""
    if not isinstance(image, Tensor):
        raise TypeError(f"The image must be a tensor, got {type(image)}")
    if not (image.dtype is dtypes.uint8 or image.is_floating_point()):
        raise ValueError(f"The image dtype must be uint8 or float, got {image.dtype}")
    if image.dim() != 3 or image.shape[0] != 3:
        raise ValueError(f"Pass an RGB image (3, H, W), not {tuple(image.shape)}. A grey one becomes one by expand(3, -1, -1)")
    masks = masks.unsqueeze(0) if masks.dim() == 2 else masks
    if masks.dim() != 3:
        raise ValueError(f"masks must be of shape (H, W) or (batch_size, H, W), not {tuple(masks.shape)}")
    if masks.dtype is not dtypes.bool:
        raise ValueError(f"The masks must be of dtype bool. Got {masks.dtype}. Try masks > 0.5")
    if masks.shape[-2:] != image.shape[-2:]:
        raise ValueError(
            f"The image and the masks must have the same height and width, found {tuple(image.shape)} and {tuple(masks.shape)}"
        )
    if not len(masks):
        return image
    over = image.detach().clone()
    for mask, color in zip(masks, _colours(colors, len(masks)), strict=True):
        shade: Any = as_tensor(color, dtype=dtypes.float32, device=image.device)
        over[:, mask] = (shade / 255 if image.is_floating_point() else shade).to(image.dtype)[:, None]
    over[:, masks.sum(0) > 1] = 0
    blend = image * (1 - alpha) + over * alpha
    return blend.to(image.dtype) if image.is_floating_point() else blend.clamp(0, 255).to(image.dtype)


def _colours(colors: Any, n: int) -> list[tuple[int, int, int]]:
    """A colour for each box; without any, hues far apart from each other."""
    names = pillow("ImageColor")
    if colors is None:
        return [names.getrgb(f"hsv({i * 137 % 360}, 100%, 100%)") for i in range(n)]
    if isinstance(colors, list) and len(colors) < n:
        raise ValueError(f"Number of colors must be equal or larger than the number of objects, but got {len(colors)} < {n}.")
    chosen = colors[:n] if isinstance(colors, list) else [colors] * n
    return [names.getrgb(color) if isinstance(color, str) else tuple(color) for color in chosen]
