"""torch.utils.collect_env: what to paste into a bug report; the same as `flambeau info`.

python -m flambeau.utils.collect_env
"""

from __future__ import annotations

import subprocess
import sys


def get_pretty_env_info() -> str:
    """What `flambeau info` prints, asked in a process of its own."""
    done = subprocess.run([sys.executable, "-m", "flambeau", "info"], capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n")


def main() -> None:
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
