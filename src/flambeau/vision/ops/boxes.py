"""Boxes (N, 4) by their corners: xmin, ymin, xmax, ymax."""

from __future__ import annotations

import math

from flambeau import dtypes
from flambeau.modes import no_grad
from flambeau.ops.joining import stack
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import as_tensor


def box_area(boxes: Tensor) -> Tensor:
    """(N, 4) -> (N,)"""
    x = _wide(boxes)
    return (x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1])


def _wide(t: Tensor) -> Tensor:
    """In a dtype in which areas do not overflow."""
    if t.is_floating_point():
        return t if t.dtype in (dtypes.float32, dtypes.float64) else t.float()
    return t if t.dtype in (dtypes.int32, dtypes.int64) else t.int()


def _overlap(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Areas of the intersections and of the unions of all pairs. -> (N, M), (N, M)"""
    low, high = a[:, None, :2].maximum(b[:, :2]), a[:, None, 2:].minimum(b[:, 2:])
    inside = _wide(high - low).clamp(min=0).prod(2)
    return inside, box_area(a)[:, None] + box_area(b) - inside


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Intersection over union of all pairs. (N, 4), (M, 4) -> (N, M)"""
    inside, union = _overlap(boxes1, boxes2)
    return inside / union


def generalized_box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Intersection over union, less the part of the smallest box around both that neither fills (Rezatofighi et al.)."""
    inside, union = _overlap(boxes1, boxes2)
    low, high = boxes1[:, None, :2].minimum(boxes2[:, :2]), boxes1[:, None, 2:].maximum(boxes2[:, 2:])
    around = _wide(high - low).clamp(min=0).prod(2)
    return inside / union - (around - union) / around


def distance_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """Intersection over union, less the squared distance of the centres by that across the smallest box around both (Zheng et al.)."""
    a, b = _wide(boxes1)[:, None], _wide(boxes2)
    around = (a[..., 2:].maximum(b[:, 2:]) - a[..., :2].minimum(b[:, :2])).clamp(min=0)
    apart = (a[..., :2] + a[..., 2:] - b[:, :2] - b[:, 2:]) / 2
    return box_iou(a[:, 0], b) - apart.square().sum(-1) / (around.square().sum(-1) + eps)


def complete_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """`distance_box_iou`, less a part for boxes whose sides are in other proportions (Zheng et al.)."""
    a, b = _wide(boxes1), _wide(boxes2)
    size1, size2 = a[:, None, 2:] - a[:, None, :2], b[:, 2:] - b[:, :2]
    angle = (size1[..., 0] / size1[..., 1]).atan() - (size2[:, 0] / size2[:, 1]).atan()
    unlike = 4 / math.pi**2 * angle.square()
    with no_grad():
        weight = unlike / (1 - box_iou(a, b) + unlike + eps)
    return distance_box_iou(a, b, eps) - weight * unlike


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Indices of the boxes that remain, best first, when each removes those of lower score that overlap it by more than the threshold."""
    if boxes.dim() != 2 or boxes.shape[1] != 4 or scores.dim() != 1 or len(scores) != len(boxes):
        raise RuntimeError(f"nms takes boxes (N, 4) and scores (N,), not {tuple(boxes.shape)} and {tuple(scores.shape)}")
    order = scores.argsort(descending=True, stable=True)
    overlaps = (box_iou(boxes[order], boxes[order]) > iou_threshold).tolist()
    kept: list[int] = []
    removed = [False] * len(order)
    for i, row in enumerate(overlaps):
        if not removed[i]:
            kept.append(i)
            removed = [gone or over for gone, over in zip(removed, row, strict=True)]
    return order[as_tensor(kept, dtype=dtypes.int64, device=boxes.device)]


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """`nms` within each category: boxes of different `idxs` do not remove each other."""
    if not boxes.numel():
        return idxs.new_empty((0,), dtype=dtypes.int64)
    apart = idxs.to(boxes.dtype) * (boxes.max() + 1)  # each category in a place of its own
    return nms(boxes + apart[:, None], scores, iou_threshold)


def remove_small_boxes(boxes: Tensor, min_size: float) -> Tensor:
    """Indices of the boxes whose sides are both at least `min_size`."""
    sides = boxes[:, 2:] - boxes[:, :2]
    return (sides >= min_size).all(1).nonzero().squeeze(1)


def clip_boxes_to_image(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes cut off at the edges of an image of height and width `size`."""
    h, w = size
    return stack([boxes[..., 0].clamp(0, w), boxes[..., 1].clamp(0, h), boxes[..., 2].clamp(0, w), boxes[..., 3].clamp(0, h)], -1)


def box_convert(boxes: Tensor, in_fmt: str, out_fmt: str) -> Tensor:
    """From one description into another: "xyxy" corners, "xywh" a corner and the size, "cxcywh" the middle and the size."""
    known = ("xyxy", "xywh", "cxcywh")
    if in_fmt not in known or out_fmt not in known:
        raise ValueError(
            f"Unsupported Bounding Box Conversions for given in_fmt {in_fmt} and out_fmt {out_fmt}: {', '.join(known)} are known"
        )
    if in_fmt == out_fmt:
        return boxes.clone()
    a, b, c, d = boxes.unbind(-1)
    if in_fmt == "xywh":
        a, b, c, d = a, b, a + c, b + d
    elif in_fmt == "cxcywh":
        a, b, c, d = a - 0.5 * c, b - 0.5 * d, a + 0.5 * c, b + 0.5 * d
    if out_fmt == "xywh":
        a, b, c, d = a, b, c - a, d - b
    elif out_fmt == "cxcywh":
        a, b, c, d = (a + c) / 2, (b + d) / 2, c - a, d - b
    return stack([a, b, c, d], -1)
