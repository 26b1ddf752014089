"""TailLog: what processes write to files, shown line by line as it appears, each line with its process in front."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from typing import TextIO

__all__ = ["TailLog"]
log = logging.getLogger(__name__)
LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)")  # a progress bar ends its lines with \r, and is to be seen while it moves


def every_line(line: str) -> bool:
    return True


class TailLog:
    """Copies the lines of files, by local rank, to `dst`, from `start()` to `stop()`, which copies the rest.

    log_line_prefixes   goes before each line; "[name0]:" if a rank has none
    log_line_filter     whether a line is copied
    """

    def __init__(
        self,
        name: str,
        log_files: dict[int, str],
        dst: TextIO,
        log_line_prefixes: dict[int, str] | None = None,
        interval_sec: float = 0.1,
        log_line_filter: Callable[[str], bool] = every_line,
    ) -> None:
        self._name = name
        self._files = [_File(path, (log_line_prefixes or {}).get(rank, f"[{name}{rank}]:")) for rank, path in log_files.items()]
        self._dst = dst
        self._interval = interval_sec
        self._filter = log_line_filter
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> TailLog:
        """Begin; nothing happens where there are no files."""
        if self._files and self._thread is None:
            self._thread = threading.Thread(target=self._follow, name=f"tail_{self._name}", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """Copy what has been written until now, and end."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._end.is_set()

    def _follow(self) -> None:
        while not self._end.wait(self._interval):
            self._copy(last=False)
        self._copy(last=True)

    def _copy(self, last: bool) -> None:
        lines = [line for file in self._files for line in file.more(last, self._filter)]
        if lines:
            self._dst.write("".join(lines))
            self._dst.flush()


class _File:
    """One file: how far it has been read, and the beginning of a line that has not ended yet."""

    def __init__(self, path: str, prefix: str):
        self.path, self.prefix, self.rest = path, prefix, ""
        self.file: TextIO | None = None

    def more(self, last: bool, wanted: Callable[[str], bool]) -> list[str]:
        """The lines that are new; at the last also what has no end."""
        if self.file is None:
            try:
                self.file = open(self.path, encoding="utf-8", errors="replace", newline="")  # noqa: SIM115 - read until the end
            except FileNotFoundError:
                return []
        text = self.rest + self.file.read()
        lines = LINE.findall(text)
        self.rest = text[sum(map(len, lines)) :]
        if last:
            if self.rest:
                lines.append(f"{self.rest}\n")
            self.file.close()
        return [f"{self.prefix}{line}" for line in lines if wanted(line)]
