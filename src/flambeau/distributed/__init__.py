"""torch.distributed: what a program asks before it does without. There are no process groups yet: `is_available()` says so.

>>> is_available() and is_initialized()
False
"""

from __future__ import annotations

import os
from typing import Any, NoReturn

__all__ = [
    "get_rank", "get_world_size", "init_process_group", "is_available", "is_gloo_available", "is_initialized", "is_mpi_available",
    "is_nccl_available", "is_torchelastic_launched",
]  # fmt: skip


def is_available() -> bool:
    """Whether processes can train together: not yet. Programs that ask first train alone, as with a PyTorch that was built without it."""
    return False


is_gloo_available = is_mpi_available = is_nccl_available = is_available


def is_initialized() -> bool:
    """Whether this process belongs to a group: no."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher started this process, which it says in the environment."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def init_process_group(*args: Any, **kwargs: Any) -> NoReturn:
    """NotImplementedError: there are no process groups."""
    raise NotImplementedError(
        "torch.distributed.init_process_group: there are no process groups in Flambeau yet. Run the program as one process"
    )


def get_rank(group: Any = None) -> NoReturn:
    """ValueError: this process belongs to no group."""
    raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")


def get_world_size(group: Any = None) -> NoReturn:
    """ValueError: this process belongs to no group."""
    get_rank(group)
