"""`flambeau run`: a program runs as under `python`, with torch meaning Flambeau in it and in whatever it starts.

The programs in tests/programs print the same lines under `flambeau run` as with PyTorch.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau

SOURCES = str(Path(flambeau.__file__).parents[1])
PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
FLAMBEAU_RUN = [sys.executable, "-m", "flambeau", "run"]


def environment(**more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("FLAMBEAU_AS", "FLAMBEAU_REPORT", "PYTHON"))}
    return clean | {"PYTHONPATH": SOURCES} | more


def start(*command: str, cwd: Path, **options) -> subprocess.CompletedProcess:
    env = environment(**options.pop("env", {}))
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, **options)


# -- programs ----------------------------------------------------------------------------------------------------------------------------

# fashion_lab needs torchvision beside PyTorch; spawning the processes of `workers` with PyTorch takes longer than all else. Both check themselves.
NOT_COMPARED = {"fashion_lab", "workers"}
# The others run in one process for each framework, whose import takes longer than most of them.
DRIVER = """
import contextlib, io, json, os, runpy, sys, tempfile, traceback, warnings
warnings.simplefilter("ignore")
printed = {}
for path in sys.argv[1:]:
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as text:
        os.chdir(folder)
        try:
            runpy.run_path(path, run_name="__main__")
        except BaseException:
            traceback.print_exc(file=text)
        os.chdir("/")
    printed[path] = text.getvalue()
print(json.dumps(printed))
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory) -> list[dict[str, str]]:
    """What each program prints with PyTorch, and under `flambeau run`."""
    pytest.importorskip("torch")
    compared = [str(path) for path in PROGRAMS if path.stem not in NOT_COMPARED]
    results = []
    for head in ([sys.executable], FLAMBEAU_RUN):
        one_thread = {"OMP_NUM_THREADS": "1"}  # models this small lose by more
        done = start(*head, "-c", DRIVER, *compared, cwd=tmp_path_factory.mktemp("programs"), env=one_thread)
        assert done.returncode == 0 and "Flambeau" not in done.stderr, done.stderr
        results.append(json.loads(done.stdout))
    return results


@pytest.mark.parametrize("program", [path for path in PROGRAMS if path.stem not in NOT_COMPARED], ids=lambda path: path.stem)
def test_a_program_prints_what_it_prints_with_pytorch(program, printed):
    """A program as in the introductions to PyTorch tells another story under `flambeau run`."""
    expected, found = (lines[str(program)].splitlines() for lines in printed)
    assert found == expected and "Traceback (most recent call last):" not in expected


@pytest.mark.parametrize("name", ["fashion_lab", "workers", "digits_lab"])
def test_a_program_runs_by_itself(name, tmp_path):
    """A program that starts processes, or one that does not, fails as a command of its own, or says something nobody asked for."""
    done = start(*FLAMBEAU_RUN, str(PROGRAMS[0].parent / f"{name}.py"), cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == "", done.stderr


# -- like python -------------------------------------------------------------------------------------------------------------------------

FACTS = """
import inspect, json, os, sys, threading, warnings
main = sys.modules["__main__"]
warnings.warn("look here")
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "name": __name__, "file": globals().get("__file__"), "package": __package__,
    "spec": __spec__ and __spec__.name, "main is this": vars(main) is globals(), "frames": len(inspect.stack()),
    "loader": type(__loader__).__name__, "dont_write": sys.dont_write_bytecode, "thread": threading.current_thread().name,
    "environment": {k: v for k, v in os.environ.items() if k not in ("FLAMBEAU_AS_TORCH", "PYTHONPATH", "_", "LC_CTYPE")},
    "main class": type("A", (), {}).__module__, "stdin": sys.stdin.read() if sys.argv[1:] == ["read"] else None,
}))
"""
WAYS = {
    "a module of a package": ["-m", "package.facts", "a b"],
    "a script": ["-B", "-W", "error::UserWarning:json", "facts.py", "--epochs", "3"],
    "the standard input": ["-", "7"],
    "an exception": ["raises.py"],
    "an exit status": ["-c", "import sys; sys.exit(7)"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "facts.py").write_text(FACTS)
    (folder / "raises.py").write_text("def inner():\n    raise ValueError('for a reason')\n\n\ndef outer():\n    inner()\n\n\nouter()\n")
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("here = 'package'\n")
    (folder / "package" / "facts.py").write_text("from . import here\nprint(here)\n" + FACTS)
    return folder


@pytest.mark.parametrize("way", WAYS)
def test_it_is_like_python(way, folder):
    """Arguments, paths, __main__, what is printed, tracebacks or the exit status differ from those of `python`."""
    text = FACTS if way == "the standard input" else ""
    expected, found = (start(*head, *WAYS[way], cwd=folder, input=text) for head in ([sys.executable], FLAMBEAU_RUN))
    assert found.returncode == expected.returncode
    assert found.stderr == expected.stderr
    assert found.stdout == expected.stdout


def test_ctrl_c_reaches_the_program(folder):
    """Ctrl-C must interrupt the program where it stands, and nothing else must show in the traceback."""
    code = "import time\ntry:\n    print('ready', flush=True)\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('saved')\n    raise"
    command = [*FLAMBEAU_RUN, "-c", code]
    heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # ignored in what a shell starts in the background
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env=environment(), preexec_fn=heard, **streams) as program:
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=30)
    assert out == "saved\n" and program.returncode == -signal.SIGINT
    assert err.startswith('Traceback (most recent call last):\n  File "<string>", line ') and err.count("File ") == 1


def test_what_it_refuses(folder):
    """Without a program, or with a Python that does not look at its environment, it must say so and give 2."""
    for arguments, words in (((), "which program?"), (("-I", "facts.py"), "-I"), (("-uE", "facts.py"), "-uE")):
        done = start(*FLAMBEAU_RUN, *arguments, cwd=folder)
        assert done.returncode == 2 and words in done.stderr and done.stdout == ""


# -- in the processes it starts ----------------------------------------------------------------------------------------------------------

FAMILY = """
import json, multiprocessing, os, subprocess, sys
import torch

class Point:
    def __init__(self, x):
        self.x = x

def child(queue, point, tensor):
    import torch.nn.functional
    queue.put((torch.__version__, torch.relu(point.x).tolist(), tensor.tolist(), type(point).__module__, torch.Tensor is type(tensor)))

if __name__ == "__main__":
    found = {}
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue, Point(torch.tensor([-1.0, 2.0])), torch.ones(2)))
        process.start()
        found[method] = queue.get(timeout=60)
        process.join()
    code = "import os, sys, torch; print(torch.__version__, [p for p in sys.path if 'startup' in p], sys.modules['sitecustomize'].mine)"
    found["python"] = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    quiet = "import sys; print('flambeau' in sys.modules, 'numpy' in sys.modules, 'importlib.metadata' in sys.modules)"
    found["without torch"] = subprocess.run([sys.executable, "-c", quiet], capture_output=True, text=True, check=True).stdout
    told_otherwise = dict(os.environ, FLAMBEAU_AS_TORCH="0")
    code = "import importlib.util as u; s = u.find_spec('torch'); print(s and s.origin)"
    found["told otherwise"] = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=told_otherwise).stdout
    print(json.dumps(found))
"""


def test_processes_it_starts_know_too(tmp_path):
    """In a process that was forked, spawned, served or started, torch is not Flambeau; or the user's own sitecustomize does not run."""
    (tmp_path / "family.py").write_text(FAMILY)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("mine = 'user'\n")
    path = os.pathsep.join([SOURCES, str(tmp_path / "site")])
    done = start(*FLAMBEAU_RUN, "family.py", cwd=tmp_path, env={"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    version = f"{flambeau.version.torch_version}+flambeau"
    assert found["fork"] == [version, [0.0, 2.0], [1.0, 1.0], "__main__", True]
    assert found["spawn"] == found["forkserver"] == [version, [0.0, 2.0], [1.0, 1.0], "__mp_main__", True]
    assert found["python"] == f"{version} [] user\n"
    assert found["without torch"] == "False False False\n"  # a process that does not use torch must not pay for it
    assert "flambeau" not in found["told otherwise"]


def test_it_runs_from_a_checkout(tmp_path):
    """The Flambeau that was asked to run a program must be the one that runs it, wherever it was found, and whatever lies beside the program."""
    (tmp_path / "program.py").write_text("import torch\nprint(torch.__file__)\n")
    (tmp_path / "flambeau.py").write_text("raise ImportError('the wrong one')\n")
    done = subprocess.run(
        [*FLAMBEAU_RUN, str(tmp_path / "program.py")], cwd=SOURCES, env=environment() | {"PYTHONPATH": ""}, capture_output=True, text=True
    )
    assert done.stdout == f"{flambeau.__file__}\n", done.stderr


# -- what is missing ---------------------------------------------------------------------------------------------------------------------


def test_the_report_lists_what_is_missing(tmp_path):
    """`--report` must list names asked for in vain, with the line that asked, also those of other processes, and keep the exit status."""
    (tmp_path / "program.py").write_text(
        "import subprocess, sys, torch\n"
        "print(hasattr(torch, 'no_such_thing'), hasattr(torch, 'relu'))\n"
        "try:\n    import torch.no_such_room.inner\nexcept ImportError:\n    pass\n"
        "if len(sys.argv) == 1:\n    subprocess.run([sys.executable, __file__, 'child'])\n"
        "    torch.nn.functional.no_such_function\n"
    )
    done = start(*FLAMBEAU_RUN, "--report", "program.py", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == "False True\n" * 2
    assert "AttributeError: torch.nn.functional.no_such_function is not in Flambeau yet" in done.stderr
    report = done.stderr.partition("3 names of torch are not in Flambeau yet:\n")[2].splitlines()
    assert [line.split()[0] for line in report] == ["torch.nn.functional.no_such_function", "torch.no_such_room", "torch.no_such_thing"]
    assert report[1].endswith("program.py:4  (in 2 processes)") and report[0].endswith("program.py:9")


def test_modules_of_torch_run_as_programs(tmp_path):
    """`-m torch.x` must run the module of Flambeau behind that name."""
    done = start(*FLAMBEAU_RUN, "-m", "torch.utils.collect_env", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith(f"Flambeau  {flambeau.version.flambeau_version}"), done.stderr


# -- an environment that has PyTorch -----------------------------------------------------------------------------------------------------

ASKING = """
import importlib.metadata, importlib.util, json
found = {}
for name in ("sound", "attentive", "attentive_kernels", "unlisted", "strict", "plain", "mine", "torchvision", "numpy", "lenient"):
    try:
        module = __import__(name)
        found[name] = [True]
    except ImportError as problem:
        found[name] = [False, type(problem).__name__, str(problem)]
    found[name].append(importlib.util.find_spec(name) is not None)
for name in ("sound", "Attentive", "plain", "lenient", "strict"):
    try:
        found[name + " version"] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found[name + " version"] = None
print(json.dumps(found))
"""


LOADING = """
import torch
for library in ["_C.so"]:
    try:
        torch.ops.load_library(library)
    except Exception as problem:
        {then}
"""


def test_packages_compiled_for_pytorch_look_absent(tmp_path):
    """What is linked against libtorch is neither found nor imported under the alias, whoever made it; everything else is as before, and what
    says itself that it can do without its compiled operators is there."""
    torch = pytest.importorskip("torch")
    import numpy._core._multiarray_umath as other

    bound, free = next(Path(torch.__file__).parent.glob("lib/libtorch_python.*")), Path(other.__file__)
    site, program = tmp_path / "site-packages", tmp_path / "program"
    packages = {
        site / "sound": ["sound/_C.so", bound],
        site / "attentive": ["attentive_kernels.so", bound],  # beside the package
        site / "unlisted": ["unlisted/inner/_C.so", bound],  # no distribution says which files there are
        site / "lenient": ["lenient/_C.so", bound],
        site / "strict": ["strict/_C.so", bound],
        site / "plain": ["plain/_C.so", free],
        program / "mine": ["mine/_C.so", bound],  # the program's own: it may do without
    }
    for package, (path, target) in packages.items():
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package.parent / path).parent.mkdir(exist_ok=True)
        (package.parent / path).symlink_to(target)
        if package.parent == site and package.name != "unlisted":
            info = site / f"{package.name.title()}-1.5.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.name}\nVersion: 1.5\n")
            (info / "RECORD").write_text(f"{package.name}/__init__.py,,\n{path},sha256=x,1\n")
    (site / "lenient" / "__init__.py").write_text(LOADING.format(then="missing = str(problem)"))
    (site / "strict" / "__init__.py").write_text(LOADING.format(then="raise ImportError(str(problem))"))
    (program / "ask.py").write_text(ASKING)
    done = start(*FLAMBEAU_RUN, "ask.py", cwd=program, env={"PYTHONPATH": f"{SOURCES}{os.pathsep}{site}"})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for name in ("sound", "attentive", "attentive_kernels", "unlisted", "strict"):
        imported, problem, words, present = found[name]
        assert (imported, problem, present) == (False, "ModuleNotFoundError", False)
        assert f"{name} is compiled for PyTorch" in words and ".so needs libtorch" in words
    for name in ("plain", "mine", "torchvision", "numpy", "lenient"):
        assert found[name] == [True, True]
    assert [found[f"{name} version"] for name in ("sound", "Attentive", "strict", "plain", "lenient")] == [None, None, None, "1.5", "1.5"]


def test_who_can_do_without_compiled_operators(tmp_path):
    """A package that imports its extension module, or loads it outside of a try, or lets the error through, cannot."""
    from flambeau.compat.linked import can_do_without

    load, forgiven = "torch.ops.load_library('_C.so')", "try:\n    {}\nexcept Exception:\n    pass\n"
    texts = {
        forgiven.format(load): True,
        "try:\n    for f in []:\n        try:\n            "
        + load
        + "\n        except Exception as e:\n            log(e)\nexcept ImportError:\n    pass": True,
        forgiven.format("from . import _C"): False,  # who knows what is in it
        forgiven.format(load) + "from . import _C\n": False,
        forgiven.format(load) + load: False,
        load: False,
        forgiven.format(load).replace("Exception", "OSError"): False,  # not what is raised
        forgiven.format(load).replace("pass", "raise"): False,
        "": False,
        "def (load_library": False,
    }
    for text, without in texts.items():
        (tmp_path / "__init__.py").write_text(text)
        assert can_do_without(str(tmp_path / "__init__.py"), "/site/package/_C.abi3.so") is without, text
    assert not can_do_without(None, "x.so") and not can_do_without(str(tmp_path / "none.py"), "x.so")
