"""What detectors of objects need besides layers: boxes, and normalization that does not learn."""

from __future__ import annotations

from flambeau import import_only
from flambeau.vision.ops.boxes import (
    batched_nms,
    box_area,
    box_convert,
    box_iou,
    clip_boxes_to_image,
    complete_box_iou,
    distance_box_iou,
    generalized_box_iou,
    nms,
    remove_small_boxes,
)
from flambeau.vision.ops.misc import Conv2dNormActivation, FrozenBatchNorm2d

DeformConv2d, MultiScaleRoIAlign, RoIAlign, RoIPool = import_only.classes(
    "torchvision.ops", "DeformConv2d MultiScaleRoIAlign RoIAlign RoIPool", "of detectors' layers only boxes are in Flambeau"
)

__all__ = [
    "Conv2dNormActivation", "FrozenBatchNorm2d", "batched_nms", "box_area", "box_convert", "box_iou", "clip_boxes_to_image",
    "complete_box_iou", "distance_box_iou", "generalized_box_iou", "nms", "remove_small_boxes",
]  # fmt: skip


def __getattr__(name: str) -> object:
    raise AttributeError(f"flambeau.vision.ops has no {name!r}: it has {', '.join(__all__)}")
