"""A folder for each class, and in it its files:

    root/cat/anything.jpg
    root/dog/deeper/another.png

Classes are numbered in the order of their names.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from flambeau.vision.datasets.vision import VisionDataset, transformed
from flambeau.vision.picture import pillow

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class DatasetFolder(VisionDataset):
    """Files in folders named after their classes, read by `loader`; either with these `extensions`, or those that `is_valid_file` accepts.

    `samples` is a list of (path, class index), `targets` one of the indices, `classes` the names of the folders in order.
    """

    def __init__(
        self,
        root: str | os.PathLike,
        loader: Callable[[str], Any],
        extensions: tuple[str, ...] | None = None,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = self.make_dataset(self.root, self.class_to_idx, extensions, is_valid_file, allow_empty)
        self.loader, self.extensions = loader, extensions
        self.targets = [target for _, target in self.samples]

    @staticmethod
    def make_dataset(
        directory: str | os.PathLike,
        class_to_idx: dict[str, int],
        extensions: tuple[str, ...] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> list[tuple[str, int]]:
        """A subclass may list its samples in another way."""
        if class_to_idx is None:
            raise ValueError("The class_to_idx parameter cannot be None.")
        return make_dataset(directory, class_to_idx, extensions, is_valid_file, allow_empty)

    def find_classes(self, directory: str | os.PathLike) -> tuple[list[str], dict[str, int]]:
        """A subclass may find its classes in another way."""
        return find_classes(directory)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        sample = self.loader(path)
        return transformed(self, sample, target)

    def __len__(self) -> int:
        return len(self.samples)


def default_loader(path: str | os.PathLike) -> Any:
    """The image in a file, in red, green and blue."""
    with open(path, "rb") as file:  # opened here, so that the file is closed when the pixels are read
        return pillow("Image", f"reading {os.fspath(path)}").open(file).convert("RGB")


pil_loader = default_loader


class ImageFolder(DatasetFolder):
    """Images in folders named after their classes, read with Pillow (pip install 'flambeau[vision]')."""

    def __init__(
        self,
        root: str | os.PathLike,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        loader: Callable[[str], Any] = default_loader,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ):
        extensions = IMG_EXTENSIONS if is_valid_file is None else None
        super().__init__(root, loader, extensions, transform, target_transform, is_valid_file, allow_empty)
        self.imgs = self.samples


def find_classes(directory: str | os.PathLike) -> tuple[list[str], dict[str, int]]:
    """The names of the folders in order, and the index of each."""
    classes = sorted(entry.name for entry in os.scandir(os.fspath(directory)) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
    return classes, {name: i for i, name in enumerate(classes)}


def make_dataset(
    directory: str | os.PathLike,
    class_to_idx: dict[str, int] | None = None,
    extensions: str | tuple[str, ...] | None = None,
    is_valid_file: Callable[[str], bool] | None = None,
    allow_empty: bool = False,
) -> list[tuple[str, int]]:
    """(path, class index) of every file that counts, however deep, in the order of names. A class without any is an error."""
    directory = os.path.expanduser(directory)
    if class_to_idx is None:
        class_to_idx = find_classes(directory)[1]
    elif not class_to_idx:
        raise ValueError("'class_to_idx' must have at least one entry to collect any samples.")
    if (extensions is None) == (is_valid_file is None):
        raise ValueError("Both extensions and is_valid_file cannot be None or not None at the same time")
    counts = is_valid_file if is_valid_file is not None else lambda path: has_file_allowed_extension(path, extensions)
    samples, empty = [], []
    for name in sorted(class_to_idx):
        files = _files(os.path.join(directory, name))
        found = [(path, class_to_idx[name]) for path in files if counts(path)]
        samples += found
        if not found:
            empty.append(name)
    if empty and not allow_empty:
        message = f"Found no valid file for the classes {', '.join(empty)}."
        if extensions is not None:
            message += f" Supported extensions are: {extensions if isinstance(extensions, str) else ', '.join(extensions)}"
        raise FileNotFoundError(message)
    return samples


def _files(folder: str) -> list[str]:
    return [os.path.join(root, name) for root, _, names in sorted(os.walk(folder, followlinks=True)) for name in sorted(names)]


def has_file_allowed_extension(filename: str, extensions: str | tuple[str, ...]) -> bool:
    return filename.lower().endswith(extensions if isinstance(extensions, str) else tuple(extensions))


def is_image_file(filename: str) -> bool:
    return has_file_allowed_extension(filename, IMG_EXTENSIONS)
