"""Where the output of workers goes: LogsSpecs is what was asked for, LogsDest the files that follow from it.

log_dir / run id + random / attempt_0 / 0 / stdout.log  stderr.log  error.json
                                      / 1 / ...
                                      / filtered_stdout.log
"""

from __future__ import annotations

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from flambeau.distributed.elastic.multiprocessing.std import Std, to_map

__all__ = ["DefaultLogsSpecs", "LogsDest", "LogsSpecs"]

Choice = Std | dict[int, Std]


@dataclass
class LogsDest:
    """The files, by local rank. Where there is none the worker writes to its launcher's own streams."""

    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)
    tee_stdouts: dict[int, str] = field(default_factory=dict)
    tee_stderrs: dict[int, str] = field(default_factory=dict)
    error_files: dict[int, str] = field(default_factory=dict)
    filtered_stdout: str = ""
    filtered_stderr: str = ""


class LogsSpecs(ABC):
    """Which streams go to files, which of these are shown as well, and of which local ranks."""

    def __init__(
        self, log_dir: str | None = None, redirects: Choice = Std.NONE, tee: Choice = Std.NONE, local_ranks_filter: set[int] | None = None
    ) -> None:
        self._root_log_dir = log_dir
        self._redirects = redirects
        self._tee = tee
        self._local_ranks_filter = local_ranks_filter

    @abstractmethod
    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Make the folders for workers with these environments, and name the files."""

    @property
    @abstractmethod
    def root_log_dir(self) -> str:
        """The folder of all runs."""


class DefaultLogsSpecs(LogsSpecs):
    """A folder for every run, attempt and local rank, in a temporary place unless `log_dir` says where."""

    def __init__(
        self, log_dir: str | None = None, redirects: Choice = Std.NONE, tee: Choice = Std.NONE, local_ranks_filter: set[int] | None = None
    ) -> None:
        super().__init__(log_dir, redirects, tee, local_ranks_filter)
        self._temporary = log_dir in (None, os.devnull)
        self._made: str | None = None if self._temporary else os.path.abspath(str(log_dir))
        self._run_log_dir: str | None = None

    @property
    def root_log_dir(self) -> str:
        """The folder of all runs; made when it is asked for."""
        if self._made is None:
            self._made = tempfile.mkdtemp(prefix="torchelastic_")
        os.makedirs(self._made, exist_ok=True)
        return self._made

    def _make_log_dir(self, log_dir: str | None, rdzv_run_id: str) -> str:
        return tempfile.mkdtemp(prefix=f"{rdzv_run_id.replace(os.sep, '_')}_", dir=log_dir or self.root_log_dir)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """The files for workers with these environments, which name the run and the attempt."""
        count = len(envs)
        if set(envs) != set(range(count)):
            raise ValueError(f"the environments must be those of local ranks 0 to {count - 1}, not of {sorted(envs)}")
        if not count:
            return LogsDest()
        if self._run_log_dir is None:
            self._run_log_dir = self._make_log_dir(None, envs[0].get("TORCHELASTIC_RUN_ID", "run"))
        attempt = os.path.join(self._run_log_dir, f"attempt_{envs[0].get('TORCHELASTIC_RESTART_COUNT', '0')}")
        shutil.rmtree(attempt, ignore_errors=True)
        folders = {rank: os.path.join(attempt, str(rank)) for rank in range(count)}
        for folder in folders.values():
            os.makedirs(folder)
        return self._files(attempt, folders)

    def _files(self, attempt: str, folders: dict[int, str]) -> LogsDest:
        files = LogsDest(
            filtered_stdout=os.path.join(attempt, "filtered_stdout.log"), filtered_stderr=os.path.join(attempt, "filtered_stderr.log")
        )
        redirects, tee = to_map(self._redirects, len(folders)), to_map(self._tee, len(folders))
        for rank, folder in folders.items():
            files.error_files[rank] = os.path.join(folder, "error.json")
            shown = not self._local_ranks_filter or rank in self._local_ranks_filter
            for std, name, to_file, to_both in (
                (Std.OUT, "stdout", files.stdouts, files.tee_stdouts),
                (Std.ERR, "stderr", files.stderrs, files.tee_stderrs),
            ):
                path = os.path.join(folder, f"{name}.log")
                if std in tee[rank] and shown:
                    to_both[rank] = path
                if std in redirects[rank] or std in tee[rank] or not shown:
                    to_file[rank] = path
        return files

    def _tidy(self) -> None:
        """Remove what nobody asked to keep: a temporary folder in which there are only empty places for errors."""
        wanted = self._redirects or self._tee or self._local_ranks_filter
        if self._temporary and self._made is not None and not wanted:
            shutil.rmtree(self._made, ignore_errors=True)
            self._made = self._run_log_dir = None

    def __repr__(self) -> str:
        return (
            f"DefaultLogsSpecs(root_log_dir={self._made}, redirects={self._redirects}, tee={self._tee}, "
            f"local_ranks_filter={self._local_ranks_filter})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DefaultLogsSpecs) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]
