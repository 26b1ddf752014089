"""Running pointwise operations on tensors, the general way: whatever the operands are. What the common calls come down to is in their plans."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NoReturn

import numpy as np

from flambeau import dtypes, errors, modes
from flambeau.eager import inplace, plans
from flambeau.eager.arguments import Arguments, not_a_tensor
from flambeau.eager.record import record_pointwise, record_written
from flambeau.eager.saved import Before
from flambeau.interpreters import by_name, calls
from flambeau.kernels import arrays, layout
from flambeau.literals import importable, stored
from flambeau.ops.promotion import promoted
from flambeau.tensor import Tensor, wrap

NUMBERS = {int, float, bool, complex}
state = modes.state


def bind(op) -> Callable:
    """The general way of a pointwise operation: arguments by position or name."""
    sort = _sorter(op)

    def body(*args, out=None, **kwargs):
        operands, options = sort(args, kwargs)
        return computed(op, operands, options, out)

    def front(*args, out=None, **kwargs):
        operands, options = sort(args, kwargs)
        return general(op, operands, options, out)

    op.body = body
    return front


def bind_operator(op, own_name: bool = False) -> Callable:
    """input + other: what the operands do not understand is left to the other side (NotImplemented), not an error.

    `own_name`: `__torch_function__` is told of the operator (`__eq__`), not of the operation (`eq`).
    """

    def front(input, other):
        if own_name and by_name.knows_by_name((input, other)):
            return by_name.call(operator, (input, other), (input, other), {})
        try:
            return general(op, (input, other), ())
        except TypeError as problem:
            if isinstance(other, (Tensor, int, float, complex)) and not isinstance(problem, by_name.NobodyAnswered):
                raise
            if op.name == "eq" and isinstance(other, np.ndarray):  # NumPy would leave it to us, and Python would then compare identities
                return general(op, (input, wrap(importable(other))), ())
            return NotImplemented

    operator = plans.front(op, front)
    return operator


def _wants(operand) -> bool:
    return isinstance(operand, Tensor) and operand.requires_grad


def _sorter(op) -> Callable:
    """The function that tells the operands from the options among the arguments of a call; `every`: so many, by position, are all of them,
    operands first. (-1: that is never so.)"""
    arguments = Arguments(op)
    n, last = len(op.operands), tuple(op.defaults[p] for p in op.options) if set(op.options) <= set(op.defaults) else None
    positional = last is not None and op.parameters == (*op.operands, *op.options) and op.n_positional == len(op.parameters)
    operand_at = [op.parameters.index(p) for p in op.operands]
    option_at = [op.parameters.index(p) for p in op.options]

    def sort(args: tuple, kwargs: dict) -> tuple[tuple, tuple]:
        if positional and not kwargs and n <= len(args) <= n + len(last):
            return args[:n], args[n:] + last[len(args) - n :]
        values = arguments.values(args, kwargs)
        return tuple([values[i] for i in operand_at]), tuple([values[i] for i in option_at])

    sort.every = len(op.parameters) if positional else -1
    return sort


# -- the general path ----------------------------------------------------------------------------------------------


def general(op, operands: tuple, options: tuple, out: Tensor | None = None) -> Tensor:
    """Any operands, and whoever has a say in what is done with them."""
    if modes.special or by_name.any_foreign(operands if out is None else (*operands, out)):
        kwargs = dict(zip(op.options, options, strict=True)) if options else {}
        return calls.run(op.call, op.body, operands, kwargs if out is None else kwargs | {"out": out})
    return computed(op, operands, options, out)


def computed(op, operands: tuple, options: tuple, out: Tensor | None = None) -> Tensor:
    """Any operands: promotes, moves 0-d tensors, casts, checks shapes, runs, records."""
    if op.short in OF_NUMBERS:
        operands = with_a_tensor(operands)
    if not op.number_first and not isinstance(operands[0], Tensor):
        raise not_a_tensor(op, operands[0])
    operands = tuple([tensor_or_number(op, v) for v in operands])
    if op.short in WITH_FLOAT8 and any([isinstance(v, Tensor) and isinstance(v.dtype, dtypes.float8) for v in operands]):
        return _of_float8(op, operands, options)
    ready, key, out_dtype = prepare(op, operands)
    options = tuple([_option(v, key) for v in options])
    if out is not None:
        return _into_out(op, operands, ready, options, key, out_dtype, out)
    result = wrap(arrays.run(op.kernel, ready, options, key, out_dtype))
    finish(op, result, operands, options)
    if modes.watching:
        plans.note(plans.MAKES, op, operands, (result,), result, (options, key, out_dtype))
    return result


# What PyTorch does with floats of eight bits beyond moving them.
WITH_FLOAT8 = frozenset({"abs", "eq", "isfinite", "isinf", "isnan", "mul", "ne", "where"})


def _of_float8(op, operands: tuple, options: tuple) -> Tensor:
    """As float32, and back again: exact, where nothing is computed. (PyTorch has products, too, of one another and of nothing else.)"""
    if op.short == "mul" and not all([isinstance(v, Tensor) and isinstance(v.dtype, dtypes.float8) for v in operands]):
        prepare(op, operands)  # which refuses
    common = promoted(*[v for v, kind in zip(operands, op.kernel.kinds, strict=True) if kind == "T"])
    wide = [v.float() if isinstance(v, Tensor) and kind == "T" else v for v, kind in zip(operands, op.kernel.kinds, strict=True)]
    result = general(op, tuple(wide), options)
    return result if result.dtype is dtypes.bool else result.to(common)


def finish(op, result: Tensor, operands: tuple, options: tuple) -> None:
    """Record the operation if a gradient is wanted."""
    if modes.paused and not modes.state.grad:
        result._inference = modes.state.inference
    elif op.differentiable and any(map(_wants, operands)) and result._is_float():
        record_pointwise(op, result, operands, options)


OF_NUMBERS = frozenset(("add", "sub", "mul", "div", "floor_divide"))  # torch.add(1, 2) is a tensor, too


def with_a_tensor(operands: tuple) -> tuple:
    """The operands, the first of them as a tensor if all are Python numbers."""
    if not all(type(v) in NUMBERS for v in operands):
        return operands
    return wrap(np.asarray(operands[0], promoted(operands[0]).numpy)), *operands[1:]


def tensor_or_number(op, value):
    """An operand: a tensor, or a Python number; NumPy's scalars count as numbers."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (int, float, complex, np.generic)) and op.takes_numbers:
        if op.refuse_bool and isinstance(value, bool):
            raise RuntimeError(op.refuse_bool)
        if isinstance(value, np.bool_):
            return float(value)  # PyTorch takes it for one, too
        return value.item() if isinstance(value, np.generic) else value
    wanted = "Tensor or a number" if op.takes_numbers else "Tensor"
    raise TypeError(f"{op.short}(): argument must be a {wanted}, not {type(value).__name__}. Try torch.as_tensor(...) on it first")


def prepare(op, operands: tuple):
    """(operands as arrays or numbers in one dtype, that dtype, the dtype of the result)."""
    tensors = [v for v in operands if isinstance(v, Tensor)]
    if not tensors:
        raise TypeError(f"{op.short}(): expected at least one Tensor, found {', '.join(type(v).__name__ for v in operands)}")
    if op.refuse_bool and any(v.dtype is dtypes.bool for v in tensors):
        raise RuntimeError(op.refuse_bool)
    device = common_device(op, tensors)
    shapes = [v._array.shape for v in tensors]
    try:
        key = compute_dtype(op, promoted(*[v for v, kind in zip(operands, op.kernel.kinds, strict=True) if kind == "T"]))
    except NotImplementedError:
        layout.broadcast_shapes(*shapes)  # of two faults PyTorch names this one
        raise
    layout.broadcast_shapes(*shapes)  # raises where they do not broadcast
    ready = []
    for value, kind in zip(operands, op.kernel.kinds, strict=True):
        if not isinstance(value, Tensor):
            ready.append(as_number(value, key) if kind == "T" else np.asarray(bool(value)) if device.type == "cpu" else bool(value))
            continue
        array = arrays.plain(value._array)
        if array.ndim == 0 and arrays.device_of(array) != device:
            array = arrays.number(array.item(), next(t._array for t in tensors if t.device == device), array.dtype)
        if kind == "T":
            array = arrays.cast(array, key.numpy)
        elif value.dtype is not dtypes.bool:
            array = condition(op, value)
        ready.append(array)
    if all(isinstance(v, arrays.NUMBERS) for v in ready):
        ready[0] = np.asarray(ready[0]).astype(key.numpy)
    return ready, key.numpy, result_dtype(op, key).numpy


def as_number(value, key: dtypes.dtype):
    """A Python number as an operand in dtype `key`."""
    return (complex if key.is_complex else float if key.is_floating_point else bool if key is dtypes.bool else int)(value)


def _option(value, key: np.dtype):
    """A number for the whole call: RuntimeError where the dtype `key`, in which it is computed, cannot mean it."""
    value = value.item() if isinstance(value, Tensor) else value
    imaginary = type(value) is complex and key.kind != "c"
    if imaginary or (type(value) in NUMBERS and key.kind in "iu"):
        stored(value, dtypes.OF_NUMPY[key])
    return value.real if imaginary else value


def condition(op, value: Tensor):
    """A mask: bool, or uint8 as old programs have it."""
    if value.dtype is dtypes.uint8:
        errors.warn(f"{op.short}: a uint8 condition is deprecated, use a bool tensor")
        return arrays.cast(value._array, dtypes.bool.numpy)
    raise RuntimeError(f"{op.short}: the condition must be of bool, found {value.dtype}. Try .bool()")


def compute_dtype(op, common: dtypes.dtype) -> dtypes.dtype:
    """The dtype the formula is computed in, by the operation's rule; NotImplementedError where it has no meaning."""
    if op.rule in ("float", "angle") and common.category < dtypes.FLOAT:
        return dtypes.get_default_dtype()
    if common.is_complex:
        if not op.takes_complex:
            raise RuntimeError(op.refuse_complex) if op.refuse_complex else unsupported(op, common)
        return common
    if common.name not in op.dtypes and common.name not in ("uint16", "uint32", "uint64"):
        raise unsupported(op, common)
    return common


def unsupported(op, d: dtypes.dtype) -> NotImplementedError:
    return NotImplementedError(f'"{op.short}" not implemented for {d.name} tensors; it takes {", ".join(op.dtypes)}')


def result_dtype(op, key: dtypes.dtype) -> dtypes.dtype:
    if op.rule in ("compare", "logical"):
        return dtypes.bool
    return key.to_real() if op.rule in ("real", "angle") else key


def common_device(op, tensors):
    """The one device of all operands; 0-d tensors on the CPU go along with anything."""
    device = tensors[0].device
    if all(t.device == device for t in tensors):
        return device
    device, *others = [t.device for t in tensors if t._array.ndim or t.device.type != "cpu"]
    for d in others:
        if d != device:
            found = ", ".join(f"{tuple(x.shape)} on {x.device}" for x in tensors)
            what = f"Expected all tensors to be on the same device, but found at least two devices, {device} and {d}!"
            raise RuntimeError(f"{what} ({op.short} of {found}; move one with .to('{device}'))")
    return device


def _into_out(op, operands, ready, options, key, out_dtype, out: Tensor) -> Tensor:
    """The out= form: the result is written to `out`, which is resized if need be. Of one operand that is not made a float, it is not converted."""
    inplace.check_out(op, operands, out, dtypes.OF_NUMPY[out_dtype])
    if len(op.operands) == 1 and op.public and op.rule in ("promote", "real", "compare") and out._array.dtype != out_dtype:
        found, wanted = dtypes.in_messages(out.dtype), dtypes.in_messages(dtypes.OF_NUMPY[out_dtype])
        also = f". {op.short} does not support non-boolean outputs" if op.rule == "compare" else ""
        raise RuntimeError(f"{op.short}(): Found dtype {found} but expected {wanted} for out={also}")
    views = [arrays.view_of(v) for v in ready if not isinstance(v, arrays.NUMBERS)]
    shape = layout.broadcast_shapes(*[v[0] for v in views])
    inplace.check_writable("out=", out)
    given = [v._array for v in operands if isinstance(v, Tensor)]
    if overlaps(out._array, given):
        for array in given:
            arrays.apart(out._array, array)  # raises if they overlap in part, as in PyTorch
    inplace.resize_out(op, out, shape, layout.pointwise_strides(shape, *views))
    to = out._array
    at_once = type(to) is np.ndarray and to.dtype == out_dtype
    if not at_once or op.kernel.launch_into(to, *ready, *options) is NotImplemented:
        arrays.write(to, arrays.run(op.kernel, ready, options, key, out_dtype))
    out._bump()
    if modes.watching:
        as_given = all(r is v._array for r, v in zip(ready, operands, strict=True) if isinstance(v, Tensor))
        note_write(op, out, operands, options, key, out_dtype, as_given, False)
    return out


def bind_inplace(op) -> Callable:
    """Tensor.<name>_: the result is written over the first operand."""
    sort = _sorter(op)
    n, every = len(op.operands), sort.every

    def body(*args, **kwargs):
        return run_inplace(op, *sort(args, kwargs))

    def front(*args, **kwargs):
        operands, options = (args[:n], args[n:]) if len(args) == every and not kwargs else sort(args, kwargs)
        if modes.special or by_name.any_foreign(operands):
            return calls.run(op.call_inplace, body, args, kwargs)
        return run_inplace(op, operands, options)

    return front


def writer(op, out, key, out_dtype) -> Callable:
    """What writes over an array like `out`, of such arrays and numbers; NotImplemented where there is more to it."""
    if type(out) is np.ndarray:
        return op.kernel.launch_into
    return arrays.cuda_room.formula(op.kernel, key, out_dtype).into


def run_inplace(op, operands: tuple, options: tuple) -> Tensor:
    self = operands[0]
    operands = tuple([tensor_or_number(op, v) for v in operands])
    inplace.check_writable(op, self, operands)
    if op.rule == "real" and self.is_complex():
        raise RuntimeError(f"In-place {op.short} is not supported for complex tensors: the result is real. Try x = x.{op.short}()")
    ready, key, out_dtype = prepare(op, operands)
    options = tuple([_option(v, key) for v in options])
    shape = layout.broadcast_shapes(*[v._array.shape for v in operands if isinstance(v, Tensor)])
    inplace.check_result(op, self, shape, dtypes.OF_NUMPY[out_dtype])
    # What has no derivative, such as a comparison, still ends the history of what it writes over.
    recorded = modes.state.grad and any(map(_wants, operands if op.differentiable else (self,)))
    before = Before(self, operands, _reads_self(op, operands)) if recorded else None
    array = self._array
    if overlaps(array, ready):  # and yet not in a way that was refused above
        ready = [v if isinstance(v, arrays.NUMBERS) else arrays.apart(array, v) for v in ready]
    if array.dtype == out_dtype:
        arrays.run(op.kernel, ready, options, key, out_dtype, out=array)
    else:
        arrays.write(array, arrays.run(op.kernel, ready, options, key, out_dtype))
    self._bump()
    if recorded:
        inplace.rewrite(self, lambda result: record_written(op, result, operands, options, before))
        words = op.refuse_written and op.refuse_written(*options)
        if words:
            self.grad_fn.register_prehook(partial(_refuse, words))
    if modes.watching:
        as_given = all(r is v._array for r, v in zip(ready, operands, strict=True) if isinstance(v, Tensor))
        note_write(op, self, operands, options, key, out_dtype, as_given, recorded)
    return self


def note_write(op, out: Tensor, operands: tuple, options: tuple, key, out_dtype, as_given: bool, recorded: bool) -> None:
    """Say to whoever watches what was written where; `as_given`: of operands that were not converted."""
    array = out._array
    plain = as_given and (type(array) is np.ndarray or arrays.on_only_gpu(array)) and array.dtype == out_dtype
    if not plain:
        return plans.note()
    how = plans.Write(writer(op, array, key, out_dtype), (out, *operands, *options), True, recorded)
    values = (*operands, *options) if operands[0] is out else (out, *operands, *options)
    return plans.note(plans.WRITES, op, values, (), out, how)


def _refuse(words: str, grads: tuple) -> NoReturn:
    raise RuntimeError(words)


def _reads_self(op, operands) -> bool:
    """Whether some derivative needs operand 0 as it was before the write."""
    return any(0 in op.kernel.gradient(i).uses for i, v in enumerate(operands) if _wants(v))


def overlaps(out, ready) -> bool:
    """Whether an operand shares memory with `out` without being the very same view."""
    if type(out) is arrays.MetaArray or type(out) is arrays.Mirrored:
        return False  # what is written in a mirror is computed first
    share = arrays.module_of(out).may_share_memory
    where = lambda a: (a.shape, a.strides, arrays.data_pointer(a))  # noqa: E731
    return any(type(v) is type(out) and v is not out and share(out, v) and where(v) != where(out) for v in ready)
