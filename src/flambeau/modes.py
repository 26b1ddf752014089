"""What changes how an operation runs: gradient mode, inference mode, saved-tensor hooks, and the stack of those who have a say (see interpreters/).

The hot path asks one question, `modes.special`: is any mode in any thread other than it is at start? Only then does it look at the
thread's own settings. So the common case costs one global read, and threads stay independent of each other. Whether gradients are recorded
(`state.grad`) is not counted among them: it changes with every `no_grad`, and matters only to operations on tensors that require a gradient.
Those ask `not modes.paused or state.grad`, because to read a setting of the thread takes ten times as long as to read a global.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["enable_grad", "enforce_grad_layout_policy", "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled"]


class Modes(threading.local):
    """The settings of one thread."""

    def __init__(self):
        self.grad = True  # operations are recorded
        self.inference = False  # results are inference tensors
        self.carried: Any = None  # the tangents.Carried that `no_grad` leaves recording on for
        self.nested = 0  # how many backwards of Functions are running inside each other: see reentrance.py
        self.searching = False  # a backward pass is looking for tangents
        self.casting: Any = None  # the thread's eager.autocast.Casting, once it has one
        self.stack: tuple = ()  # who has a say in what operations do: see interpreters/stack.py
        self.anomaly = False  # nodes remember where they were made
        self.check_nan = True  # anomaly mode looks for NaN in gradients
        self.pack_hooks: tuple[tuple[Callable, Callable], ...] = ()  # saved-tensor hooks, innermost last
        self.no_pack_hooks: list[str] = []  # why there may be none, innermost last
        self.function_disabled = False  # subclasses' __torch_function__ is switched off
        self.modes_disabled = False  # function modes are switched off
        self.dispatching = True  # modes and classes with a __torch_dispatch__ carry operations out
        self.recording_above: bool | None = None  # while one of them does: whether the program records
        self.redispatched = False  # the next function that would ask has been asked about (torch.overrides.redispatch_function)
        self.multithreading = True
        self.enforce_layout = True  # a leaf's .grad lies in memory as the leaf does
        self.modules: list[Any] = []  # in anomaly mode: the modules whose forward is running, innermost last
        self.nan_loss = False  # backward() was called on a loss that is nan
        self.task: Any = None  # the engine.Task of the backward pass that is running
        self.notes: list | None = None  # what operations have done while a call is watched: see eager/plans.py
        self.keeping: Any = None  # the graph.allow_mutation_on_saved_tensors that is active
        self.transforms = 0  # how many functions of torch.func that differentiate are running
        self.levels: list[Any] = []  # vmaps that are running, innermost last: see batching/
        self.draw: Callable | None = None  # inside vmap: who is asked for random numbers, draw(function, args, kwargs)
        self.running: Any = None  # in anomaly mode: the node that backward is running, the parent of nodes it records


state = Modes()
special = 0  # number of settings, over all threads, that are not as they start: see Note [counting without a lock]
paused = 0  # number of threads in which nothing is recorded; those that ended so are still counted
watching = 0  # how many calls, over all threads, are watched
leaf_dtypes = False  # whether a leaf was ever told which dtype its gradient has
leaf_hooks = False  # whether a hook was ever registered on a leaf: see engine.py

# Note [counting without a lock]: CPython lets another thread run, or a signal, between calls and at jumps back. Adding to a variable of a module is
# neither, so no count is lost, and the profiler, which counts itself out and in around every operation, saves half a microsecond for each.


def enter() -> None:
    """Note that one more setting differs from its start."""
    global special
    special += 1


def leave() -> None:
    """Note that one setting is back as it started."""
    global special
    special -= 1


def set_pack_hooks(hooks: tuple) -> None:
    """The saved-tensor hooks of this thread from now on. Nobody else writes `state.pack_hooks`."""
    global special
    special += len(hooks) - len(state.pack_hooks)
    state.pack_hooks = hooks


def set_recording(on: bool) -> None:
    """Record operations in this thread, or stop recording them. Nobody else writes `state.grad`."""
    global paused
    before = state.grad
    if before is (not on):
        state.grad = not before
        paused += 1 if before else -1


class recording:
    """Within it operations are recorded, or not, whatever users have switched: for what is no part of a program's computation."""

    def __init__(self, on: bool):
        self.on = on

    def __enter__(self) -> None:
        self.before = state.grad
        set_recording(self.on)

    def __exit__(self, *error: Any) -> None:
        set_recording(self.before)


def is_grad_enabled() -> bool:
    """Whether operations are recorded for differentiation in this thread."""
    return state.grad and (state.carried is None or not state.carried.quiet)


def _switch_grad(on: bool) -> None:
    """What users switch: see tangents.py for where recording goes on nevertheless."""
    if state.carried is None:
        set_recording(on)
    else:
        state.carried.switch(on)


def is_inference_mode_enabled() -> bool:
    """Whether inference mode is on in this thread."""
    return state.inference


def check_no_transform(call: str) -> None:
    """RuntimeError within the functions that torch.func transforms: these say themselves what is differentiated."""
    if state.transforms or state.levels:
        raise RuntimeError(
            f"You are attempting to call {call} (or perhaps using torch.autograd.functional.* APIs) inside of a function being transformed by "
            "torch.func or vmap. Use torch.func.grad, vjp or jacrev there, which take a function and say themselves what is differentiated"
        )


class _Decorator:
    """A context manager that can also decorate functions and generators, taking effect for each call anew."""

    def __call__(self, function):
        import inspect

        if inspect.isclass(function):
            words = f"Decorating classes is deprecated: the mode would hold only while {function.__name__} objects are created"
            warnings.warn(words, FutureWarning, stacklevel=2)
        elif inspect.isgeneratorfunction(function):
            return self._wrap_generator(function)

        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with self.clone():
                return function(*args, **kwargs)

        return wrapped

    def _wrap_generator(self, function):
        # The mode holds while the generator's own code runs, and not while the consumer's does.
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            generator = function(*args, **kwargs)
            try:
                with self.clone():
                    item = next(generator)
                while True:
                    try:
                        request = yield item
                    except GeneratorExit:
                        with self.clone():
                            generator.close()
                        raise
                    except BaseException as problem:
                        with self.clone():
                            item = generator.throw(problem)
                    else:
                        with self.clone():
                            item = generator.send(request)
            except StopIteration as stop:
                return stop.value

        return wrapped

    def clone(self):
        return self.__class__()


class _GradMode(_Decorator):
    value: bool

    def __new__(cls, orig_func=None):
        self = super().__new__(cls)
        return self if orig_func is None else self(orig_func)

    def __enter__(self):
        self.before = is_grad_enabled()
        _switch_grad(self.value)

    def __exit__(self, *exc) -> None:
        _switch_grad(self.before)


class no_grad(_GradMode):
    """Within it nothing is recorded: results do not require grad.

    >>> with no_grad():
    ...     is_grad_enabled()
    False
    """

    value = False


class enable_grad(_GradMode):
    """Within it operations are recorded, even inside `no_grad`."""

    value = True


class _Switch(_Decorator):
    """Gives a setting of this thread another value, at once; as a context manager, until its end; as a decorator, during each call."""

    setting: str

    def __init__(self, value: bool):
        self.before, self.value = getattr(state, self.setting), value
        self.__enter__()

    def __enter__(self):
        setattr(state, self.setting, self.value)

    def __exit__(self, *exc) -> None:
        setattr(state, self.setting, self.before)

    def __call__(self, function):
        self.__exit__()
        return super().__call__(function)

    def clone(self):
        return self.__class__(self.value)


class set_grad_enabled(_Switch):
    """Switch recording to `mode` at once, and back at the end if used as a context manager."""

    setting = "grad"

    def __init__(self, mode: bool):
        if not isinstance(mode, bool):
            raise TypeError(f"set_grad_enabled(): argument 'enabled' (position 1) must be bool, not {type(mode).__name__}")
        self.before, self.value = is_grad_enabled(), mode
        self.__enter__()

    def __enter__(self):
        _switch_grad(self.value)

    def __exit__(self, *exc) -> None:
        _switch_grad(self.before)

    def __repr__(self):
        return f"torch.autograd.grad_mode.set_grad_enabled(mode={self.value})"


class set_multithreading_enabled(_Switch):
    """Kept for programs that ask for single-threaded backward, which is what they get in any case."""

    setting = "multithreading"

    def __init__(self, mode: bool):
        super().__init__(bool(mode))


def is_view_replay_enabled() -> bool:
    """Whether the history of a view is made anew, after a write, by the operations that made it. It is always by `as_strided` here."""
    return False


def is_multithreading_enabled() -> bool:
    """Whether backward may use several threads. It runs in the caller's thread here; the answer is what was set."""
    return state.multithreading


class enforce_grad_layout_policy(_Switch):
    """With False, a leaf may keep a gradient that nobody else holds even if its strides are not the leaf's, which saves a copy."""

    setting = "enforce_layout"

    def __init__(self, enable: bool = True):
        super().__init__(bool(enable))


class inference_mode(_Decorator):
    """`no_grad` for good: tensors made inside can never take part in a recorded computation that would have to save them."""

    def __new__(cls, mode=True):
        return cls()(mode) if callable(mode) else super().__new__(cls)

    def __init__(self, mode: bool = True):
        self.mode = bool(mode)

    def __enter__(self):
        self.before = (state.grad, state.inference)
        self._set(not self.mode, self.mode)

    def __exit__(self, *exc) -> None:
        self._set(*self.before)

    @staticmethod
    def _set(grad: bool, inference: bool) -> None:
        set_recording(grad)
        if inference != state.inference:
            state.inference = inference
            enter() if inference else leave()

    def clone(self):
        return self.__class__(self.mode)
