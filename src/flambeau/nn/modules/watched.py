"""Which module is running, for those who ask: profilers, to which every call is a range ("nn.Module: Linear_0", numbered by class), and
anomaly mode, which names the module in which a NaN appears. Nobody asking, nothing is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import perf_counter_ns as now
from typing import Any

from flambeau.autograd import anomaly_mode
from flambeau.modes import state
from flambeau.nn.modules import hooks
from flambeau.tracing import recorder
from flambeau.tracing.kinds import MODULE


def watch() -> Callable[[], None]:
    """Begin to note the calls of modules. What is returned ends it."""
    names: dict[int, tuple[str, Any]] = {}  # id of a module -> its name, and the module, so that the id stays its own
    seen: Counter[str] = Counter()
    begun: list[tuple[Any, int, Any]] = []

    def before(module: Any, args: tuple) -> None:
        noting = recorder.active()
        if noting is not None:
            begun.append((module, now(), noting.line()))

    def after(module: Any, args: tuple, output: Any) -> None:
        while begun:
            which, start, line = begun.pop()
            if which is module:
                break
        else:
            return
        if id(module) not in names:
            kind = type(module).__name__
            names[id(module)] = f"nn.Module: {kind}_{seen[kind]}", module
            seen[kind] += 1
        noting = recorder.active()
        if noting is not None:
            noting.note((start, now(), MODULE, names[id(module)][0], line, None))

    handles = hooks.register_module_forward_pre_hook(before), hooks.register_module_forward_hook(after, always_call=True)

    def stop() -> None:
        for handle in handles:
            handle.remove()

    return stop


def follow() -> Callable[[], None]:
    """Begin to keep `state.modules`. What is returned ends it."""

    def before(module: Any, args: tuple) -> None:
        state.modules.append(module)

    def after(module: Any, args: tuple, output: Any) -> None:
        while state.modules and state.modules.pop() is not module:
            pass

    handles = hooks.register_module_forward_pre_hook(before), hooks.register_module_forward_hook(after, always_call=True)

    def stop() -> None:
        for handle in handles:
            handle.remove()
        state.modules.clear()

    return stop


recorder.watchers.append(watch)
anomaly_mode.watchers.append(follow)
