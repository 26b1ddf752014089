"""Checkpoints: a state dict of 500 MB to a file in the folder for temporary files, and back.

PyTorch's `save` returns when the system has the bytes in memory; Flambeau's when the disk has them. PyTorch's `load` does not look at
checksums; Flambeau's does. What was saved is overwritten each time, as the checkpoint of a training run is.
"""

from __future__ import annotations

import os
import tempfile

from benchmarks.case import case


def state_dict(torch, device, megabytes=500):
    """100 weights of 5 MB."""
    torch.manual_seed(0)
    return {f"layers.{i}.weight": torch.randn(1250, 1000, device=device) for i in range(megabytes // 5)}


@case(wanted=1.0)
def save(torch, device):
    """torch.save of a state dict of 500 MB."""
    state, folder = state_dict(torch, device), tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    return lambda: torch.save(state, os.path.join(folder.name, "checkpoint.pt"))


@case(wanted=1.0, mmap=[False, True])
def load(torch, device, mmap):
    """torch.load of a state dict of 500 MB that the system has in memory."""
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    torch.save(state_dict(torch, device), os.path.join(folder.name, "checkpoint.pt"))
    return lambda: torch.load(os.path.join(folder.name, "checkpoint.pt"), mmap=mmap)


@case(wanted=1.0)
def small_tensors(torch, device):
    """torch.save and torch.load of 2,000 tensors of 10 numbers."""
    state, folder = {f"t{i}": torch.randn(10, device=device) for i in range(2000)}, tempfile.TemporaryDirectory(ignore_cleanup_errors=True)

    def both():
        torch.save(state, os.path.join(folder.name, "checkpoint.pt"))
        return torch.load(os.path.join(folder.name, "checkpoint.pt"))

    return both
