"""lightning, accelerate and the transformers Trainer with two processes, unchanged, train on Flambeau as on PyTorch: the programs in examples/libraries."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "libraries"))
try:
    import compare
finally:
    del sys.path[0]

# program -> (library, how PyTorch starts it, how Flambeau does)
PROGRAMS = {
    "lightning_ddp": ("lightning", None, [None]),
    "lightning_sharded": ("lightning", None, [None]),
    "accelerate_ranks": ("accelerate", compare.accelerate, [compare.accelerate, compare.accelerate_mpirun]),
    "accelerate_launchers": ("accelerate", None, [None]),
    "transformers_ranks": ("transformers", compare.torchrun, [compare.flambeau_run]),
}
CASES = [(program, launcher) for program, (_, _, launchers) in PROGRAMS.items() for launcher in launchers]


@cache
def expected(program: str) -> str:
    """What a program prints under PyTorch."""
    for _ in range(2):  # on a busy machine its ranks may miss each other
        printed, wrong, _ = compare.run(compare.theirs(program, PROGRAMS[program][1]))
        if wrong is None:
            return printed
    raise AssertionError(wrong)


@pytest.mark.parametrize(
    "program, launcher", CASES, ids=[f"{program}-{launcher.__name__ if launcher else 'itself'}" for program, launcher in CASES]
)
def test_two_processes_print_what_they_print_under_pytorch(program, launcher):
    """Losses, metrics, predictions or files of two processes differ from PyTorch's, or they do not come to an end."""
    pytest.importorskip("torch")
    if find_spec(PROGRAMS[program][0]) is None:
        pytest.skip(f"{PROGRAMS[program][0]} is not installed")
    printed, wrong, _ = compare.run(compare.ours(program, launcher))
    assert wrong is None, wrong
    far = compare.difference(printed, expected(program))
    assert far is not None and far < 1e-5, f"{far}\n{printed}\n{expected(program)}"
