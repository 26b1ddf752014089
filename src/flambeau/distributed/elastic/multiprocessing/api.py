"""torch.distributed.elastic.multiprocessing.api: the names of this room under PyTorch's path."""

from flambeau.distributed.elastic.multiprocessing.context import PContext, RunProcsResult
from flambeau.distributed.elastic.multiprocessing.errors import ProcessFailure, record
from flambeau.distributed.elastic.multiprocessing.function_context import MultiprocessContext
from flambeau.distributed.elastic.multiprocessing.logs import DefaultLogsSpecs, LogsDest, LogsSpecs
from flambeau.distributed.elastic.multiprocessing.redirects import redirect_stderr, redirect_stdout
from flambeau.distributed.elastic.multiprocessing.signals import SignalException
from flambeau.distributed.elastic.multiprocessing.std import Std, to_map
from flambeau.distributed.elastic.multiprocessing.subprocess_context import SubprocessContext
from flambeau.distributed.elastic.multiprocessing.tail_log import TailLog

__all__ = [
    "DefaultLogsSpecs",
    "LogsDest",
    "LogsSpecs",
    "MultiprocessContext",
    "PContext",
    "ProcessFailure",
    "RunProcsResult",
    "SignalException",
    "Std",
    "SubprocessContext",
    "TailLog",
    "record",
    "redirect_stderr",
    "redirect_stdout",
    "to_map",
]
