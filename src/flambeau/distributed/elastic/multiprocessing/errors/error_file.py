"""The error file: what a worker that fails leaves for its launcher, one JSON document in the layout of torchelastic.

    {"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1700000000"}}}

This file imports nothing of the package: a worker loads it by its path when it fails (processes/startup/sitecustomize.py).
"""

from __future__ import annotations

import json
import os
import time
import traceback
from typing import Any

VARIABLE = "TORCHELASTIC_ERROR_FILE"


def described(problem: BaseException) -> dict[str, Any]:
    """What the file says about an exception."""
    story = "".join(traceback.format_exception(type(problem), problem, problem.__traceback__))
    extra = {"py_callstack": story, "timestamp": str(int(time.time()))}
    return {"message": {"message": f"{type(problem).__name__}: {problem}", "extraInfo": extra}}


def write(path: str, problem: BaseException) -> None:
    """Write the file whole or not at all: the launcher may look at any moment."""
    replace(path, described(problem))


def replace(path: str, content: dict[str, Any]) -> None:
    """Put `content` in the place of whatever is there."""
    unfinished = f"{path}.{os.getpid()}"
    with open(unfinished, "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.replace(unfinished, path)


def read(path: str) -> dict[str, Any]:
    """The document, or nothing where there is none that makes sense."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
