"""C and CUDA C++ stand as text in a few places only: the printers, and the skeletons of kernels/templates/. All others declare formulas and loops."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

import flambeau

PACKAGE = Path(flambeau.__file__).parent
PLACES = (
    "kernels/templates/*.py",  # skeletons
    "kernels/language/print_*.py",  # printers of formulas, and of what the launcher reads
    "kernels/language/vecmath/*.py",  # the functions that formulas are made of
    *[
        f"kernels/loops/{name}.py" for name in ("rows", "lines", "columns", "short", "cuda", "joined", "source", "update_loops")
    ],  # printers of loops
)

# What a line of C has and a line of English has not. The holes of an f-string count as the word W.
MARKS = [re.compile(mark, re.VERBOSE) for mark in (
    r"^\s* \#\s* (include|define|undef|pragma|if|ifdef|ifndef|endif) \b",
    r"\b (u?int(8|16|32|64)|size|uintptr)_t \s* [*)] | \b (u?int(8|16|32|64)|size)_t \s+ \w+ \s* [=;,)(\[]",
    r"__(global|device|shared|attribute|restrict|align|launch_bounds|syncthreads|atomic_\w+|builtin_\w+)(__)? \b",
    r"\b (_Pragma | memcpy | FL_[A-Z]+) \( | \b FL_(IVDEP|COUNTED|ALIGNED|ONCE) \b | extern\ \"C\" | \b sizeof\b",
    r"\b (void|char|int|float|double|bool|short|long) \s* (\*+\s*|\*\s*const\s+) \w",         # a pointer
    r"\b (char|int|float|double|bool|short|long|W) \s+ \w+ (\[.*\])? \s* = [^=\x22] .* ;",         # a variable
    r"\b (const|typedef|inline|static|struct|enum|unsigned) \s+ (\w+\s+)? ([\w*]+\( | [\w*]*\s*[={\[;*]) .* [;{]",
    r"\b for \s* \( .* ; .* ; | \b (while|switch|if|for) \s* \(.*\) .* (\{|;\s*\}?$) | \} \s* else \s* (\{(\s|$)|if\b)",
    r"(^|[\s;{}(]) \w [\w.>\[\]-]* \s* ([-+*/|&^]|<<|>>)? = [^=\x22] .* ; \s* (\}|$|/\*)",          # an assignment
    r"(^|[\s;{}]) (return|break|continue) \b [^.,]* ; \s* (\}|$|/\*)",
    r"^\s* [\w.]+\( .* \) \s* ; \s* (\}|$|/\*)",                                               # a call
    r"/\* .* \*/ | \w->\w+\W .* ;",
)]  # fmt: skip


def c_lines(text: str, file: str = "") -> Iterator[tuple[int, str]]:
    """(number, text) of the lines of C that stand in strings of a Python file, docstrings apart."""
    tree = ast.parse(text, file)
    passed = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)} | {
        id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values
    }
    for node in ast.walk(tree):
        if id(node) in passed or not isinstance(node, (ast.Constant, ast.JoinedStr)):
            continue
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        whole = "".join([str(p.value) if isinstance(p, ast.Constant) else "W" for p in parts])
        for number, line in enumerate(whole.split("\n"), node.lineno):
            if any([mark.search(line) for mark in MARKS]):
                yield number, line.strip()


def test_c_is_written_in_a_few_places_only():
    """A string outside of the printers and templates holds C: declare a loop or a formula, or write a skeleton in kernels/templates/."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        if not any([fnmatch(file, place) for place in PLACES]):
            found += [f"{path}:{number}: {line}" for number, line in c_lines(path.read_text(), file)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("text", [
    """X = 'for (int64_t i = 0; i < n; i++) out[i] = x[i];'""",
    """X = f"const {t} *const x = ({t} *)ptr[0];\\n" """,
    """X = '#include <math.h>'""",
    """X = f"    {t} sum = 0;" """,
    """X = f"total += {x} * {y};" """,
    """X = f"void FL_NAME({name})(char *const *ptr)" """,
    """X = 'extern "C" __global__ void f(float *out)'""",
    """X = "if (bad) return;" """,
    """X = "return a + b;" """,
    """X = ["struct Both { Far value; };"]""",
    """X = "    } else {" """,
    """def f():
    yield f"{name}(a, b);"
""",
    """X = "int64_t n = (int64_t)param[0]" """,
    """X = "    atomicAdd(target, value);" """,
    """X = "y[i] = best; /* the greatest */" """,
    """X = "__shared__ double found[32]" """,
])  # fmt: skip
def test_the_rule_sees_c(text):
    """A way to write C into a string is not seen."""
    assert list(c_lines(text))


@pytest.mark.parametrize("text", [
    '"""for (int i = 0; i < n; i++) is C, in a docstring."""',
    "X = 'expected a static shape (see docs), found a float; try x.float()'",
    "X = f'{name}() takes one argument; this was given {n} = {value}'",
    "X = '<td style=\"width: 3em;\">'",
    "X = 'return a tensor, or break off; the loop goes on'",
    "X = 'x[i] = y'",
    "X = ('int64_t', '__main__')",
    "X = 'scale(Tensor x, float factor=1.0, int dim=-1) -> Tensor'",
    "X = 'if the shape is known (and only then), use it;'",
])  # fmt: skip
def test_the_rule_lets_english_pass(text):
    """What is said to a user is taken for C."""
    assert not list(c_lines(text))
