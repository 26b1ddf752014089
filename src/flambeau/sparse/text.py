"""Sparse tensors as text, to the character as PyTorch prints them: their parts one below the other, then what these leave unsaid."""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.tensor import layouts, printing

NAMES = {
    layouts.sparse_coo: ("indices",),
    layouts.sparse_csr: ("crow_indices", "col_indices"),
    layouts.sparse_csc: ("ccol_indices", "row_indices"),
    layouts.sparse_bsr: ("crow_indices", "col_indices"),
    layouts.sparse_bsc: ("ccol_indices", "row_indices"),
}


def sparse_repr(tensor: Any) -> str:
    """The text of `repr(tensor)`."""
    prefix, parts = "tensor(", tensor._array
    indices = (parts.indices,) if tensor.is_sparse else (parts.starts, parts.others)
    shown = [*zip(NAMES[parts.layout], indices, strict=True), ("values", parts.values)]
    body = (",\n" + " " * len(prefix)).join(_part(name, part, len(prefix)) for name, part in shown)
    text = printing._append_suffixes(prefix + body, _suffixes(tensor), len(prefix), new_line=tensor.is_sparse)
    return "Parameter containing:\n" + text if getattr(tensor, "_is_param", False) else text


def _part(name: str, tensor: Any, indent: int) -> str:
    head = f"{name}=tensor("
    array = tensor._array
    if tensor.is_meta:
        return f"{head}..., size={tuple(array.shape)})"
    if not array.size:
        return f"{head}[], size={tuple(array.shape)})"
    return head + printing.format_array(array, printing._kind(tensor.dtype), indent=indent + len(head)) + ")"


def _suffixes(tensor: Any) -> list[str]:
    default = dtypes.get_default_dtype()
    usual = (default, dtypes.int64, dtypes.bool, dtypes.complex128 if default is dtypes.float64 else dtypes.complex64)
    found = [] if tensor.device.type == "cpu" else [f"device='{tensor.device}'"]
    found += [f"size={tuple(tensor.shape)}", *([] if tensor.is_meta else [f"nnz={tensor._nnz()}"])]
    if tensor.dtype not in usual:
        found.append(f"dtype={tensor.dtype}")
    found.append(f"layout={tensor.layout}")
    if tensor.grad_fn is not None:
        found.append(f"grad_fn=<{tensor.grad_fn.name().rpartition('::')[2]}>")
    elif tensor.requires_grad:
        found.append("requires_grad=True")
    return found
