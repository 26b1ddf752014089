"""torch.masked for sparse tensors: reductions of the elements that a mask lets through, stored or not.

An element that is not stored is zero, as everywhere. The result is sparse too, and stores an element wherever the mask (without one: the
input) has any. The reductions of which zeros decide the result want a mask, as PyTorch's do; what PyTorch has for strided tensors alone is refused.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from flambeau import dtypes
from flambeau.ops import OPS, masked
from flambeau.sparse import history
from flambeau.sparse.conversion import coalesce, flat, in_layout_of, sparse_mask, to_sparse_coo, unflat
from flambeau.sparse.dispatch import refusal, rule
from flambeau.sparse.making import coo
from flambeau.sparse.parts import Coo, SparseTensor
from flambeau.tensor import Tensor

REDUCTIONS = ("sum", "prod", "amax", "amin", "mean")
STRIDED_ONLY = (
    "cumsum", "cumprod", "argmax", "argmin", "median", "logsumexp", "logaddexp", "norm", "var", "std", "softmax", "log_softmax", "softmin",
    "normalize",
)  # fmt: skip


def _reduction(
    name: str, input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """sum, prod, amax, amin or mean over dimensions."""
    if not isinstance(input, SparseTensor):
        return _strided(name, input, dim, keepdim=keepdim, dtype=dtype, mask=mask)
    if mask is None and name != "sum":
        raise ValueError(f"masked {name} expects explicit mask for {str(input.layout)[6:]} tensor input. Try mask=input.to_dense() != 0")
    if input.is_sparse and name == "mean":
        raise ValueError(f"masked mean expects strided or sparse_csr tensors, found {input.layout}")
    if not input.is_sparse and not keepdim:
        raise RuntimeError("reduction operations on CSR tensors with keepdim=False is unsupported")
    x = to_sparse_coo(input)
    if x.dense_dim():
        raise refusal(f"masked.{name} of tensors with dense dimensions", (input,))
    x = coalesce(x) if mask is None else sparse_mask(x, _places(mask, x))
    values = history.values(x)
    if dtype is not None or (name in ("sum", "prod") and values.dtype.category < dtypes.FLOAT):
        values = values.to(dtype or dtypes.int64)
    dims = masked.dims_of(dim, x.dim())
    found = _folded(name, x._array, values, [d for d in range(x.dim()) if d not in dims])
    for d in sorted(dims) if keepdim else ():
        found = found.unsqueeze(d)
    if found.layout is not x.layout:  # nothing was kept: a dense number
        found = found.to_sparse() if input.is_sparse else found
    return found if input.is_sparse else in_layout_of(found if isinstance(found, SparseTensor) else _stored(found), input._array)


def _places(mask: Tensor, x: SparseTensor) -> SparseTensor:
    """The places the mask lets through, as a coalesced tensor of the shape of x."""
    if mask.dim() > x.dim():
        raise IndexError(f"expected broadcastable mask, found one with more dimensions than the input: {mask.dim()} > {x.dim()}")
    if tuple(mask.shape) != tuple(x.shape) or not isinstance(mask, SparseTensor):
        return (mask.to_dense() if isinstance(mask, SparseTensor) else mask).bool().expand(tuple(x.shape)).to_sparse()
    mask = coalesce(to_sparse_coo(mask))
    let = mask.values().bool()
    return coalesce(coo(mask.indices()[:, let], mask.values()[let], tuple(x.shape)))


def _folded(name: str, parts: Coo, values: Tensor, kept: list[int]) -> Tensor:
    """Values whose places agree in the kept dimensions as one; without such dimensions a dense number."""
    if not kept:
        some = values if values.numel() else values.new_zeros(1)
        return OPS[f"masked.{name}"](some, mask=None if values.numel() else some.bool())
    shape = tuple(parts.shape[d] for d in kept)
    keys, own = flat(parts.indices[kept], shape).unique(return_inverse=True)
    found = values.new_zeros(keys.shape[0]).scatter_reduce(0, own, values, name, include_self=False)
    return history.build(Coo(unflat(keys, shape), found.detach(), shape, True), found, f"Masked{name.capitalize()}Backward0")


def _stored(number: Tensor) -> SparseTensor:
    """A tensor of one element, stored even if it is zero."""
    return coo(number.new_zeros((number.dim(), 1), dtype=dtypes.int64), number.reshape(1), tuple(number.shape))


def _strided(name: str, input: Tensor, *args: Any, **options: Any) -> Tensor:
    """Of a strided tensor, with a mask of any layout."""
    if isinstance(input, SparseTensor):
        raise ValueError(f"masked {name} expects strided tensor (got {input.layout} tensor). Try input.to_dense()")
    dense = {k: v.to_dense() if isinstance(v, SparseTensor) else v for k, v in options.items()}
    return OPS[f"masked.{name}"](input, *args, **dense)


for _name in REDUCTIONS:
    rule(f"masked.{_name}")(partial(_reduction, _name))
for _name in STRIDED_ONLY:
    rule(f"masked.{_name}")(partial(_strided, _name))
