"""What `import flambeau` shows, and what it costs.

tests/public_names.txt holds the public names. A name that comes or goes must be meant: after looking at the difference,

    python tests/test_public_surface.py

writes the list anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import flambeau

NAMES = Path(__file__).parent / "public_names.txt"
OURS = {"plan", "summary"}  # what PyTorch has nothing of, and programs are better off with
# Nothing of this is needed to add two tensors, and each would cost more than the rest of the import, or is a room of its own.
HEAVY = (
    "asyncio",
    "cupy",
    "flambeau.compiler",
    "flambeau.nn",
    "multiprocessing",
    "numpy.random",
    "scipy",
    "torch",
    "tqdm",
    "triton",
    "unittest",
)


def public_names() -> list[str]:
    """Every name of the package without a leading underscore, except the modules it is made of."""
    return [name for name in dir(flambeau) if not name.startswith("_") and not _is_inside(name)]


def _is_inside(name: str) -> bool:
    if name in flambeau._ROOMS or name in flambeau._ELSEWHERE:
        return False
    value = getattr(flambeau, name)
    return isinstance(value, ModuleType) and value.__name__ == f"flambeau.{name}"


def test_the_public_names_are_those_on_the_list():
    """A public name has appeared or disappeared: put it right, or write the list anew (see the top of this file)."""
    listed, found = set(NAMES.read_text().split()), set(public_names())
    assert not listed - found, f"missing: {sorted(listed - found)}"
    assert not found - listed, f"new: {sorted(found - listed)}"


def test_every_public_name_is_pytorchs():
    """A name that PyTorch does not have is an implementation detail that leaked, or would be missing in a program that moves back."""
    torch = pytest.importorskip("torch")
    assert [name for name in public_names() if not hasattr(torch, name) and name not in flambeau._ROOMS | OURS] == []


def test_everything_public_has_a_docstring():
    """help() has nothing to say about a public function or a method of Tensor."""
    functions = {name: getattr(flambeau, name) for name in public_names() if name not in flambeau._ROOMS | flambeau._ELSEWHERE.keys()}
    methods = {f"Tensor.{name}": getattr(flambeau.Tensor, name) for name in dir(flambeau.Tensor) if not name.startswith("_")}
    silent = [name for name, value in (functions | methods).items() if callable(value) and not (value.__doc__ or "").strip()]
    assert silent == []


SHOW_IMPORTS = """
import json, sys, time
import numpy
start = time.perf_counter()
import flambeau
seconds = time.perf_counter() - start
print(json.dumps({"modules": sorted(sys.modules), "seconds": seconds}))
"""


def test_the_import_brings_nothing_heavy(capsys):
    """`import flambeau` has become slower for everybody by importing something only some programs need."""
    done = subprocess.run([sys.executable, "-c", SHOW_IMPORTS], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    with capsys.disabled():  # for information only: a clock fails no test
        print(f"\nimport flambeau, after numpy: {told['seconds']:.3f} s")
    assert [name for name in told["modules"] if name in HEAVY or name.startswith(tuple(f"{h}." for h in HEAVY))] == []
    assert done.stderr == ""


def test_rooms_open_when_asked_for():
    """A room of the package is imported at the first touch, and a name that does not exist raises AttributeError and names it."""
    assert flambeau.linalg.norm is not None and flambeau.fft.fft is not None and flambeau.special.erf is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = flambeau.no_such_name
    assert set(flambeau._ROOMS) <= set(dir(flambeau))


def test_the_configuration_can_be_shown():
    """__config__.show() says what kernels, which CPU variant, which BLAS and how many threads are in use."""
    text = flambeau.__config__.show()
    assert isinstance(text, str)
    for word in (flambeau.__version__, "Kernels:", "CPU capability", "BLAS:", f"Threads: {flambeau.get_num_threads()}"):
        assert word in text
    assert "Threads" in flambeau.__config__.parallel_info()


def test_type_checkers_are_told_that_the_package_is_typed():
    """py.typed is there and travels with the wheel."""
    assert (Path(flambeau.__file__).parent / "py.typed").exists()
    project = Path(__file__).parents[1] / "pyproject.toml"
    assert "py.typed" in tomllib.loads(project.read_text())["tool"]["setuptools"]["package-data"]["flambeau"]


if __name__ == "__main__":
    NAMES.write_text("\n".join(public_names()) + "\n")
