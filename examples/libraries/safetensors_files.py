"""safetensors: weights written, read whole, read in slices, and shared weights kept shared, by the unmodified library."""

import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model
from torch import nn

torch.manual_seed(0)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.embedding(x))


with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "weights.safetensors"
    tensors = {
        "a": torch.randn(3, 5),
        "half": torch.randn(4).to(torch.bfloat16),
        "ids": torch.arange(6).reshape(2, 3),
        "flag": torch.tensor(True),
    }
    save_file(tensors, file, metadata={"format": "pt"})
    for name, tensor in sorted(load_file(file).items()):
        print(name, tensor.dtype, tuple(tensor.shape), torch.equal(tensor, tensors[name]), tensor.double().sum().item())
    with safe_open(file, framework="pt", device="cpu") as opened:
        print(sorted(opened.keys()), opened.metadata())
        part = opened.get_slice("a")
        print("slice", part.get_shape(), part[1:, :2].tolist())
    print("bytes", torch.equal(load(save(tensors))["a"], tensors["a"]))

    model, other = Tied(), Tied()
    save_model(model, str(file))
    print("missing, unexpected:", load_model(other, str(file)))
    ids = torch.arange(7)
    print("same", torch.equal(model(ids), other(ids)), other.head.weight is other.embedding.weight, model(ids).sum().item())
    try:
        save_file(model.state_dict(), file)
    except RuntimeError as problem:
        print("shared:", "share memory" in str(problem))
