"""How the elements of a tensor are arranged: `strided`, or in one of the sparse ways (see the room `sparse`)."""

from __future__ import annotations

from flambeau.dtypes import Constant


class layout(Constant):
    """An arrangement of elements in memory."""


strided = layout("strided")
sparse_coo, sparse_csr, sparse_csc = layout("sparse_coo"), layout("sparse_csr"), layout("sparse_csc")
sparse_bsr, sparse_bsc, jagged = layout("sparse_bsr"), layout("sparse_bsc"), layout("jagged")
SPARSE = (sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc)


def check(name: str, value) -> None:
    """The `layout=` argument of a factory: NotImplementedError for a sparse one."""
    if value is strided or value is None:
        return
    if not isinstance(value, layout):
        raise TypeError(f"{name}(): argument 'layout' must be torch.layout, not {type(value).__name__}")
    raise NotImplementedError(
        f"{name}() is not implemented for sparse types, found layout={value}. Try torch.sparse_coo_tensor, or .to_sparse()"
    )
