"""Anomaly mode in forward: the first operation that makes NaN or infinity of finite operands, and what it was given.

UserWarning: NaN appears in forward, in log: 1 of 12 elements
    in module      encoder.fc
    input          (4, 3) float32, range -0.3 .. 2.1
    result         (4, 3) float32, range -1.2 .. 0.74, 1 NaN, at batch index 2
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau import modes
from flambeau.autograd import anomaly_mode
from flambeau.interpreters import stack
from flambeau.tensor import Tensor

state = modes.state


class Found(threading.local):
    """How many reports this thread has made."""

    number = 0


found = Found()


class Looking(stack.Interpreter):
    """Looks at the results of operations, and at nodes of backward; of a composite, after its parts."""

    level, stays, operations, by_operations = stack.ANOMALY, True, True, False

    def handle(self, function: Any, args: tuple, kwargs: dict, next: Callable) -> Any:
        """Run an operation, and look at its result."""
        known = found.number
        result = next(*args, **kwargs)
        if found.number == known:  # else a part of it has been reported, which says more
            look(function.op, args, kwargs, result)
        return result

    def handle_node(self, node: Any, grads: list, next: Callable) -> list:
        """Run a node of backward; what goes wrong in it is reported with the line that recorded it."""
        with anomaly_mode.Explained(node):
            received = list(grads)
            sent = next(grads)
            if state.check_nan:
                anomaly_mode.check(node, sent, received)
        return sent


looking = Looking()


def look(op: Any, args: tuple, kwargs: dict, result: Any) -> None:
    """Warn if the result of an operation has NaN or infinity that none of its operands has."""
    if state.running is not None or not state.check_nan:
        return  # in backward, where the node that runs is what is reported
    for tensor in result if isinstance(result, (tuple, list)) else (result,):
        what = oddity(tensor) if isinstance(tensor, Tensor) else None
        if what is None or any(explains(v, what) for v in (*args, *kwargs.values())):
            continue
        found.number += 1
        bad = count(tensor, what)
        lines = [f"{what} appears in forward, in {op.short}: {bad:,} of {tensor.numel():,} element{'s' if tensor.numel() != 1 else ''}"]
        if state.modules:
            lines.append(f"    in module      {path_of(state.modules)}")
        names = (*op.parameters, *[f"argument {i}" for i in range(len(op.parameters), len(args))])
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            if isinstance(value, Tensor):
                lines.append(f"    {name:<14} {range_of(value)}")
            elif isinstance(value, (int, float)):
                lines.append(f"    {name:<14} {value}")
        lines.append(f"    result         {range_of(tensor)}{batch_of(tensor)}")
        anomaly_mode._warn("\n".join(lines))
        return


def explains(value: Any, what: str) -> bool:
    """Whether an operand has what the result has: then the operation only passed it on. Memory that is not filled yet explains anything."""
    if isinstance(value, Tensor):
        own = oddity(value)
        return own == "NaN" or (own is not None and what == "infinity")
    if isinstance(value, (list, tuple)):
        return any(explains(v, what) for v in value)
    return isinstance(value, float) and not np.isfinite(value)


def oddity(tensor: Tensor) -> str | None:
    """ "NaN", or "infinity", or None where all elements are finite."""
    array = tensor._array
    if not tensor._is_float() or not hasattr(array, "sum") or not array.size or hasattr(array, "as_tensor"):
        return None
    values = _wide(tensor)
    if bool(np.isfinite(values).all()):
        return None
    return "NaN" if bool(np.isnan(values).any()) else "infinity"


def count(tensor: Tensor, what: str) -> int:
    values = _wide(tensor)
    return int((np.isnan(values) if what == "NaN" else np.isinf(values)).sum())


def _wide(tensor: Tensor) -> Any:
    """The values in main memory, in a dtype that NumPy knows all about."""
    array = tensor._array
    if type(array) is not np.ndarray:
        array = array.get() if hasattr(array, "get") else np.zeros(0)
    return array if array.dtype.kind == "c" else array.astype(np.float64)


def range_of(tensor: Tensor) -> str:
    """Shape, dtype, and from where to where the finite values go."""
    name = f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
    if not tensor.numel():
        return name
    values = _wide(tensor)
    values = np.abs(values) if values.dtype.kind == "c" else values
    finite = values[np.isfinite(values)]
    if finite.size:
        name += f", range {finite.min():.4g} .. {finite.max():.4g}"
    for what, mask in (("NaN", np.isnan(values)), ("infinite", np.isinf(values))):
        if mask.any():
            name += f", {int(mask.sum()):,} {what}"
    return name


def batch_of(tensor: Tensor) -> str:
    """Which samples are concerned: positions along the first dimension, where there is more than one."""
    values = _wide(tensor)
    if values.ndim < 1 or values.shape[0] < 2:
        return ""
    bad = np.flatnonzero(~np.isfinite(values).reshape(values.shape[0], -1).all(1))
    if len(bad) == values.shape[0]:
        return ", in the whole batch"
    shown = ", ".join(str(i) for i in bad[:5]) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
    return f", at batch index {shown}" if len(bad) else ""


def path_of(modules: Any) -> str:
    """The path from the outermost module that is running to the innermost: "encoder.layers.3.fc2 (Linear)"."""
    names = []
    for outer, inner in itertools.pairwise(modules):
        names.append(next((name for name, module in outer.named_modules() if module is inner), type(inner).__name__))
    inner = type(modules[-1]).__name__
    return f"{'.'.join(names)} ({inner})" if names else inner
