"""`flambeau-torchrun ...` is `torchrun ...` with `torch` meaning Flambeau: the launcher, also for one process."""

from __future__ import annotations

import os
import subprocess
import sys

from flambeau.compat import children


def main() -> int:
    """Run the launcher with the arguments of this process."""
    from flambeau.distributed import run as launcher

    children.tell(os.environ)
    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return launcher.reported(lambda: launcher.run_with_python_options(sys.argv[1:], options))


if __name__ == "__main__":
    sys.exit(main())
