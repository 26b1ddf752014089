"""torch.utils.cpp_extension: programs look here for a compiler of C++ and CUDA, and most of them go on without one."""

from __future__ import annotations

import shutil

from flambeau import import_only

__all__ = ["BuildExtension", "CUDAExtension", "CppExtension", "include_paths", "is_ninja_available", "load", "load_inline"]

WHY = "extensions in C++ and CUDA are written against PyTorch's own headers, which are not here. Write it with tensor operations"
(BuildExtension,) = import_only.classes("torch.utils.cpp_extension", "BuildExtension", WHY)
CppExtension, CUDAExtension, SyclExtension, include_paths, library_paths, load, load_inline = import_only.functions(
    "torch.utils.cpp_extension", "CppExtension CUDAExtension SyclExtension include_paths library_paths load load_inline", WHY
)
# Where PyTorch found compilers to build extensions with: nowhere.
CUDA_HOME: str | None = None
CUDNN_HOME: str | None = None
ROCM_HOME: str | None = None
IS_HIP_EXTENSION = False


def is_ninja_available() -> bool:
    """Whether the program ninja can be run."""
    return shutil.which("ninja") is not None


def verify_ninja_availability() -> None:
    """RuntimeError unless it can."""
    if not is_ninja_available():
        raise RuntimeError("C++ extensions are built by Ninja, which is not here: pip install ninja")
