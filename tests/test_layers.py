"""Each room of the house knows only the rooms below it: no module imports upward, not even inside a function.

cli  doctor  vision  compat
distributed  compiler  profiler  amp  utils  and whatever else surrounds training
nn  ao  optim
tensor  factories  autograd  eager  and whatever else is about tensors
ops
kernels
changes  dtypes  float8  devices  errors  random  determinism  version  literals  forks
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import flambeau

PACKAGE = Path(flambeau.__file__).parent
LENT = "torch_names"  # the room whose modules are modules of the package: flambeau._C
DOOR = "__init__"  # flambeau/__init__.py shows what the rooms have: above everything

TENSORS = 3  # the floor of every top-level module that is not named here
FLOORS: dict[str, int] = {
    **dict.fromkeys(("changes", "dtypes", "float8", "devices", "errors", "random", "determinism", "version", "literals", "forks"), 0),
    "kernels": 1,
    "ops": 2,
    **dict.fromkeys(("nn", "optim", "ao"), 4),
    **dict.fromkeys(("distributed", "compiler", "profiler", "amp", "utils"), 5),
    **dict.fromkeys(
        (
            "accelerator",
            "backends",
            "cpu",
            "cuda",
            "distributions",
            "func",
            "hub",
            "library",
            "memory",
            "multiprocessing",
            "overrides",
            "serialization",
            "testing",
            "torch_names",
            "viz",
        ),
        5,
    ),
    **dict.fromkeys(("cli", "doctor", "vision", "compat", "examples"), 6),
    **dict.fromkeys((DOOR, "__main__"), 7),
}
# (file, room it may import all the same): why
EXCEPTIONS = {
    (
        "nn/modules/batchnorm.py",
        "distributed",
    ): "SyncBatchNorm without a process_group means all processes: asked for in each call, not imported",
    (
        "nn/parallel/distributed.py",
        "distributed",
    ): "the path by which programs import DistributedDataParallel, which lives with process groups",
    ("ao/quantization/fx/_decomposed.py", "library"): "the operators that PyTorch makes when this file is imported",
    ("kernels/generate.py", "ops"): "the program that prints the C of all kernels asks the declarations for them; only the build runs it",
}


def imports(text: str, file: str) -> Iterator[tuple[int, str]]:
    """(line, module) of every import of this package in the text of a file, wherever it stands; the door as "flambeau"."""
    for node in ast.walk(ast.parse(text, file)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            home = absolute(file, node)
            if home == "flambeau":
                # `from flambeau import dtypes` imports a module, `from flambeau import Tensor` goes through the door
                for alias in node.names:
                    yield node.lineno, f"flambeau.{alias.name}" if is_module(alias.name) else "flambeau"
            else:
                yield node.lineno, home
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield node.lineno, argument.value


def absolute(file: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = ("flambeau", *file.split("/")[:-1])
    return ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])


def is_module(name: str) -> bool:
    return name in FLOORS or any(
        (home / f"{name}.py").exists() or (home / name / "__init__.py").exists() for home in (PACKAGE, PACKAGE / LENT)
    )


def room_of(module: str) -> str | None:
    """The top-level module or folder of a dotted name; None if it is not ours."""
    first, *rest = module.split(".")
    if first != "flambeau":
        return None
    if not rest:
        return DOOR
    return LENT if is_module(rest[0]) and not in_sight(rest[0]) else rest[0]


def in_sight(name: str) -> bool:
    return (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir()


def files() -> Iterator[tuple[str, str]]:
    """(path inside the package, text) of every module."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), path.read_text()


def upward(file: str, text: str) -> Iterator[str]:
    """A sentence for each import that points upward."""
    own = file.split("/")[0].removesuffix(".py")
    for line, module in imports(text, file):
        room = room_of(module)
        if room is None or (file, room) in EXCEPTIONS:
            continue
        if FLOORS.get(room, TENSORS) > FLOORS.get(own, TENSORS):
            yield f"{PACKAGE / file}:{line}: {own} imports {module}, which is above it"


def test_nothing_imports_upward():
    """A room imports one above it: move what both need down, or pass it in."""
    found = [sentence for file, text in files() for sentence in upward(file, text)]
    assert not found, "\n" + "\n".join(found)


def test_every_exception_is_still_needed():
    """An exception to the rule is listed that no import makes use of any more: remove it."""
    used = {(file, room_of(module)) for file, text in files() for _, module in imports(text, file)}
    assert set(EXCEPTIONS) <= used


HIDDEN = """
def f():
    from flambeau import Tensor, dtypes
    from ..ops import declare
    import flambeau.nn.functional, numpy
    import_module("flambeau.optim")
    from .arrays import cast
"""


def test_the_rule_sees_what_it_forbids():
    """Imports in functions, relative ones, those through the door and those by name must all be found, with their lines."""
    found = [sentence.rpartition(":")[0].rpartition(":")[2] for sentence in upward("kernels/example.py", HIDDEN)]
    assert sorted(found) == ["3", "4", "5", "6"]
    assert not list(upward("cli/example.py", HIDDEN.replace("Tensor, ", "")))
