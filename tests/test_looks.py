"""What calls look like: compiled and in Python the same; and what a loop is given to write over a tensor."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import flambeau
from flambeau.eager import looks

x, y = flambeau.arange(6.0).reshape(2, 3), flambeau.ones(2, 3)
leaf = flambeau.ones(3, requires_grad=True)
half = flambeau.ones(2, 3, dtype=flambeau.bfloat16)

CALLS = {
    "one tensor": ((x,), {}),
    "another like it": ((y,), {}),
    "turned": ((x.t(),), {}),
    "of another dtype": ((half,), {}),
    "double": ((x.double(),), {}),
    "a number": ((x, 1), {}),
    "another number": ((x, 2), {}),
    "a float": ((x, 1.0), {}),
    "true": ((x, True), {}),
    "text": ((x, "mean"), {}),
    "other text": ((x, "means"), {}),
    "nothing": ((x, None), {}),
    "a dtype": ((x, flambeau.float32), {}),
    "another dtype": ((x, flambeau.int64), {}),
    "a tuple": ((x, (1, 2)), {}),
    "two numbers": ((x, 1, 2), {}),
    "a size": ((x, x.shape), {}),
    "an empty tuple": ((x, ()), {}),
    "two tensors": ((x, y), {}),
    "a list of two": (([x, y],), {}),
    "a list of one": (([x],), {}),
    "a tuple of two": (((x, y),), {}),
    "by name": ((x,), {"dim": 1}),
    "by another name": ((x,), {"keepdim": 1}),
    "a negative number": ((x, -1), {}),
    "a leaf": ((leaf,), {}),
    "a parameter": ((flambeau.nn.Parameter(flambeau.ones(3)),), {}),
    "without dimensions": ((flambeau.tensor(1.0),), {}),
    "without elements": ((flambeau.ones(0, 3),), {}),
    "a view of a leaf": ((leaf[:2],), {}),
}
UNKNOWN = {
    "a list of numbers": ((x, [1, 2]), {}),
    "an empty list": ((x, []), {}),
    "a tuple of floats": ((x, (1.0,)), {}),
    "true in a tuple": ((x, (1, True)), {}),
    "an array": ((x, np.ones(3)), {}),
    "a number beyond 64 bits": ((x, 1 << 70), {}),
    "an object": ((object(),), {}),
    "a tensor in a mirror": ((flambeau.ones(2, dtype=flambeau.complex64).conj(),), {}),
    "without data": ((flambeau.ones(2, device="meta"),), {}),
    "a class of its own": ((flambeau.ones(2).as_subclass(type("Own", (flambeau.Tensor,), {})),), {}),
}


def test_calls_are_told_apart_as_in_python() -> None:
    """Two calls that differ look alike, or two that are alike look different."""
    for (name, one), (other_name, other) in itertools.product(CALLS.items(), CALLS.items()):
        compiled = looks.look(*one)[0] == looks.look(*other)[0]
        written = looks._look(*one)[0] == looks._look(*other)[0]
        assert compiled == written, f"{name} and {other_name}: compiled {compiled}, in Python {written}"


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_rest_of_a_look(call) -> None:
    """Tensors, arrays, or whether one wants a gradient, differ from what Python says."""
    _, tensors, given, needs = looks.look(*call)
    _, their_tensors, their_given, their_needs = looks._look(*call)
    assert [id(t) for t in tensors] == [id(t) for t in their_tensors]
    assert needs == their_needs
    flat = lambda values: [id(a) for v in values for a in (v if type(v) is list else [v])]  # noqa: E731
    assert flat(given) == flat(their_given) and list(map(type, given)) == list(map(type, their_given))


@pytest.mark.parametrize("call", UNKNOWN.values(), ids=UNKNOWN)
def test_what_cannot_be_looked_up(call) -> None:
    """A call that must go the long way is remembered."""
    assert looks.look(*call) is None
    if not isinstance(call[0][-1], int):  # Python's own numbers have no end
        assert looks._look(*call) is None


z = flambeau.zeros(4, 3)
WRITES = {
    "alone": (True, True, z),
    "a number": (True, True, z, 2.0),
    "another tensor": (True, False, z, flambeau.ones(3)),
    "itself": (True, True, z, z),
    "itself, apart": (True, False, z, z),
    "a view of it": (True, True, z, z[0]),
    "into a view": (True, True, z[1:], 1),
    "a leaf beside it": (True, True, z, leaf),
    "a leaf, not recorded": (False, True, z, leaf),
    "into a leaf": (True, True, leaf, 1.0),
    "into a leaf, not recorded": (False, True, leaf, 1.0),
    "into what repeats": (True, True, flambeau.ones(3).expand(2, 3), 1.0),
    "a list": (True, False, z, [None, flambeau.tensor([0, 1])], 1.0),
    "a list of numbers": (True, False, z, [0, 1], 1.0),
    "an object": (True, True, z, object()),
    "an array": (True, True, z, np.ones(3)),
    "a scalar of NumPy's": (True, True, z, np.float32(2)),
    "no tensor": (True, True, 3, z),
    "without data": (True, True, flambeau.ones(2, device="meta"), 1.0),
}


@pytest.mark.parametrize("call", WRITES.values(), ids=WRITES)
def test_what_a_loop_is_given(call) -> None:
    """A write that has to be asked about is done at once, or the loop is given something else than in Python."""
    expected = None if not isinstance(call[2], flambeau.Tensor) else looks._written(*call)
    found = looks.written(*call)
    assert (found is None) == (expected is None)
    shown = lambda values: [id(v) if isinstance(v, np.ndarray) else shown(v) if type(v) is list else v for v in values]  # noqa: E731
    assert found is None or shown(found) == shown(expected)
