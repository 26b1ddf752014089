"""The stubs that tools/surface.py writes: what editors complete and type checkers know."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau
from flambeau.eager import bind

ROOT = Path(__file__).parents[1]
PACKAGE = Path(flambeau.__file__).parent


@pytest.fixture(scope="module")
def surface():
    spec = importlib.util.spec_from_file_location("surface", ROOT / "tools" / "surface.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def stubs(surface) -> dict[str, ast.Module]:
    return {name: ast.parse(text, name) for name, text in surface.stubs().items()}


def names(body: list[ast.stmt]) -> set[str]:
    """What statements define or import."""
    found = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    found |= {node.target.id for node in body if isinstance(node, ast.AnnAssign)}
    return found | {alias.asname or alias.name for node in body if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}


def test_every_public_name_is_shown(surface, stubs):
    """A name behind `flambeau.` that neither its file nor the stub shows."""
    shown = surface._shown(PACKAGE / "__init__.py") | names(stubs["__init__.pyi"].body)
    hidden = set(flambeau.__all__) - shown
    assert {name for name in hidden if not isinstance(getattr(flambeau, name), type(sys))} == set()


def test_every_method_is_shown(stubs):
    """A method or attribute of Tensor that neither tensor.py nor the stub shows."""
    (methods,) = [node for node in stubs["__init__.pyi"].body if isinstance(node, ast.ClassDef)]
    source = ast.parse((PACKAGE / "tensor" / "tensor.py").read_text())
    (tensor,) = [node for node in source.body if isinstance(node, ast.ClassDef) and node.name == "Tensor"]
    shown = names(methods.body) | names(tensor.body) | {t.id for n in tensor.body if isinstance(n, ast.Assign) for t in n.targets}
    assert all(hasattr(flambeau.ones(1, 1), name) for name in dir(flambeau.ones(1, 1)) if name not in ("imag", "volatile"))
    missing = {name for name in dir(flambeau.Tensor) if not name.startswith("_")} - shown
    assert missing <= {"name"}  # a slot for names, None until somebody sets it


def test_the_rooms_are_shown(surface, stubs):
    """An operation of linalg, fft, special, ... that its stub does not show."""
    for room in surface.ROOMS:
        offered = {name.removeprefix(f"{room}.") for name in bind.functions if name.rpartition(".")[0] == room}
        assert offered <= names(stubs[f"{room.replace('.', '_')}.pyi"].body), room


PROGRAM = """
import flambeau as torch
from typing_extensions import assert_type

x: torch.Tensor = torch.zeros(2, 3).sum(dim=0)
y = torch.relu(x).clamp(min=0.0).view(-1, 3).float()
assert_type(y, torch.Tensor)
assert_type(torch.randn(3).topk(2).values, torch.Tensor)
assert_type((x * 2 + 1 - y) @ y.T, torch.Tensor)
assert_type(x == y, torch.Tensor)
first, second = torch.rand(4, requires_grad=True).chunk(2)
assert_type(torch.linalg.inv(y), torch.Tensor)
assert_type(torch.fft.fft(x), torch.Tensor)
assert_type(torch.nn.functional.gelu(x), torch.Tensor)
d: torch.dtype = torch.double
n: int = x.numel()
x[0] = 1
with torch.no_grad():
    x.add_(1).backward()
x.relu(wrong=1)  # error
torch.sum()  # error
"""


def test_a_type_checker_knows_the_surface(surface, tmp_path):
    """mypy does not understand a program that runs, or accepts one that does not."""
    pytest.importorskip("mypy")
    package = tmp_path / "site" / "flambeau"
    package.mkdir(parents=True)
    for entry in PACKAGE.iterdir():
        if entry.name not in ("_surface", "__pycache__"):
            (package / entry.name).symlink_to(entry)
    surface.write(package / "_surface")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--follow-imports=silent",
        "--no-error-summary",
        "--cache-dir",
        str(tmp_path / "cache"),
        program,
    ]
    done = subprocess.run(command, cwd=tmp_path, env={"MYPYPATH": str(tmp_path / "site")}, capture_output=True, text=True)
    told = {int(line.split(":")[1]) for line in done.stdout.splitlines() if line.startswith("program.py") and " error: " in line}
    wrong = {i for i, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# error")}
    assert told == wrong and not done.stderr, done.stdout + done.stderr
