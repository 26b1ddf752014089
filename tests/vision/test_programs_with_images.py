"""Data sets, transforms and loaders together, as programs use them; and programs written for torchvision, unchanged."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from test_idx import idx_bytes

import flambeau
from flambeau.utils.data import DataLoader, Subset
from flambeau.vision import datasets, transforms

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")

IMAGES = np.random.default_rng(0).integers(0, 256, (50, 28, 28), dtype=np.uint8)
LABELS = (IMAGES[:, 0, 0] % 10).astype(np.uint8)


@pytest.fixture
def root(tmp_path):
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx_bytes(IMAGES))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(LABELS))
    return tmp_path


class Reference(torch.utils.data.Dataset):
    """The usual transform of the same images, by hand."""

    def __getitem__(self, index):
        x = torch.from_numpy(IMAGES[index]).unsqueeze(0).float().div(255)
        return x.sub(0.286).div(0.353), int(LABELS[index])

    def __len__(self):
        return len(IMAGES)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_pytorchs(root, workers):
    """The same seed gives the shuffled batches that PyTorch's loader gives of the same images, with workers and without."""
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.286,), (0.353,))])
    data = datasets.FashionMNIST(root, transform=transform)
    flambeau.manual_seed(7)
    ours = [(x.numpy(), y.numpy()) for x, y in DataLoader(data, 8, shuffle=True, num_workers=workers)]
    torch.manual_seed(7)
    theirs = [(x.numpy(), y.numpy()) for x, y in torch.utils.data.DataLoader(Reference(), 8, shuffle=True)]
    assert len(ours) == len(theirs) == 7
    for (x, y), (u, v) in zip(ours, theirs, strict=True):
        assert np.array_equal(x, u) and np.array_equal(y, v) and x.dtype == np.float32 and y.dtype == np.int64


def test_augmented_batches_are_repeated_by_their_seed(root):
    """Random crops, flips and rotations of Pillow's images, drawn in workers, are those of the seed, and differ between epochs."""
    augmented = transforms.Compose([transforms.RandomCrop(28, padding=2), transforms.RandomHorizontalFlip(), transforms.ToTensor()])
    loader = DataLoader(datasets.FashionMNIST(root, transform=augmented), 25, num_workers=2)

    def epoch(seed: int) -> np.ndarray:
        flambeau.manual_seed(seed)
        return np.concatenate([x.numpy() for x, _ in loader])

    first = epoch(1)
    assert np.array_equal(first, epoch(1)) and not np.array_equal(first, epoch(2))


def test_subsets_and_folders_are_loaded(root, tmp_path):
    """A part of MNIST, and a folder of images of one size, make batches."""
    data = datasets.FashionMNIST(root, transform=transforms.ToTensor())
    x, y = next(iter(DataLoader(Subset(data, [4, 9, 2]), 3)))
    assert np.array_equal(x.numpy()[:, 0], IMAGES[[4, 9, 2]] / np.float32(255)) and y.tolist() == LABELS[[4, 9, 2]].tolist()
    for name, colour in (("cat", "black"), ("dog", "white")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (8, 6), colour).save(tmp_path / "photos" / name / "1.png")
    x, y = next(iter(DataLoader(datasets.ImageFolder(tmp_path / "photos", transforms.ToTensor()), 2)))
    assert x.shape == (2, 3, 6, 8) and y.tolist() == [0, 1] and x.mean(dim=(1, 2, 3)).tolist() == [0.0, 1.0]


PROGRAM = """
import sys
import torch
import torch.nn as nn
import torchvision
import torchvision.transforms as T
import torchvision.transforms.functional as TF
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
from torchvision.datasets import CIFAR10, CIFAR100, KMNIST, MNIST, FashionMNIST, ImageFolder
from torchvision.datasets.utils import download_url
from torchvision.ops.misc import FrozenBatchNorm2d
from torchvision.transforms import ToTensor
from torchvision.transforms.functional import InterpolationMode
from torchvision.utils import make_grid, save_image

transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.2860,), (0.3530,))])
train = datasets.FashionMNIST(sys.argv[1], train=True, download=True, transform=transform)
test = datasets.FashionMNIST(sys.argv[1], train=False, download=True, transform=transform)
torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(3):
    for images, labels in DataLoader(train, batch_size=16, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
save_image(make_grid(images, normalize=True), sys.argv[2])
assert isinstance(train, torch.utils.data.Dataset) and torchvision.datasets.MNIST is MNIST and T.ToTensor is ToTensor
assert TF.InterpolationMode is InterpolationMode and torchvision.__version__.startswith("0.")
print(torch.nn.__name__, images.shape, loss.item() < 2.5)
"""


def test_a_program_for_torchvision_runs_unchanged(root, tmp_path):
    """The Fashion-MNIST lab, and everything programs import from torchvision around it, under `flambeau run`."""
    (tmp_path / "lab.py").write_text(PROGRAM)
    command = [sys.executable, "-W", "error", "-m", "flambeau", "run", "lab.py", str(root), "grid.png"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split(" ")[0].startswith("flambeau") and "True" in found.stdout
    with Image.open(tmp_path / "grid.png") as grid:
        assert grid.size == (2 * 30 + 2, 32)
