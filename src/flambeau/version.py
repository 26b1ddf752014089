"""The version of this package, and the version of PyTorch whose API it speaks."""

from __future__ import annotations

__version__ = "0.1.0"
flambeau_version = __version__  # stays, while `__version__` follows PyTorch's under the alias `torch` (see compat/)
torch_version = "2.13.0"
torchvision_version = "0.28.0"  # the one that belongs to it
cuda: str | None = None  # PyTorch's answers what it was compiled with: here GPUs are CuPy's business, at run time
hip: str | None = None
xpu: str | None = None
rocm: str | None = None
git_version = "unknown"
debug = False
