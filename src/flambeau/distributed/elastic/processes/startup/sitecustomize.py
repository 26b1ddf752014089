"""Runs first in every Python that a launcher starts as a worker: its lines stay whole, and an exception that ends it is written to its error file.

Only in this very process: what it starts itself finds nothing of this folder, and what it forks keeps silent. The program may put another
`sys.excepthook` in place of this one; then the exception is found when Python ends. This may be any Python, and imports nothing of the package.
"""

import os
import sys


def load_error_file():
    """The file elastic/multiprocessing/errors/error_file.py."""
    import importlib.util

    elastic = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = os.path.join(elastic, "multiprocessing", "errors", "error_file.py")
    spec = importlib.util.spec_from_file_location("_flambeau_error_file", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_down_failures():
    """Install the two ways of learning of an exception."""
    import atexit

    pid, path, before = os.getpid(), os.environ["TORCHELASTIC_ERROR_FILE"], sys.excepthook
    told = []

    def write(problem):
        if os.getpid() != pid or told or problem is None or isinstance(problem, SystemExit):
            return
        told.append(problem)
        try:
            if not os.path.exists(path):  # the program knew better
                load_error_file().write(path, problem)
        except Exception as other:
            sys.stderr.write("the launcher cannot be told why this process fails: {}\n".format(other))  # noqa: UP032 - any Python
        finally:
            told[:] = [True]  # holds nothing of the program

    def hook(kind, problem, story):
        write(problem)
        before(kind, problem, story)

    sys.excepthook = hook
    atexit.register(lambda: write(getattr(sys, "last_value", None)))


def write_whole_lines():
    """With `python -u` every piece of a print() is a write of its own, and the pieces of several workers mix. A line is one write here, at once."""
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "write_through", False):
            stream.reconfigure(write_through=False, line_buffering=True)


def make_way():
    """Run the sitecustomize.py that Python would have found without this folder, and be it; nobody else finds this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]
    others = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder and os.path.abspath(folder) != here]
    if others:
        os.environ["PYTHONPATH"] = os.pathsep.join(others)
    else:
        os.environ.pop("PYTHONPATH", None)
    this = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401 - another one
    except ImportError as problem:
        if getattr(problem, "name", "sitecustomize") != "sitecustomize":
            raise
        if this is not None:
            sys.modules["sitecustomize"] = this


if os.environ.get("TORCHELASTIC_ERROR_FILE") and sys.version_info >= (3, 8):
    write_whole_lines()
    write_down_failures()
make_way()
