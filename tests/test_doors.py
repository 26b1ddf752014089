"""Doors: modules that show what lives in others import each of them when a name of theirs is first asked for, and say plainly what is not there."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau
from flambeau.doors import door

PACKAGE = Path(flambeau.__file__).parent
DOORS = sorted(
    "flambeau." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if path.name != "doors.py" and "= door(__name__" in path.read_text()
)
ROOM = """
from flambeau.doors import door
__getattr__, __dir__, __all__ = door(__name__, {"inside": "Shown _hidden", "other": "lamp"})
"""
ASKED = """
import sys, room
assert "room.inside" not in sys.modules
assert room.__all__ == ["Shown", "lamp"] and {"Shown", "_hidden", "lamp"} <= set(dir(room))
assert room.Shown == 1 and vars(room)["Shown"] == 1 and "room.other" not in sys.modules
assert room._hidden == 2 and room.other.lamp == "on" and room.unnamed.here
from room import *
assert lamp == "on" and "_hidden" not in globals()
try:
    room.nothing
except AttributeError as problem:
    print(problem)
"""


def test_there_are_doors():
    """No module is made with `door` any more: this file should go."""
    assert "flambeau.distributed" in DOORS


@pytest.mark.parametrize("name", DOORS)
def test_everything_shown_is_there(name):
    """A door promises a name that the module behind it does not have."""
    module = importlib.import_module(name)
    assert [shown for shown in (*module.__all__, *dir(module)) if not hasattr(module, shown)] == []


def test_names_are_found_when_they_are_asked_for(tmp_path):
    """A door imports too early, shows what is private, or hides a module inside of it."""
    room = tmp_path / "room"
    room.mkdir()
    for file, text in (("__init__", ROOM), ("inside", "Shown, _hidden = 1, 2"), ("other", "lamp = 'on'"), ("unnamed", "here = True")):
        (room / f"{file}.py").write_text(text)
    told = subprocess.run(
        [sys.executable, "-c", ASKED], cwd=tmp_path, capture_output=True, text=True, check=True, env=_environment(tmp_path)
    )
    assert told.stdout == "module 'room' has no attribute 'nothing'\n"


def _environment(folder: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(PACKAGE.parent)])}


def test_a_file_that_is_a_door_has_no_inside():
    """A module that is no package is asked for its __path__, as imports do, and looks for modules inside of itself."""
    get, names, shown = door(__name__, {"inside": "Shown"})
    with pytest.raises(AttributeError, match="__path__"):
        get("__path__")
    assert shown == ["Shown"] and "Shown" in names()
