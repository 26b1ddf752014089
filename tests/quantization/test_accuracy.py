"""What quantization costs and saves: a trained network keeps its accuracy, and its file is a quarter of the size."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np

import flambeau as torch
from flambeau import nn

DATA = Path(torch.__file__).parent / "examples" / "data" / "mnist"


def images(part: str, count: int):
    with gzip.open(DATA / f"{part}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)[:count]
    with gzip.open(DATA / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)[:count]
    return torch.tensor(pixels.astype(np.float32) / 255), torch.tensor(labels.astype(np.int64))


def size_of(model) -> int:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return len(file.getvalue())


def test_a_trained_network_keeps_its_accuracy_at_a_quarter_of_the_size():
    """Quantizing a network for handwritten digits costs half a percent of accuracy or more, or saves less than two thirds of its file."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    x, y = images("train", 4000)
    for step in range(120):
        rows = torch.arange(step * 64, step * 64 + 64) % len(x)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    small = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    x, y = images("t10k", 1000)
    with torch.no_grad():
        before, after = ((net(x).argmax(1) == y).float().mean().item() for net in (model, small))
    assert before > 0.8 and before - after < 0.005
    assert size_of(model) / size_of(small) > 3.5
