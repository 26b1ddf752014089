"""What the files of a checkpoint are called, and which of those in a folder a save may remove.

.metadata               what the checkpoint is: the folder holds a checkpoint from the moment this name exists
__0_0.distcp            data of rank 0: the first file of a checkpoint that was saved to an empty folder
__0_1f0c9a2e_0.distcp   the same of a later one: its own names, so that the earlier checkpoint stays whole beside it
.__0_0.distcp.9b3d.tmp  not complete: a save is under way, or was killed
__0.metadata            what rank 0 alone knows, when ranks save without talking to each other
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable

METADATA = ".metadata"
SUFFIX = ".distcp"
_DATA = re.compile(r"__\d+_([0-9a-f]{8}_)?\d+\.distcp")
_OF_ONE_RANK = re.compile(r"__\d+\.metadata")
_UNFINISHED = re.compile(r"\.(__.*\.distcp|metadata|__\d+\.metadata)\.[0-9a-f]{8}\.tmp")


def prefix(rank: int, in_folder: Iterable[str]) -> str:
    """How the names of a rank's files begin: as PyTorch's do, unless there are data already."""
    return f"__{rank}_{token(in_folder)}"


def token(in_folder: Iterable[str]) -> str:
    """What makes the names of one save differ from all that are there: nothing if there are none."""
    return f"{secrets.token_hex(4)}_" if any(name.endswith(SUFFIX) for name in in_folder) else ""


def temporary(name: str) -> str:
    """The name of a file while it is not complete."""
    return f".{name.lstrip('.')}.{secrets.token_hex(4)}.tmp"


def metadata_of_rank(rank: int | None) -> str:
    """`.metadata`, or what one rank alone writes."""
    return METADATA if rank is None else f"__{rank}{METADATA}"


def left_over(names: Iterable[str], used: Iterable[str], kept: Iterable[str] = ()) -> list[str]:
    """Those of the files that were there before a save and belong to nothing now: an earlier checkpoint's, and those of saves that were killed. Files
    that no checkpoint writes are never among them."""
    needed = {*used, *kept}
    ours = (_DATA, _OF_ONE_RANK, _UNFINISHED)
    return sorted(name for name in names if name not in needed and any(pattern.fullmatch(name) for pattern in ours))
