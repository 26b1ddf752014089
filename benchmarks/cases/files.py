"""Checkpoints: a state dict of 500 MB to a file in the folder for temporary files, and back.

PyTorch's `save` returns when the system has the bytes in memory; Flambeau's when the disk has them. PyTorch's `load` does not look at
checksums; Flambeau's does. What was saved is overwritten each time, as the checkpoint of a training run is.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref

from benchmarks.case import case


class Checkpoint:
    """A file in a folder that goes when nobody needs it any more."""

    def __init__(self):
        folder = tempfile.mkdtemp(prefix="flambeau-benchmark-")
        self.path = os.path.join(folder, "checkpoint.pt")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)


MEGABYTES = 500


def state_dict(torch, device):
    """100 weights of 5 MB."""
    torch.manual_seed(0)
    return {f"layers.{i}.weight": torch.randn(1250, 1000, device=device) for i in range(MEGABYTES // 5)}


@case(wanted=1.0)
def save(torch, device):
    """torch.save of a state dict of 500 MB."""
    state, file = state_dict(torch, device), Checkpoint()
    return lambda: torch.save(state, file.path)


@case(wanted=1.0, mmap=[False, True])
def load(torch, device, mmap):
    """torch.load of a state dict of 500 MB that the system has in memory."""
    file = Checkpoint()
    torch.save(state_dict(torch, device), file.path)
    return lambda: torch.load(file.path, mmap=mmap)


@case(wanted=1.0)
def small_tensors(torch, device):
    """torch.save and torch.load of 2,000 tensors of 10 numbers."""
    state, file = {f"t{i}": torch.randn(10, device=device) for i in range(2000)}, Checkpoint()

    def both():
        torch.save(state, file.path)
        return torch.load(file.path)

    return both
