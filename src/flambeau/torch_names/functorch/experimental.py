"""Names of functorch that never left its experimental room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.batching.vmap import _inputs, vmap
from flambeau.func import functionalize, replace_all_batch_norm_modules_

__all__ = ["chunk_vmap", "functionalize", "replace_all_batch_norm_modules_"]


def chunk_vmap(func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", chunks: int = 2) -> Callable:
    """vmap over the samples in `chunks` parts of (about) equal size, one after the other, to bound the memory.

    >>> chunk_vmap(torch.dot, chunks=3)(torch.ones(4, 2), torch.ones(4, 2))
    tensor([2., 2., 2., 2.])
    """

    def mapped(*args: Any, **kwargs: Any) -> Any:
        size = _inputs(func, in_dims, args)[0]
        return vmap(func, in_dims, out_dims, randomness, chunk_size=max(-(-size // chunks), 1))(*args, **kwargs)

    return mapped
