"""The gradient scaler: what it scales, when it skips a step, how the scale moves, and what it refuses. PyTorch is asked the same."""

from __future__ import annotations

import pickle
from collections import namedtuple

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
FRAMEWORKS = (torch, flambeau)


def model(framework, values=(1.0, 2.0, 3.0), kind: str = "SGD", **options):
    """A parameter, an optimizer that moves it, and a scaler."""
    p = framework.nn.Parameter(framework.tensor(values))
    optimizer = getattr(framework.optim, kind)([p], lr=0.5)
    return p, optimizer, framework.amp.GradScaler("cpu", **{"init_scale": 8.0, "growth_interval": 3} | options)


def run(framework, bad_steps=(2, 5), steps: int = 9, kind: str = "SGD"):
    """Some steps, in some of which a gradient overflows: (scale, growth tracker, parameter) after each."""
    p, optimizer, scaler = model(framework, kind=kind)
    seen = []
    for i in range(steps):
        optimizer.zero_grad()
        loss = (p * p).sum() * (float("inf") if i in bad_steps else 0.1)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        seen.append((scaler.get_scale(), scaler._get_growth_tracker(), *p.tolist()))
    return seen, scaler.state_dict()


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_scale_and_parameters_move_as_pytorchs(kind: str):
    """Growth, backoff and skipped steps follow PyTorch's, step by step."""
    (theirs, their_state), (ours, our_state) = (run(f, kind=kind) for f in FRAMEWORKS)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=2e-7)
    assert our_state == their_state


def test_the_way_without_questions_is_the_same(monkeypatch):
    """What runs on a GPU, without asking it for numbers, moves the scale otherwise than what runs on the CPU."""
    expected = run(flambeau)
    monkeypatch.setattr(flambeau.amp.GradScaler, "_adapt", flambeau.amp.GradScaler._adapt_on_gpu)
    assert run(flambeau) == expected


def test_nan_skips_the_step_too():
    """A gradient that is NaN reaches the parameters."""
    p, optimizer, scaler = model(flambeau)
    scaler.scale((p * float("nan")).sum()).backward()
    assert scaler.step(optimizer) is None
    assert p.tolist() == [1.0, 2.0, 3.0]
    scaler.update()
    assert scaler.get_scale() == 4.0


def test_step_returns_what_the_optimizer_returns_and_passes_arguments():
    """Arguments of step do not reach the optimizer, or its result does not come back."""
    for framework in FRAMEWORKS:

        class Reporting(framework.optim.SGD):
            def step(self, closure=None, *, note=None):
                super().step(closure)
                return note

        p = framework.nn.Parameter(framework.ones(2))
        optimizer, scaler = Reporting([p], lr=0.1), framework.amp.GradScaler("cpu")
        scaler.scale(p.sum()).backward()
        assert scaler.step(optimizer, note="moved") == "moved"


def test_unscaled_gradients_are_exact():
    """unscale_ gives other gradients than a run without a scaler, or misses one of many parameters and groups."""
    a = [flambeau.nn.Parameter(flambeau.randn(n, 3)) for n in (1, 5, 9)]
    optimizer = flambeau.optim.SGD([{"params": a[:1]}, {"params": a[1:], "lr": 0.3}], lr=0.1)
    sum((p * p).sum() for p in a).backward()
    expected = [p.grad.clone() for p in a]
    optimizer.zero_grad()
    scaler = flambeau.amp.GradScaler("cpu", init_scale=2.0**14)
    scaler.scale(sum((p * p).sum() for p in a)).backward()
    scaler.unscale_(optimizer)
    for p, grad in zip(a, expected, strict=True):
        assert flambeau.equal(p.grad, grad)


def test_large_gradients_are_no_infinities(monkeypatch):
    """Gradients whose sum overflows are taken for infinite ones; or the way of GPUs finds other infinities than the CPU's."""
    for way in (flambeau.amp.grad_scaler._unscale, flambeau.amp.grad_scaler._unscale_on_gpu):
        monkeypatch.setattr(flambeau.amp.grad_scaler, "_unscale", way)
        for value, skipped in ((3e38, False), (float("inf"), True), (float("nan"), True)):
            p, optimizer, scaler = model(flambeau, (0.0,) * 20)
            scaler.scale(p.sum())
            p.grad = flambeau.full((20,), 1.0)
            p.grad[3:] = value
            scaler.step(optimizer)
            assert bool((p == 0).all()) is skipped


def test_scale_of_containers():
    """Losses in lists, tuples, named tuples and generators are scaled where they lie."""
    for framework in FRAMEWORKS:
        scaler, one = framework.amp.GradScaler("cpu", init_scale=4.0), framework.ones(1)
        assert scaler.scale([one, (one,)])[1][0].item() == 4.0
        assert [v.item() for v in scaler.scale(x for x in [one])] == [4.0]
        assert scaler.scale(one.bfloat16()).dtype is framework.bfloat16
        with pytest.raises(ValueError, match="Tensor or an iterable"):
            scaler.scale(3.0)
    Pair = namedtuple("Pair", "a b")
    assert flambeau.amp.GradScaler("cpu", init_scale=4.0).scale(Pair(one := flambeau.ones(1), one)).b.item() == 4.0


def test_two_optimizers_share_a_scale():
    """An overflow in one optimizer's gradients stops the other's step, or does not lower the scale."""
    for framework in FRAMEWORKS:
        p, first, scaler = model(framework)
        q = framework.nn.Parameter(framework.ones(2))
        second = framework.optim.SGD([q], lr=0.5)
        scaler.scale(p.sum() * float("inf") + q.sum()).backward()
        scaler.step(first)
        scaler.step(second)
        scaler.update()
        assert p.tolist() == [1.0, 2.0, 3.0] and q.tolist() == [0.5, 0.5]
        assert scaler.get_scale() == 4.0


def scaled(framework):
    p, optimizer, scaler = model(framework)
    scaler.scale(p.sum()).backward()
    return p, optimizer, scaler


def twice(framework, first: str, second: str):
    _, optimizer, scaler = scaled(framework)
    getattr(scaler, first)(optimizer)
    getattr(scaler, second)(optimizer)


def without_gradients(framework):
    p, optimizer, scaler = scaled(framework)
    p.grad = None
    scaler.step(optimizer)


def half_gradients(framework):
    p = framework.nn.Parameter(framework.ones(2, dtype=framework.float16))
    scaler, optimizer = framework.amp.GradScaler("cpu"), framework.optim.SGD([p], lr=0.1)
    scaler.scale(p.sum()).backward()
    scaler.unscale_(optimizer)


MISUSES = {
    "unscale_ before scale": (lambda f: model(f)[2].unscale_(model(f)[1]), AssertionError, "did not use scaler.scale"),
    "step before scale": (lambda f: model(f)[2].step(model(f)[1]), AssertionError, "Attempted step"),
    "update before scale": (lambda f: model(f)[2].update(), AssertionError, "Attempted update"),
    "unscale_ twice": (
        lambda f: twice(f, "unscale_", "unscale_"),
        RuntimeError,
        "already been called on this optimizer since the last update",
    ),
    "unscale_ after step": (lambda f: twice(f, "step", "unscale_"), RuntimeError, r"called after step\(\)"),
    "step twice": (lambda f: twice(f, "step", "step"), RuntimeError, "already been called since the last update"),
    "update without step": (lambda f: scaled(f)[2].update(), AssertionError, "No inf checks"),
    "step without gradients": (without_gradients, AssertionError, "No inf checks"),
    "step with a closure": (lambda f: scaled(f)[2].step(scaled(f)[1], closure=lambda: 1), RuntimeError, "Closure use"),
    "float16 parameters": (half_gradients, ValueError, "unscale FP16"),
    "a scale that cannot grow": (lambda f: model(f, growth_factor=1.0), AssertionError, "growth factor"),
    "a scale that cannot shrink": (lambda f: model(f, backoff_factor=1.0), AssertionError, "backoff factor"),
    "an empty state": (lambda f: model(f)[2].load_state_dict({}), RuntimeError, "state dict is empty"),
    "a new scale of two numbers": (lambda f: scaled(f)[2].update(f.ones(2)), AssertionError, "new_scale"),
    "pickling between step and update": (lambda f: pickle.dumps(used(f)), AssertionError, "only be pickled at the beginning"),
}


def used(framework):
    _, optimizer, scaler = scaled(framework)
    scaler.step(optimizer)
    return scaler


@pytest.mark.parametrize("what", MISUSES)
def test_misuse(what: str):
    """A misuse that PyTorch refuses passes silently, or raises another type of error or other words."""
    call, error, words = MISUSES[what]
    for framework in FRAMEWORKS:
        with pytest.raises(error, match=words):
            call(framework)


def test_disabled_scaler_steps_aside():
    """A disabled scaler changes something."""
    for framework in FRAMEWORKS:
        p, optimizer, scaler = model(framework, enabled=False)
        scaler.scale(p.sum()).backward()
        assert p.grad.tolist() == [1.0] * 3
        scaler.unscale_(optimizer)
        scaler.step(optimizer, closure=None)
        scaler.update()
        scaler.load_state_dict({})
        assert p.tolist() == [0.5, 1.5, 2.5]
        assert scaler.get_scale() == 1.0 and scaler.state_dict() == {} and not scaler.is_enabled()
        pickle.loads(pickle.dumps(scaler))


def test_state_and_pickle_round_trip():
    """A scaler loaded from a state dict, or unpickled, goes on with another scale or tracker."""
    for framework in FRAMEWORKS:
        p, optimizer, scaler = scaled(framework)
        scaler.step(optimizer)
        scaler.update()
        fresh = framework.amp.GradScaler("cpu")
        fresh.load_state_dict(scaler.state_dict())
        again = pickle.loads(pickle.dumps(scaler))
        for other in (fresh, again):
            assert other.state_dict() == scaler.state_dict()
            assert other.scale(p.sum()).item() == scaler.scale(p.sum()).item()
        scaler.update(3.0)
        assert scaler.get_scale() == 3.0
        scaler.update(framework.tensor(5.0))
        assert scaler.get_scale() == 5.0
        scaler.set_growth_factor(3.0)
        scaler.set_backoff_factor(0.25)
        scaler.set_growth_interval(7)
        assert (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()) == (3.0, 0.25, 7)


def test_optimizer_that_unscales_by_itself():
    """An optimizer that supports scaling finds the scale and whether there was an infinity."""
    for framework in FRAMEWORKS:

        class Own(framework.optim.SGD):
            _step_supports_amp_scaling = True
            seen: list = []

            def step(self, closure=None):
                self.seen.append((self.grad_scale.item(), self.found_inf.item()))

        p = framework.nn.Parameter(framework.ones(2))
        optimizer, scaler = Own([p], lr=0.1), framework.amp.GradScaler("cpu", init_scale=8.0)
        scaler.scale(p.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        p.grad = None
        scaler.scale(p.sum() * float("inf")).backward()
        scaler.step(optimizer)
        assert Own.seen == [(8.0, 0.0), (8.0, 1.0)]


def test_old_spellings():
    """torch.cuda.amp.GradScaler and torch.cpu.amp.GradScaler exist, warn, and are disabled where there is no such device."""
    for framework in FRAMEWORKS:
        with pytest.warns(FutureWarning, match="deprecated"):
            scaler = framework.cuda.amp.GradScaler(enabled=False)
        assert isinstance(scaler, framework.amp.GradScaler) and framework.GradScaler is framework.amp.GradScaler
        if not framework.cuda.is_available():
            with pytest.warns(UserWarning, match="CUDA is not available"):
                assert not framework.amp.GradScaler().is_enabled()
    from flambeau.cuda.amp.common import amp_definitely_not_available
    from flambeau.cuda.amp.grad_scaler import GradScaler

    assert GradScaler is flambeau.cuda.amp.GradScaler
    assert amp_definitely_not_available() is not flambeau.cuda.is_available()


@pytest.mark.parametrize(
    ("indices", "values", "dtype"),
    [([[0, 2]], [1.0, float("inf")], "float32"), ([[0, 0]], [6e4, 6e4], "float16"), ([[0, 1]], [6e4, 6e4], "float16")],
)
def test_infinities_of_sparse_gradients_are_found(indices: list, values: list, dtype: str):
    """An element of a sparse gradient may be infinite only as the sum of several: float16 ones are summed before they are looked at."""

    def found(lib):
        weight = lib.nn.Parameter(lib.ones(4, dtype=getattr(lib, dtype)))
        optimizer, scaler = lib.optim.SGD([weight], lr=0.1), lib.amp.GradScaler("cpu", init_scale=2.0)
        scaler.scale(weight.float().sum())
        weight.grad = lib.sparse_coo_tensor(indices, lib.tensor(values).to(weight.dtype), (4,), check_invariants=False)
        (answer,) = scaler._check_inf_per_device(optimizer).values()
        return answer.item(), weight.grad.is_coalesced()

    assert found(flambeau) == found(torch)
