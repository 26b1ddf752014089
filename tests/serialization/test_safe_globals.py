"""What a file may name when it is loaded with weights_only=True, and how a program allows more."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import io
import os
import pickle
import zoneinfo

import numpy as np
import pytest
from exchange import torch

import flambeau
from flambeau.serialization import (
    add_safe_globals,
    allowed,
    clear_safe_globals,
    get_safe_globals,
    get_unsafe_globals_in_checkpoint,
    safe_globals,
)


@dataclasses.dataclass
class Config:
    width: int
    rate: float = 0.1


class Slots:
    __slots__ = ("a", "b")


class Mode(enum.Enum):
    FAST = 1


class Stateful:
    def __setstate__(self, state):
        self.told = state


class Words(dict):
    pass


def through_a_file(obj, **options):
    buffer = io.BytesIO()
    flambeau.save(obj, buffer)
    buffer.seek(0)
    return flambeau.load(buffer, **options)


def test_the_list_is_pytorchs():
    """A file may name something that PyTorch does not allow, or not what it allows."""
    from torch import _weights_only_unpickler

    theirs, ours = set(_weights_only_unpickler._get_allowed_globals()), set(allowed.by_default())
    assert ours - theirs == {"builtins.bytes", "torch.ScriptObject"}  # only to make b"", and packed weights
    assert [name for name in sorted(theirs - ours) if not allowed.LACKING.fullmatch(name)] == []


def test_a_refused_name_is_named_with_what_to_do():
    """The error does not say which class was refused, or how to go on."""
    with pytest.raises(pickle.UnpicklingError, match=r"GLOBAL test_safe_globals.Config was not an allowed") as caught:
        through_a_file({"config": Config(3)})
    assert "add_safe_globals([Config])" in str(caught.value)
    assert "weights_only=False" in str(caught.value)
    assert through_a_file(Config(3), weights_only=False) == Config(3)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_what_flambeau_does_not_have_is_said():
    """A file with a dtype we lack should say so, not that it is dangerous."""
    buffer = io.BytesIO()
    torch.save(torch.ones(2, dtype=torch.complex32), buffer)
    buffer.seek(0)
    with pytest.raises(pickle.UnpicklingError, match=r"ComplexHalfStorage|complex32, which Flambeau does not have"):
        flambeau.load(buffer)


def test_classes_can_be_allowed_for_a_block():
    """An allowed class is refused, or stays allowed after the block."""
    slots = Slots()
    slots.a, slots.b = 1, [2]
    stateful = Stateful()
    stateful.x = 1
    before = get_safe_globals()  # importing distributed.tensor allows DTensors, as in PyTorch
    with safe_globals([Config, Slots, Mode, Stateful, Words]):
        found = through_a_file([Config(4), slots, Mode.FAST, stateful, Words(a=1)])
        assert found[0] == Config(4)
        assert (found[1].a, found[1].b) == (1, [2])
        assert found[2] is Mode.FAST
        assert found[3].told == {"x": 1}
        assert (type(found[4]), found[4]) == (Words, {"a": 1})
    assert get_safe_globals() == before
    with pytest.raises(pickle.UnpicklingError):
        through_a_file(Config(4))


def test_allowing_for_good_and_by_another_name():
    """add_safe_globals, get_safe_globals and clear_safe_globals disagree; a name given with a class is not used."""
    before = get_safe_globals()
    clear_safe_globals()
    try:
        add_safe_globals([Config, (Mode, "old.place.Mode")])
        assert get_safe_globals() == [Config, (Mode, "old.place.Mode")]
        assert through_a_file(Config(1)) == Config(1)
        moved = pickle.dumps(Mode.FAST, 2).replace(b"test_safe_globals\nMode", b"old.place\nMode")
        from flambeau.serialization import safe_pickle

        assert safe_pickle.loads(moved) is Mode.FAST
        clear_safe_globals()
        assert get_safe_globals() == []
    finally:
        clear_safe_globals()
        add_safe_globals(before)


def test_numpy_needs_to_be_allowed_as_in_pytorch(tmp_path):
    """NumPy's arrays and scalars are refused by PyTorch unless they are allowed."""
    torch.save({"array": np.arange(3), "scalar": np.float64(3.5)}, tmp_path / "x.pt")
    with pytest.raises(pickle.UnpicklingError, match="numpy"):
        flambeau.load(tmp_path / "x.pt")
    needed = [
        np._core.multiarray._reconstruct,
        np._core.multiarray.scalar,
        np.ndarray,
        np.dtype,
        np.dtypes.Int64DType,
        np.dtypes.Float64DType,
    ]
    with safe_globals(needed):
        found = flambeau.load(tmp_path / "x.pt")
    assert found["array"].tolist() == [0, 1, 2]
    assert found["scalar"] == 3.5


def test_what_a_file_names_can_be_asked_first(tmp_path):
    """get_unsafe_globals_in_checkpoint misses a name, or lists one that is allowed."""
    for protocol in (2, 4):
        flambeau.save({"a": Config(1), "b": flambeau.ones(2), "c": flambeau.nn.Linear(1, 1)}, tmp_path / "x.pt", pickle_protocol=protocol)
        expected = ["test_safe_globals.Config", "torch.nn.modules.linear.Linear"]
        assert get_unsafe_globals_in_checkpoint(tmp_path / "x.pt") == expected
        if protocol == 2:
            assert sorted(torch.serialization.get_unsafe_globals_in_checkpoint(tmp_path / "x.pt")) == expected
        with safe_globals([Config]):
            assert get_unsafe_globals_in_checkpoint(tmp_path / "x.pt") == expected[1:]
    (tmp_path / "y.pt").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="zip format"):
        get_unsafe_globals_in_checkpoint(tmp_path / "y.pt")


def test_modules_can_be_allowed(tmp_path):
    """A whole module of PyTorch can be loaded safely when its class is allowed."""
    torch.save(torch.nn.Linear(2, 3), tmp_path / "x.pt")
    with safe_globals([flambeau.nn.Linear]):
        assert flambeau.load(tmp_path / "x.pt").out_features == 3


def test_the_environment_may_decide(monkeypatch):
    """TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD and its opposite are not heard."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.warns(UserWarning, match="forcing weights_only=False"):  # a program that trusts all files must be told
        assert through_a_file(Config(1)) == Config(1)
    with pytest.raises(pickle.UnpicklingError):
        through_a_file(Config(1), weights_only=True)
    monkeypatch.delenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(pickle.UnpicklingError):
        through_a_file(Config(1), weights_only=False)


def test_pickle_load_args_are_for_trusted_files():
    """Arguments for the unpickler are swallowed, or not passed on."""
    with pytest.warns(UserWarning, match="pickle_load_args"):
        assert through_a_file([1], encoding="latin1") == [1]
    assert through_a_file([1], weights_only=False, encoding="latin1") == [1]
    with pytest.raises(TypeError):
        through_a_file([1], weights_only=False, nonsense=1)


def test_some_modules_stay_blocked():
    """Allowing os.execv by mistake must not be enough to run it."""
    with (
        flambeau.serialization.safe_globals([os.execv]),
        pytest.raises(pickle.UnpicklingError, match=r"posix.execv whose module posix is blocked"),
    ):
        through_a_file(os.execv)


def test_methods_of_classes_can_be_allowed():
    """A class's own method is a new object every time it is asked for; what was allowed is still allowed. The refusal says whose it is."""
    when = datetime.datetime(2025, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC"))
    names = [datetime.datetime, getattr, zoneinfo.ZoneInfo]
    with flambeau.serialization.safe_globals(names), pytest.raises(pickle.UnpicklingError, match=r"_unpickle of zoneinfo.ZoneInfo"):
        through_a_file(when)
    with flambeau.serialization.safe_globals([*names, zoneinfo.ZoneInfo._unpickle]):
        assert through_a_file(when) == when
