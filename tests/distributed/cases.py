"""Programs made of cases: functions `case_<name>()` that each say a list, run by all ranks in one world, with Flambeau or with PyTorch.

    found = cases(PROGRAM)                      # by rank, {name: what the case said}
    same(found[0]["plain"], cases(PROGRAM, "torch")[0]["plain"])

A world takes seconds to start, a case milliseconds. PROGRAM defines the cases; what comes before and after them stands here.
"""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

from worlds import ok, run

BEFORE = """
import copy, io, json, sys, time, traceback, warnings
import TORCH as torch, TORCH.distributed as dist
from TORCH import nn
from TORCH.nn import functional as F
from TORCH.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()


def model():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 3))


def batch(seed, n=8):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 6, generator=generator), torch.randn(n, 3, generator=generator)


def mine(t):
    return t.chunk(ranks)[rank]


def grads(m):
    return [round(float(x), 6) for p in m.parameters() for x in ([p.grad.sum(), p.grad.abs().max()] if p.grad is not None else [-99, -99])]


def params(m):
    return [round(float(x), 6) for p in m.parameters() for x in (p.detach().sum(), p.detach().abs().max())]


def agree(tensors):
    \"\"\"Whether all ranks have the same bits.\"\"\"
    flat = torch.cat([t.detach().reshape(-1) for t in tensors])
    both = [torch.empty_like(flat) for _ in range(ranks)]
    dist.all_gather(both, flat)
    return all(bool((one == flat).all()) for one in both)


def everyone(m):
    return agree([p.grad for p in m.parameters() if p.grad is not None])


def quiet(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


def error_of(make):
    try:
        quiet(make)
    except Exception as problem:
        return type(problem).__name__, str(problem)
    return "nothing", ""
"""
AFTER = """
for name in sys.argv[1:] or [name for name in list(globals()) if name.startswith("case_")]:
    try:
        said = globals()[name]()
    except Exception as problem:
        traceback.print_exc()
        said = [type(problem).__name__]
    print(json.dumps([name.removeprefix("case_"), said]), flush=True)
dist.destroy_process_group()
"""


@cache
def cases(program: str, framework: str = "flambeau", ranks: int = 2) -> list[dict[str, Any]]:
    """By rank, what each case said."""
    outputs = ok(run(BEFORE + program + AFTER, ranks, framework=framework, timeout=180))
    return [dict(json.loads(line) for line in output.splitlines() if line.startswith("[")) for output in outputs]


def names(program: str) -> list[str]:
    """The cases of a program."""
    return [line.split("(")[0].removeprefix("def case_") for line in program.splitlines() if line.startswith("def case_")]


def same(ours: list[Any], theirs: list[Any]) -> None:
    """Numbers are close (sums of a few dozen float32), everything else is equal."""
    assert len(ours) == len(theirs), (ours, theirs)
    for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if isinstance(a, list) and isinstance(b, list):
            same(a, b)
            continue
        numbers = type(a) in (int, float) and type(b) in (int, float)
        assert math.isclose(a, b, rel_tol=1e-4, abs_tol=2e-5) if numbers else a == b, f"entry {place}: {a} and {b}"
