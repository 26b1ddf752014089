"""Saves that go on in threads while training does.

A save waits for those before it that use the same writer or go to the same place: each of two would take the other's files for left over. The thread of a
save waits for those before it that talk over the same group: the ranks must make their calls in one order. All ranks do so alike, and the threads of a save
need none of those that wait: nobody waits for ever.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

from flambeau.distributed.watch.place import begun_at, line_of_caller


@dataclass
class Save:
    """One that is under way."""

    writer: Any
    place: str | None
    group: Any
    done: Future = field(default_factory=Future)


_under_way: list[Save] = []


def start(function: Callable[[], Any], writer: Any, group: Any = None) -> Future:
    """What a function gives, called in a thread. Python waits for it before it ends: a checkpoint is not cut off by the end of a program."""
    save = Save(writer, _place(writer, None), group)
    save.done.set_running_or_notify_cancel()
    earlier = [other.done for other in list(_under_way) if group is not None and other.group is group]
    _under_way.append(save)
    line = line_of_caller()

    def work() -> None:
        wait(earlier)
        try:
            with begun_at(line):
                result = function()
        except BaseException as problem:
            _under_way.remove(save)
            save.done.set_exception(problem)
        else:
            _under_way.remove(save)
            save.done.set_result(result)

    threading.Thread(target=work, name="flambeau.checkpoint.save", daemon=False).start()
    return save.done


def wait_for_earlier(writer: Any, checkpoint_id: Any) -> None:
    """Return when no save is under way with this writer, or to this place. What failed in one is for those who have its Future."""
    place = _place(writer, checkpoint_id)
    wait([save.done for save in list(_under_way) if (writer is not None and save.writer is writer) or (place and save.place == place)])


def _place(writer: Any, checkpoint_id: Any) -> str | None:
    place = checkpoint_id or getattr(writer, "checkpoint_id", None)
    return None if place is None else os.path.realpath(os.fspath(place))
