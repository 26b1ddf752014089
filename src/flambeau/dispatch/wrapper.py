"""Tensors whose class carries operations out: `Tensor._make_wrapper_subclass`, and who is asked for their geometry.

Such a tensor shows a geometry, a dtype and a device, and has no memory (see proxy.py). A class may also want to be asked for the geometry itself
(dispatch_sizes_strides_policy, dispatch_device, dispatch_layout): then `x.shape` is an operation like any other.
"""

from __future__ import annotations

from typing import Any

from flambeau import devices, dtypes, modes
from flambeau.dispatch.proxy import Asking, Proxy
from flambeau.eager import overrides
from flambeau.kernels import layout as geometry
from flambeau.ops import formats
from flambeau.tensor import DISPATCHED, Tensor
from flambeau.tensor.layouts import strided

state = modes.state
POLICIES = (None, "sizes", "strides")


def make_wrapper_subclass(
    cls: type, size, strides=None, storage_offset=None, memory_format=None, dtype=None, layout=strided, device=None, pin_memory=False,
    requires_grad=False, dispatch_sizes_strides_policy=None, dispatch_device=False, dispatch_layout=False, _extra_dispatch_keys=None,
    storage_size=None,
) -> Tensor:  # fmt: skip
    """A tensor of this class that shows a geometry and has no memory: its class's `__torch_dispatch__` carries operations out."""
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"cls must be a type that derives from Tensor, found {cls!r}")
    overrides.meet(cls)
    if cls not in DISPATCHED:
        raise TypeError(f"{cls.__name__} must define __torch_dispatch__: without memory, nothing else could carry operations out")
    shape = tuple([n.__index__() for n in size])
    dtype = dtypes.get_default_dtype() if dtype is None else dtype
    if requires_grad and not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"Only Tensors of floating point and complex dtype can require gradients, found {dtype}")
    place = devices.get_default_device() if device is None else devices.device(device)
    made = object.__new__(cls)
    made._storage, made._needs, made._node, made._nr, made._base = None, bool(requires_grad), None, 0, None
    made._grad, made._stamp, made._inference, made._view_mode = None, 0, state.inference, None
    steps = _strides(shape, strides, memory_format)
    made._array = Proxy(made, shape, dtype.numpy, steps, int(storage_offset or 0), place, strided if layout is None else layout)
    ask_class_for(made, dispatch_sizes_strides_policy, dispatch_device, dispatch_layout)
    return made


def over_memory(cls: type, data: Tensor, requires_grad: bool, *policies: Any) -> Tensor:
    """A tensor of this class over the memory of another one, whose class is asked for the geometry; `Tensor.__torch_dispatch__` uses the memory."""
    with modes.no_grad():
        plain = data.detach()
    geometry = data.shape, data.stride(), data.storage_offset()
    made = make_wrapper_subclass(cls, *geometry, dtype=data.dtype, device=data.device, requires_grad=requires_grad)
    made.__dict__["_memory"] = plain
    ask_class_for(made, *policies)
    return made


def _strides(shape: tuple, strides: Any, memory_format: Any) -> tuple[int, ...]:
    if strides is not None:
        return tuple([n.__index__() for n in strides])
    if memory_format is None or memory_format is formats.preserve_format:
        return geometry.contiguous_strides(shape)
    return formats.strides_for(memory_format, shape, geometry.contiguous_strides(shape))


def ask_class_for(tensor: Tensor, policy: str | None, device: bool, layouts: bool) -> None:
    """Let the class of a tensor be asked for its sizes or strides, its device, its layout."""
    if policy not in POLICIES:
        raise RuntimeError(f"dispatch_sizes_strides_policy must be 'sizes' or 'strides', found {policy!r}")
    if policy is not None or device or layouts:
        tensor._array = Asking.of(tensor._array, (policy, bool(device), bool(layouts)))
