"""Asking a module how old it is."""

from __future__ import annotations

from typing import Any


def check_module_version_greater_or_equal(module: Any, req_version_tuple: tuple, error_if_malformed: bool = True) -> bool:
    """Whether `module.__version__` is at least `req_version_tuple`, compared part by part."""
    try:
        parts = module.__version__.split(".")
        found = tuple(type(wanted)(part) for wanted, part in zip(req_version_tuple, parts, strict=False))
        return found >= req_version_tuple
    except Exception as problem:
        message = (
            f"'{module.__name__}' module version string is malformed: '{module.__version__}' is to be compared with {req_version_tuple!s}"
        )
        if error_if_malformed:
            raise RuntimeError(message) from problem
        return True


def check_dill_version(pickle_module: Any) -> None:
    """ValueError for a dill that is too old to be subclassed."""
    if pickle_module is None or pickle_module.__name__ != "dill":
        return
    if not check_module_version_greater_or_equal(pickle_module, (0, 3, 1), False):
        raise ValueError(
            f"'torch' supports dill >= 0.3.1, but you have dill {pickle_module.__version__}: a newer one does, and 'pickle', too"
        )
