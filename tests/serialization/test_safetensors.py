"""The unmodified `safetensors` package works on Flambeau's tensors when `torch` means Flambeau."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from exchange import assert_same, of_every_dtype, torch

import flambeau

safetensors_torch = pytest.importorskip("safetensors.torch")

ALIAS = """
import sys, types, flambeau
torch = types.ModuleType("torch")  # stands for the alias that `flambeau run` installs
torch.__getattr__ = lambda name: getattr(flambeau, name)
torch.__version__ = "2.13.0"
sys.modules["torch"] = torch
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model
sys.path.insert(0, "HERE")
"""
PROGRAM = """
made = {"w": flambeau.arange(12.0).reshape(3, 4), "h": flambeau.ones(2, 2, dtype=flambeau.bfloat16), "i": flambeau.arange(5),
        "b": flambeau.tensor([True, False]), "u": flambeau.tensor([1, 2], dtype=flambeau.uint16), "c": flambeau.ones(2) + 1j,
        "empty": flambeau.zeros(0, 3), "number": flambeau.tensor(2.5)}
save_file(made, "ours.safetensors", metadata={"format": "pt"})
for found in (load_file("ours.safetensors"), load(save(made))):
    for name, tensor in made.items():
        assert type(found[name]) is flambeau.Tensor and found[name].dtype is tensor.dtype, name
        assert flambeau.equal(found[name], tensor), name
with safe_open("ours.safetensors", framework="pt") as file:
    assert file.metadata() == {"format": "pt"}
    assert file.get_slice("w")[1:, ::1][0].tolist() == [4, 5, 6, 7]
    assert file.get_slice("w")[:, 2:].shape == (3, 2)
    assert file.get_tensor("h").dtype is flambeau.bfloat16
shared = flambeau.ones(4)
try:
    save_file({"a": shared, "b": shared}, "shared.safetensors")
except RuntimeError as problem:
    assert "share memory" in str(problem)
else:
    raise AssertionError("tensors that share memory were saved twice")
tied = flambeau.nn.Sequential(flambeau.nn.Linear(2, 2), flambeau.nn.Linear(2, 2))
tied[1].weight = tied[0].weight
save_model(tied, "model.safetensors")
fresh = flambeau.nn.Sequential(flambeau.nn.Linear(2, 2), flambeau.nn.Linear(2, 2))
fresh[1].weight = fresh[0].weight
assert load_model(fresh, "model.safetensors") == (set(), [])
assert flambeau.equal(fresh[1].weight, tied[0].weight)
theirs = load_file("theirs.safetensors")
from exchange_free import names
assert sorted(theirs) == names
print("done")
"""


def test_safetensors_on_our_tensors(tmp_path):
    """safetensors' functions fail on our tensors, or change them."""
    theirs = {name: value for name, value in of_every_dtype(torch).items() if name != "complex128"}
    safetensors_torch.save_file(theirs, tmp_path / "theirs.safetensors")
    (tmp_path / "exchange_free.py").write_text(f"names = {sorted(theirs)!r}")
    program = ALIAS.replace("HERE", str(tmp_path)) + PROGRAM
    environment = {**os.environ, "PYTHONPATH": str(Path(flambeau.__file__).parents[1])}
    ran = subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["done"]
    ours = safetensors_torch.load_file(tmp_path / "ours.safetensors")
    assert_same(flambeau.arange(12.0).reshape(3, 4), ours["w"])
    assert ours["h"].dtype is torch.bfloat16
