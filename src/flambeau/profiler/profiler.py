"""`profile`: which steps are noted, what happens to the notes, and ways to look at them.

A schedule names an action for every step:

    step        0     1      2       3       4                    5     ...
    action      NONE  WARMUP RECORD  RECORD  RECORD_AND_SAVE      NONE  ...
                             start           stop, on_trace_ready
"""

from __future__ import annotations

import enum
import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from flambeau.autograd import profiler as plain
from flambeau.autograd.profiler import record_function
from flambeau.profiler.explain import Explanation, explain
from flambeau.tensor.memory.host_memory import cuda_is_available
from flambeau.tracing import chrome
from flambeau.tracing.events import DeviceType, EventList, FunctionEventAvg  # noqa: F401  DeviceType is public here

__all__ = ["ExecutionTraceObserver", "ProfilerAction", "profile", "schedule", "supported_activities", "tensorboard_trace_handler"]

PROFILER_STEP_NAME = "ProfilerStep"
KINDS = frozenset(
    """CPU_INSTANT_EVENT CPU_OP CUDA_DRIVER CUDA_RUNTIME EXTERNAL_CORRELATION PRIVATEUSE1_RUNTIME PYTHON_FUNCTION USER_ANNOTATION
    XPU_RUNTIME""".split()
)


class ProfilerActivity(enum.Enum):
    """What is profiled: the CPU always; with CUDA also how long operations take on a GPU."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class RecordScope(enum.Enum):
    """What kind of thing an event is."""

    FUNCTION = 0
    BACKWARD_FUNCTION = 1
    USER_SCOPE = 7


class ProfilerAction(enum.Enum):
    """What a profiler does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


_NOTING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class _ExperimentalConfig:
    """Options of PyTorch's profiler library, which have no counterpart here: accepted, and kept."""

    def __init__(self, *args: Any, **kwargs: Any):
        self.args, self.options = args, kwargs


def supported_activities() -> set[ProfilerActivity]:
    """What can be profiled on this machine."""
    return {ProfilerActivity.CPU, ProfilerActivity.CUDA} if cuda_is_available() else {ProfilerActivity.CPU}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Skip the first steps, then again and again: wait, warm up, record. `repeat` limits the rounds; with skip_first_wait the first
    of them does not wait.

    >>> [schedule(wait=1, warmup=1, active=2)(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError(f"Invalid profiler schedule arguments: wait={wait}, warmup={warmup}, active={active}, repeat={repeat}")
    if warmup == 0:
        warnings.warn("Profiler won't be using warmup: the first steps measure what starting costs, too", stacklevel=2)

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        cycle = wait + warmup + active
        if repeat and step // cycle >= repeat:
            return ProfilerAction.NONE
        place = step % cycle
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False, use_python_export: bool = False
) -> Callable[[Any], None]:
    """For on_trace_ready: writes a trace file into a folder where TensorBoard's profiler plugin looks."""

    def handler(prof: Any) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        prof.export_chrome_trace(os.path.join(dir_name, f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"))

    return handler


class _KinetoProfile:
    """A profile that is started and stopped by hand."""

    def __init__(
        self, *, activities: Iterable[ProfilerActivity] | None = None, record_shapes: bool = False, profile_memory: bool = False,
        with_stack: bool = False, with_flops: bool = False, with_modules: bool = False, experimental_config: Any = None,
        execution_trace_observer: Any = None, acc_events: bool = False, custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ):  # fmt: skip
        self.activities = _possible(_activities(activities)) if activities is not None else supported_activities()
        self.record_shapes, self.profile_memory, self.with_stack = record_shapes, profile_memory, with_stack
        self.with_flops, self.with_modules, self.acc_events = with_flops, with_modules, acc_events
        self.experimental_config, self.execution_trace_observer = experimental_config, execution_trace_observer
        self.custom_trace_id_callback = custom_trace_id_callback
        if post_processing_timeout_s is not None and post_processing_timeout_s < 0:
            raise ValueError(f"post_processing_timeout_s must be non-negative, found {post_processing_timeout_s}")
        self.profiler: plain.profile | None = None
        self.preset_metadata: dict[str, Any] = {}
        self.use_device = "cuda" if ProfilerActivity.CUDA in self.activities and cuda_is_available() else None
        if not self.activities:
            raise AssertionError("No valid profiler activities found: give at least ProfilerActivity.CPU")

    def start(self) -> None:
        """Note from now on."""
        self.prepare_trace()
        self.start_trace()

    def stop(self) -> None:
        """Note no more."""
        self.stop_trace()

    def prepare_trace(self) -> None:
        """Get ready to note."""
        if self.profiler is None or not self.acc_events:
            self.profiler = plain.profile(
                use_device=self.use_device, record_shapes=self.record_shapes, with_flops=self.with_flops, profile_memory=self.profile_memory,
                with_stack=self.with_stack, with_modules=self.with_modules, acc_events=self.acc_events,
            )  # fmt: skip

    def start_trace(self) -> None:
        """Note from now on."""
        if self.execution_trace_observer is not None:
            self.execution_trace_observer.start()
        self._done()._start()

    def stop_trace(self) -> None:
        """Note no more."""
        self._done()._stop()
        if self.execution_trace_observer is not None:
            self.execution_trace_observer.stop()

    def _done(self) -> plain.profile:
        if self.profiler is None:
            raise AssertionError("Profiler must be initialized before looking at what it noted: nothing has been recorded yet")
        return self.profiler

    def events(self) -> EventList:
        """All events, in the order in which they began."""
        return self._done().function_events

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """Events of one name taken together; with record_shapes also by shapes, with with_stack by the innermost lines of the call."""
        return self._done().key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def total_average(self) -> FunctionEventAvg:
        """Everything taken together."""
        return self._done().total_average()

    def explain(self) -> Explanation:
        """In plain words where the time went, what was slowest and on which line, and what to try. Print it."""
        profiler = self._done()
        return explain(profiler.function_events, profiler.recorder)

    def export_chrome_trace(self, path: str) -> None:
        """Write a file for Perfetto (https://ui.perfetto.dev) or chrome://tracing; compressed if its name ends in .gz."""
        profiler = self._done()
        chrome.write(str(path), profiler.function_events, profiler.recorder, self.preset_metadata)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write what flame-graph programs read; needs with_stack=True."""
        self._done().export_stacks(path, metric)

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Write the bytes in use over time, by what they are for: as a picture (.html), or as numbers (.json, .json.gz)."""
        from flambeau.profiler import memory_timeline

        memory_timeline.write(path, self._done(), device or self.use_device or "cpu")

    def add_metadata(self, key: str, value: str) -> None:
        """Add a string to the trace file."""
        self.preset_metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add what this JSON text says to the trace file."""
        self.preset_metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json

    def toggle_collection_dynamic(self, enable: bool, activities: Any = None) -> None:
        """Stop noting for a while, and go on."""
        self._done().toggle_collection_dynamic(enable, activities)

    def get_trace_id(self) -> str | None:
        """The number of the trace, if a callback gives it one."""
        return None if self.custom_trace_id_callback is None else self.custom_trace_id_callback()

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """Who gives traces their numbers."""
        self.custom_trace_id_callback = callback


class profile(_KinetoProfile):
    """Notes what the program does inside a `with`; with a `schedule`, only in some steps: call `step()` after each.

    activities       ProfilerActivity.CPU, and CUDA for times on the GPU
    schedule         step number -> ProfilerAction, as `schedule(...)` makes it
    on_trace_ready   called with the profile whenever a round of the schedule is over, and at the end
    record_shapes    note shapes and dtypes of arguments     with_flops     count floating-point operations
    profile_memory   note allocations and releases           with_stack     note all lines of the call
    with_modules     note which module was running           acc_events     keep the events of earlier rounds

    >>> with profile() as prof:
    ...     total = sum(range(10))
    """

    def __init__(
        self, *, activities: Iterable[ProfilerActivity] | None = None, schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None, record_shapes: bool = False, profile_memory: bool = False, with_stack: bool = False,
        with_flops: bool = False, with_modules: bool = False, experimental_config: Any = None, execution_trace_observer: Any = None,
        acc_events: bool = False, use_cuda: bool | None = None, custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ):  # fmt: skip
        if use_cuda is not None:
            warnings.warn("`use_cuda` is deprecated, use `activities` argument instead", FutureWarning, stacklevel=2)
            activities = set(activities or supported_activities()) | ({ProfilerActivity.CUDA} if use_cuda else set())
        super().__init__(
            activities=activities, record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack, with_flops=with_flops,
            with_modules=with_modules, experimental_config=experimental_config, execution_trace_observer=execution_trace_observer,
            acc_events=acc_events, custom_trace_id_callback=custom_trace_id_callback, post_processing_timeout_s=post_processing_timeout_s,
        )  # fmt: skip
        if schedule is not None and not callable(schedule):
            raise AssertionError("schedule must be a function of the number of the step, as torch.profiler.schedule(...) makes it")
        self.schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self.record_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = self.schedule(0)
        self.step_rec_fn: record_function | None = None

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.stop()

    def start(self) -> None:
        """Begin with the first step."""
        self._go(ProfilerAction.NONE, self.current_action)
        self._open_step()

    def stop(self) -> None:
        """The last step is over."""
        self._close_step()
        if self.current_action in _NOTING:
            self.stop_trace()
            self._trace_ready()
        self.current_action = ProfilerAction.NONE

    def step(self) -> None:
        """The next step begins."""
        self._close_step()
        before = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        self._go(before, self.current_action)
        self._open_step()

    def _go(self, before: ProfilerAction, after: ProfilerAction) -> None:
        """From what was done in one step to what is to be done in the next."""
        noting = before in _NOTING
        if noting and (before is ProfilerAction.RECORD_AND_SAVE or after not in _NOTING):
            if before is ProfilerAction.RECORD:
                warnings.warn("Incorrect schedule: RECORD followed by NONE or WARMUP, without RECORD_AND_SAVE", stacklevel=3)
            self.stop_trace()
            if before is ProfilerAction.RECORD_AND_SAVE:
                self._trace_ready()
            noting = False
        if before is ProfilerAction.WARMUP and after is ProfilerAction.NONE:
            warnings.warn("Incorrect schedule: WARMUP followed by NONE", stacklevel=3)
        if after is ProfilerAction.WARMUP:
            self.prepare_trace()
        elif after in _NOTING and not noting:
            if before is not ProfilerAction.WARMUP:
                self.prepare_trace()
            self.start_trace()

    def _open_step(self) -> None:
        if self.record_steps and self.current_action in _NOTING:
            self.step_rec_fn = record_function(f"{PROFILER_STEP_NAME}#{self.step_num}")
            self.step_rec_fn.__enter__()

    def _close_step(self) -> None:
        if self.step_rec_fn is not None:
            self.step_rec_fn.__exit__(None, None, None)
            self.step_rec_fn = None

    def _trace_ready(self) -> None:
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)


def _possible(asked: set[ProfilerActivity]) -> set[ProfilerActivity]:
    """Those activities that this machine has; a warning names the others."""
    for activity in sorted(asked - supported_activities(), key=lambda activity: activity.name):
        warnings.warn(f"{activity.name} is not available, disabling {activity.name} profiling: nothing will be noted of it", stacklevel=4)
    return asked & supported_activities()


def _activities(given: Iterable[Any]) -> set[ProfilerActivity]:
    """Each once, alone or with kinds of events, {ProfilerActivity.CPU: ["CPU_OP"]}, all of which are noted, as in PyTorch."""
    named: set[ProfilerActivity] = set()
    for activity, kinds in [pair for each in given for pair in (each.items() if isinstance(each, dict) else [(each, ())])]:
        if activity in named:
            raise ValueError(f"Activity {activity} specified more than once")
        if activity is ProfilerActivity.CPU and not KINDS.issuperset(kinds):
            raise RuntimeError(
                f"Unknown or non-member activity type name: {sorted({*kinds} - KINDS)}. On the CPU there are {sorted(KINDS)}"
            )
        named.add(activity)
    return named


class ExecutionTraceObserver:
    """PyTorch's record of the graph of operations, for tools that run it again, is not written here: an observer stays unregistered."""

    is_registered = is_running = False

    def register_callback(self, output_file_path: str) -> ExecutionTraceObserver:
        """Where to write it."""
        raise NotImplementedError(
            "ExecutionTraceObserver: execution traces are not written here. Try profile(...).export_chrome_trace(path)"
        )

    @staticmethod
    def build_execution_trace_obs_from_env() -> ExecutionTraceObserver | None:
        """The observer that an environment variable asks for."""
        if os.environ.get("ENABLE_PYTORCH_EXECUTION_TRACE", "0") == "1":
            return ExecutionTraceObserver().register_callback("")
        return None

    def get_output_file_path(self) -> str | None:
        """Nothing is written."""
        return None

    def get_resources_dir(self, can_create: bool = False) -> str | None:
        """Nothing is written."""
        return None

    def set_extra_resource_collection(self, val: bool) -> None:
        """Nothing is collected."""

    def start(self) -> None:
        """Nothing to start: nothing was registered."""

    def stop(self) -> None:
        """Nothing to stop."""

    unregister_callback = cleanup = stop
