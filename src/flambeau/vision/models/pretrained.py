"""What is said to those who ask for trained weights: there are none here, and how to bring them."""

from __future__ import annotations

from typing import Any

from flambeau import import_only

WHY = "Flambeau downloads no trained weights. Make the model with weights=None, and load torchvision's file into it: names and shapes agree"


def refuse(name: str, weights: Any, others: dict[str, Any]) -> None:
    """NotImplementedError where trained weights are asked for, the old way (pretrained=True) or the new."""
    old = others.pop("pretrained", False)
    if weights is not None or old:
        raise NotImplementedError(f"{name}({'pretrained=True' if old else f'weights={weights!r}'}): {WHY}")


def weights(*names: str) -> list[Any]:
    """The types of weights, for those who import them."""
    return import_only.classes("torchvision.models", " ".join(names), WHY)
