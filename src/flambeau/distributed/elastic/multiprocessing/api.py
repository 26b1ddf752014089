"""torch.distributed.elastic.multiprocessing.api: the names of this room under PyTorch's path."""

from __future__ import annotations

from flambeau.doors import door

__getattr__, __dir__, __all__ = door(__name__, {
    "context": "PContext RunProcsResult",
    "errors": "ProcessFailure record",
    "function_context": "MultiprocessContext",
    "logs": "DefaultLogsSpecs LogsDest LogsSpecs",
    "redirects": "redirect_stderr redirect_stdout",
    "signals": "SignalException",
    "std": "Std to_map",
    "subprocess_context": "SubprocessContext",
    "tail_log": "TailLog",
})  # fmt: skip
