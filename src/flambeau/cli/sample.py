"""Let a model that `flambeau train shakespeare` has trained write.

The program is examples/sample.py, which runs under PyTorch too.
"""

from __future__ import annotations

from flambeau.cli import run
from flambeau.cli.train import EXAMPLES


def main(argv: list[str]) -> int:
    return run.main([str(EXAMPLES / "sample.py"), *argv])
