"""Hooks around forward and backward: when they are called, with what, and what becomes of what they return."""

from __future__ import annotations

from pathlib import Path

import pytest
from both import both, refused, warned

import flambeau
from flambeau import nn


@both
def test_forward_hooks_in_order(torch):
    """Forward hooks are called in another order or with other arguments, or what they return is lost."""
    m = torch.nn.Linear(2, 2)
    log = []

    def note(name, answer=None):
        def hook(module, *args):
            log.append((name, len(args), [type(a).__name__ for a in args]))
            return answer(*args) if answer else None

        return hook

    m.register_forward_pre_hook(note("pre"))
    m.register_forward_pre_hook(note("pre first", lambda args: args[0] + 1), prepend=True)
    m.register_forward_pre_hook(note("pre kwargs", lambda args, kwargs: ((args[0] * 2,), kwargs)), with_kwargs=True)
    m.register_forward_hook(note("post", lambda args, out: out * 3))
    m.register_forward_hook(note("post first"), prepend=True)
    last = m.register_forward_hook(note("post kwargs", lambda args, kwargs, out: (out, out)), with_kwargs=True)
    first = m(torch.ones(1, 2))
    last.remove()
    with m.register_forward_hook(note("context")):
        second = m(torch.ones(1, 2))
    third = m(torch.zeros(1, 2))
    return [first, second, third, log, len(m._forward_hooks), len(m._forward_pre_hooks_with_kwargs), len(m._forward_hooks_with_kwargs)]


@both
def test_what_pre_hooks_may_return(torch):
    """A pre-hook with keyword arguments may return nonsense."""
    m = torch.nn.Identity()
    handle = m.register_forward_pre_hook(lambda *a: 5, with_kwargs=True)
    seen = [refused(lambda: m(1))]
    handle.remove()
    m.register_forward_pre_hook(lambda module, args: 5)
    return [*seen, m(1)]


@both
def test_hooks_that_are_always_called(torch):
    """A hook with always_call misses a forward that raises, or is called twice."""
    log = []

    class Fails(torch.nn.Module):
        def forward(self, x):
            if x:
                raise ValueError("no")
            return x

    m = Fails()
    m.register_forward_hook(lambda mod, a, out: log.append(("always", out)), always_call=True)
    m.register_forward_hook(lambda mod, a, kw, out: log.append(("with", kw, out)), always_call=True, with_kwargs=True)
    m.register_forward_hook(lambda mod, a, out: log.append(("plain", out)))
    seen = [m(0), refused(lambda: m(1))]

    def fails(mod, a, out):
        log.append("fails")
        raise RuntimeError("hook")

    m.register_forward_hook(fails, always_call=True)
    seen += [refused(lambda: m(1)), refused(lambda: m(0)), warned(lambda: refused(lambda: m(1)))]
    return [seen, log]


@both
def test_full_backward_hooks(torch):
    """Full backward hooks see other gradients, or what they return does not replace them."""
    nn = torch.nn
    log = []

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(2, 2)

        def forward(self, a, flag, b):
            return self.lin(a) * b, flag, b + 1

    m = Two()
    m.register_full_backward_pre_hook(lambda mod, g: log.append(("pre", g)))
    m.register_full_backward_pre_hook(lambda mod, g: tuple(x if x is None else x * 2 for x in g), prepend=True)
    m.register_full_backward_hook(lambda mod, gi, go: log.append(("post", gi, go)))
    m.register_full_backward_hook(lambda mod, gi, go: tuple(x if x is None else x * 10 for x in gi))
    a, b = torch.ones(3, 2, requires_grad=True), torch.full((3, 2), 2.0)
    out, flag, other = m(a, True, b)
    (out.sum() + other.sum()).backward()
    return [a.grad, m.lin.weight.grad, log, flag, type(out.grad_fn).__name__]


@both
def test_full_backward_hooks_at_the_edges(torch):
    """Full backward hooks with inputs that need no gradient, without recording, or with wrong answers behave differently."""
    nn = torch.nn
    log = []
    m = nn.Linear(2, 2)
    handle = m.register_full_backward_hook(lambda mod, gi, go: log.append([gi, go]))
    m(torch.ones(1, 2)).sum().backward()
    with torch.no_grad():
        m(torch.ones(1, 2))
    handle.remove()
    seen = [warned(lambda: m(torch.ones(1, 2)).sum().backward())]
    wrong = m.register_full_backward_hook(lambda mod, gi, go: (gi[0], gi[0]))
    x = torch.ones(1, 2, requires_grad=True)
    seen.append(refused(lambda: m(x).sum().backward()))
    wrong.remove()
    wrong = m.register_full_backward_pre_hook(lambda mod, go: (go[0], go[0]))
    seen.append(refused(lambda: m(x).sum().backward()))
    wrong.remove()
    odd = nn.Identity()
    odd.register_full_backward_hook(lambda mod, gi, go: None)
    seen.append(warned(lambda: odd([x])))
    seen.append(refused(lambda: m.register_backward_hook(lambda *a: None)))
    return [seen, log, x.grad]


@both
def test_backward_hooks_of_the_old_form(torch):
    """The old backward hook is called with other gradients, or warns otherwise."""
    log = []
    m = torch.nn.Identity()

    class Double(torch.nn.Module):
        def forward(self, x):
            return x * 2

    m = Double()
    m.register_backward_hook(lambda mod, gi, go: log.append((gi[0], go)))
    x = torch.ones(2, requires_grad=True)
    m(x).sum().backward()
    many = torch.nn.Sequential(Double(), Double())
    many.register_backward_hook(lambda mod, gi, go: None)
    return [log, x.grad, warned(lambda: many(x)), refused(lambda: m.register_full_backward_hook(lambda *a: None))]


@both
def test_global_hooks(torch):
    """Hooks for all modules are not called for all, or stay after they were removed."""
    module = torch.nn.modules.module
    log = []
    handles = [
        module.register_module_forward_pre_hook(lambda m, a: log.append(("pre", type(m).__name__))),
        module.register_module_forward_hook(lambda m, a, o: log.append(("post", type(m).__name__))),
        module.register_module_forward_hook(lambda m, a, k, o: log.append(("kwargs", k)), with_kwargs=True, always_call=True),
        module.register_module_full_backward_pre_hook(lambda m, g: log.append(("backward pre", type(m).__name__))),
        module.register_module_full_backward_hook(lambda m, gi, go: log.append(("backward", type(m).__name__))),
        module.register_module_parameter_registration_hook(lambda m, n, p: log.append(("parameter", n))),
        module.register_module_buffer_registration_hook(lambda m, n, b: log.append(("buffer", n))),
        module.register_module_module_registration_hook(lambda m, n, c: log.append(("module", n))),
    ]
    try:
        m = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Identity())
        m.register_buffer("b", torch.ones(1))
        m(torch.ones(1, 2, requires_grad=True)).sum().backward()
        any_there = bool(module._has_any_global_hook())
    finally:
        for handle in handles:
            handle.remove()
    length = len(log)
    m(torch.ones(1, 2))
    return [log, length == len(log), any_there]


@both
def test_registration_hooks_may_replace(torch):
    """What a registration hook returns is not registered."""
    module = torch.nn.modules.module
    handle = module.register_module_parameter_registration_hook(lambda m, n, p: torch.nn.Parameter(p.detach() * 0))
    try:
        m = torch.nn.Linear(1, 1)
    finally:
        handle.remove()
    return [m.weight, m.bias]


# -- where it went wrong -------------------------------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 30), nn.Linear(30, 5)

    def forward(self, x, scale=1):
        return self.fc2(self.fc1(x)[:, :2] * scale)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Identity(), Layer()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_an_exception_knows_where_in_the_model_it_was_raised():
    """An exception inside a model does not say in which module, from which line, and with what operands."""
    model = nn.Module()
    model.encoder = Encoder()
    model.forward = lambda x: model.encoder(x)
    with pytest.raises(RuntimeError) as told:
        model(flambeau.ones(3, 4))
    assert len(told.value.__notes__) == 1
    note = told.value.__notes__[0].splitlines()
    assert note[0].startswith("in encoder.layers.1.fc2: Linear(30 -> 5), called from ") and "test_hooks.py:" in note[0]
    line = int(note[0].rpartition(":")[2])
    assert "self.fc2(" in Path(__file__).read_text().splitlines()[line - 1]
    assert note[1].split() == ["input", "(3,", "2)", "float32", "cpu"]
    assert note[2].split() == ["weight", "(5,", "30)", "float32", "cpu"]


def test_an_exception_of_the_users_own_is_the_same_object():
    """The exception a user raised in forward is replaced, or its words are changed."""
    mine = KeyError("mine")

    class Raises(nn.Module):
        def forward(self, x, *, option=None):
            raise mine

    with pytest.raises(KeyError) as told:
        nn.Sequential(nn.Identity(), Raises())(flambeau.ones(2, dtype=flambeau.int64))
    assert told.value is mine and mine.args == ("mine",)
    assert mine.__notes__[0].splitlines()[0].startswith("in 1: Raises, called from ")
    with pytest.raises(KeyError):  # the same object once more, from elsewhere: still one note
        Raises()(1, option="x")
    assert len(mine.__notes__) == 1


def test_deep_recursion_and_reentry_are_survived():
    """A module that calls itself, or is not registered in its caller, breaks the note."""

    class Recursive(nn.Module):
        def forward(self, n):
            return self(n - 1) if n else 1 / n

    with pytest.raises(ZeroDivisionError) as told:
        Recursive()(5)
    assert told.value.__notes__[0].startswith("in Recursive, called from ")
    hidden = nn.Linear(2, 2)

    class Caller(nn.Module):
        def forward(self, x):
            return hidden(x)

    with pytest.raises(RuntimeError) as told:
        Caller()(flambeau.ones(3))
    assert told.value.__notes__[0].startswith("in Linear(2 -> 2)")


@both
def test_a_hook_that_returns_too_few_gradients_is_refused(torch):
    """A backward hook returns another number of gradients than it was given, and backward goes on."""
    x = torch.ones(2, 2, requires_grad=True)
    seen = []
    for change in (lambda grads: grads[:-1], lambda grads: (*grads, torch.ones(1))):
        with torch.nn.Module.register_backward_hook(layer := torch.nn.Sigmoid(), lambda m, i, o, change=change: change(i)):
            seen.append(refused(lambda layer=layer: layer(x).sum().backward()))
        y = x.exp()
        y.grad_fn.register_prehook(change)
        seen.append(refused(lambda y=y: y.sum().backward()))
    return seen


def test_hooks_of_all_modules_can_be_replaced_at_once():
    """A program that puts a new dictionary into nn.modules.module is not rid of the global hooks."""
    from collections import OrderedDict

    from flambeau.nn.modules import module

    calls = []
    before = module._global_forward_hooks
    handle = module.register_module_forward_hook(lambda *args: calls.append(args))
    assert handle.id in handle.hooks_dict_ref()
    try:
        module._global_forward_hooks = OrderedDict()
        flambeau.nn.Identity()(flambeau.ones(1))
        assert not calls
    finally:
        module._global_forward_hooks = before
        handle.remove()
