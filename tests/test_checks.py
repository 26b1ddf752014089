"""torch._assert and torch._check…: PyTorch's error for a condition that does not hold."""

from __future__ import annotations

import pytest

import flambeau

torch = pytest.importorskip("torch")

CALLS = {
    "_assert": [(False, "words"), (True, "words")],
    "_check": [(False, lambda: "words"), (False,), (True,), (1,), (False, "text")],
    "_check_value": [(False, lambda: "words")],
    "_check_index": [(False, lambda: "words")],
    "_check_type": [(False, lambda: "words")],
    "_check_not_implemented": [(False, lambda: "words")],
    "_check_with": [(KeyError, False, lambda: "words"), (KeyError, True, None), (KeyError, True)],
}


def outcome(function, args):
    try:
        return function(*args)
    except Exception as problem:
        return type(problem), "words" in str(problem)


@pytest.mark.parametrize("name", CALLS)
def test_checks_raise_what_pytorchs_raise(name):
    """The type of the error, and the program's own words in it, are PyTorch's."""
    for args in CALLS[name]:
        assert outcome(getattr(flambeau, name), args) == outcome(getattr(torch, name), args), args


def test_conditions_that_are_tensors():
    """_assert takes a tensor with one element, _check none, _check_tensor_all any."""
    with pytest.raises(AssertionError, match="no"):
        flambeau._assert(flambeau.tensor(False), "no")
    with pytest.raises(TypeError, match="must be a bool"):
        flambeau._check(flambeau.tensor(True))
    flambeau._check_tensor_all(flambeau.tensor([True, True]))
    with pytest.raises(RuntimeError, match="Expected cond"):
        flambeau._check_tensor_all(flambeau.tensor([True, False]))


def test_assertions_about_one_element():
    """_assert_async takes a tensor of one element, a number or a truth value, and the words to say."""
    for t in (flambeau, torch):
        assert t._assert_async(t.tensor(2.0)) is None
        with pytest.raises(RuntimeError, match="single nonzero value"):
            t._assert_async(t.tensor(0))
        with pytest.raises(RuntimeError, match="words"):
            t._assert_async(t.tensor(False), "words")
        with pytest.raises(RuntimeError, match="more than one value"):
            t._assert_async(t.tensor([1, 1]))


def test_sizes():
    """_check_is_size wants a number that is not negative, and not above its max."""
    flambeau._check_is_size(3, max=3)
    for size, most in ((-1, None), (4, 3)):
        with pytest.raises(RuntimeError):
            flambeau._check_is_size(size, max=most)
