"""Run these programs under Flambeau and under PyTorch, and compare what they print: words exactly, numbers to rounding.

    python examples/libraries/compare.py --torch /path/to/python [program ...]

`--torch` is a Python with PyTorch and the libraries; this file's own Python has Flambeau and the libraries. A program that the first cannot
run is not compared; one that the second cannot run has failed.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent
NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


def run(command, program):
    """(what it prints, what went wrong, seconds)"""
    begin = time.perf_counter()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0"}
    done = subprocess.run([*command, program], capture_output=True, text=True, env=environment, cwd=FOLDER)
    wrong = done.stderr.strip().rpartition("\n")[2] if done.returncode else None
    return done.stdout, wrong, time.perf_counter() - begin


def difference(ours, theirs):
    """The largest difference of two numbers in the same place, relative where they are above 1; None where anything else differs."""
    if NUMBER.sub("#", ours) != NUMBER.sub("#", theirs):
        return None
    pairs = zip(map(float, NUMBER.findall(ours)), map(float, NUMBER.findall(theirs)), strict=True)
    return max((abs(a - b) / max(1.0, abs(b)) for a, b in pairs), default=0.0)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--torch", required=True, help="a Python that has PyTorch and the libraries")
    options.add_argument("--tolerance", type=float, default=1e-4)
    options.add_argument("programs", nargs="*", help="names of programs in this folder; all, if none is named")
    given = options.parse_args()
    names = given.programs or sorted(p.stem for p in FOLDER.glob("*.py") if p.stem != "compare")
    failed = 0
    print(f"{'program':28} {'agreement':22} {'Flambeau':>9} {'PyTorch':>9}")
    for name in names:
        program = str(FOLDER / f"{name}.py")
        ours, wrong, our_seconds = run([sys.executable, "-m", "flambeau", "run"], program)
        theirs, theirs_wrong, their_seconds = run([given.torch], program)
        far = None if wrong or theirs_wrong else difference(ours, theirs)
        if wrong:
            verdict = f"fails: {wrong}"
        elif theirs_wrong:
            verdict = f"PyTorch fails: {theirs_wrong}"
        elif far is None:
            ours_lines, theirs_lines = (NUMBER.sub("#", text).splitlines() for text in (ours, theirs))
            line = next((i for i, (a, b) in enumerate(zip(ours_lines, theirs_lines, strict=False)) if a != b), len(theirs_lines))
            verdict = f"differs in line {line + 1}"
        else:
            verdict = f"numbers within {far:.0e}"
        failed += far is None or far > given.tolerance
        print(f"{name:28} {verdict:22} {our_seconds:7.1f} s {their_seconds:7.1f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
