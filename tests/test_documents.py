"""What READMEs, documents and comments say about files: that they are there."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "src/flambeau").rglob("README.md")),
]
SOURCES = sorted((ROOT / "src/flambeau").rglob("*.py"))
NAMED = re.compile(r"(?<![\w.{}<>*/-])((?:\.\./)*(?:[\w.]+/)*\w+\.(?:py|c|h))(?![\w*{}.(])")
# Programs that examples are about, and files that are written by generate.py or by a schedule in a formula.
EXAMPLES = set(
    """x.py x_loops.py print_x.py train.py script.py program.py test.py main.py model.py hubconf.py my.py wrong.py dies.py slow.py rpc.py
    pipelining.py n.c s.c q.h dtypes.h vecmath.h tiles.h torchrun.py""".split()
)
HERE = {
    f"/{path.relative_to(ROOT).as_posix()}" for path in ROOT.rglob("*") if path.suffix in (".py", ".c", ".h") and "build" not in path.parts
}


def missing(text: str, home: Path) -> Iterator[str]:
    """The files a text speaks of that are nowhere, by the end of their path, or from where it stands."""
    for name in NAMED.findall(text):
        known = name in EXAMPLES or (home / name).exists() or any(path.endswith(f"/{name}") for path in HERE)
        if not known:
            yield name


def comments(path: Path) -> str:
    """The comments and docstrings of a source."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return "\n".join(t.string for t in tokens if t.type == tokenize.COMMENT or (t.type == tokenize.STRING and t.string.startswith('"""')))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_document_names_files_that_are_there(path):
    """A README or a document sends its reader to a file that has moved or is gone."""
    found = list(missing(path.read_text(), path.parent))
    assert not found


def test_comments_name_files_that_are_there():
    """A comment or docstring sends its reader to a file that has moved or is gone."""
    found = {path.relative_to(ROOT).as_posix(): names for path in SOURCES if (names := list(missing(comments(path), path.parent)))}
    assert not found, "\n".join(f"{path}: {', '.join(names)}" for path, names in found.items())


def test_every_folder_of_rooms_tells_its_order():
    """A room of the package, or a part of kernels/ or tensor/, has no README."""
    package = ROOT / "src/flambeau"
    folders = [p for parent in (package, package / "kernels", package / "tensor") for p in parent.iterdir() if (p / "__init__.py").exists()]
    assert not [p.relative_to(package).as_posix() for p in folders if not (p / "README.md").exists()]


def test_what_is_gone_is_seen():
    """A file that is nowhere must be found out, one that is there must not."""
    assert list(missing("see `kernels/gone.py`, layout.py and ../modes.py", ROOT / "src/flambeau/tensor")) == ["kernels/gone.py"]
