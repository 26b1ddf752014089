"""Peak memory: what a process that trains a model takes of the machine at most, all in all.

Each reading is a process of its own that takes some steps of training and then asks the system for its largest resident size. `large_` are
jobs in which tensors decide; of those of training.py, most is the package itself. `checkpointed_` runs the layers again in backward.
"""

from __future__ import annotations

import sys
from functools import partial

from benchmarks.case import probe
from benchmarks.machine import own_process

PROGRAM = """
import importlib, sys
package, job, steps = sys.argv[1:]
torch = importlib.import_module(package)
from benchmarks.cases import memory
step = memory.JOBS[job](torch)
for _ in range(int(steps)):
    step()
print(memory.largest())
"""
STEPS = 5


def largest():
    """The most bytes this process has had in memory. What the system calls maxrss may be that of the process it came from."""
    try:
        with open("/proc/self/status") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def peak(package, job, steps=STEPS):
    """A function that trains in a fresh process, and gives the bytes it had in memory at most."""
    return own_process(PROGRAM, package, job, str(steps))


@probe(wanted=0.6, unit="B")
def gpt_step(package):
    """training.gpt_step."""
    return peak(package, "gpt")


@probe(wanted=0.6, unit="B")
def cnn_step(package):
    """training.cnn_step."""
    return peak(package, "cnn")


@probe(wanted=0.6, unit="B")
def large_gpt_step(package):
    """A GPT of 6 layers, 384 wide, block 256, batch 16."""
    return peak(package, "large_gpt", steps=3)


@probe(wanted=0.6, unit="B")
def checkpointed_gpt_step(package):
    """The same, each of its layers checkpointed."""
    return peak(package, "checkpointed_gpt", steps=3)


@probe(wanted=0.6, unit="B")
def large_cnn_step(package):
    """The blocks of a small ResNet, 32 to 128 channels, on 32 images of 64 x 64."""
    return peak(package, "large_cnn", steps=3)


# -- the jobs --------------------------------------------------------------------------------------------------------


def small(name):
    """A job of training.py."""

    def prepare(torch):
        from benchmarks.case import declared

        torch.manual_seed(0)
        return declared()[f"training.{name}"].body(torch, "cpu")

    return prepare


def large_gpt(torch, again=False):
    from importlib import import_module

    from benchmarks.cases.training import gpt, stepping

    torch.manual_seed(0)
    model = gpt(torch, vocabulary=512, block=256, width=384, heads=6, layers=6)
    if again:
        checkpoint = import_module(f"{torch.__name__}.utils.checkpoint").checkpoint
        for layer in model.blocks:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    x, y = (torch.randint(0, 512, (16, 256)) for _ in range(2))
    loss_of = lambda model: torch.nn.functional.cross_entropy(model(x).view(-1, 512), y.view(-1))  # noqa: E731
    return stepping(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loss_of, clip=torch.nn.utils.clip_grad_norm_)


def large_cnn(torch):
    from benchmarks.cases.training import stepping

    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self, inside, outside, stride):
            super().__init__()
            self.conv1, self.norm1 = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outside)
            self.conv2, self.norm2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside)
            self.short = nn.Conv2d(inside, outside, 1, stride, bias=False) if stride > 1 or inside != outside else nn.Identity()

        def forward(self, x):
            y = F.relu(self.norm1(self.conv1(x)))
            return F.relu(self.norm2(self.conv2(y)) + self.short(x))

    blocks = [Block(3, 32, 1), Block(32, 32, 1), Block(32, 64, 2), Block(64, 64, 1), Block(64, 128, 2), Block(128, 128, 1)]
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    x, y = torch.randn(32, 3, 64, 64), torch.randint(0, 10, (32,))
    return stepping(model, torch.optim.Adam(model.parameters(), lr=1e-3), lambda model: F.cross_entropy(model(x), y))


JOBS = {
    "gpt": small("gpt_step"),
    "cnn": small("cnn_step"),
    "large_gpt": large_gpt,
    "checkpointed_gpt": partial(large_gpt, again=True),
    "large_cnn": large_cnn,
}
