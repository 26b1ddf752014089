"""What data sets of images share: a root folder, a transform for the image and one for its target, and how they show themselves."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from flambeau.utils.data import Dataset


class VisionDataset(Dataset):
    """A data set of (image, target) pairs. Either `transforms(image, target)`, or `transform(image)` and `target_transform(target)`."""

    def __init__(
        self,
        root: str | os.PathLike | None = None,
        transforms: Callable | None = None,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
    ):
        if transforms is not None and (transform is not None or target_transform is not None):
            raise ValueError("Only transforms or transform/target_transform can be passed as argument")
        self.root = os.path.expanduser(root) if isinstance(root, str) else root
        self.transform, self.target_transform = transform, target_transform
        if transform is not None or target_transform is not None:
            transforms = StandardTransform(transform, target_transform)
        self.transforms = transforms

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} does not define __len__")

    def __repr__(self) -> str:
        body = [f"Number of datapoints: {len(self)}"]
        if self.root is not None:
            body.append(f"Root location: {self.root}")
        body += self.extra_repr().splitlines()
        if self.transforms is not None:
            body.append(repr(self.transforms))
        return "\n".join([f"Dataset {type(self).__name__}", *(f"    {line}" for line in body)])

    def extra_repr(self) -> str:
        """More lines for the repr."""
        return ""


def transformed(by: VisionDataset | StandardTransform, image: Any, target: Any) -> tuple[Any, Any]:
    """The pair after `by.transform` and `by.target_transform`, where there are such."""
    if by.transform is not None:
        image = by.transform(image)
    if by.target_transform is not None:
        target = by.target_transform(target)
    return image, target


class StandardTransform:
    """A transform of the image beside one of the target."""

    def __init__(self, transform: Callable | None = None, target_transform: Callable | None = None):
        self.transform, self.target_transform = transform, target_transform

    def __call__(self, input: Any, target: Any) -> tuple[Any, Any]:
        return transformed(self, input, target)

    def __repr__(self) -> str:
        body = ["StandardTransform"]
        for head, transform in (("Transform: ", self.transform), ("Target transform: ", self.target_transform)):
            if transform is not None:
                first, *rest = repr(transform).splitlines()
                body += [head + first, *(" " * len(head) + line for line in rest)]
        return "\n".join(body)
