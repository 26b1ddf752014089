"""Digits from raw idx files: written and read with struct and gzip, then a three-layer perceptron."""

import gzip
import os
import struct
import tempfile

import torch
import torch.nn as nn


def write_idx(path, data, *sizes):
    with gzip.open(path, "wb") as f:
        f.write(struct.pack(">I", 2048 + len(sizes)) + struct.pack(f">{len(sizes)}I", *sizes) + bytes(data))


def load_images(filepath):
    with gzip.open(filepath, "rb") as f:
        _, num, rows, cols = struct.unpack(">IIII", f.read(16))
        images = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8)
    return images.reshape(num, rows * cols).float() / 255.0


def load_labels(filepath):
    with gzip.open(filepath, "rb") as f:
        f.read(8)
        return torch.frombuffer(bytearray(f.read()), dtype=torch.uint8).long()


class DigitModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(784, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)
        )

    def forward(self, x):
        return self.net(x)


def main():
    torch.manual_seed(0)
    labels = torch.randint(0, 10, (512,))
    strokes = torch.randint(0, 256, (10, 784))
    pictures = (strokes[labels] * 0.7 + torch.randint(0, 77, (512, 784))).to(torch.uint8)
    with tempfile.TemporaryDirectory() as folder:
        write_idx(os.path.join(folder, "images.gz"), pictures.flatten().tolist(), 512, 28, 28)
        write_idx(os.path.join(folder, "labels.gz"), labels.tolist(), 512)
        images, read = load_images(os.path.join(folder, "images.gz")), load_labels(os.path.join(folder, "labels.gz"))
    print(images.shape, f"{images.mean().item():.4f}", torch.equal(read, labels))
    model = DigitModel()
    print(f"Parameters: {sum(p.numel() for p in model.parameters()):,}")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(3):
        total_loss, correct = 0.0, 0
        for chosen in torch.randperm(512).split(64):
            optimizer.zero_grad()
            outputs = model(images[chosen])
            loss = criterion(outputs, read[chosen])
            loss.backward()
            optimizer.step()
            total_loss += loss.item() * len(chosen)
            _, predicted = outputs.max(1)
            correct += predicted.eq(read[chosen]).sum().item()
        print(f"Epoch {epoch + 1} | Train Loss: {total_loss / 512:.3f} | Train Acc: {correct / 512:.3f}")


if __name__ == "__main__":
    main()
