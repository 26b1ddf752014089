"""Each room of the house knows only the rooms below it: no module imports upward, not even inside a function or by a name it makes up.

A room is a file or a folder of the package; in kernels/, tensor/ and interpreters/, a file or a folder of these. Rooms on one floor may know each other,
but not in a circle.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import flambeau

PACKAGE = Path(flambeau.__file__).parent
DIVIDED = ("kernels", "tensor", "interpreters")  # folders whose parts are rooms
LENT = "torch_names"  # the room whose modules are modules of the package: flambeau._C
DOOR = "__init__"  # flambeau/__init__.py shows what the rooms have

FLOORS = """
changes doors version errors exception_wrapper forks import_only tables torch_homes modes interpreters.stack dtypes devices float8 literals determinism generators futures
kernels.layout kernels.libraries kernels.meta kernels.native kernels.language kernels.mirrored
kernels.arrays
kernels.loops kernels.reductions kernels.indexing kernels.random
kernels.templates kernels.linear_algebra
kernels.cuda
operators
ops kernels.generate
tensor
interpreters
eager
tensor.methods tensor.memory tensor.making tensor.quantized sparse dispatch tracing batching random settings
autograd linalg fft special masked functional signal testing quasirandom distributions multiprocessing
overrides nn optim func library ao amp compiler serialization hub cpu cuda accelerator backends
profiler memory viz utils
distributed
vision examples torch_names
compat
__init__
cli __main__
"""
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS.strip().splitlines()) for room in rooms.split()}
UNSEEN = ("_surface", "kernels")  # stubs for editors; a folder that has nothing of its own but the compiled extension

# (file, room it may import all the same): why
EXCEPTIONS = {
    ("kernels/arrays.py", "kernels.cuda"): "the first array on a GPU imports the room for GPUs: CuPy need not be there",
    ("eager/inplace.py", "sparse"): "out= of a sparse tensor; the room has been imported by whoever made one",
    ("eager/record.py", "autograd"): "anomaly mode remembers lines, and is imported when it is switched on",
    ("tensor/methods/dense_only.py", "sparse"): "x.to_sparse() imports the room, for programs that have no sparse tensors cost nothing",
    ("tensor/methods/subclass.py", "dispatch"): "the first class with a __torch_dispatch__ imports the room",
    ("tensor/making/factories.py", "sparse"): "torch.zeros(..., layout=torch.sparse_coo) imports the room",
    ("tensor/making/pickling.py", "sparse"): "pickles of sparse tensors name a function that lives with those of all tensors",
    ("tensor/making/pickling.py", "tensor.quantized"): "pickles of quantized tensors name a function that lives with those of all tensors",
    ("eager/bind.py", "nn"): "says of functions that they live in nn.functional, and imports nothing",
    ("nn/modules/batchnorm.py", "distributed"): "SyncBatchNorm without a process_group means all processes: asked in each call",
    (
        "nn/parallel/distributed.py",
        "distributed",
    ): "the path by which programs import DistributedDataParallel, which lives with process groups",
    ("nn/quantized/__init__.py", "ao"): "the older address of ao.nn.quantized",
    ("nn/quantized/dynamic.py", "ao"): "the older address of ao.nn.quantized.dynamic",
    ("utils/data/distributed.py", "distributed"): "a sampler that is told no rank asks which one this is",
    ("utils/benchmark/timer.py", DOOR): "the statement that is timed may say torch",
    ("overrides.py", DOOR): "lists the public functions that can be overridden, for which it asks the door",
}
# file: the rooms it may import by names that it makes up, and why
MADE_UP = {
    DOOR + ".py": (FLOOR, "rooms, and names that live in one, are imported when they are first asked for"),
    "doors.py": (FLOOR, "a door says which modules of its own room it shows"),
    "nn/functional.py": (
        ("ops", "tensor", "nn", "overrides", LENT),
        "what PyTorch's file shows besides its functions, for layers copied from there",
    ),
    "overrides.py": (("linalg", "fft", "special", "masked", "functional", "nn"), "the namespaces of operations"),
    "serialization/names.py": (FLOOR, "a file names the room that its classes live in, and so imports it"),
    "compat/alias.py": (FLOOR, "a torch name imports the room behind it"),
    "torch_names/_utils.py": (("cuda", "cpu", "torch_names"), "torch.<device>"),
}
# What the door hands down, for rooms that must not know who answers: ops.ABOVE[question] -> the rooms that ask, who answers
HANDED_DOWN = {
    "dispatch": ({"eager"}, "dispatch"),
    "higher_order": ({"ops", "torch_names"}, "torch_names"),
    "named": ({"library", "ops"}, DOOR),
    "run": ({"operators"}, "library"),
}


# -- which modules a file imports ----------------------------------------------------------------------------------------


def imports(text: str, file: str) -> Iterator[tuple[int, str]]:
    """(line, module) of every import of this package in the text of a file, wherever it stands; the door as "flambeau"."""
    tree = ast.parse(text, file)
    texts = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            home = absolute(file, node)
            for alias in node.names:
                inside = f"{home}.{alias.name}"  # `from flambeau import dtypes` imports a module, `from flambeau import Tensor` goes through the door
                yield node.lineno, inside if is_module(inside) else home
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            # import_module("flambeau.nn"), sys.modules["flambeau.nn"], a table of modules, f"flambeau.nn.{name}"
            named = re.match(r"flambeau(\.\w+)+", node.value)
            if named and (module := longest_module(named[0])) is not None:
                yield node.lineno, module
        elif isinstance(node, ast.Subscript) and ast.unparse(node) in ("sys.modules['flambeau']", "_sys.modules['flambeau']"):
            yield node.lineno, "flambeau"


def docstrings(tree: ast.AST) -> set[int]:
    """The texts in which a name of a module is only spoken of: docstrings, as numbers of their nodes."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}


def absolute(file: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = ("flambeau", *file.split("/")[:-1])
    return ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])


def longest_module(name: str) -> str | None:
    """The part of a dotted name that is a module below the package; None if there is none."""
    parts = name.split(".")
    return next((".".join(parts[:n]) for n in range(len(parts), 1, -1) if is_module(".".join(parts[:n]))), None)


@cache
def is_module(name: str) -> bool:
    return any(
        (home / "/".join(name.split(".")[1:])).with_suffix(".py").exists() or (home / "/".join(name.split(".")[1:])).is_dir()
        for home in (PACKAGE, PACKAGE / LENT)
        if name.startswith("flambeau.")
    )


def room_of(module: str) -> str | None:
    """The room of a module, by its dotted name; None if it is not ours."""
    package, *inside = module.split(".")
    if package != "flambeau":
        return None
    if not inside:
        return DOOR
    if inside[0] in DIVIDED:
        part = ".".join(inside[:2])
        return part if part in FLOOR or part in UNSEEN else inside[0]
    return inside[0] if inside[0] in UNSEEN or in_sight(inside[0]) else LENT


def in_sight(name: str) -> bool:
    return (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir()


def files() -> Iterator[tuple[str, str]]:
    """(path inside the package, text) of every module."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), path.read_text()


def home_of(file: str) -> str:
    """The room a file is in."""
    path = file.removesuffix(".py").removesuffix("/__init__").split("/")
    return LENT if path[0] == LENT else DOOR if file == DOOR + ".py" else room_of(".".join(["flambeau", *path])) or ""


@cache
def known() -> dict[str, list[tuple[int, str, str]]]:
    """file: (line, module, room) of everything it imports from other rooms."""
    found = {}
    for file, text in files():
        rooms = [(line, module, room_of(module)) for line, module in imports(text, file)]
        found[file] = [(line, module, room) for line, module, room in rooms if room not in (None, home_of(file), *UNSEEN)]
    return found


# -- what they may import ------------------------------------------------------------------------------------------------


def upward(file: str, found: list[tuple[int, str, str]]) -> Iterator[str]:
    """A sentence for each import that points upward."""
    own = home_of(file)
    for line, module, room in found:
        if (file, room) not in EXCEPTIONS and FLOOR[room] > FLOOR[own]:
            yield f"{PACKAGE / file}:{line}: {own} imports {module}, which is above it"


def test_every_room_is_named():
    """A file or folder has no floor, or a floor is told of a room that is gone."""
    rooms = {home_of(file) for file, _ in files()}
    assert rooms - set(UNSEEN) == set(FLOOR), (rooms - set(UNSEEN)) ^ set(FLOOR)


def test_nothing_imports_upward():
    """A room imports one above it: move what both need down, or hand it down from above."""
    found = [sentence for file, known_there in known().items() for sentence in upward(file, known_there)]
    assert not found, "\n" + "\n".join(found)


def test_no_room_knows_itself_through_others():
    """Rooms of one floor import each other in a circle: none of them can be read first."""
    knows: dict[str, set[str]] = {room: set() for room in FLOOR}
    for file, found in known().items():
        if home_of(file) in UNSEEN:
            continue
        knows[home_of(file)] |= {room for _, _, room in found if (file, room) not in EXCEPTIONS}
    done: set[str] = set()

    def walk(room: str, path: tuple[str, ...]) -> None:
        assert room not in path, " -> ".join([*path[path.index(room) :], room])
        if room not in done:
            for other in sorted(knows[room]):
                walk(other, (*path, room))
            done.add(room)

    for room in FLOOR:
        walk(room, ())


def test_every_exception_is_still_needed():
    """An exception to the rule is listed that no import makes use of any more: remove it."""
    used = {(file, room) for file, found in known().items() for _, _, room in found}
    assert set(EXCEPTIONS) <= used, set(EXCEPTIONS) - used


def made_up(text: str, file: str) -> Iterator[int]:
    """The lines of imports by a name that the text does not say: import_module(f"flambeau.{home}"), import_module(name)."""
    for node in ast.walk(ast.parse(text, file)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "_import_module", "__import__"):
            said = ast.unparse(node.args[0]) if node.args else ""
            if not re.match(r"f?['\"]([A-Z]\w+|\w+\.\w+|\w+['\"])", said) and not re.match(r"(f['\"]\{)?__name__", said):
                yield node.lineno


def test_imports_by_made_up_names_are_declared():
    """A file imports modules by names that no reader can see: say in MADE_UP which rooms these are, and why."""
    found = {file for file, text in files() if any(True for _ in made_up(text, file))}
    assert found == set(MADE_UP), found ^ set(MADE_UP)
    assert {room for rooms, _ in MADE_UP.values() for room in rooms} <= set(FLOOR)


def test_what_is_handed_down_is_declared():
    """The door hands a question down that nobody asks, or a room asks one of which HANDED_DOWN does not know who answers it."""
    asks: dict[str, set[str]] = {}
    for file, text in files():
        for question in re.findall(r"""\bABOVE\[["'](\w+)["']\]""", text):
            asks.setdefault(question, set()).add(home_of(file))
    assert asks == {question: rooms for question, (rooms, _) in HANDED_DOWN.items()}
    answers = re.findall(r"\b(\w+)=lambda", "".join(re.findall(r"_ABOVE\.update\(.*\)", (PACKAGE / "__init__.py").read_text())))
    assert set(answers) == set(HANDED_DOWN)


HIDDEN = """
'''Speaks of flambeau.optim.'''
def f():
    from flambeau import Tensor, dtypes
    from ..ops import declare
    import flambeau.nn.functional, numpy
    import_module("flambeau.optim")
    import_module(f"flambeau.nn.{name}")
    sys.modules["flambeau"].ones(1), sys.modules.get("flambeau.eager.bind")
    import_module(f"flambeau.{name}")
    from .arrays import cast
    import flambeau._C
"""


def test_the_rule_sees_what_it_forbids():
    """Imports in functions, relative ones, those through the door and those by name must all be found, with their lines."""
    file = "kernels/layout.py"
    rooms = [(line, module, room_of(module)) for line, module in imports(HIDDEN, file)]
    found = [sentence.rpartition(":")[0].rpartition(":")[2] for sentence in upward(file, [r for r in rooms if r[2]])]
    assert sorted(map(int, found)) == [4, 5, 6, 7, 8, 9, 9, 11, 12]
    assert list(made_up(HIDDEN, file)) == [10]
    assert not list(upward("cli/run.py", [r for r in rooms if r[2]]))
