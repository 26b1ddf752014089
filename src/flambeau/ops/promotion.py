"""Which dtype comes out: PyTorch's rules for tensors and numbers together.

Tensors with dimensions outrank 0-d tensors, which outrank Python numbers; a lower rank changes the result only if it
brings a higher category (bool < integer < float < complex). The lattice over dtypes alone is in `flambeau/dtypes.py`.
"""

from __future__ import annotations

from flambeau import dtypes
from flambeau.ops.declare import composite


def is_tensor(value) -> bool:
    """Whether an argument is a tensor."""
    return hasattr(value, "_array")


def promoted(*operands) -> dtypes.dtype:
    """The common dtype of tensors and Python numbers."""
    dimensioned: list[dtypes.dtype] = []
    zero_dim: list[dtypes.dtype] = []
    numbers: list[dtypes.dtype] = []
    for value in operands:
        if is_tensor(value):
            (dimensioned if value.dim() else zero_dim).append(value.dtype)
        else:
            numbers.append(dtypes.of_scalar(value))
    return dtypes.combine(dimensioned, zero_dim, numbers)


@composite(method=False)
def result_type(tensor, other):
    """The dtype of an arithmetic operation on two tensors or numbers.

    >>> torch.result_type(torch.tensor([1, 2]), 1.0)
    torch.float32
    """
    return promoted(tensor, other)
