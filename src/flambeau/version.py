"""The version of this package, and the version of PyTorch whose API it speaks."""

from __future__ import annotations

from collections.abc import Callable

__version__ = "0.1.0"
flambeau_version = __version__  # stays, while `__version__` follows PyTorch's under the alias `torch` (see compat/)
torch_version = "2.13.0"
torchvision_version = "0.28.0"  # the one that belongs to it
hip: str | None = None
xpu: str | None = None
rocm: str | None = None
git_version = "unknown"
debug = False
found_out: dict[str, Callable[[], str | None]] = {}  # what is not known before it is asked for: `cuda`, which the package tells


def __getattr__(name: str) -> str | None:
    if name not in found_out:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return found_out[name]()
