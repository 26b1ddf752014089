"""What this installation runs on."""

from __future__ import annotations

import sys

import numpy as np

from flambeau.kernels.native import native
from flambeau.kernels.templates import gemm
from flambeau.settings import get_num_threads
from flambeau.version import flambeau_version


def show() -> str:
    """Kernels, CPU variant, threads and BLAS, as text."""
    if native.lib is None:
        kernels, variant = f"not compiled ({native.reason}): everything runs on NumPy", "none"
    else:
        kernels, variant = f"{len(native.kernels())} compiled kernels", native.lib.variant()
    return (
        f"Flambeau {flambeau_version}\n"
        f"  - Python {sys.version.split()[0]}, NumPy {np.__version__}\n"
        f"  - Kernels: {kernels}\n"
        f"  - CPU capability usage: {variant}\n"
        f"  - BLAS: {_blas()}\n"
        f"{parallel_info()}"
    )


def parallel_info() -> str:
    """How many threads share large work."""
    return f"  - Threads: {get_num_threads()}\n"


def _blas() -> str:
    """OpenBLAS from its wheel where our own kernels use it, and NumPy's otherwise, be it for what our own loops cannot do."""
    if native.lib is not None and gemm.library():
        from importlib import metadata

        try:
            return f"OpenBLAS {metadata.version('scipy-openblas32')} (scipy-openblas32)"
        except metadata.PackageNotFoundError:  # copied there by hand
            return f"OpenBLAS ({gemm.library()})"
    found = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    numpys = f"NumPy's, {found.get('name', 'unknown')} {found.get('version', '')}".rstrip()
    return f"{numpys}, beside our own loops for real matrices" if gemm.bound() else numpys
