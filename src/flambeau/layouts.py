"""How the elements of a tensor are arranged: `strided`. The others are PyTorch's names for sparse arrangements, of which there are none."""

from __future__ import annotations


class layout:
    """An arrangement of elements in memory. Every tensor here is `strided`."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self):
        return self.name


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
sparse_bsr = layout("sparse_bsr")
sparse_bsc = layout("sparse_bsc")
jagged = layout("jagged")


def check(name: str, value) -> None:
    """The `layout=` argument of a factory: NotImplementedError for a sparse one."""
    if value is strided or value is None:
        return
    if not isinstance(value, layout):
        raise TypeError(f"{name}(): argument 'layout' must be torch.layout, not {type(value).__name__}")
    raise NotImplementedError(f"{name}(): tensors are dense here, layout={value} is not available. Leave layout= out")
