"""The version of this package, and the version of PyTorch whose API it speaks."""

from __future__ import annotations

__version__ = "0.1.0"
flambeau_version = __version__  # stays, while `__version__` follows PyTorch's under the alias `torch` (see compat/)
torch_version = "2.13.0"
torchvision_version = "0.28.0"  # the one that belongs to it
hip: str | None = None
xpu: str | None = None
rocm: str | None = None
git_version = "unknown"
debug = False


def __getattr__(name: str) -> str | None:
    """`cuda`: the version of CUDA that CuPy runs on where there is a GPU, else None. It is found out when it is asked for."""
    if name != "cuda":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    from flambeau import cuda

    return cuda._runtime_version()
