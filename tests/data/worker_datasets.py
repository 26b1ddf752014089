"""Data sets for worker processes, at the top of a module, where a spawned process finds them. `d` is a framework of loader_oracle.py."""

from __future__ import annotations

import functools
import importlib
import os
import random
import signal
import time

import numpy as np


def of(name: str):
    """(framework, its utils.data)"""
    return importlib.import_module(name), importlib.import_module(f"{name}.utils.data")


class Streams:
    """What the random streams give in each item, and who the worker is. Works with either framework, which is named."""

    def __init__(self, framework: str, n: int = 8) -> None:
        self.framework, self.n = framework, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i):
        torch, data = of(self.framework)
        info = data.get_worker_info()
        who = (info.id, info.num_workers, info.seed, len(info.dataset)) if info else None
        return i, who, torch.initial_seed(), torch.rand(()).item(), random.random(), np.random.random(), torch.get_num_threads()


class Trouble:
    """Item 5 does something that no item should."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i):
        import flambeau

        if i != 5:
            return i
        if self.kind == "raise":
            raise KeyError("no such thing")
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "term":
            os.kill(os.getpid(), signal.SIGTERM)
        if self.kind == "exit":
            os._exit(3)
        if self.kind == "sleep":
            time.sleep(60)
        if self.kind == "gradient":
            return flambeau.ones(2, requires_grad=True) * 2
        if self.kind == "unpicklable":
            return lambda: 1
        if self.kind == "odd":
            raise Odd(1, 2)
        if self.kind == "local":

            class Local(Exception):
                pass

            raise Local("made here")
        return i


class Odd(Exception):
    """An exception that cannot be made of a message."""

    def __init__(self, a, b) -> None:
        super().__init__(a, b)


class Generators:
    """Items with numbers from generators that the data set keeps for itself, at several depths."""

    def __init__(self, n: int = 8) -> None:
        import flambeau

        self.n = n
        self.numpy = np.random.default_rng(0)
        self.legacy = np.random.RandomState(0)
        self.transforms = [{"jitter": Jitter()}, functools.partial(draw, random.Random(0))]
        self.own = flambeau.Generator().manual_seed(0)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i):
        import flambeau

        hidden, closed = self.transforms[0]["jitter"](), self.transforms[1]()
        return (
            float(self.numpy.random()), float(self.legacy.rand()), hidden, closed, flambeau.rand((), generator=self.own).item(),
            float(MODULE_LEVEL.random()),
        )  # fmt: skip


def draw(rng: random.Random) -> float:
    return rng.random()


MODULE_LEVEL = np.random.default_rng(0)


class Jitter:
    """A transform with a generator of its own."""

    def __init__(self) -> None:
        self.python = random.Random(0)

    def __call__(self) -> float:
        return self.python.random()


def first(batch):
    """A collate function: the items as they are."""
    return batch


def share(d, n):
    """An IterableDataset of either framework, 0 ... n - 1, of which each worker takes every k-th."""

    class Share(d.IterableDataset):
        def __iter__(self):
            info = d.get_worker_info()
            return iter(range(info.id, n, info.num_workers) if info else range(n))

    return Share()


class Big:
    """Items of 80 KB: batches that go by shared memory."""

    def __init__(self, n: int = 16) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i):
        import flambeau

        return flambeau.full((20_000,), float(i)), np.full(100, i), "x" * i
