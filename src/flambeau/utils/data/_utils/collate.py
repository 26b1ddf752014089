"""How a list of items becomes a batch: tensors are stacked, numbers become tensors, containers are kept and their contents put together."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from flambeau import dtypes
from flambeau.eager import bind
from flambeau.kernels import arrays
from flambeau.modes import is_grad_enabled
from flambeau.tensor import Tensor, wrap
from flambeau.tensor.making.factories import as_tensor, tensor

__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert"]

default_collate_err_msg_format = "default_collate: batch must contain tensors, NumPy's arrays, numbers, text, dicts or lists; found {}"
np_str_obj_array_pattern = re.compile(r"[SaUO]")  # dtypes of arrays that hold text or objects


def default_collate(batch):
    """A batch of a list of items, each a tensor, an array, a number, text, or a (nested) dict, list or tuple of these.

    >>> default_collate([{"x": 1.5, "name": "a"}, {"x": 2.5, "name": "b"}])
    {'x': tensor([1.5000, 2.5000], dtype=torch.float64), 'name': ['a', 'b']}
    >>> default_collate([(0, 1), (2, 3)])
    [tensor([0, 2]), tensor([1, 3])]
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch, *, collate_fn_map: dict[type | tuple[type, ...], Callable] | None = None):
    """`default_collate` with functions of your own for some types: each takes the list and `collate_fn_map=`."""
    elem = batch[0]
    elem_type = type(elem)
    if collate_fn_map is not None:
        if elem_type in collate_fn_map:
            return collate_fn_map[elem_type](batch, collate_fn_map=collate_fn_map)
        for kind, function in collate_fn_map.items():
            if isinstance(elem, kind):
                return function(batch, collate_fn_map=collate_fn_map)

    def together(samples):
        return collate(samples, collate_fn_map=collate_fn_map)

    if isinstance(elem, Mapping):
        return like_mapping(elem, {key: together([item[key] for item in batch]) for key in elem})
    if is_namedtuple(elem):
        return elem_type(*[together(samples) for samples in zip(*batch, strict=True)])
    if isinstance(elem, Sequence):
        for item in batch:
            if len(item) != len(elem):
                raise RuntimeError(
                    f"samples of a batch must be of equal size, but one has {len(elem)} entries and one has {len(item)}. Give "
                    "the DataLoader a collate_fn that pads them"
                )
        return like_sequence(elem, [together(samples) for samples in zip(*batch, strict=True)])
    raise TypeError(default_collate_err_msg_format.format(elem_type))


def default_convert(data):
    """NumPy arrays and scalars as tensors, in any nesting; everything else as it is. What a DataLoader does with batch_size=None.

    >>> default_convert([1, np.array([2, 3])])
    [1, tensor([2, 3])]
    """
    if isinstance(data, Tensor):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        return data if np_str_obj_array_pattern.search(data.dtype.str) else as_tensor(data)
    if isinstance(data, Mapping):
        return like_mapping(data, {key: default_convert(value) for key, value in data.items()})
    if is_namedtuple(data):
        return type(data)(*[default_convert(value) for value in data])
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return like_sequence(data, [default_convert(value) for value in data])
    return data


# -- containers of the same kind -----------------------------------------------------------------------------------


def is_namedtuple(value) -> bool:
    """Whether a tuple is built from its values one by one."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def like_mapping(example: Mapping, entries: dict):
    """A mapping of the same kind with other values; a dict if its kind cannot be made."""
    if type(example) is dict:
        return entries
    try:
        if isinstance(example, MutableMapping):
            # A copy keeps what a class needs beside its entries, a default factory for example.
            clone = copy.copy(example)
            clone.update(entries)
            return clone
        return type(example)(entries)  # type: ignore[call-arg]
    except TypeError:
        return entries


def like_sequence(example: Sequence, values: list):
    """A sequence of the same kind with other values; a list for tuples (as PyTorch does), and if its kind cannot be made."""
    if isinstance(example, tuple) or type(example) is list:
        return values
    try:
        if isinstance(example, MutableSequence):
            clone = copy.copy(example)
            for i, value in enumerate(values):
                clone[i] = value
            return clone
        return type(example)(values)  # type: ignore[call-arg]
    except TypeError:
        return values


# -- what a batch of one type becomes ------------------------------------------------------------------------------


def collate_tensor_fn(batch, *, collate_fn_map=None) -> Tensor:
    """One more dimension in front. n of (*) -> (n, *)"""
    first = batch[0]
    shape, dtype, grad = first._array.shape, first._array.dtype, is_grad_enabled()
    parts = []
    for item in batch:
        array = item._array
        plain = type(item) is Tensor and type(array) is np.ndarray and not (grad and item._needs)
        if not plain or array.shape != shape or array.dtype != dtype or not array.ndim:
            return bind.functions["stack"](batch, 0)
        parts.append(array)
    # Four times as fast as `stack` for 64 rows: the operation looks at every tensor for gradients, modes and promotion.
    out = arrays.empty((len(parts), *shape), dtype)
    np.concatenate(parts, out=out.reshape((len(parts) * shape[0], *shape[1:])))
    return wrap(out)


def collate_numpy_array_fn(batch, *, collate_fn_map=None):
    """As tensors. Text and objects are refused."""
    if np_str_obj_array_pattern.search(batch[0].dtype.str):
        raise TypeError(default_collate_err_msg_format.format(batch[0].dtype))
    return collate([as_tensor(array) for array in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch, *, collate_fn_map=None) -> Tensor:
    """n NumPy scalars -> (n,)"""
    return as_tensor(batch)


def collate_float_fn(batch, *, collate_fn_map=None) -> Tensor:
    """n Python floats -> (n,) float64"""
    return tensor(batch, dtype=dtypes.float64)


def collate_int_fn(batch, *, collate_fn_map=None) -> Tensor:
    """n Python ints -> (n,) int64; bools -> bool"""
    return tensor(batch)


def collate_str_fn(batch, *, collate_fn_map=None):
    """Text stays a list."""
    return batch


default_collate_fn_map: dict[type | tuple[type, ...], Callable[..., Any]] = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}
