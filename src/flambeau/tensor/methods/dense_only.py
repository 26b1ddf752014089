"""What a dense tensor says about being sparse, quantized, nested or on exotic devices: that it is none of these.

Conversions to a sparse layout are made by the room `sparse`, which is imported for the first of them; other conversions raise
NotImplementedError; what PyTorch refuses for dense tensors is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

from flambeau import dtypes, errors, modes
from flambeau.errors import refusal
from flambeau.interpreters import by_name
from flambeau.kernels import arrays
from flambeau.kernels.mirrored import signs
from flambeau.tensor import layouts
from flambeau.tensor.tensor import Tensor

NEVER = "is_sparse is_sparse_csr is_quantized is_mkldnn is_nested is_xpu is_mps is_xla is_vulkan is_mtia is_maia is_ipu".split()
REFUSED = [
    ("to_mkldnn to_padded_tensor", NotImplementedError, "is not available: there is no such layout here"),
    ("xpu ipu mtia hpu", AssertionError, "is not available: Torch not compiled with {} enabled"),
    ("qscheme int_repr q_scale q_zero_point q_per_channel_scales q_per_channel_zero_points q_per_channel_axis", NotImplementedError,
     "is for quantized tensors, which torch.quantize_per_tensor makes"),
    ("reinforce", RuntimeError, "was removed from PyTorch: use torch.distributions and a loss instead"),
]  # fmt: skip
# Methods that make sparse tensors, or are for them: where they are, by the name they have there.
SPARSE = {
    "conversion": "to_sparse to_sparse_coo to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc to_dense sparse_mask coalesce",
    "shaping": "sparse_resize_ sparse_resize_and_clear_ resize_as_sparse_",
    "products": "smm sspaddmm hspmm",
    "making": "_at_places=coo_values",
}


# Methods of sparse tensors of some kind.
SPARSE_ONLY = {
    "sparse coordinate": "is_coalesced indices",
    "sparse": "values _nnz",
    "sparse row compressed": "crow_indices col_indices",
    "sparse column compressed": "ccol_indices row_indices",
}


def _of_sparse(name: str, kind: str) -> Callable:
    def method(self: Tensor) -> Any:
        if self.layout is layouts.strided:
            raise RuntimeError(f"{name} expected {kind} tensor layout but got Strided")
        return getattr(type(self), name)(self)  # Tensor.values(x) of an x that is sparse

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Of {kind} tensors only."
    return method


def _in_sparse_room(home: str, name: str) -> Callable:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        import_module("flambeau.sparse")  # all its rules
        return getattr(import_module(f"flambeau.sparse.{home}"), name)(self, *args, **kwargs)

    method.__doc__ = f"See flambeau.sparse.{home}.{name}."
    return method


for _home, _names in SPARSE.items():
    for _entry in _names.split():
        _name, _, _there = _entry.partition("=")
        _method = _in_sparse_room(_home, _there or _name)
        _method.__name__ = _method.__qualname__ = _name
        setattr(Tensor, _name, _method)
for _kind, _names in SPARSE_ONLY.items():
    for _name in _names.split():
        setattr(Tensor, _name, _of_sparse(_name, _kind))
for _name in NEVER:
    setattr(Tensor, _name, False)
for _names, _error, _sentence in REFUSED:
    for _name in _names.split():
        setattr(Tensor, _name, refusal(_name, _error, _sentence.format(_name.upper())))


ANSWERS: dict[str, tuple[str, Callable]] = {
    "sparse_dim": ("0: no dimension is sparse.", lambda self: 0),
    "dense_dim": ("The number of dimensions: all are dense.", lambda self: self.dim()),
    "is_conj": ("Whether it is a view of memory that is to be read conjugated.", lambda self: signs(self._array)[0]),
    "is_neg": ("Whether it is a view of memory that is to be read negated.", lambda self: signs(self._array)[1]),
    "is_distributed": ("False.", lambda self: False),
    "const_data_ptr": ("The address of the first element, for reading.", lambda self: self.data_ptr()),
}
for _name, (_meaning, _answer) in ANSWERS.items():
    _answer.__name__, _answer.__qualname__, _answer.__doc__ = _name, _name, _meaning
    setattr(Tensor, _name, _answer)


def layout(self: Tensor) -> layouts.layout:
    """How the elements are arranged: torch.strided."""
    return getattr(self._array, "layout", layouts.strided)  # of a tensor without memory, what it was said to have


Tensor.layout = property(layout)
Tensor.name = None


def grad_dtype(self: Tensor) -> dtypes.dtype | None:
    """The dtype that a leaf's `.grad` has, to which gradients are cast: its own unless another was set. None: whatever dtype they come in."""
    if not self.is_leaf:
        raise RuntimeError("grad_dtype can only be accessed on leaf tensors")
    return self.__dict__.get("_grad_dtype", self.dtype)


def set_grad_dtype(self: Tensor, dtype: dtypes.dtype | None) -> None:
    """Give a leaf's gradient a dtype of its own."""
    if not self.is_leaf:
        raise RuntimeError("grad_dtype can only be set on leaf tensors")
    if self._grad is not None and dtype is not None and self._grad.dtype is not dtype:
        raise RuntimeError(
            f"Cannot set grad_dtype to {dtype} because there is already a gradient of {self._grad.dtype}: set .grad to None first"
        )
    self.__dict__["_grad_dtype"] = dtype
    modes.leaf_dtypes = True


Tensor.grad_dtype = property(grad_dtype, set_grad_dtype, doc=grad_dtype.__doc__)


def dequantize(self: Tensor) -> Tensor:
    """As float32: it is not quantized, so it stays what it is."""
    return self.to(dtypes.float32)


def volatile(self: Tensor) -> bool:
    """False: `torch.no_grad()` has taken its place."""
    errors.warn("volatile is always False: there is torch.no_grad() in its place")
    return False


def record_stream(self: Tensor, stream: Any) -> None:
    """Say that another stream uses it: when it is gone, its memory is not given to others before that stream has come as far as it is then."""
    if not self.is_cuda:
        raise RuntimeError(f"record_stream: expected a tensor on a GPU, found one on {self.device}")
    arrays.cuda().memory.record_stream(self._array, stream.cuda_stream)


def dim_order(self: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dimensions from the one with the largest stride to the one with the smallest: (0, 2, 3, 1) for channels-last images.

    ambiguity_check  True: RuntimeError where another order describes the same memory; a list of memory formats: where not exactly one of them does
    """
    if self.layout is not layouts.strided:
        raise AttributeError(f"Can't get dim order on sparse type: the elements of a {self.layout} tensor lie in none. Try .to_dense()")
    shape, strides = arrays.view_of(self._array)
    if not isinstance(ambiguity_check, (bool, list, tuple)):
        raise TypeError(f"dim_order(): ambiguity_check must be bool or a list of memory formats, not {type(ambiguity_check).__name__}")
    if isinstance(ambiguity_check, (list, tuple)):
        if sum(self.is_contiguous(memory_format=f) for f in ambiguity_check) != 1:
            raise RuntimeError(f"The tensor does not have unique dim order: asked for is one of {ambiguity_check}")
    elif ambiguity_check and (1 in shape or len(set(strides)) < len(strides)):  # a dimension of size 1 may stand anywhere
        raise RuntimeError(f"The tensor does not have unique dim order: strides {strides} fit several")
    return tuple(sorted(range(len(shape)), key=lambda d: (-strides[d], d)))


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape."""
    return tuple(input._array.shape) == tuple(other._array.shape)


def resize(self: Tensor, *sizes) -> Tensor:
    """The same elements in another shape; `reshape` is preferred."""
    errors.warn("non-inplace resize is deprecated")
    return _resized(self, sizes[0] if len(sizes) == 1 and not hasattr(sizes[0], "__index__") else sizes)


def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """The same elements in the shape of another tensor; `reshape_as` is preferred."""
    errors.warn("non-inplace resize_as is deprecated")
    return _resized(self, tensor.shape)


def _resized(self: Tensor, shape) -> Tensor:
    if math.prod(shape) != self.numel():
        raise RuntimeError(f"requested resize to {tuple(shape)} of a tensor {tuple(self.shape)}: only the shape can change")
    return self.contiguous().reshape(tuple(shape))


def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What this parameter or buffer is swapped for when `other` is loaded into it (see `torch.__future__`). A class may override it."""
    if by_name.overridden((self, other)):
        return by_name.call(module_load, (self, other), (self, other), {"assign": assign})
    return other.detach() if assign else self.copy_(other).detach()


Tensor.volatile = property(volatile)
for _method in (dequantize, record_stream, dim_order, is_same_size, resize, resize_as, module_load):
    setattr(Tensor, _method.__name__, _method)
