"""A sparse tensor: which elements are not zero, and what they are.

Note [what stands behind a sparse tensor]

A SparseTensor is a Tensor whose `_array` has a shape and a dtype but no elements in order: a `Coo` or a `Compressed`, which holds dense tensors.

    Coo          indices (sparse_dim, nnz), values (nnz, *dense shape)         an element for each column of the indices; equal ones add up
    Compressed   crow (*, M + 1), col (*, nnz), values (*, nnz, *dense shape)  CSR: row i has the places crow[i] ... crow[i + 1] - 1
                 ccol (*, N + 1), row (*, nnz), values                         CSC: the same of columns
                 values (*, nnz, *block, *dense shape)                         BSR, BSC: rows and columns of blocks; * is the batch, if any

Dense operations never see one: the class is not among the plain ones, so they ask it first (`__torch_function__`, dispatch.py), and what has
no rule there raises NotImplementedError. The values inside carry no history; the sparse tensor has its own (history.py).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from flambeau.interpreters import by_name
from flambeau.kernels.native.native import maker
from flambeau.tensor import Size, Tensor, layouts
from flambeau.tensor.memory.typed_storage import OLD_NAME_OF
from flambeau.tensor.storage import Storage
from flambeau.tensor.tensor import NEW

KINDS = {  # in PyTorch's messages
    layouts.strided: "Strided", layouts.sparse_coo: "Sparse", layouts.sparse_csr: "SparseCsr", layouts.sparse_csc: "SparseCsc",
    layouts.sparse_bsr: "SparseBsr", layouts.sparse_bsc: "SparseBsc",
}  # fmt: skip
BY_ROWS, BY_COLUMNS = (layouts.sparse_csr, layouts.sparse_bsr), (layouts.sparse_csc, layouts.sparse_bsc)
OF_BLOCKS = (layouts.sparse_bsr, layouts.sparse_bsc)


class Parts:
    """What a sparse tensor has in place of an array."""

    layout: layouts.layout
    sparse_dim: int
    batch_dim = 0
    flags = SimpleNamespace(fnc=False, c_contiguous=False)
    base = np.zeros(0)  # never memory that a gradient could take over
    offset = 0

    def __init__(self, shape, values: Tensor):
        self.shape, self.value = tuple(shape), values  # `value` is what tells the device: see kernels/arrays.py
        self.dtype, self.itemsize = values._array.dtype, values._array.itemsize
        self.ndim, self.size = len(self.shape), prod(self.shape)
        if self.size >= 1 << 63:
            raise RuntimeError(
                f"numel: integer multiplication overflow: no tensor has more than 2**63 - 1 elements, found shape {self.shape}"
            )
        self.strides = (1,) * self.ndim  # none is 0: no element repeats another

    @property
    def values(self) -> Tensor:
        """The elements, one after the other."""
        return self.value

    @property
    def nnz(self) -> int:
        """How many elements (or blocks; of each matrix of a batch) are stored."""
        return self.value._array.shape[self.batch_dim]

    @property
    def dense_dim(self) -> int:
        """How many dimensions every stored element has."""
        return self.ndim - self.batch_dim - self.sparse_dim

    @property
    def elements(self) -> Tensor:
        """The stored elements in one line, those of blocks and batches, too. (n, *dense shape)."""
        return self.line(self.value)

    def line(self, values: Tensor) -> Tensor:
        """Values of any kind, in one line."""
        return values.reshape(-1, *self.shape[self.ndim - self.dense_dim :])

    def item(self) -> Any:
        """The element of a tensor that has one."""
        return wrapped(self).to_dense().item()

    def as_tensor(self) -> SparseTensor:
        """A tensor of these parts, without history."""
        return wrapped(self)


class Coo(Parts):
    """Elements by their coordinates. `coalesced`: in row-major order, none twice."""

    layout = layouts.sparse_coo

    def __init__(self, indices: Tensor, values: Tensor, shape, coalesced: bool = False):
        super().__init__(shape, values)
        self.indices, self.coalesced = indices, bool(coalesced)
        self.sparse_dim = indices._array.shape[0]

    def with_values(self, values: Tensor) -> Coo:
        """The same places with other elements."""
        return Coo(self.indices, values, (*self.shape[: self.sparse_dim], *values._array.shape[1:]), self.coalesced)


class Compressed(Parts):
    """A matrix, or a batch of them, by rows (CSR, BSR) or by columns (CSC, BSC)."""

    sparse_dim = 2

    def __init__(self, layout: layouts.layout, starts: Tensor, others: Tensor, values: Tensor, shape):
        super().__init__(shape, values)
        self.layout, self.starts, self.others = layout, starts, others
        self.batch_dim = starts._array.ndim - 1
        at = self.batch_dim + 1
        self.block: tuple = tuple(values._array.shape[at : at + 2]) if layout in OF_BLOCKS else (1, 1)

    @property
    def by_rows(self) -> bool:
        """Whether it is rows that are compressed, or columns."""
        return self.layout in BY_ROWS

    def with_values(self, values: Tensor) -> Compressed:
        """The same places with other elements."""
        inner = values._array.shape[self.batch_dim + (3 if self.layout in OF_BLOCKS else 1) :]
        return Compressed(self.layout, self.starts, self.others, values, (*self.shape[: self.batch_dim + 2], *inner))


class SparseTensor(Tensor):
    """A tensor of which only some elements are stored. See the note above."""

    __torch_function__ = by_name.disabled_torch_function  # replaced in dispatch.py, once the class has been made without asking members
    _sees_building_blocks = True  # it is told which operation runs, not under which public name
    _array: Any

    # -- what it is

    @property
    def layout(self) -> layouts.layout:
        """Which of the layouts: sparse_coo, sparse_csr, sparse_csc, sparse_bsr or sparse_bsc."""
        return self._array.layout

    @property
    def is_sparse(self) -> bool:
        """Whether its elements are stored by their coordinates."""
        return self._array.layout is layouts.sparse_coo

    @property
    def is_sparse_csr(self) -> bool:
        """Whether its elements are stored by rows."""
        return self._array.layout is layouts.sparse_csr

    @property
    def is_cpu(self) -> bool:
        """Whether it is in main memory."""
        return self._array.value.is_cpu

    def is_pinned(self, device: Any = None) -> bool:
        """Whether a GPU can read its elements directly."""
        return self._array.value.is_pinned(device)

    def sparse_dim(self) -> int:
        """How many dimensions are sparse: the first ones, or two behind the batch."""
        return self._array.sparse_dim

    def dense_dim(self) -> int:
        """How many dimensions, from the last on, every stored element has."""
        return self._array.dense_dim

    def _nnz(self) -> int:
        return self._array.nnz

    def is_coalesced(self) -> bool:
        """Whether the coordinates are in order, and none stands twice."""
        return self._coo("is_coalesced").coalesced

    def _coalesced_(self, coalesced: bool) -> SparseTensor:
        self._coo("_coalesced_").coalesced = bool(coalesced)
        return self

    # -- its parts

    def _coo(self, name: str) -> Coo:
        if type(self._array) is not Coo:
            raise RuntimeError(f"{name} expected sparse coordinate tensor layout but got {KINDS[self.layout]}")
        return self._array

    def _compressed(self, name: str, by_rows: bool) -> Compressed:
        if self.layout not in (BY_ROWS if by_rows else BY_COLUMNS):
            kind = "row" if by_rows else "column"
            raise RuntimeError(f"{name} expected sparse {kind} compressed tensor layout but got {KINDS[self.layout]}")
        return self._array

    def _indices(self) -> Tensor:
        return self._unwrapped("_indices").indices.detach()

    def _values(self) -> Tensor:
        return self._unwrapped("_values").values.detach()

    def _unwrapped(self, name: str) -> Coo:
        if type(self._array) is not Coo:
            raise NotImplementedError(f"{name} is for tensors of layout torch.sparse_coo, found {self.layout}. Try values()")
        return self._array

    def indices(self) -> Tensor:
        """The coordinates of the stored elements. (sparse_dim, nnz)."""
        if not self._coo("indices").coalesced:
            raise RuntimeError("Cannot get indices on an uncoalesced tensor: .coalesce() gives one that has them")
        return self._array.indices.detach()

    def values(self) -> Tensor:
        """The stored elements. (*batch, nnz, *block, *dense shape)."""
        from flambeau.sparse import history

        if self.is_sparse and not self._array.coalesced:
            raise RuntimeError("Cannot get values on an uncoalesced tensor: .coalesce() gives one that has them")
        return history.values(self)

    def crow_indices(self) -> Tensor:
        """Where each row begins. (*, rows + 1)."""
        return self._compressed("crow_indices", True).starts.detach()

    def col_indices(self) -> Tensor:
        """The column of each stored element, row after row. (*, nnz)."""
        return self._compressed("col_indices", True).others.detach()

    def ccol_indices(self) -> Tensor:
        """Where each column begins. (*, columns + 1)."""
        return self._compressed("ccol_indices", False).starts.detach()

    def row_indices(self) -> Tensor:
        """The row of each stored element, column after column. (*, nnz)."""
        return self._compressed("row_indices", False).others.detach()

    # -- aliases and copies

    def new(self, *args: Any, device: Any = None) -> SparseTensor:
        """The old constructor of COO tensors, with the dtype and device of this tensor."""
        from flambeau.sparse import making
        from flambeau.tensor.making.legacy import _check_device

        _check_device(device, self.device.type)
        return making.old_constructor(args, dtype=self.dtype, device=self.device)

    def detach(self) -> SparseTensor:
        """The same elements without history."""
        alias = wrapped(self._array)
        alias._storage, alias._inference = self._shared_storage(), self._inference
        return alias

    @property
    def data(self) -> SparseTensor:
        """The same elements without history."""
        return wrapped(self._array)

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, SparseTensor):
            raise RuntimeError(f"data of a tensor of layout {self.layout} cannot be exchanged for one of layout {value.layout}")
        self._array, self._storage = value._array, value._shared_storage()

    def __deepcopy__(self, memo: dict) -> SparseTensor:
        if not self.is_leaf:
            raise RuntimeError("deepcopy copies tensors a user made (graph leaves), and this one was computed. Try x.detach().clone()")
        if id(self) not in memo:
            memo[id(self)] = copy = self.detach().clone()
            copy._needs = self._needs
            copy._grad = None if self._grad is None else self._grad.__deepcopy__(memo)
            copy.__dict__.update(self.__dict__)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        from flambeau.tensor.making import pickling

        array = self._array
        if type(array) is Coo:
            data: tuple = array.indices, array.values, Size(array.shape), array.coalesced
        else:
            data = array.starts, array.others, array.values, Size(array.shape)
        return pickling._rebuild_sparse_tensor, (array.layout, data)

    def _shared_storage(self) -> Storage:
        if self._storage is None:
            self._storage = Storage(self._array)  # there is no memory to share, but versions are counted
        return self._storage

    # -- answers that only dense tensors have

    def stride(self, dim: int | None = None):
        """Zeros: the elements lie in no order that strides could tell."""
        if not self.is_sparse:
            raise RuntimeError("Sparse CSR tensors do not have strides")
        return (0,) * self._array.ndim if dim is None else 0

    def is_contiguous(self, memory_format=None) -> bool:
        """False."""
        if not self.is_sparse:
            raise RuntimeError("Sparse CSR tensors do not have is_contiguous")
        return False

    def storage_offset(self) -> int:
        """0."""
        return 0

    @property
    def nbytes(self) -> int:
        """Refused: add the bytes of indices and values."""
        raise RuntimeError("nbytes: a sparse tensor has several parts. Add up those of its indices and values")

    def resize_as_(self, other: Tensor, *, memory_format: Any = None) -> SparseTensor:
        """Give it the size of another sparse tensor."""
        return self.resize_as_sparse_(other)

    def type(self, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        """The old name of its kind, or a copy with another dtype."""
        if dtype is not None:
            return self.to(dtype)
        if not self.is_sparse:
            raise RuntimeError(f"tensors of layout {self.layout} have no old type name")
        return f"torch.{'cuda.' if self.is_cuda else ''}sparse.{OLD_NAME_OF[self.dtype]}Tensor"

    def __repr__(self, *, tensor_contents=None) -> str:
        from flambeau.sparse import text

        return text.sparse_repr(self)

    def __format__(self, spec: str) -> str:
        return repr(self)


# wrapped(parts): a new sparse tensor of these parts, without history.
wrapped: Callable[[Parts], SparseTensor] = maker(SparseTensor, ("_array",), _storage=None, _inference=False, **NEW)


def _refused(name: str, error: type[Exception], sentence: str):
    def refuse(self, *args, **kwargs):
        raise error(sentence.format(name=name, layout=self.layout, kind=KINDS[self.layout], impl="" if self.is_sparse else "Csr"))

    refuse.__name__ = refuse.__qualname__ = name
    return refuse


_NO_STORAGE = "{name}: Cannot access storage of Sparse{impl}TensorImpl: layout {layout} has none of its own, its values and indices have"
_REFUSALS: list[tuple[str, type[Exception], str]] = [
    ("untyped_storage storage _typed_storage is_shared share_memory_ pin_memory set_", NotImplementedError, _NO_STORAGE),
    ("data_ptr tolist", RuntimeError, _NO_STORAGE),
    ("__dlpack__", BufferError, "Can't export tensors with layout other than torch.strided, found {layout}. Try to_dense()"),
    ("numpy __array__", TypeError, "can't convert {kind} layout tensor to numpy. Use Tensor.to_dense() first."),
    (
        "describe resize_ apply_ map_ map2_ as_subclass _reinterpret",
        NotImplementedError,
        "{name} is not available for layout {layout}",
    ),
]
for _names, _error, _sentence in _REFUSALS:
    for _name in _names.split():
        setattr(SparseTensor, _name, _refused(_name, _error, _sentence))
