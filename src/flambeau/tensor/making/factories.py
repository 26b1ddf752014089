"""Making tensors: from data, of a constant, without values, and like another tensor.

A factory sorts out its own arguments and says how to make the array, `make(dtype, device)`; `made` does what all of them have in common
with the rest: it finds dtype and device, makes the array and wraps it, or writes it to out=. What is drawn at random is in
`random_factories.py`, what counts is in `ranges.py`.
"""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau import changes, determinism, devices, dtypes, errors, literals, modes
from flambeau.eager import inplace, plans
from flambeau.interpreters import calls
from flambeau.kernels import arrays
from flambeau.kernels import layout as geometry
from flambeau.kernels.native import memory_guard
from flambeau.ops import formats
from flambeau.tensor import layouts
from flambeau.tensor.arguments import device_of, dtype_of, need_tuple, shape_of, whole
from flambeau.tensor.memory.untyped_storage import UntypedStorage, flat_view, mapped, storage_for
from flambeau.tensor.tensor import PLAIN, Tensor, wrap

MADE_SPARSE = frozenset("zeros empty zeros_like empty_like new_zeros new_empty".split())  # what can be made in any layout
COUNTED = frozenset("arange fftfreq rfftfreq".split())  # whose number of elements is computed
VARYING: set[str] = set()  # what gives other elements in each call, or none in particular
SMALL = 4096  # bytes of a result that a plan may keep, to be copied
RANGES = frozenset("arange range linspace logspace".split())  # what fills an out= of so many elements, whatever its shape
OPTIONS = ("dtype", "layout", "device", "requires_grad", "pin_memory")  # what **options stands for in the factories below
_ORDINARY = {int, float, bool, list, tuple, np.ndarray} | PLAIN


def factory(function: Callable, name: str | None = None, meaning: str | None = None) -> Callable[..., Tensor]:
    """A function that makes tensors, made known to function modes and to subclasses with a `__torch_function__`.

    Its **options are those that all factories have, and *size can be given as size= too.
    """
    name = function.__name__ if name is None else name
    function.__name__ = function.__qualname__ = name  # what Python calls it in its own errors
    function.__doc__ = meaning or function.__doc__
    copies = name in ("tensor", "as_tensor", "asarray")  # a tensor is data to them: its class has no say
    signature, sized = _signature(function)
    known = {*signature.parameters}
    unwritten = name.removeprefix("new_").startswith("empty")
    draws = "generator" in known
    if draws or unwritten:
        VARYING.add(name)

    def general(*args, **kwargs):
        if kwargs and not known.issuperset(kwargs):
            raise TypeError(f"{name}() got an unexpected keyword argument {next(k for k in kwargs if k not in known)!r}")
        if modes.special or (args and type(args[0]) not in _ORDINARY):
            if draws and modes.special and modes.state.draw is not None:
                return modes.state.draw(front, args, kwargs)
            return calls.run_function(front, body, args, kwargs, () if copies else (*args, *kwargs.values()))
        return body(*args, **kwargs)

    def body(*args, **kwargs):
        if sized and "size" in kwargs:
            args = (*args, kwargs.pop("size"))
        try:
            result = function(*args, **kwargs)
            if unwritten and determinism.fills_memory():
                changes.each_time()
                arrays.fill(result._array, determinism.unlikely(result.dtype))
            return result
        except MemoryError as problem:  # programs that try a smaller batch next catch RuntimeError
            raise memory_guard.as_ours(problem) from None
        except TypeError as problem:
            if str(problem).startswith(f"{function.__name__}() missing"):
                raise TypeError(str(problem).replace("positional argument:", "positional arguments:")) from None
            raise
        except ValueError as problem:
            if "at most 64 dimensions" in str(problem):
                raise RuntimeError(f"{name}(): {problem}") from None
            if "aximum allowed" in str(problem) or "too big" in str(problem):  # NumPy's words for a size beyond 64 bits
                raise RuntimeError(f"{name}(): invalid size, possible overflow: {problem}") from None
            raise

    front = functools.wraps(function)(plans.front(plans.Factory(name, function), general))
    front.__signature__ = signature
    front.__module__, front.event = "torch", name
    front.asks = front if name.endswith("_like") else None
    return front


def _signature(function: Callable) -> tuple[inspect.Signature, bool]:
    """What help() shows: the parameters with OPTIONS spelled out, and whether there is a *size among them."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:
        keyword = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
        taken = {p.name for p in parameters}
        parameters[-1:] = [keyword(o, default=False if "_" in o else None) for o in OPTIONS if o not in taken]
    sized = any(p.name == "size" and p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    return signature.replace(parameters=parameters, return_annotation="Tensor"), sized


# -- the common steps ----------------------------------------------------------------------------------------------


def check_options(name: str, layout: Any = None, pin_memory: bool | None = False) -> None:
    """Refuse what only other builds have: sparse layouts, and pinned memory where there is no GPU."""
    layouts.check(name, layout)
    if pin_memory:
        from flambeau.tensor.memory import host_memory

        host_memory.need_accelerator(f"{name}(pin_memory=True)")


def finish(array, requires_grad: bool = False, laid_out: bool = False) -> Tensor:
    """Wrap a fresh array, whose strides are meant so if it was `laid_out`."""
    if not laid_out and not array.size and 0 in array.strides:  # NumPy's empty arrays have strides of 0, PyTorch's do not
        array = arrays.empty_beside(array, array.shape, array.dtype)
    result = wrap(array)
    if modes.special:
        result._inference = modes.state.inference
    return result.requires_grad_() if requires_grad else result


def made(
    name: str,
    make: Callable,
    out=None,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
    default=None,
    home=None,
    laid_out=False,
    work: Callable | None = None,
) -> Tensor:
    """A tensor of the array make(dtype, device), with the options that all factories have; or `out` with these values.

    default  the dtype if none is asked for; home  the device if none is asked for; laid_out  whether make() chose the strides
    work     work(array) is what makes arrays like this in main memory without looking at arguments again; it may be None
    """
    if layout is not None or pin_memory:
        if name in MADE_SPARSE and layout in layouts.SPARSE and out is None:
            from flambeau.sparse import making

            wanted = dtype_of(name, dtype) or default or dtypes.get_default_dtype()
            where = home if device is None and home is not None else device_of(device)
            return making.without_elements(make(wanted, devices.meta).shape, layout, wanted, where, requires_grad)
        check_options(name, layout, pin_memory)
    dtype = dtype_of(name, dtype)
    if out is not None:
        _write_to(name, out, make, dtype, device)
        return out.requires_grad_() if requires_grad else out
    where = home if device is None and home is not None else device_of(device)
    dtype = dtype or default or dtypes.get_default_dtype()
    result = finish(make(dtype, where), requires_grad, laid_out)
    if modes.watching:
        again = functools.partial(make, dtype, where)
        _note(name, again, result, device is not None or home is not None, work)
    return result


def _note(name: str, make: Callable, result: Tensor, placed: bool, work: Callable | None = None) -> None:
    """Tell whoever watches how a tensor was made; unless it depends on a setting where, or it is a leaf."""
    array = result._array
    if type(array) is np.ndarray and array.size and arrays.view_of(array)[1] == geometry.contiguous_strides(array.shape):
        if name not in VARYING and array.nbytes <= SMALL:
            make = array.copy().copy
        elif work is not None:
            make = work(array) or make
    known = (placed or not devices.asked()) and (result.is_cpu or arrays.on_only_gpu(result._array)) and not result._needs
    plans.note_made(name, make, result) if known else plans.note()


def _write_to(name: str, out: Tensor, make: Callable, dtype: dtypes.dtype | None, device: Any) -> None:
    """The out= form: `out` is resized, with a warning only where the number of elements was computed, as in PyTorch."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if dtype is not None and dtype is not out.dtype:
        raise RuntimeError(f"dtype {dtypes.in_messages(dtype)} does not match dtype of out parameter ({dtypes.in_messages(out.dtype)})")
    if device is not None and devices.device(device).type != out.device.type:
        raise RuntimeError(f"device {devices.device(device).type} does not match that of out, {out.device.type}")
    if modes.state.grad and out.requires_grad:
        raise RuntimeError(
            f"functions with out=... arguments don't support automatic differentiation, and {name} was given an out that requires grad."
        )
    if out.layout is not layouts.strided and name in MADE_SPARSE:
        from flambeau.sparse import making

        out._array = making.without_elements(make(out.dtype, devices.meta).shape, out.layout, out.dtype, out.device)._array
        return out._bump()
    array = make(out.dtype, out.device)
    if name in RANGES and array.size == out._array.size:
        array = arrays.strided_view(array, out._array.shape, geometry.contiguous_strides(out._array.shape))
    if tuple(array.shape) != tuple(out._array.shape):
        if out._array.size and name in COUNTED:
            found = f"The number of elements in the out tensor of shape {list(out.shape)} is {out.numel()}"
            errors.warn(
                f"{found} which does not match the computed number of elements {array.size}. The out tensor will be resized: pass torch.empty(0)"
            )
        out._array, out._storage = arrays.empty(array.shape, out._array.dtype, out.device), None
    inplace.check_writable(f"{name}(out=)", out)
    arrays.write(out._array, array)
    out._bump()


def filled(shape: tuple, dtype: dtypes.dtype, device: devices.device, value: Any) -> Any:
    """A fresh array of one number."""
    array = _memory(shape, dtype, device)
    arrays.fill(array, value)
    return array


def _memory(shape: tuple, dtype: dtypes.dtype, device: devices.device) -> Any:
    try:
        return arrays.empty(shape, dtype.numpy, device)
    except (ValueError, OverflowError, MemoryError):
        _check_extent(shape, geometry.storage_extent(shape, geometry.contiguous_strides(shape)), dtype)
        raise


def _check_extent(shape: tuple, elements: int, dtype: dtypes.dtype) -> None:
    """RuntimeError where the memory of a tensor, or where it would begin and end, cannot be counted in 64 bits."""
    if elements * dtype.itemsize >= 2**63 or 0 in shape:
        what = "Stride" if 0 in shape else "Storage size"
        raise RuntimeError(f"{what} calculation overflowed with sizes={list(shape)}: no memory is that large") from None


# -- from data -----------------------------------------------------------------------------------------------------


@factory
def tensor(data: Any, *, dtype=None, device=None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """A new tensor with a copy of the data: numbers, nested sequences, NumPy arrays. The dtype follows from the data.

    >>> tensor([[1, 2], [3, 4]]).dtype
    torch.int64
    """
    dtype = dtype_of("tensor", dtype)
    if pin_memory:
        check_options("tensor", pin_memory=pin_memory)
    if isinstance(data, Tensor):
        warnings.warn(
            "torch.tensor(x) copies a tensor: to copy construct from one, x.detach().clone() says what is meant, and "
            "x.detach().clone().requires_grad_() for a leaf.",
            stacklevel=3,
        )
        where = arrays.device_of(data._array) if device is None else device_of(device)
        return finish(wrap(data._array).to(device=where, dtype=dtype, copy=True)._array, requires_grad)  # its class has no say
    if type(data) not in _ORDINARY and (lent := _lent(data, dtype)) is not None:
        shares = hasattr(data, "_untyped_storage")  # even here: a tensor of a storage is a window on it
        return lent.to(device_of(device), dtype, copy=not shares).requires_grad_(requires_grad)
    where, array = device_of(device), literals.literal(data, dtype)
    result = finish(arrays.to_device(array, where), requires_grad)
    if modes.watching and type(data) is not np.ndarray:
        kept = array.copy()
        _note("tensor", lambda: arrays.to_device(kept.copy(), where), result, device is not None)
    return result


def from_array(array: np.ndarray) -> Tensor:
    """A tensor over the memory of a NumPy array."""
    if not array.flags.writeable:
        constant = "and tensors can be written to, non-writable ones too: do not write to this one, or copy the array first (array.copy())."
        warnings.warn(f"The given NumPy array is not writable, {constant}", stacklevel=4)
    result = finish(
        literals.importable(array).view(), laid_out=True
    )  # the memory is shared, its shape is not: array.shape = ... must not reach the tensor
    result._shared_storage().owned = False
    return result


@factory
def as_tensor(data: Any, dtype=None, device=None) -> Tensor:
    """The data as a tensor, sharing memory where that is possible: a tensor is returned as it is, a NumPy array is shared."""
    dtype = dtype_of("as_tensor", dtype)
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype)
    if isinstance(data, np.ndarray):
        return from_array(data).to(device=device_of(device), dtype=dtype)
    if type(data) not in _ORDINARY and (lent := _lent(data, dtype)) is not None:
        return lent.to(device_of(device), dtype)
    return finish(arrays.to_device(literals.literal(data, dtype), device_of(device)))


@factory
def asarray(obj: Any, *, dtype=None, device=None, copy: bool | None = None, requires_grad: bool | None = None) -> Tensor:
    """The object as a tensor: shares memory with tensors, arrays, DLPack and buffer objects unless copy=True; copy=False insists on it.

    Of a tensor with a history, what is made keeps it unless `requires_grad` says otherwise.
    """
    dtype = dtype_of("asarray", dtype)
    source = _aliased(obj, dtype)
    if source is None:
        if copy is False and isinstance(obj, np.generic):
            raise RuntimeError("can't alias NumPy scalars: leave copy=False out, or make an array of it.")
        if copy is False:
            raise ValueError(f"can't alias arbitrary sequence: a {type(obj).__name__} has no memory to share. Leave copy= out")
        return finish(arrays.to_device(literals.literal(obj, dtype), device_of(device)), bool(requires_grad))
    wanted = source.device if device is None else device_of(device)
    same = wanted == source.device and dtype in (None, source.dtype)
    if copy is False and not same:
        if wanted != source.device:
            raise ValueError(f"can't alias tensor from device '{source.device}' to '{wanted}': what is elsewhere is a copy")
        raise ValueError(f"can't alias tensor with dtype '{source.dtype.name}' into dtype '{dtype.name}': what is converted is a copy")
    result = source.to(device=wanted, dtype=dtype, copy=bool(copy)) if copy or not same else source
    if result.requires_grad:
        if requires_grad is None:
            what = "torch.asarray: requires_grad is that of the tensor unless given"
            warnings.warn(f"{what}. Pass requires_grad=False to leave the history behind.", stacklevel=3)
        return result if requires_grad is not False else result.detach()
    if requires_grad:
        return result.detach().requires_grad_() if result is obj else result.requires_grad_()
    return result


def _aliased(obj: Any, dtype: dtypes.dtype | None) -> Tensor | None:
    """A tensor over the memory of obj, or None if it has none that can be shared."""
    if isinstance(obj, Tensor):
        return obj
    if isinstance(obj, np.ndarray):
        return from_array(obj)
    if isinstance(obj, (list, tuple)) or (np.isscalar(obj) and not isinstance(obj, (bytes, memoryview))):
        return None
    if (lent := _lent(obj, dtype)) is not None:
        return lent
    if type(obj).__name__ == "PyCapsule":
        from flambeau.tensor.making.interop import from_dlpack

        return from_dlpack(obj)
    try:
        memoryview(obj)
    except TypeError:
        return None
    return frombuffer(obj, dtype=dtype or dtypes.get_default_dtype())


def _lent(obj: Any, dtype: dtypes.dtype | None) -> Tensor | None:
    """A tensor over the memory of a storage, or of what speaks DLPack; None for other things."""
    if hasattr(obj, "_untyped_storage"):
        return _of_storage(obj, dtype)
    if hasattr(obj, "__dlpack__") and not isinstance(obj, np.ndarray):
        from flambeau.tensor.making.interop import from_dlpack

        return from_dlpack(obj)
    return None


def _of_storage(obj: Any, dtype: dtypes.dtype | None) -> Tensor:
    """A tensor over the bytes of a storage, read as numbers of the dtype."""
    dtype = dtype or (dtypes.int64 if isinstance(obj, UntypedStorage) else obj.dtype)
    storage = storage_for(obj, dtype)._storage
    result = wrap(flat_view(storage, dtype))
    result._storage = storage
    return result


@factory
def frombuffer(buffer: Any, *, dtype, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A 1-D tensor over the memory of an object with Python's buffer protocol: `count` elements from byte `offset` on."""
    dtype = dtype_of("frombuffer", dtype)
    try:
        view = memoryview(buffer)
    except TypeError:
        raise ValueError("object does not implement Python buffer protocol.") from None
    length, size = view.nbytes, dtype.itemsize
    if not length or not count:
        raise ValueError(f"both buffer length ({length}) and count ({count}) must not be 0")
    if not 0 <= offset < length:
        raise ValueError(f"offset ({offset} bytes) must be non-negative and less than the buffer length ({length} bytes)")
    if count < 0:
        if (length - offset) % size:
            rest = f"buffer length ({length - offset} bytes) after offset ({offset} bytes)"
            raise ValueError(f"{rest} must be a multiple of element size ({size})")
        count = (length - offset) // size
    if offset + count * size > length:
        wanted = f"requested buffer length ({count} * {size} bytes) after offset ({offset} bytes)"
        raise ValueError(f"{wanted} must not be more than the buffer length ({length} bytes)")
    if view.readonly:
        warnings.warn("The given buffer is not writable, and tensors cannot be non-writable: only read this one", stacklevel=3)
    result = finish(np.frombuffer(buffer, np.uint8)[offset : offset + count * size].view(dtype.numpy), requires_grad)
    result._shared_storage().owned = False
    return result


@factory
def from_file(filename, shared=None, size=0, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False) -> Tensor:
    """A 1-D tensor over the bytes of a file. With shared=True writes reach the file, which is made long enough; else they stay private."""
    check_options("from_file", layout, pin_memory)
    dtype = dtype_of("from_file", dtype) or dtypes.get_default_dtype()
    if device is not None and devices.device(device).type != "cpu":
        raise NotImplementedError(f"from_file maps files into main memory, not to {device}: move the result with .to()")
    elements = mapped(filename, shared, size * dtype.itemsize).view(dtype.numpy)
    result = finish(elements, requires_grad)
    result._shared_storage().filename = os.fspath(filename) if shared else None
    return result


@factory
def scalar_tensor(s: Any, **options) -> Tensor:
    """A 0-d tensor of one number, of the default dtype unless told otherwise."""
    return made("scalar_tensor", constant("scalar_tensor", (), s), **options)


def number(name: str, value: Any, parameter: str = "fill_value") -> Any:
    """A Python number, from a number, a NumPy scalar or a 0-d tensor that needs no gradient."""
    if type(value) in literals.PYTHON_NUMBERS:
        return value
    if isinstance(value, Tensor) and not value.dim() and not value.requires_grad:
        return value.item()
    if isinstance(value, (int, float, complex, np.number, np.bool_)):
        return value.item() if isinstance(value, np.generic) else value
    raise TypeError(f"{name}(): argument '{parameter}' must be Number, not {type(value).__name__}")


# -- of one number -------------------------------------------------------------------------------------------------


def constant(name: str, shape: tuple, value: Any) -> Callable:
    """make() for an array of one number, which must fit the dtype."""
    value = number(name, value)
    return lambda dtype, where: filled(shape, dtype, where, literals.stored(value, dtype))


def _constant(name: str, value: int) -> tuple[Callable, Callable, Callable]:
    """zeros, zeros_like and Tensor.new_zeros, or the same of ones."""

    def create(*size, out=None, **options):
        shape = shape_of(name, size)
        return made(name, lambda d, where: filled(shape, d, where, value), out, **options)

    return (
        factory(create, name, f"A tensor of {name}: {name}(2, 3), {name}((2, 3))."),
        _like(f"{name}_like", lambda array: arrays.fill(array, value), name.capitalize()),
        _new(f"new_{name}", lambda shape, d, where: filled(shape, d, where, value), f"{name.capitalize()} of any shape"),
    )


@factory
def empty(*size, out=None, memory_format=formats.contiguous_format, **options) -> Tensor:
    """A tensor whose elements have no defined value until they are written."""
    shape = shape_of("empty", size)
    if memory_format is formats.contiguous_format:
        return made("empty", lambda d, where: _memory(shape, d, where), out, **options)
    if memory_format is formats.preserve_format:
        raise RuntimeError("unsupported memory format Preserve: there is no tensor whose order could be kept. Try empty_like")
    strides = formats.strides_for(memory_format, shape, ())
    return made("empty", lambda d, where: arrays.empty_strided(shape, strides, d.numpy, where), out, **options)


@factory
def full(size, fill_value, *, out=None, **options) -> Tensor:
    """A tensor of one number, whose kind decides the dtype: full((2,), 1) is int64, full((2,), 1.) is float32."""
    make = constant("full", need_tuple("full", size), fill_value)
    return made("full", make, out, default=dtypes.of_scalar(number("full", fill_value)), **options)


@factory
def empty_strided(size, stride, **options) -> Tensor:
    """Memory without values, with the given shape and strides (in elements)."""
    return made("empty_strided", functools.partial(_strided, size, stride), laid_out=True, **options)


def _strided(size, stride, dtype: dtypes.dtype, device: devices.device) -> Any:
    """A fresh array with the given shape and strides, after checking them."""
    size, stride = need_tuple("empty_strided", size), tuple(s.__index__() for s in stride)
    if len(size) != len(stride):
        raise RuntimeError(f"dimensionality of sizes ({len(size)}) must match dimensionality of strides ({len(stride)})")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"strides must not be negative: sizes={list(size)} and strides={list(stride)}")
    try:
        return arrays.empty_strided(size, stride, dtype.numpy, device)
    except (ValueError, OverflowError, MemoryError):
        _check_extent(size, geometry.storage_extent(size, stride), dtype)
        raise


@factory
def empty_permuted(size, physical_layout, **options) -> Tensor:
    """Memory without values; `physical_layout` lists the dimensions from the one with the largest stride to the one with the smallest."""
    shape, order = need_tuple("empty_permuted", size), [d.__index__() for d in physical_layout]
    if len(order) != len(shape):
        raise RuntimeError(f"Number of dimensions in size ({len(shape)}) does not match the length of the physical_layout ({len(order)})")
    if not all(0 <= d < len(shape) for d in order):
        raise RuntimeError(f"Dimension out of range: physical_layout {order} names dimensions 0 to {len(shape) - 1}")
    if len(set(order)) != len(order):
        raise RuntimeError(f"Duplicate dim not allowed in physical_layout {order}")
    strides, step = [0] * len(shape), 1
    for d in reversed(order):
        strides[d] = step
        step *= max(shape[d], 1)
    return made("empty_permuted", lambda d, where: arrays.empty_strided(shape, tuple(strides), d.numpy, where), **options)


@factory
def eye(n, m=None, *, out=None, **options) -> Tensor:
    """The identity matrix with n rows and m columns (n if not given)."""
    rows, columns = whole("eye", "n", n), whole("eye", "m", n if m is None else m)
    if rows < 0 or columns < 0:
        raise RuntimeError(f"{'n' if rows < 0 else 'm'} must be greater or equal to 0, found {rows if rows < 0 else columns}")

    def make(dtype: dtypes.dtype, where: devices.device):
        array, length = filled((rows, columns), dtype, where, 0), min(rows, columns)
        if length:
            arrays.fill(arrays.strided_view(array, (length,), (columns + 1,)), 1)
        return array

    return made("eye", make, out, **options)


def _triangle(name: str, lower: bool, meaning: str) -> Callable:
    def indices(row, col, offset=0, **options):
        if row < 0 or col < 0:
            raise RuntimeError(f"{'row' if row < 0 else 'col'} must be non-negative, got {row if row < 0 else col}")

        def make(dtype: dtypes.dtype, where: devices.device, offset=offset):
            if dtype not in (dtypes.int32, dtypes.int64):
                raise NotImplementedError(f'"{name}" not implemented for {dtype.name}: indices are int64 or int32')
            offset = min(max(whole(name, "offset", offset), -row), col)  # beyond the corners nothing changes
            rows = np.arange(row)
            if row * col < 1024:  # few enough to look at each
                seen = (np.less_equal if lower else np.greater_equal)(np.arange(col) - offset, rows[:, None])
                return arrays.to_device(np.array(seen.nonzero(), dtype.numpy), where)
            # Where in each row the part ends that is below the diagonal, or begins that is above it.
            diagonal = np.minimum(np.maximum(rows + (offset + lower), 0), col)
            counts = diagonal if lower else col - diagonal
            ends = np.cumsum(counts)
            found = np.empty((2, int(ends[-1])), dtype.numpy)
            found[0] = np.repeat(rows, counts)
            found[1] = np.arange(found.shape[1])
            found[1] -= np.repeat((ends - counts if lower else ends - col).astype(dtype.numpy, copy=False), counts)
            return arrays.to_device(found, where)

        return made(name, make, default=dtypes.int64, **options)

    return factory(indices, name, f"Row and column numbers of the elements on and {meaning} a diagonal, row by row. -> (2, n)")


tril_indices = _triangle("tril_indices", True, "below")
triu_indices = _triangle("triu_indices", False, "above")


# -- like another tensor -------------------------------------------------------------------------------------------


def like(name: str, input: Tensor, write: Callable, memory_format, work: Callable | None = None, **options) -> Tensor:
    """A fresh tensor with the shape of `input`, and its dtype, device and order of memory unless told otherwise; `write(array)` fills it."""
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument 'input' must be Tensor, found {type(input).__name__}")
    own = input._array
    shape = own.shape
    usual = not options and memory_format is formats.preserve_format and type(own) is np.ndarray and own.flags.c_contiguous
    if usual and own.size and 1 not in shape:  # the everyday call, without detours; sizes of 1 would have their own say in the strides

        def fresh():
            array = arrays.empty(shape, own_dtype, devices.cpu)
            write(array)
            return array

        own_dtype = own.dtype
        result = finish(fresh())
        if modes.watching:
            _note(name, fresh, result, True, work)
        return result
    strides = formats.strides_for(memory_format or formats.preserve_format, shape, arrays.element_strides(own))

    def make(dtype: dtypes.dtype, where: devices.device):
        array = arrays.empty_strided(shape, strides, dtype.numpy, where)
        write(array)
        return array

    return made(name, make, default=input.dtype, home=input.device, laid_out=True, work=work, **options)


def _like(name: str, write: Callable, meaning: str) -> Callable:
    def likeness(input, *, memory_format=formats.preserve_format, **options):
        return like(name, input, write, memory_format, **options)

    return factory(likeness, name, f"{meaning} with the shape, dtype, device and order of memory of `input`.")


@factory
def full_like(input, fill_value, *, memory_format=formats.preserve_format, **options) -> Tensor:
    """One number with the shape, dtype, device and order of memory of `input`."""

    def write(array) -> None:
        arrays.fill(array, literals.stored(number("full_like", fill_value), dtypes.OF_NUMPY[array.dtype]))

    return like("full_like", input, write, memory_format, **options)


def _new(name: str, make: Callable, meaning: str) -> Callable:
    def new(self, *size, **options):
        shape = shape_of(name, size)
        return made(name, lambda d, where: make(shape, d, where), default=self.dtype, home=self.device, **options)

    return factory(new, name, f"{meaning}, with the dtype and device of this tensor.")


@factory
def new_empty_strided(self, size, stride, dtype=None, **options) -> Tensor:
    """Memory without values, with any shape and strides, and the dtype and device of this tensor."""
    make = functools.partial(_strided, size, stride)
    return made("new_empty_strided", make, dtype=dtype, default=self.dtype, home=self.device, laid_out=True, **options)


@factory
def new_full(self, size, fill_value, **options) -> Tensor:
    """One number, with the dtype and device of this tensor."""
    make = constant("new_full", need_tuple("new_full", size), fill_value)
    return made("new_full", make, default=self.dtype, home=self.device, **options)


@factory
def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False) -> Tensor:
    """A copy of the data, with the dtype and device of this tensor."""
    check_options("new_tensor", layout, pin_memory)
    dtype = self.dtype if dtype is None else dtype_of("new_tensor", dtype)
    return tensor(data, dtype=dtype, device=self.device if device is None else device, requires_grad=requires_grad)


zeros, zeros_like, new_zeros = _constant("zeros", 0)
ones, ones_like, new_ones = _constant("ones", 1)
empty_like = _like("empty_like", lambda array: None, "Memory without values,")
new_empty = _new("new_empty", _memory, "Memory without values")
for _method in (new_zeros, new_ones, new_empty, new_empty_strided, new_full, new_tensor):
    setattr(Tensor, _method.__name__, _method)
