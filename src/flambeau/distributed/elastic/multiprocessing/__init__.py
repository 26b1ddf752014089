"""torch.distributed.elastic.multiprocessing: several processes of one kind, with their output in files and the first failure told.

context = start_processes("trainer", "echo", {0: ("hello",), 1: ("world",)}, {0: {}, 1: {}}, DefaultLogsSpecs())
context.wait().is_failed()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.distributed.elastic.multiprocessing.context import PContext
from flambeau.distributed.elastic.multiprocessing.function_context import MultiprocessContext
from flambeau.distributed.elastic.multiprocessing.logs import LogsSpecs
from flambeau.distributed.elastic.multiprocessing.subprocess_context import SubprocessContext
from flambeau.doors import door

__getattr__, __dir__, __all__ = door(__name__, {
    "context": "PContext RunProcsResult",
    "errors": "ProcessFailure",
    "function_context": "MultiprocessContext",
    "logs": "DefaultLogsSpecs LogsDest LogsSpecs",
    "signals": "SignalException",
    "std": "Std to_map",
    "subprocess_context": "SubprocessContext",
})  # fmt: skip
__all__.append("start_processes")


def start_processes(
    name: str,
    entrypoint: Callable | str,
    args: dict[int, tuple],
    envs: dict[int, dict[str, str]],
    logs_specs: LogsSpecs,
    log_line_prefixes: dict[int, str] | None = None,
    start_method: str = "spawn",
    numa_options: Any = None,
    duplicate_stdout_filters: list[str] | None = None,
    duplicate_stderr_filters: list[str] | None = None,
) -> PContext:
    """Start a program (text) or a function in a process for each local rank, and return their context, which waits for them."""
    kind: Any = SubprocessContext
    extra: dict[str, Any] = {}
    if not isinstance(entrypoint, str):
        kind, extra = MultiprocessContext, {"start_method": start_method}
    context: PContext = kind(
        name=name,
        entrypoint=entrypoint,
        args=args,
        envs=envs,
        logs_specs=logs_specs,
        log_line_prefixes=log_line_prefixes,
        numa_options=numa_options,
        duplicate_stdout_filters=duplicate_stdout_filters,
        duplicate_stderr_filters=duplicate_stderr_filters,
        **extra,
    )
    try:
        context.start()
    except BaseException:
        context.close()
        raise
    return context
