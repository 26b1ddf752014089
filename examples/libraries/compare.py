"""Run these programs under Flambeau and under PyTorch, and compare what they print: words exactly, numbers to rounding.

    python examples/libraries/compare.py --torch /path/to/python [program ...]

`--torch` is a Python with PyTorch and the libraries; this file's own Python has Flambeau and the libraries. A program that the first cannot
run is not compared; one that the second cannot run has failed. Programs for several processes are started as LAUNCHERS says, by the same
launcher on both sides; those that start processes themselves are not named there.
"""

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).parent
NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


def torchrun(port):
    """PyTorch's launcher, and its like."""
    return ["-m", "torch.distributed.run", "--nproc_per_node=2", f"--master_port={port}"]


def accelerate(port):
    """`accelerate launch`, which uses PyTorch's launcher inside its own process."""
    return ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2", f"--main_process_port={port}"]


def accelerate_mpirun(port):
    """`accelerate launch --cpu`, which starts several processes by mpirun, on the machines of a file."""
    hosts = Path(tempfile.gettempdir(), "hosts_of_libraries")
    hosts.write_text("localhost\n")
    return ["-m", "accelerate.commands.launch", "--cpu", "--num_processes=2", f"--main_process_port={port}", f"--mpirun_hostfile={hosts}"]


def flambeau_run(port):
    """`flambeau run` itself is torchrun."""
    return torchrun(port)[2:]


# For each program what starts it, under PyTorch and under `flambeau run`.
LAUNCHERS: dict[str, list[tuple[Callable, Callable]]] = {
    "transformers_ranks": [(torchrun, flambeau_run), (torchrun, torchrun)],
    "accelerate_ranks": [(accelerate, accelerate), (accelerate_mpirun, accelerate_mpirun)],
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ours(name, launcher=None, python=sys.executable):
    """How a program is run under Flambeau."""
    return [python, "-m", "flambeau", "run", *(launcher(free_port()) if launcher else []), str(FOLDER / f"{name}.py")]


def theirs(name, launcher=None, python=sys.executable):
    """How a program is run under PyTorch."""
    return [python, *(launcher(free_port()) if launcher else []), str(FOLDER / f"{name}.py")]


def run(command, limit=600):
    """(what it prints, what went wrong, seconds)"""
    begin = time.perf_counter()
    path = os.pathsep.join([os.path.dirname(command[0]), os.environ["PATH"]])  # where mpirun is
    environment = {**os.environ, "PATH": path, "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment, cwd=FOLDER, start_new_session=True)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
        printed, complaints = (file.seek(0) or file.read() for file in (out, err))
    seconds = time.perf_counter() - begin
    wrong = (complaints.strip().rpartition("\n")[2] or f"exit status {status}") if status else None
    return printed, f"killed after {limit} s" if status == -signal.SIGKILL and seconds > limit else wrong, seconds


def difference(ours, theirs):
    """The largest difference of two numbers in the same place, relative where they are above 1; None where anything else differs."""
    if NUMBER.sub("#", ours) != NUMBER.sub("#", theirs):
        return None
    pairs = zip(map(float, NUMBER.findall(ours)), map(float, NUMBER.findall(theirs)), strict=True)
    return max((abs(a - b) / max(1.0, abs(b)) for a, b in pairs), default=0.0)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--torch", required=True, help="a Python that has PyTorch and the libraries")
    options.add_argument("--tolerance", type=float, default=1e-4)
    options.add_argument("programs", nargs="*", help="names of programs in this folder; all, if none is named")
    given = options.parse_args()
    names = given.programs or sorted(p.stem for p in FOLDER.glob("*.py") if p.stem != "compare")
    print(f"{'program':40} {'agreement':22} {'Flambeau':>9} {'PyTorch':>9}")
    rows = [row(name, launchers, given) for name in names for launchers in LAUNCHERS.get(name, [(None, None)])]
    return 0 if all(rows) else 1


def row(name, launchers, given):
    """Run a program on both sides and print a line of the table; whether they agree."""
    expected, their_wrong, their_seconds = run(theirs(name, launchers[0], given.torch))
    printed, wrong, seconds = run(ours(name, launchers[1]))
    far = None if wrong or their_wrong else difference(printed, expected)
    if wrong:
        verdict = f"fails: {wrong}"
    elif their_wrong:
        verdict = f"PyTorch fails: {their_wrong}"
    elif far is None:
        lines, their_lines = (NUMBER.sub("#", text).splitlines() for text in (printed, expected))
        line = next((i for i, (a, b) in enumerate(zip(lines, their_lines, strict=False)) if a != b), len(their_lines))
        verdict = f"differs in line {line + 1}"
    else:
        verdict = f"numbers within {far:.0e}"
    title = f"{name}, {launchers[1].__name__}" if launchers[1] else name
    print(f"{title:40} {verdict:22} {seconds:7.1f} s {their_seconds:7.1f} s", flush=True)
    return far is not None and far <= given.tolerance


if __name__ == "__main__":
    sys.exit(main())
