"""Train a small model: handwritten digits, clothes, or a text. The loop is an example to copy.

The loop itself is examples/train.py, a program written for PyTorch, and this command runs it as `flambeau run` would.
"""

from __future__ import annotations

from pathlib import Path

from flambeau.cli import run

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def main(argv: list[str]) -> int:
    return run.main([str(EXAMPLES / "train.py"), *argv])
