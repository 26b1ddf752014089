"""torch._foreach_*: one operation on each tensor of a list."""

from __future__ import annotations

import pytest

import flambeau
from flambeau import foreach

torch = pytest.importorskip("torch")

TWO = ("add", "sub", "mul", "div", "maximum", "minimum", "clamp_min", "clamp_max", "pow")
CALLS = {
    "a number each": lambda t, f, x: [f("mul")(x, [2.0, 3.0]), f("addcdiv")(x, x, x, [1.0, 2.0])],
    "a tensor for all": lambda t, f, x: f("add")(x, t.tensor(3.0)),
    "alpha": lambda t, f, x: f("add")(x, x, alpha=2),
    "numbers in a tensor": lambda t, f, x: f("addcmul")(x, x, x, t.tensor([1.0, 2.0])),
    "numbers by name": lambda t, f, x: [f("addcmul")(x, x, x, scalars=[1.0, 2.0]), f("addcdiv_")(x, x, x, scalars=t.tensor([1.0, 2.0]))],
    "too few in a tensor": lambda t, f, x: f("addcmul")(x, x, x, t.tensor([1.0])),
    "a table of numbers": lambda t, f, x: f("addcmul")(x, x, x, t.ones(2, 1)),
    "every other number": lambda t, f, x: f("addcmul")(x, x, x, t.ones(4)[::2]),
    "the largest of nothing": lambda t, f, x: f("norm")([t.ones(0)], float("inf")),
    "the maximum of nothing": lambda t, f, x: f("max")([t.ones(0), *x]),
    "maxima": lambda t, f, x: f("max")(x),
    "lerp": lambda t, f, x: [f("lerp")(x, f("neg")(x), 0.25), f("lerp")(x, f("neg")(x), x)],
    "a number to their power": lambda t, f, x: f("pow")(2.0, x),
    "norms": lambda t, f, x: [f("norm")(x), f("norm")(x, 1), f("norm")(x, float("inf"))],
    "copies": lambda t, f, x: [f("copy_")(f("clone")(x), f("exp")(x)), f("zero_")(f("clone")(x))],
    "as many of both": lambda t, f, x: f("add")(x, x[:1]),
    "as many numbers": lambda t, f, x: f("add")(x, [1.0]),
    "nothing": lambda t, f, x: f("add")([], 1.0),
    "no tensor": lambda t, f, x: f("exp")([1]),
}


def both(question):
    """Lists or the type of the exception, from both frameworks."""
    found = []
    for t in (flambeau, torch):
        try:
            answer = question(t, lambda name, t=t: getattr(t, f"_foreach_{name}"), [t.tensor([0.2, 0.7]), t.tensor([[0.5]])])
            found.append([[x.tolist() for x in part] if isinstance(part, (list, tuple)) else part.tolist() for part in answer])
        except (RuntimeError, TypeError) as problem:
            found.append(type(problem))
    assert found[0] == pytest.approx(found[1]) if not isinstance(found[0], list) else _close(*found)


def _close(ours, theirs) -> bool:
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(_close, ours, theirs))
    return ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("name", sorted(foreach.BOTH - {"addcdiv", "addcmul", "lerp"}))
def test_new_and_in_place(name):
    """A list comes out otherwise than PyTorch's, or the in-place form leaves the tensors as they were."""
    for more in ((0.3,), ([0.3, 0.4],), None) if name in TWO else ((),):

        def question(t, f, x, more=more):
            args = ([2 * v for v in x],) if more is None else more
            written = f("clone")(x)
            assert f(f"{name}_")(written, *args)[0] is written[0]
            return [f(name)(x, *args), written]

        both(question)


@pytest.mark.parametrize("case", CALLS)
def test_calls(case):
    """A way of calling gives other numbers, or another error, than in PyTorch."""
    both(CALLS[case])


def test_gradients_and_names():
    """Results have no history, or a name PyTorch has is missing."""
    x = [flambeau.ones(2, requires_grad=True)]
    sum(t.sum() for t in flambeau._foreach_mul(x, 3.0)).backward()
    assert x[0].grad.tolist() == [3.0, 3.0]
    missing = {n for n in dir(torch) if n.startswith("_foreach_")} - foreach.NAMES
    assert missing <= {"_foreach_powsum"}
    with pytest.raises(AttributeError):
        flambeau._foreach_nonsense  # noqa: B018


def test_tensors_are_grouped_by_place_and_dtype():
    """torch.utils._foreach_utils sorts lists that stand beside each other by the first one's tensors."""
    from importlib import import_module

    def program(t):
        group = import_module(f"{t.__name__}.utils._foreach_utils")._group_tensors_by_device_and_dtype
        a, b, c = t.ones(2), t.ones(1, dtype=t.float64), t.zeros(3)
        found = []
        for lists, indices in (([[a, b, c], [b, c, None]], True), ([[a, b, c], []], False)):
            groups = group(lists, with_indices=indices)
            plain = {
                (str(place), str(kind)): ([[x if x is None else x.tolist() for x in row] for row in rows], list(map(int, where)))
                for (place, kind), (rows, where) in groups.items()
            }
            found.append(plain)
        return found

    assert program(flambeau) == program(torch)
