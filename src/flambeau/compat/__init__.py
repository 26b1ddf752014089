"""The alias `torch`: programs written for PyTorch, unchanged, on Flambeau.

    flambeau run train.py --epochs 3         a program

    import flambeau.compat                   a notebook
    flambeau.compat.install_as_torch()
    import torch                             # Flambeau, also in the processes that are started from here

While it is installed, `torch.__version__` is that of the PyTorch whose API Flambeau speaks, as "2.13.0+flambeau"; Flambeau's own version is
`flambeau.version.flambeau_version`.
"""

from __future__ import annotations

import os

from flambeau.compat import children
from flambeau.compat.alias import install, is_installed
from flambeau.compat.alias import uninstall as _uninstall

__all__ = ["install_as_torch", "is_installed", "uninstall"]


class Installed:
    """What `install_as_torch` returns; leaving a `with` of it uninstalls."""

    def __enter__(self) -> Installed:
        return self

    def __exit__(self, *problem) -> None:
        uninstall()

    def __repr__(self) -> str:
        return "torch means Flambeau now; flambeau.compat.uninstall() ends it"


def install_as_torch() -> Installed:
    """From now on `import torch` imports Flambeau, in this process and in the Python processes it starts.

    RuntimeError if PyTorch has been imported already. As a context manager it lasts as long as the `with`:

    >>> with install_as_torch():
    ...     import torch.nn.functional as F
    >>> F.__name__
    'flambeau.nn.functional'
    """
    install()
    children.tell(os.environ)
    return Installed()


def uninstall() -> None:
    """Undo `install_as_torch`."""
    _uninstall()
    children.forget(os.environ)
