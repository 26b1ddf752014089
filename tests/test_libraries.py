"""Well-known libraries, where they are installed, run on Flambeau as they are: the programs in examples/libraries, and what only they ask for."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples" / "libraries"
SMALL = {"einops_mixer": "einops", "safetensors_files": "safetensors"}  # those that load in a second


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-m", "flambeau", "run", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("program", SMALL)
def test_a_program_with_a_library_prints_what_it_prints_under_pytorch(program):
    """Words are the same, numbers agree to rounding."""
    pytest.importorskip("torch")
    if find_spec(SMALL[program]) is None:
        pytest.skip(f"{SMALL[program]} is not installed")
    sys.path.insert(0, str(EXAMPLES))
    try:
        from compare import difference
    finally:
        sys.path.remove(str(EXAMPLES))
    file = str(EXAMPLES / f"{program}.py")
    theirs = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=120)
    assert theirs.returncode == 0, theirs.stderr
    far = difference(run(file), theirs.stdout)
    assert far is not None and far < 1e-5, f"{program} differs: {far}"


def test_the_comparison_sees_differences():
    """compare.py: other words are None, other numbers their distance, relative above 1."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        from compare import difference
    finally:
        sys.path.remove(str(EXAMPLES))
    assert difference("loss 1.5 ids [1, 2]", "loss 1.5 ids [1, 2]") == 0.0
    assert difference("loss 1.5", "gain 1.5") is None and difference("ids [1, 2]", "ids [1, 3]") is None
    assert difference("loss 100.0", "loss 200.0") == 0.5 and difference("loss 0.25", "loss 0.5") == 0.25


def test_every_program_says_what_it_shows():
    """Each of the programs begins with a docstring of a line that names its library, and is Python."""
    programs = sorted(p for p in EXAMPLES.glob("*.py") if p.stem != "compare")
    assert len(programs) >= 10
    for program in programs:
        first = program.read_text().splitlines()[0]
        assert first.startswith('"""') and program.stem.split("_")[0] in first.lower().replace("-", "").replace(" ", ""), program
        compile(program.read_text(), str(program), "exec")
