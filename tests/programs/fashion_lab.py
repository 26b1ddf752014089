"""A laboratory with torchvision: FashionMNIST files, transforms, a loader with workers, an MLP and a convolutional network."""

import gzip
import struct
from pathlib import Path

import torch
import torch.nn as nn
import torchvision.transforms as transforms
from torch.utils.data import DataLoader
from torchvision import datasets
from torchvision.datasets import FashionMNIST

CLASSES = 10


def make_files(folder):
    """Stand-ins for the files that a download would bring."""
    torch.manual_seed(0)
    pattern = torch.randint(0, 200, (CLASSES, 28, 28))
    for prefix, count in (("train", 320), ("t10k", 96)):
        labels = torch.randint(0, CLASSES, (count,))
        pictures = (pattern[labels] + torch.randint(0, 56, (count, 28, 28))).to(torch.uint8)
        with open(folder / f"{prefix}-images-idx3-ubyte", "wb") as f:
            f.write(struct.pack(">IIII", 2051, count, 28, 28) + pictures.numpy().tobytes())
        with open(folder / f"{prefix}-labels-idx1-ubyte", "wb") as f:
            f.write(struct.pack(">II", 2049, count) + labels.to(torch.uint8).numpy().tobytes())
        for name in (f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"):
            with gzip.open(folder / f"{name}.gz", "wb") as f:
                f.write((folder / name).read_bytes())


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, CLASSES))

    def forward(self, x):
        return self.net(x)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = nn.Linear(16 * 6 * 6, CLASSES)

    def forward(self, x):
        return self.head(self.conv(x).flatten(1))


def main():
    raw = Path("data/FashionMNIST/raw")
    raw.mkdir(parents=True)
    make_files(raw)
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.2860,), (0.3530,))])
    train_data = FashionMNIST("./data", train=True, download=False, transform=transform)
    test_data = datasets.FashionMNIST("./data", train=False, transform=transform)
    image, label = train_data[0]
    print(len(train_data), len(test_data), image.shape, image.dtype, label, train_data.classes[:3], f"{image.mean().item():.4f}")
    train_loader = DataLoader(train_data, batch_size=32, shuffle=True, num_workers=2)
    test_loader = DataLoader(test_data, batch_size=32)
    images, labels = next(iter(train_loader))
    print(images.shape, labels.shape)
    assert images.shape == (32, 1, 28, 28) and abs(images.mean().item() - image.mean().item()) < 0.2
    for make in (Perceptron, ConvNet):
        torch.manual_seed(1)
        model = make()
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        for _ in range(3):
            model.train()
            for images, labels in train_loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
        model.eval()
        with torch.no_grad():
            correct = sum((model(images).argmax(1) == labels).sum().item() for images, labels in test_loader)
        print(make.__name__, f"{sum(p.numel() for p in model.parameters()):,}", f"{correct / len(test_data):.2f}")
        assert correct > 0.9 * len(test_data)


if __name__ == "__main__":
    main()
