"""Where does the time go? A profile of operations, backward, optimizer and data loading: tables, traces, and plain words.

with profile(activities=[ProfilerActivity.CPU]) as prof:
    train_step()
print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))
print(prof.explain())
"""

from flambeau.autograd.profiler import KinetoStepTracker, record_function  # noqa: F401
from flambeau.profiler.profiler import (  # noqa: F401
    DeviceType,
    ExecutionTraceObserver,
    ProfilerAction,
    ProfilerActivity,
    RecordScope,
    _ExperimentalConfig,
    _KinetoProfile,
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

__all__ = [
    "DeviceType", "ExecutionTraceObserver", "ProfilerAction", "ProfilerActivity", "kineto_available", "profile", "record_function", "schedule",
    "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip


def kineto_available() -> bool:
    """Whether schedules, traces and steps work: they do, without the library that PyTorch needs for them."""
    return True
