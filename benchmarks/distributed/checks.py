"""What it costs that collectives check themselves: two worlds of one framework, one that checks and one that does not, by turns.

Flambeau checks unless FLAMBEAU_DIST_CHECK=0; PyTorch does with TORCH_DISTRIBUTED_DEBUG=DETAIL, which is the nearest it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks.distributed.cases import declared, launch
from benchmarks.distributed.world import WorldLane
from benchmarks.frameworks import Framework

TURNS = 10  # of each world in one reading; the quickest counts
OFF, ON = ("with checks off", "with checks on")
SWITCH = {
    "flambeau": {OFF: {"FLAMBEAU_DIST_CHECK": "0"}, ON: {"FLAMBEAU_DIST_CHECK": "1"}},
    "torch": {OFF: {}, ON: {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}},
}


@launch(wanted=None, unit="%")
def all_reduce(package):
    """Of the time of an all_reduce of 4 B."""
    return cost(package, "collectives.all_reduce(size=4 B)")


@launch(wanted=None, limit=3.0, unit="%")
def ddp_mlp(package):
    """Of the time of a DDP step of the MLP."""
    return cost(package, "steps.ddp(model=mlp)")


@launch(wanted=None, limit=3.0, unit="%")
def ddp_gpt(package):
    """Of the time of a DDP step of the GPT."""
    return cost(package, "steps.ddp(model=gpt)")


def cost(package: str, name: str) -> Callable[[], float]:
    """A function that says by how many percent checking makes the case `name` longer."""
    found = costs(package, name)
    next(found)
    return partial(next, found)


def costs(package: str, name: str) -> Iterator[float]:
    """Two worlds, which end with this generator. The first number is none: it says that both stand."""
    with ExitStack() as standing:
        worlds = [WorldLane(Framework(package, package, package), 1, SWITCH[package][way]) for way in (OFF, ON)]
        for world in worlds:
            standing.callback(world.stop)
            world.start()
            world.introduction()
            world.prepare(declared()[name])
        yield 0.0
        while True:
            without, checked = (min(times) for times in zip(*[[world.round() for world in worlds] for _ in range(TURNS)], strict=True))
            yield 100 * (checked / without - 1)
