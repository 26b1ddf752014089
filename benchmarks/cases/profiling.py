"""What it costs to look: a training step with the profiler on.

`step` is the step itself, on; `extra_of_a_step` is what that adds, found in one process by turns of steps with and without.
"""

from __future__ import annotations

import time

from benchmarks.case import case, probe
from benchmarks.cases.training import mlp_step
from benchmarks.machine import own_process

ROUNDS, STEPS = 20, 50
PROGRAM = """
import importlib, sys
torch = importlib.import_module(sys.argv[1])
from benchmarks.cases import profiling
print(profiling.extra(torch))
"""


@case(wanted=0.4)
def step(torch, device):
    """Ten steps of training.mlp_step in one profile."""
    run, profile = mlp_step(torch, device), torch.profiler.profile

    def ten():
        with profile():
            for _ in range(10):
                run()

    return ten


def extra(torch):
    """Seconds that a profile adds to a step: the fastest round with it, less the fastest without."""
    run, fastest = mlp_step(torch, "cpu"), {False: float("inf"), True: float("inf")}

    def steps():
        start = time.perf_counter()
        for _ in range(STEPS):
            run()
        return (time.perf_counter() - start) / STEPS

    steps()
    for _ in range(ROUNDS):
        fastest[False] = min(fastest[False], steps())
        with torch.profiler.profile():
            run()
            fastest[True] = min(fastest[True], steps())
    return fastest[True] - fastest[False]


@probe(wanted=1.0)
def extra_of_a_step(package):
    """What a profile adds to a step of training.mlp_step."""
    return own_process(PROGRAM, package)
