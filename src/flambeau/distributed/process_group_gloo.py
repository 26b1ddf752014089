"""PyTorch's engines by name. ProcessGroupGloo makes a group of its own from a store; the others can be imported, and asked for by isinstance().

Most programs have no use for them: init_process_group and new_group make groups.
"""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any, NamedTuple

from flambeau import import_only
from flambeau.distributed.groups.process_group import ProcessGroup
from flambeau.distributed.groups.start import start

__all__ = ["ProcessGroupGloo", "ProcessGroupMPI", "ProcessGroupNCCL"]

_made = itertools.count()


class _Device(NamedTuple):
    """A network device of gloo's. The engine here is MPI, which chooses one by itself: this is a note of what was asked for."""

    hostname: str = ""
    interface: str = ""
    lazy_init: bool | None = None


class _GlooOptions:
    """How long calls may take; and what gloo could be told besides, which MPI decides by itself."""

    def __init__(self) -> None:
        self.backend = "gloo"
        self.timeout = timedelta(minutes=30)
        self._devices: list[_Device] = []
        self._threads = 2
        self.global_ranks_in_group: list[int] = []
        self.group_name = ""

    @property
    def _timeout(self) -> timedelta:
        return self.timeout

    @_timeout.setter
    def _timeout(self, value: timedelta | float) -> None:
        self.timeout = value if isinstance(value, timedelta) else timedelta(seconds=value)


class ProcessGroupGloo(ProcessGroup):
    """A group of `size` processes that share a store, beside or without that of init_process_group. All of them make it, each with its rank.

    ProcessGroupGloo(store, rank, size, timedelta(seconds=10)).allreduce([tensor]).wait()
    """

    Device, Options, _Options = _Device, _GlooOptions, _GlooOptions

    def __init__(self, store: Any, rank: int, size: int, options: _GlooOptions | timedelta | None = None, timeout: timedelta | None = None):
        chosen = options if isinstance(options, _GlooOptions) else _GlooOptions()
        if isinstance(options, timedelta) or timeout is not None:
            chosen.timeout = timeout if timeout is not None else options  # type: ignore[assignment]
        name = f"ProcessGroupGloo/{chosen.group_name}/{next(_made)}"
        made = start(store, rank, size, backend="gloo", timeout=chosen.timeout, name=name, desc=chosen.group_name or "ProcessGroupGloo")
        self.__dict__.update(vars(made))
        self._world.first = self  # whose end is the end of what was opened for it
        self.options = chosen

    @staticmethod
    def create_device(hostname: str = "", interface: str = "", lazy_init: bool | None = None) -> _Device:
        """A note of a network device: see `_Device`."""
        return _Device(hostname, interface, lazy_init)

    @staticmethod
    def create_default_device(lazy_init: bool | None = None) -> _Device:
        """A note of whichever network device there is."""
        return _Device(lazy_init=lazy_init)


ProcessGroupMPI, ProcessGroupNCCL, _Backend, _ProcessGroupWrapper = import_only.classes(
    "torch.distributed",
    "ProcessGroupMPI ProcessGroupNCCL _Backend _ProcessGroupWrapper",
    'init_process_group("mpi") or ("nccl") makes groups with these engines',
)
