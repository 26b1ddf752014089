"""Actions for argparse whose defaults come from the environment: --max-restarts from PET_MAX_RESTARTS.

>>> import os
>>> os.environ["PET_NPROC_PER_NODE"] = "2"
>>> parser = ArgumentParser()
>>> _ = parser.add_argument("--nproc-per-node", action=env, default="1")
>>> del os.environ["PET_NPROC_PER_NODE"]
>>> parser.parse_args([]).nproc_per_node
'2'
"""

from __future__ import annotations

import os
from argparse import Action, ArgumentParser, Namespace
from typing import Any

__all__ = ["check_env", "env"]


def _variable(destination: str) -> str:
    return f"PET_{destination.upper()}"


class env(Action):
    """Stores a value; its default is that of the variable, if there is one."""

    def __init__(self, dest: str, default: Any = None, required: bool = False, **kwargs: Any):
        default = os.environ.get(_variable(dest), default)
        super().__init__(dest=dest, default=default, required=required and default is None, **kwargs)

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, values)


class check_env(Action):
    """Stores True; it is so without being given if the variable is 1."""

    def __init__(self, dest: str, default: bool = False, **kwargs: Any):
        default = bool(int(os.environ.get(_variable(dest), "1" if default else "0")))
        super().__init__(dest=dest, const=True, default=default, nargs=0, **kwargs)

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, self.const)
