"""Data sets of images: MNIST and its relatives, CIFAR, folders of pictures, noise."""

from __future__ import annotations

from flambeau.vision.datasets.cifar import CIFAR10, CIFAR100
from flambeau.vision.datasets.fakedata import FakeData
from flambeau.vision.datasets.folder import DatasetFolder, ImageFolder
from flambeau.vision.datasets.mnist import EMNIST, KMNIST, MNIST, FashionMNIST
from flambeau.vision.datasets.vision import VisionDataset

__all__ = [
    "CIFAR10", "CIFAR100", "EMNIST", "KMNIST", "MNIST", "DatasetFolder", "FakeData", "FashionMNIST", "ImageFolder", "VisionDataset",
]  # fmt: skip


def __getattr__(name: str) -> object:
    raise AttributeError(f"flambeau.vision.datasets has no {name!r}: it has {', '.join(__all__)}")
