"""How the Python processes that a program starts learn that `torch` means Flambeau: by two environment variables.

FLAMBEAU_AS_TORCH=1 says so, and PYTHONPATH begins with the folder `startup`, whose sitecustomize.py every Python runs before anything else. It
installs the alias, takes the folder off `sys.path`, and goes on to the sitecustomize.py that would have run without it.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

STARTUP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "startup")
SWITCH = "FLAMBEAU_AS_TORCH"


def tell(environment: MutableMapping[str, str]) -> None:
    """Let processes with this environment know."""
    environment[SWITCH] = "1"
    environment["PYTHONPATH"] = os.pathsep.join([STARTUP, *_others(environment)])


def forget(environment: MutableMapping[str, str]) -> None:
    """Undo `tell`."""
    environment.pop(SWITCH, None)
    others = _others(environment)
    environment["PYTHONPATH"] = os.pathsep.join(others)
    if not others:
        del environment["PYTHONPATH"]


def _others(environment: MutableMapping[str, str]) -> list[str]:
    present = environment.get("PYTHONPATH", "")
    return [folder for folder in present.split(os.pathsep) if folder != STARTUP] if present else []
