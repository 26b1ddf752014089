"""Sharing memory with other libraries: NumPy's protocols, DLPack, the CUDA array interface.

Nothing is copied where it need not be: `t.numpy()` and `from_numpy(a)` are two names for one memory.

>>> a = np.zeros(2); t = from_numpy(a); t.fill_(7.0); a
tensor([7., 7.], dtype=torch.float64)
array([7., 7.])
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from flambeau import changes, dtypes, modes
from flambeau.kernels import arrays
from flambeau.kernels.meta import MetaArray
from flambeau.tensor.arguments import device_of
from flambeau.tensor.making.factories import from_array
from flambeau.tensor.tensor import Tensor, wrap


def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A tensor that shares the memory of a NumPy array: a change of one is a change of the other."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {_type_name(ndarray)}). Try torch.as_tensor")
    return from_array(ndarray)


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


# -- NumPy ---------------------------------------------------------------------------------------------------------


def numpy(self: Tensor, *, force: bool = False) -> np.ndarray:
    """A NumPy array over the same memory; `force=True` detaches and copies from the GPU first where that is needed."""
    if modes.watching:
        changes.each_time()
    if force:
        self = self.detach().cpu().resolve_conj().resolve_neg()
    array = self._array
    for bit, cure, is_set in (("conjugate", "resolve_conj", self.is_conj()), ("negative", "resolve_neg", self.is_neg())):
        if is_set:
            raise RuntimeError(f"Can't call numpy() on Tensor that has {bit} bit set. Use tensor.{cure}().numpy().")
    if type(array) is not np.ndarray:
        raise TypeError(f"can't convert {self.device} device type tensor to numpy: Tensor.cpu() copies it to where NumPy is.")
    if modes.state.grad and self.requires_grad:  # under no_grad nothing would be recorded anyway
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    if self.dtype is dtypes.bfloat16 or isinstance(self.dtype, dtypes.float8):
        name = self.dtype.name.replace("bf", "BF", 1).replace("float8", "Float8")
        raise TypeError(f"Got unsupported ScalarType {name}: NumPy has no such type. Try tensor.float().numpy()")
    self._shared_storage().owned = False
    return array.view()  # the memory is shared, its shape is not: a user who sets it must not change the tensor


def _array(self: Tensor, dtype=None, copy: bool | None = None) -> np.ndarray:
    """What NumPy asks for in np.asarray(tensor)."""
    if modes.state.grad and self.requires_grad and type(self._array) is np.ndarray:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead. In a sum or product with a NumPy array, "
            "torch.as_tensor(array) keeps the gradient"
        )
    array = numpy(self)
    if dtype is not None and array.dtype != dtype:
        if copy is False:
            raise ValueError(f"a tensor of {self.dtype} has no array of {np.dtype(dtype)} without a copy")
        return array.astype(dtype)
    return array.copy() if copy else array


def _array_wrap(self: Tensor, array: np.ndarray, context=None, return_scalar: bool = False) -> Tensor:
    """What NumPy calls with the result of a ufunc on tensors, as in np.sin(tensor). Truths come as uint8: they did before there was torch.bool."""
    return from_array(np.asarray(array, np.uint8 if array.dtype == bool else None))


# -- DLPack --------------------------------------------------------------------------------------------------------


class DLDeviceType(IntEnum):
    """DLPack's numbers for places of memory."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLMAIA = 17


CPU, CUDA = DLDeviceType.kDLCPU, DLDeviceType.kDLCUDA
SIGNED, BFLOAT = 0, 4  # and for kinds of numbers


def dlpack(self: Tensor, *, stream: Any = -1, max_version: tuple[int, int] | None = None, dl_device=None, copy: bool | None = None):
    """A DLPack capsule of this tensor, for the from_dlpack of another library."""
    if stream is not None and type(stream) is not int:
        raise TypeError(f"stream must be ``int`` or ``none``, found {type(stream).__name__}")
    if self.requires_grad:
        raise BufferError("DLPack has no place for tensors that require gradient: try tensor.detach()")
    if type(self._array) is MetaArray:
        raise BufferError("Cannot pack tensors on meta: they have no data")
    source = self.clone() if copy else self
    if source.is_conj() or source.is_neg():
        bit = "conjugate" if source.is_conj() else "negative"
        raise BufferError(f"Can't export tensors with the {bit} bit set: what lies in the memory is not what they mean. Try tensor.clone()")
    array = source._array
    if type(array) is not np.ndarray:
        return array.__dlpack__(stream=None if stream == -1 else stream, max_version=max_version)
    if stream not in (None, -1):
        raise AssertionError(f"stream should be None on cpu. There are no streams, and so none that is called {stream}")
    if dl_device is not None and (kind := int(dl_device[0])) != CPU:
        raise BufferError(
            f"Unsupported device_type: {kind}. A tensor on the CPU is not exported to another device: move it with .to() first"
        )
    if source.dtype is not dtypes.bfloat16:
        return array.__dlpack__(max_version=max_version)
    # NumPy cannot name bfloat16 to others: it exports the bits as integers, and the capsule is relabelled.
    capsule = array.view(np.int16).__dlpack__(max_version=max_version)
    _Label(capsule).code.value = BFLOAT
    return capsule


def dlpack_device(self: Tensor) -> tuple[int, int]:
    """DLPack's numbers for the tensor's device: type and index."""
    device = self.device
    if device.type == "meta":
        raise BufferError("a tensor on meta has no DLPack device")
    return (CUDA, device.index or 0) if device.type == "cuda" else (CPU, 0)


def to_dlpack(tensor: Tensor):
    """A DLPack capsule of the tensor's memory, whatever its history."""
    return dlpack(tensor.detach())


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of any object with `__dlpack__` (or of a DLPack capsule)."""
    if hasattr(ext_tensor, "__dlpack__"):
        kind = int(ext_tensor.__dlpack_device__()[0])
        capsule = _export(ext_tensor)
    elif type(ext_tensor).__name__ == "PyCapsule":
        capsule = ext_tensor
        kind = _Label(capsule).device.value
    else:
        found = type(ext_tensor).__name__
        raise RuntimeError(
            f"from_dlpack received an invalid capsule: expected an object with __dlpack__, or a fresh capsule, found {found}"
        )
    array = arrays.cuda().from_dlpack(capsule) if kind == CUDA else _import_cpu(capsule)
    result = from_array(array) if kind != CUDA else wrap(array)
    if device is not None:
        wanted = device_of(device)
        if copy is False and wanted != result.device:
            raise ValueError(f"from_dlpack: a tensor on {result.device} cannot become one on {wanted} without a copy")
        result = result.to(wanted)
    return result.clone() if copy else result


def _export(producer: Any):
    """The producer's capsule, in the newer form where it knows that."""
    try:
        return producer.__dlpack__(max_version=(1, 0))
    except TypeError:
        return producer.__dlpack__()


def _import_cpu(capsule) -> np.ndarray:
    """A NumPy array over the memory of a capsule."""
    label = _Label(capsule)
    brain_float = label.code.value == BFLOAT
    if brain_float:
        label.code.value = SIGNED
    array = np.from_dlpack(_Holder(capsule))
    if not array.flags.writeable and not label.versioned:
        array = np.asarray(_Writable(array))  # the old form cannot say "read-only", so NumPy assumes it; tensors never are
    return array.view(dtypes.bfloat16.numpy) if brain_float else array


class _Holder:
    """An object with the protocol around a bare capsule."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **kwargs):
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


class _Writable:
    """The same memory, presented as writable. NumPy keeps this object, and with it the array, alive."""

    def __init__(self, array: np.ndarray):
        self.array = array
        self.__array_interface__ = dict(array.__array_interface__, data=(array.__array_interface__["data"][0], False))


class _Label:
    """What a capsule says about its tensor: read and written in place.

    struct DLTensor { void *data; int32 device_type, device_id; int32 ndim; uint8 code, bits; uint16 lanes; ... }, at the start of the
    old struct and 32 bytes into the versioned one.
    """

    def __init__(self, capsule):
        import ctypes  # here and not above: importing it costs every program, and few exchange capsules

        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        self.versioned = "dltensor_versioned" in repr(capsule)
        if not self.versioned and '"dltensor"' not in repr(capsule):
            raise RuntimeError(
                "from_dlpack received an invalid capsule. A capsule can be consumed only once: has a tensor been made of it?"
            )
        start = pointer(capsule, b"dltensor_versioned" if self.versioned else b"dltensor") + (32 if self.versioned else 0)
        self.device = ctypes.c_int32.from_address(start + 8)
        self.code = ctypes.c_uint8.from_address(start + 20)


# -- CUDA ----------------------------------------------------------------------------------------------------------


def cuda_array_interface(self: Tensor) -> dict:
    """The address, shape and dtype of a tensor on a GPU, for libraries such as Numba."""
    if self.device.type != "cuda":
        raise AttributeError(f"__cuda_array_interface__: {self.type()} is no tensor on a GPU. tensor.cuda() copies it there.")
    if self.requires_grad:
        raise RuntimeError("__cuda_array_interface__: the tensor requires grad. Use x.detach() if you need no gradient.")
    return self._array.__cuda_array_interface__


Tensor.numpy = numpy
Tensor.__array__ = _array
Tensor.__array_wrap__ = _array_wrap
Tensor.__dlpack__ = dlpack
Tensor.__dlpack_device__ = dlpack_device
Tensor.__cuda_array_interface__ = property(cuda_array_interface)
