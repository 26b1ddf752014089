"""CIFAR-10 and CIFAR-100: photographs of 32 x 32 pixels in 10 or 100 classes (Krizhevsky), in pickles of arrays."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from flambeau.vision.datasets.utils import DownloadError, check_integrity, download_from, extract_archive
from flambeau.vision.datasets.vision import VisionDataset, transformed
from flambeau.vision.picture import image_from_array


class CIFAR10(VisionDataset):
    """Aeroplanes, cars, birds, ...: 50000 photographs to learn from, 10000 to test on, in root/cifar-10-batches-py.

    `data` is an array (N, 32, 32, 3) of bytes, `targets` a list. An item is an image and a label, both transformed.
    """

    base_folder = "cifar-10-batches-py"
    url = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    filename = "cifar-10-python.tar.gz"
    tgz_md5 = "c58f30108f718f92721af3b95e74349a"
    train_list = [
        ["data_batch_1", "c99cafc152244af753f735de768cd75f"],
        ["data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"],
        ["data_batch_3", "54ebc095f3ab1f0389bbae665268c751"],
        ["data_batch_4", "634d18415352ddfa80567beed471001a"],
        ["data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"],
    ]
    test_list = [["test_batch", "40351d587109b95175f43aff81a1287e"]]
    meta = {"filename": "batches.meta", "key": "label_names", "md5": "5ff9c542aee3614f3951f8cda6e48888"}

    def __init__(
        self,
        root: str | os.PathLike,
        train: bool = True,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        download: bool = False,
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        if download:
            self.download()
        damaged = self._damaged()
        if damaged:
            raise RuntimeError(
                f"Dataset not found or corrupted. You can use download=True to download it\n    missing or not as they should be: {', '.join(damaged)}"
            )
        batches = [self._read(name) for name, _ in (self.train_list if train else self.test_list)]
        images = np.concatenate([batch["data"] for batch in batches]).reshape(-1, 3, 32, 32)
        self.data = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
        self.targets = [label for batch in batches for label in batch.get("labels", batch.get("fine_labels"))]
        self.classes = self._read(self.meta["filename"])[self.meta["key"]]
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}

    def _read(self, name: str) -> dict[str, Any]:
        with open(Path(self.root, self.base_folder, name), "rb") as file:
            return _ArraysOnly(file, encoding="latin1").load()

    def _damaged(self) -> list[str]:
        files = [*self.train_list, *self.test_list, [self.meta["filename"], self.meta["md5"]]]
        paths = [(os.path.join(self.root, self.base_folder, name), md5) for name, md5 in files]
        return [path for path, md5 in paths if not check_integrity(path, md5)]

    def _check_integrity(self) -> bool:
        return not self._damaged()

    def download(self) -> None:
        """Fetch and unpack the archive, unless its files are there."""
        if self._check_integrity():
            return
        archive = Path(self.root, self.filename)
        try:
            download_from([self.url], archive, self.tgz_md5)
        except DownloadError as problem:
            name = type(self).__name__
            raise DownloadError(
                f"{name}: {problem}\n    without a network: put {self.filename} (md5 {self.tgz_md5}) into {os.path.abspath(self.root)}"
            ) from None
        extract_archive(archive, self.root)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        img, target = image_from_array(self.data[index]), self.targets[index]
        return transformed(self, img, target)

    def __len__(self) -> int:
        return len(self.data)

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train else 'Test'}"


class CIFAR100(CIFAR10):
    """A hundred classes of 600 photographs, in root/cifar-100-python."""

    base_folder = "cifar-100-python"
    url = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    filename = "cifar-100-python.tar.gz"
    tgz_md5 = "eb9058c3a382ffc7106e4002c42a8d85"
    train_list = [["train", "16019d7e3df5f24257cddd939b257f8d"]]
    test_list = [["test", "f0ef6b0ae62326f3e7ffdfab6717acfc"]]
    meta = {"filename": "meta", "key": "fine_label_names", "md5": "7973b15100ade9c7d40fb424638fde48"}


class _ArraysOnly(pickle.Unpickler):
    """Reads pickles of dictionaries, lists, numbers and arrays. Anything else in them could run code, and is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np._core.multiarray._reconstruct
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):  # how pickles of Python 3 in the old protocol write bytes
            import _codecs

            return _codecs.encode
        raise pickle.UnpicklingError(f"a data set has no business with {module}.{name}: this file may be dangerous")
