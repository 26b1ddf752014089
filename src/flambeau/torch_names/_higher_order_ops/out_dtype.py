"""out_dtype: an operation whose numbers are added up, and given back, in a wider dtype than they come in."""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau._higher_order_ops.higher_order import HigherOrderOperator
from flambeau.eager.arguments import tensors_in
from flambeau.operators import overloads
from flambeau.tensor import Tensor

__all__ = ["out_dtype"]

ALLOWED = ("linear.default", "mm.default", "conv2d.default", "convolution.default", "mul.Tensor", "mul.Scalar")


def _run(op: Any, output_dtype: dtypes.dtype, *args: Any) -> Tensor:
    """op(*args) of int8 matrices, say, as int32: exact, where int8 would have wrapped around.

    >>> import flambeau as torch
    >>> x = torch.full((2, 2), 100, dtype=torch.int8)
    >>> out_dtype(torch.ops.aten.mm.default, torch.int32, x, x)[0]
    tensor([20000, 20000], dtype=torch.int32)
    """
    if not isinstance(op, overloads.OpOverload):
        raise ValueError("out_dtype's first argument must be an OpOverload, such as torch.ops.aten.mm.default")
    if op.namespace != "aten" or f"{op._opname}.{op._overloadname}" not in ALLOWED:
        raise ValueError(f"out_dtype only allows the following operators: {', '.join(ALLOWED)}; found {op}")
    if any(t.is_floating_point() != output_dtype.is_floating_point for t in tensors_in(args)):
        return op(*args).to(output_dtype)
    return op(*[a.to(output_dtype) if isinstance(a, Tensor) else a for a in args])


out_dtype = HigherOrderOperator("out_dtype", _run)
