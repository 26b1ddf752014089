"""How the elements of a tensor are arranged: `strided`. The others are PyTorch's names for sparse arrangements, of which there are none."""

from __future__ import annotations

from flambeau.ops.formats import Constant


class layout(Constant):
    """An arrangement of elements in memory. Every tensor here is `strided`."""


strided = layout("strided")
sparse_coo, sparse_csr, sparse_csc = layout("sparse_coo"), layout("sparse_csr"), layout("sparse_csc")
sparse_bsr, sparse_bsc, jagged = layout("sparse_bsr"), layout("sparse_bsc"), layout("jagged")


def check(name: str, value) -> None:
    """The `layout=` argument of a factory: NotImplementedError for a sparse one."""
    if value is strided or value is None:
        return
    if not isinstance(value, layout):
        raise TypeError(f"{name}(): argument 'layout' must be torch.layout, not {type(value).__name__}")
    raise NotImplementedError(f"{name}(): tensors are dense here, layout={value} is not available. Leave layout= out")
