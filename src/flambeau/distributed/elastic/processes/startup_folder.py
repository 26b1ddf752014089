"""How a Python that is started as a worker learns to write down the exception it ends with: PYTHONPATH begins with the folder `startup`."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

STARTUP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "startup")


def listened_to(environment: MutableMapping[str, str]) -> None:
    """Let a worker with this environment, which names its error file, write the file if it fails."""
    present = environment.get("PYTHONPATH", "")
    others = [folder for folder in present.split(os.pathsep) if folder != STARTUP] if present else []
    environment["PYTHONPATH"] = os.pathsep.join([STARTUP, *others])
