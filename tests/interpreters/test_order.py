"""Who sees what, and in which order, as in PyTorch: function modes, classes, autocast, the profiler, dispatch modes, in every nesting."""

from __future__ import annotations

import itertools
from contextlib import ExitStack

import pytest

import flambeau

torch = pytest.importorskip("torch")
FRAMEWORKS = (torch, flambeau)


class Story:
    """What happened in one of the two frameworks: (who, what) in order."""

    def __init__(self, T):
        self.T, self.log = T, []
        log, tell = self.log, self.tell

        class Mode(T.overrides.TorchFunctionMode):
            def __init__(self, name="function mode"):
                super().__init__()
                self.name = name

            def __torch_function__(self, func, types, args=(), kwargs=None):
                tell(self.name, func.__name__, types, args)
                return func(*args, **(kwargs or {}))

        class Dispatch(T.utils._python_dispatch.TorchDispatchMode):
            def __init__(self, name="dispatch mode"):
                super().__init__()
                self.name = name

            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                tell(self.name, str(func), types, args)
                return func(*args, **(kwargs or {}))

        class Sub(T.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                tell("class", func.__name__, types, args)
                return super().__torch_function__(func, types, args, kwargs or {})

        self.Mode, self.Dispatch, self.Sub, self.log = Mode, Dispatch, Sub, log

    def tell(self, who, what, types, args):
        with self.T._C.DisableTorchFunction():
            dtypes = [str(v.dtype) for v in args if isinstance(v, self.T.Tensor)]
        self.log.append((who, what, [t.__name__ for t in types], dtypes))


def stories(program):
    """What both frameworks tell of a program(T, story)."""
    told = []
    for T in FRAMEWORKS:
        story = Story(T)
        program(T, story)
        told.append(story.log)
    return told


NESTINGS = list(itertools.permutations(["function", "autocast", "dispatch"]))


@pytest.mark.parametrize("order", NESTINGS, ids="-".join)
@pytest.mark.parametrize("of_class", [False, True], ids=["plain", "subclass"])
def test_order_does_not_depend_on_nesting(order, of_class):
    """Function mode, class, autocast (its casts are seen below), dispatch mode: whichever `with` came first."""

    def program(T, story):
        x = T.ones(2, 2)
        x = x.as_subclass(story.Sub) if of_class else x
        story.log.clear()
        contexts = {"function": story.Mode, "autocast": lambda: T.autocast("cpu", dtype=T.bfloat16), "dispatch": story.Dispatch}
        with ExitStack() as stack:
            for name in order:
                stack.enter_context(contexts[name]())
            T.mm(x, x)
            T.exp(x)

    theirs, ours = stories(program)
    assert ours == theirs
    assert [who for who, *_ in ours][: 2 + of_class] == ["function mode", *["class"] * of_class, "dispatch mode"]


def test_innermost_of_a_kind_first():
    """Of two modes of a kind, the inner one is asked first, and the outer one about what the inner one calls."""

    def program(T, story):
        x = T.ones(2)
        with story.Mode("outer"), story.Dispatch("below, outer"), story.Mode("inner"), story.Dispatch("below, inner"):
            x + 1

    theirs, ours = stories(program)
    assert ours == theirs
    assert [who for who, *_ in ours] == ["inner", "outer", "below, inner", "below, outer"]


def test_a_mode_is_off_while_it_handles():
    """What a mode calls of its own goes to the outer ones only; the autocast that it enters is in effect for it."""

    def program(T, story):
        class Double(T.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                with T.autocast("cpu", dtype=T.bfloat16):
                    return T.add(func(*args, **(kwargs or {})), 1)

        x = T.ones(2, 2)
        with story.Mode("outer"), Double():
            product = T.mm(x, x)
        story.log.append(str(product.dtype))
        story.log.append(str(T.mm(x, x).dtype))

    theirs, ours = stories(program)
    assert ours == theirs
    assert [entry[1] for entry in ours if isinstance(entry, tuple)] == ["mm", "add"]


@pytest.mark.parametrize("function", ["subclass", "all"])
def test_disabled(function):
    """DisableTorchFunctionSubclass lets modes see, DisableTorchFunction nobody; dispatch modes see in either case."""

    def program(T, story):
        x = T.ones(2).as_subclass(story.Sub)
        story.log.clear()
        off = T._C.DisableTorchFunctionSubclass if function == "subclass" else T._C.DisableTorchFunction
        with story.Mode(), story.Dispatch(), off():
            T.exp(x)

    theirs, ours = stories(program)
    assert ours == theirs
    assert [who for who, *_ in ours] == ["function mode"] * (function == "subclass") + ["dispatch mode"]


def test_declined():
    """A mode that returns NotImplemented leaves the call to the classes; where there is none, that is an error."""

    def program(T, story):
        class Declines(T.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                story.log.append("declined")
                return NotImplemented

        plain, sub = T.ones(2), T.ones(2).as_subclass(story.Sub)
        story.log.clear()
        with Declines():
            with pytest.raises(TypeError, match="NotImplemented"):
                T.exp(plain)
            with pytest.raises(TypeError, match="NotImplemented"):  # the class is asked, and what it calls goes to the mode again
                T.exp(sub)
        assert not T.overrides._get_current_function_mode_stack()

    theirs, ours = stories(program)
    assert ours == theirs


def test_backward_is_seen_below():
    """Function modes do not see backward, dispatch modes do; a mode that was left before backward sees nothing of it."""

    def program(T, story):
        x = T.ones(2, 2, requires_grad=True)
        with story.Mode(), story.Dispatch():
            y = (x * x).sum()
            story.log.append("backward")
            y.backward()
        story.log.append("outside")
        (x * x).sum().backward()

    theirs, ours = stories(program)
    for told in (theirs, ours):
        at = told.index("backward")
        assert {who for who, *_ in told[at + 1 : told.index("outside")]} - {"dispatch mode"} <= {"function mode"}
        assert told[-1] == "outside"
    names = [[what for who, what, *_ in filter(tuple.__instancecheck__, told) if who == "function mode"] for told in (theirs, ours)]
    assert names[0] == names[1]


EVENTS = ("aten::mm", "aten::exp", "aten::linear", "aten::addmm", "aten::to", "aten::_to_copy", "aten::relu", "aten::mul")


@pytest.mark.parametrize("with_modes", ["", "function", "dispatch", "function dispatch", "function autocast dispatch", "autocast"])
def test_the_profiler_sees_what_pytorchs_sees(with_modes):
    """Operations on the profiler's time line, whoever else has a say: those that the program calls, and autocast's casts."""
    found = []
    for T in FRAMEWORKS:
        story = Story(T)
        contexts = {"function": story.Mode, "autocast": lambda T=T: T.autocast("cpu", dtype=T.bfloat16), "dispatch": story.Dispatch}
        x, w, b = T.ones(2, 2), T.ones(3, 2), T.ones(3)
        profiler = T.profiler.profile(activities=[T.profiler.ProfilerActivity.CPU])
        with profiler, ExitStack() as stack:
            for name in with_modes.split():
                stack.enter_context(contexts[name]())
            T.exp(T.mm(x, x))
            T.nn.functional.linear(x, w, b).relu()
        events = sorted(profiler.events(), key=lambda e: e.time_range.start)
        found.append([e.name for e in events if e.name in EVENTS and not {"PythonDispatchMode", "aten::_to_copy"} & parents(e)])
    assert found[1] == found[0]


def parents(event):
    """The names of what an event lies in. (What a dispatch mode calls in turn is shown, too, as a copy of each operation.)"""
    names = set()
    while event.cpu_parent is not None:
        event = event.cpu_parent
        names.add(event.name)
    return names
