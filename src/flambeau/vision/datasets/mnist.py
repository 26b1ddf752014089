"""MNIST and the data sets made to be read like it: grey images of 28 x 28 bytes with a label each, in idx files.

Files are looked for in `root/<name of the class>/raw`, gzipped or not. The network is asked only for what is not there.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from flambeau import dtypes
from flambeau.tensor import Tensor
from flambeau.vision.datasets.idx import read_idx
from flambeau.vision.datasets.utils import DownloadError, decompress, download_from, verify_str_arg
from flambeau.vision.datasets.vision import VisionDataset, transformed
from flambeau.vision.picture import image_from_array
from flambeau.vision.transforms.batching import on_batches


class MNIST(VisionDataset):
    """Handwritten digits: 60000 to learn from, 10000 to test on (LeCun, Cortes and Burges).

        root/MNIST/raw/train-images-idx3-ubyte          or .gz
        root/MNIST/raw/train-labels-idx1-ubyte
        root/MNIST/raw/t10k-images-idx3-ubyte
        root/MNIST/raw/t10k-labels-idx1-ubyte

    `data` is (N, 28, 28) uint8, `targets` (N,) int64. An item is an image, of Pillow where it is installed, and a label, both transformed.
    """

    mirrors = ["https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"]
    # (gzipped file, its md5)
    resources = [
        ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
        ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
    ]
    classes = ["0 - zero", "1 - one", "2 - two", "3 - three", "4 - four", "5 - five", "6 - six", "7 - seven", "8 - eight", "9 - nine"]

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
        images, labels = self._files()
        missing = [name for name in (images, labels) if self._found(name) is None]
        if missing:
            raise RuntimeError(f"Dataset not found. You can use download=True to download it\n{self._where(missing)}")
        self.data, self.targets = self._load(images, labels)

    def _files(self) -> tuple[str, str]:
        """Names of the images and of the labels of this part, without .gz."""
        kind = "train" if self.train else "t10k"
        return f"{kind}-images-idx3-ubyte", f"{kind}-labels-idx1-ubyte"

    def _load(self, images: str, labels: str) -> tuple[Tensor, Tensor]:
        data, targets = read_idx(self._found(images)), read_idx(self._found(labels))
        if data.dtype is not dtypes.uint8 or data.dim() != 3:
            raise ValueError(f"{self._found(images)}: expected images, (N, H, W) of bytes, found {tuple(data.shape)} {data.dtype}")
        if targets.dim() != 1 or len(targets) != len(data):
            raise ValueError(f"{self._found(labels)}: expected a label for each of {len(data)} images, found {tuple(targets.shape)}")
        return data, targets.long()

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        img, target = image_from_array(self.data[index].numpy()), int(self.targets[index])
        return transformed(self, img, target)

    def __getitems__(self, indices: list[int]) -> list[tuple[Any, Any]]:
        """Many items, as a loader asks for them: the same as one by one, but images are gathered and transformed together where they can be."""
        together = on_batches(self.transform) if type(self).__getitem__ is MNIST.__getitem__ else None
        if together is None:
            return [self[i] for i in indices]
        images, targets = together(self.data[indices].unsqueeze(1)), self.targets[indices].tolist()
        if self.target_transform is not None:
            targets = [self.target_transform(target) for target in targets]
        return list(zip(images.unbind(0), targets, strict=True))

    def __len__(self) -> int:
        return len(self.data)

    @property
    def train_data(self) -> Tensor:
        """The old name of `data`."""
        return self._renamed("train_data", "data")

    @property
    def test_data(self) -> Tensor:
        """The old name of `data`."""
        return self._renamed("test_data", "data")

    @property
    def train_labels(self) -> Tensor:
        """The old name of `targets`."""
        return self._renamed("train_labels", "targets")

    @property
    def test_labels(self) -> Tensor:
        """The old name of `targets`."""
        return self._renamed("test_labels", "targets")

    def _renamed(self, old: str, new: str) -> Tensor:
        warnings.warn(f"{old} has been renamed {new}", stacklevel=3)
        return getattr(self, new)

    @property
    def raw_folder(self) -> str:
        return os.path.join(self.root, type(self).__name__, "raw")

    @property
    def processed_folder(self) -> str:
        return os.path.join(self.root, type(self).__name__, "processed")

    @property
    def class_to_idx(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.classes)}

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train else 'Test'}"

    # -- finding and fetching files --------------------------------------------------------------------------------

    def _found(self, name: str) -> Path | None:
        """The file of this name, or the gzipped one."""
        return next((path for path in (Path(self.raw_folder, name), Path(self.raw_folder, f"{name}.gz")) if path.is_file()), None)

    def _check_exists(self) -> bool:
        return all(self._found(name.removesuffix(".gz")) for name, _ in self.resources)

    def download(self) -> None:
        """Fetch what is not there yet, check it, and unpack it."""
        needed = self._files()
        for name, md5 in self.resources:
            plain = name.removesuffix(".gz")
            if self._found(plain):
                continue
            goal = Path(self.raw_folder, name)
            try:
                download_from([f"{mirror.rstrip('/')}/{name}" for mirror in self.mirrors], goal, md5)
            except DownloadError as problem:
                if plain not in needed:  # the other part: this one can be used
                    warnings.warn(f"{type(self).__name__}: {problem}", stacklevel=3)
                    continue
                missing = [part for part in (file.removesuffix(".gz") for file, _ in self.resources) if self._found(part) is None]
                raise DownloadError(f"{type(self).__name__}: {problem}\n{self._where(missing)}") from None
            decompress(goal, goal.with_suffix(""))

    def _where(self, missing: list[str]) -> str:
        """Which files to put where, for somebody without a network."""
        sums = {name.removesuffix(".gz"): md5 for name, md5 in self.resources}
        lines = [f"        {name}.gz" + (f"    md5 {sums[name]}" if name in sums else "") for name in missing]
        return "\n".join([f"    without a network: put into {os.path.abspath(self.raw_folder)}, gzipped or not,", *lines])


class FashionMNIST(MNIST):
    """Clothes, in the format of MNIST (Xiao, Rasul and Vollgraf, Zalando Research)."""

    mirrors = ["http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"]
    resources = [
        ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ]
    classes = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


class KMNIST(MNIST):
    """Cursive Japanese characters, in the format of MNIST (Clanuwat et al.)."""

    mirrors = ["http://codh.rois.ac.jp/kmnist/dataset/kmnist/"]
    resources = [
        ("train-images-idx3-ubyte.gz", "bdb82020997e1d708af4cf47b453dcf7"),
        ("train-labels-idx1-ubyte.gz", "e144d726b3acfaa3e44228e80efcd344"),
        ("t10k-images-idx3-ubyte.gz", "5c965bf0a639b31b8f53240b1b52f4d7"),
        ("t10k-labels-idx1-ubyte.gz", "7320c461ea6c1c855c0b718fb2a4b134"),
    ]
    classes = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]


class EMNIST(MNIST):
    """Handwritten digits and letters, six selections of them (Cohen et al.); images lie on their side, as in the files."""

    url = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"
    md5 = "58c8d27c78d21e728a6bc7b3cc06412e"
    splits = ("byclass", "bymerge", "balanced", "letters", "digits", "mnist")
    resources: list[tuple[str, str]] = []  # all files come in one archive
    # Small letters that look like capitals share their class in the merged selections.
    _digits, _capitals, _small = "0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
    classes_split_dict = {
        "byclass": sorted(_digits + _capitals + _small),
        "bymerge": sorted(_digits + _capitals + "abdefghnqrt"),
        "balanced": sorted(_digits + _capitals + "abdefghnqrt"),
        "letters": ["N/A", *_small],  # its labels start at 1
        "digits": list(_digits),
        "mnist": list(_digits),
    }

    def __init__(self, root: str | os.PathLike, split: str, **kwargs: Any):
        self.split = verify_str_arg(split, "split", self.splits)
        super().__init__(root, **kwargs)
        self.classes = self.classes_split_dict[self.split]

    def _files(self) -> tuple[str, str]:
        start = f"emnist-{self.split}-{'train' if self.train else 'test'}"
        return f"{start}-images-idx3-ubyte", f"{start}-labels-idx1-ubyte"

    def _check_exists(self) -> bool:
        return all(self._found(name) for name in self._files())

    def download(self) -> None:
        """Fetch the archive of all selections, and unpack it."""
        if self._check_exists():
            return
        archive = Path(self.raw_folder, "gzip.zip")
        try:
            download_from([self.url], archive, self.md5)
        except DownloadError as problem:
            raise DownloadError(f"EMNIST: {problem}\n{self._where(list(self._files()))}") from None
        with ZipFile(archive) as packed:
            for member in packed.namelist():
                if member.endswith("ubyte.gz"):
                    Path(self.raw_folder, os.path.basename(member)).write_bytes(packed.read(member))


# -- torchvision's readers -----------------------------------------------------------------------------------------


def read_label_file(path: str) -> Tensor:
    """The labels in an idx file, as int64."""
    labels = read_idx(path)
    if labels.dtype is not dtypes.uint8 or labels.dim() != 1:
        raise TypeError(f"{path}: labels are (N,) of bytes, not {tuple(labels.shape)} of {labels.dtype}")
    return labels.long()


def read_image_file(path: str) -> Tensor:
    """The images in an idx file, (N, H, W)."""
    images = read_idx(path)
    if images.dtype is not dtypes.uint8 or images.dim() != 3:
        raise TypeError(f"{path}: images are (N, H, W) of bytes, not {tuple(images.shape)} of {images.dtype}")
    return images


def read_sn3_pascalvincent_tensor(path: str, strict: bool = True) -> Tensor:
    """The tensor in an idx file."""
    return read_idx(path)
