"""Run a program written for PyTorch, unchanged.

`flambeau run train.py --epochs 3` is `python train.py --epochs 3` with `torch` meaning Flambeau. The program
runs in a Python of its own, which replaces this process: `sys.argv`, `sys.path[0]`, `__main__`, tracebacks, exit codes and Ctrl-C are the
program's, because nothing but Python stands around it. Environment variables tell that Python, and all it starts, about the alias
(see compat/children.py).

With options of torchrun before the program this process stays, as the launcher of several such programs (distributed/run.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import NoReturn

from flambeau.compat import children
from flambeau.compat.missing import read_report

USAGE = """\
usage: flambeau run [--report] [options of python] script.py [arguments]
                                                   -m module [arguments]
                                                   -c code   [arguments]
                                                   -         [arguments]     (the program is read from the standard input)

Runs a program written for PyTorch, unchanged: `import torch` imports Flambeau, `import torchvision` what Flambeau has of it, in the program
and in the Python processes it starts. Everything else is as with `python`, whose options (-u, -W error, -X dev, ...) go before the program.

  --report   list the names of torch that the program asked for and Flambeau does not have, when the program has ended

With the options of torchrun, --nproc_per_node=2 above all, that many processes of the program train together:
  flambeau run --nproc_per_node=2 train.py --epochs 3
  flambeau run --standalone --help        says which options there are"""

# Options of this command, and those that are Python's. Any other word with two dashes before the program is the launcher's.
NOT_FOR_THE_LAUNCHER = ("--report", "--help", "--version", "--help-env", "--help-xoptions", "--help-all", "--check-hash-based-pycs")
WITH_A_VALUE = ("-W", "-X", "--check-hash-based-pycs")  # of Python's options


def main(argv: list[str]) -> int:
    report = False
    while argv and argv[0] in ("-h", "--help", "--report"):
        if argv[0] != "--report":
            print(USAGE)
            return 0
        report, argv = True, argv[1:]
    if not argv:
        print(f"flambeau run: which program?\n\n{USAGE}", file=sys.stderr)
        return 2
    if deaf := _ignoring_the_environment(argv):
        print(
            f"flambeau run: with {deaf} Python does not look at its environment, which is how it learns what torch means", file=sys.stderr
        )
        return 2
    options = [*subprocess._args_from_interpreter_flags()]  # type: ignore[attr-defined]
    environment = dict(os.environ)
    children.tell(environment)
    if is_rank_of_mpi():  # then the program finds the variables of torchrun, too: RANK, LOCAL_RANK, ...
        from flambeau.distributed.mpi.started import as_torchrun

        environment |= as_torchrun(environment)
    own, rest = split(argv)
    if any(is_launchers(word) for word in rest[:1]):
        if not report:
            return launch(rest, [*options, *own])
        command = [sys.executable, *options, "-m", "flambeau", "run", *argv]
    else:
        command = [sys.executable, *options, *argv]
    if report:
        return _with_report(command, environment)
    if os.name == "nt":  # its exec is a new process that nobody waits for
        return subprocess.call(command, env=environment)
    become(command, environment)


def split(argv: list[str]) -> tuple[list[str], list[str]]:
    """(Python's options, the rest), where options of a launcher may come before them or after.

    >>> split(["-W", "error", "--standalone", "train.py", "-u"])
    (['-W', 'error'], ['--standalone', 'train.py', '-u'])
    """
    words = list(argv)
    own: list[str] = []
    while words and words[0].startswith("-") and words[0] not in ("-", "-m", "-c") and not is_launchers(words[0]):
        own += words[: 2 if words[0] in WITH_A_VALUE else 1]
        del words[: 2 if words[0] in WITH_A_VALUE else 1]
    return own, words


def is_launchers(word: str) -> bool:
    """Whether a word before the program is an option of the launcher. Python has no -r and no -t.

    >>> [is_launchers(word) for word in ("--nproc_per_node=2", "-t", "-m", "-u", "--help")]
    [True, True, False, False, False]
    """
    if word.startswith("--"):
        return word.partition("=")[0] not in NOT_FOR_THE_LAUNCHER
    return word[:2] in ("-r", "-t")


def is_rank_of_mpi() -> bool:
    """Whether mpiexec or srun may have started this process: the room that knows is not imported for nothing."""
    return not {"PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}.isdisjoint(os.environ)


def launch(argv: list[str], python_options: list[str]) -> int:
    """Be the launcher of several processes of the program."""
    from flambeau.distributed import run as launcher

    children.tell(os.environ)
    return launcher.reported(lambda: launcher.run_with_python_options(argv, python_options))


def become(command: list[str], environment: dict[str, str]) -> NoReturn:
    """Let the program take the place of this process."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, environment)


def _ignoring_the_environment(argv: list[str]) -> str | None:
    """The option with which Python would run neither PYTHONPATH nor sitecustomize, whether it was given here or to this Python."""
    for flag, name in (("isolated", "-I"), ("ignore_environment", "-E"), ("no_site", "-S")):
        if getattr(sys.flags, flag):
            return name
    for word in argv:
        if not word.startswith("-") or word == "-" or word[1] in "mc":
            return None
        if word[1:].isalpha() and word[1] not in "WX" and set(word[1:]) & set("IES"):
            return word
    return None


def _with_report(command: list[str], environment: dict[str, str]) -> int:
    """Run the program, then say what it missed. The exit status is the program's; if a signal ended it, that signal ends us too."""
    import signal

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "missing")
        open(path, "w").close()
        environment["FLAMBEAU_REPORT"] = path
        program = subprocess.Popen(command, env=environment)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the program, which decides
        status = program.wait()
        signal.signal(signal.SIGINT, before)
        print(as_text(read_report(path)), file=sys.stderr)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def as_text(found: dict[str, tuple[str, int]]) -> str:
    """The report: each missing name and the line that asked for it first."""
    if not found:
        return "flambeau run: every name of torch that the program asked for is there"
    width = max(map(len, found))
    lines = [f"  {name:{width}}  {where}{f'  (in {n} processes)' if n > 1 else ''}" for name, (where, n) in sorted(found.items())]
    return "\n".join([f"flambeau run: {len(found)} names of torch are not in Flambeau yet:", *lines])
