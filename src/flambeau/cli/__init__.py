"""The command line: `flambeau COMMAND ...`, also `python -m flambeau COMMAND ...`.

Every command is a file of this room with a one-line docstring (its line in the help) and `main(argv) -> exit status`. Only the file of the
command that runs is imported, so that `flambeau --help` answers at once.
"""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path

COMMANDS: tuple[str, ...] = ("train", "sample", "run", "info")


def main(argv: list[str] | None = None) -> int:
    """Run one command. Exit status: the command's own; 2 for a command that does not exist."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if arguments[0] in ("-V", "--version"):
        from flambeau.version import flambeau_version

        print(f"flambeau {flambeau_version}")
        return 0
    command, *rest = arguments
    if command not in COMMANDS:
        print(f"flambeau: there is no command {command!r}\n\n{usage()}", file=sys.stderr)
        return 2
    return import_module(f"{__name__}.{command}").main(rest)


def usage() -> str:
    lines = [f"  {name:10}{first_line(name)}" for name in COMMANDS]
    return "\n".join(["usage: flambeau COMMAND [arguments]", "", *lines, "", "flambeau COMMAND --help says more about one of them."])


def first_line(command: str) -> str:
    """The docstring's first line, read without importing the file."""
    text = (Path(__file__).parent / f"{command}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
