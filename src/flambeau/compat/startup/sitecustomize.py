"""Runs first in every Python process that a program under `flambeau run` starts: installs the alias `torch`, then makes way.

It may meet any Python, also one too old for Flambeau, which it leaves alone.
"""

import os
import sys


def load(name):
    """A file of flambeau/compat under its own name, without importing the package: most processes never need that."""
    import importlib.util

    path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), name + ".py")
    spec = importlib.util.spec_from_file_location("flambeau.compat." + name, path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_way():
    """Run the sitecustomize.py that Python would have found without this folder, and be it."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]
    this = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401 - another one
    except ImportError as problem:
        if getattr(problem, "name", "sitecustomize") != "sitecustomize":
            raise
        if this is not None:
            sys.modules["sitecustomize"] = this


if os.environ.get("FLAMBEAU_AS_TORCH") == "1" and sys.version_info >= (3, 11):
    load("linked")
    load("missing")
    load("alias").install()
make_way()
