"""torch.functional: some operations under an older address."""

from __future__ import annotations

from typing import Any

from flambeau.eager import bind
from flambeau.tensor import Tensor  # noqa: F401 - editors offer it from here, and programs have it from here
from flambeau.tensor.methods.queries import broadcast_shapes  # noqa: F401 - public, as the others below

__all__ = """
atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors cartesian_prod cdist chain_matmul einsum istft lu meshgrid norm
pca_lowrank split stft svd_lowrank tensordot unique unique_consecutive unravel_index
""".split()


def __getattr__(name: str) -> Any:
    if name not in __all__ or name not in bind.functions:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return bind.functions[name]
