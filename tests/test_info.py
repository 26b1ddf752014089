"""`flambeau info`, and the command line around it."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import flambeau
from flambeau import cli
from flambeau.cli import info
from flambeau.kernels.native import limits, native


@pytest.fixture(scope="module")
def facts() -> dict:
    return info.facts()


def test_it_says_what_there_is(facts, capsys):
    """A version, the CPU, threads, memory, BLAS, CUDA or the compiler is missing from the table, or wrong."""
    assert cli.main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = dict(line.split(maxsplit=1) for line in lines if not line.startswith(" "))
    assert list(table) == "Flambeau Python NumPy BLAS kernels compiler system CPU cores threads memory CUDA".split()
    assert table["Flambeau"].startswith(flambeau.version.flambeau_version)
    assert np.__version__ in table["NumPy"] and sys.executable in table["Python"]
    assert table["threads"].split()[0] == str(flambeau.get_num_threads())
    assert "GiB installed" in table["memory"]
    if native.lib is not None:
        assert native.lib.variant() in table["kernels"]
    if not facts["cuda"]["cupy"]:
        assert "pip install" in table["CUDA"]


def test_the_columns_are_aligned(facts):
    """Every line's value starts in the same column, and lines are short enough to paste."""
    for line in info.as_text(facts).splitlines():
        assert line[:10].rstrip() == line[:10].split(" ")[0] and line[10] != " " and not line.endswith(" ")


def test_json(facts, capsys):
    """`--json` must be JSON, with numbers as numbers."""
    assert cli.main(["info", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told.keys() == facts.keys()
    assert told["cpu"]["threads"] == flambeau.get_num_threads() and told["memory"]["installed"] == limits.installed_memory()


def test_limits_and_gaps_are_told(facts):
    """A container's limits, an environment that sets the threads, a missing compiler and missing kernels must be seen."""
    changed = json.loads(json.dumps(facts))
    changed["cpu"] |= {"cores": 16, "affinity": 8, "container_quota": 1.5, "threads": 2, "threads_from": "OMP_NUM_THREADS"}
    changed["memory"] |= {"container_limit": 3 * 2**30}
    changed["kernels"] |= {"compiled": False, "reason": "no compiler", "compiler": None}
    changed["cuda"] = {"available": True, "cupy": "14.0", "runtime": "13.0", "driver": "13.1", "advice": None}
    changed["cuda"]["devices"] = [{"name": "H200", "capability": "9.0", "memory": 139 * 2**30}]
    text = info.as_text(changed)
    assert "16 in the machine, 8 for this process, the container may use 1.5" in text
    assert "2 (OMP_NUM_THREADS says so)" in text and "the container may use 3.0 GiB" in text
    assert "not compiled, everything runs on NumPy (no compiler)" in text and "none found" in text
    assert "0: H200, 139.0 GiB, capability 9.0" in text


def test_a_compiler_that_is_named_is_found(monkeypatch):
    """$CC must decide, and where there is no compiler the answer is None."""
    monkeypatch.setenv("CC", sys.executable)
    assert info.compiler() == {"path": sys.executable, "version": f"Python {info.platform.python_version()}"}
    monkeypatch.setenv("CC", "")
    monkeypatch.setenv("PATH", "")
    assert info.compiler() is None


def test_the_command_line_explains_itself(capsys):
    """Every command has a line in the help, and a wrong one is refused."""
    assert cli.main([]) == 0
    told = capsys.readouterr().out
    assert all(f"  {name} " in told and cli.first_line(name) in told for name in cli.COMMANDS)
    assert cli.main(["--version"]) == 0 and capsys.readouterr().out == f"flambeau {flambeau.version.flambeau_version}\n"
    for arguments in (["dance"], ["info", "--dance"]):
        assert cli.main(arguments) == 2
        assert "dance" in capsys.readouterr().err
    for name in ("run", "info"):
        assert cli.main([name, "--help"]) == 0 and f"usage: flambeau {name}" in capsys.readouterr().out
