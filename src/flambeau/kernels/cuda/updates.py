"""Running updates on a GPU: as many tensors per launch as a kernel's parameters have room for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cupy.cuda import Device

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.cuda.launch import as_kernel, compiled, load_source
from flambeau.kernels.cuda.print_updates import COUNTERS, TENSORS, function_name, print_advance, print_update
from flambeau.kernels.language.print_cuda import THREADS
from flambeau.kernels.loops.updates import Update, flattened

MOST_BLOCKS = 512  # for one tensor: its threads take several elements then
_functions: dict[tuple, object] = {}


def update(kernel: Update, tensors: Sequence[Sequence], numbers: tuple) -> None:
    """Move tensors of one device and dtype, given by their operands."""
    _move(kernel, tensors, tuple(map(float, numbers)), [])


def update_reading(kernel: Update, tensors: Sequence[Sequence], options: Sequence) -> None:
    """The same by options instead of numbers; those that are lists lie on the GPU, one for each tensor, and the kernel works out the numbers itself."""
    values = tuple([float(o) for o in options if type(o) is not list])
    _move(kernel, tensors, values, [(i, o) for i, o in enumerate(options) if type(o) is list])


def advance(counters: Sequence) -> None:
    """Add 1 to arrays of one element, of one dtype and device."""
    device, kind = counters[0].data.device_id, PRECISION[counters[0].dtype.char]
    with Device(device):
        kernel = compiled(print_advance, f"fl_advance_{kind}", device, kind)
        for start in range(0, len(counters), COUNTERS):
            some = counters[start : start + COUNTERS]
            places = np.zeros(COUNTERS, np.int64)
            places[: len(some)] = [a.data.ptr for a in some]
            kernel((1,), (COUNTERS,), (places.view(f"V{places.nbytes}"), len(some)))


def _move(kernel: Update, tensors: Sequence[Sequence], values: tuple[float, ...], lying: list) -> None:
    device = tensors[0][0].data.device_id
    with Device(device):
        ready = [operands if _lie_alike(operands) else flattened(operands) for operands in tensors]
        dense = [[arrays.contiguous(a) for a in t] if r is None else r for t, r in zip(tensors, ready, strict=True)]
        work = [(operands, [at[i] for _, at in lying]) for i, operands in enumerate(dense) if operands[0].size]
        held = tuple([(option, PRECISION[at[0].dtype.char]) for option, at in lying])
        for start in range(0, len(work), TENSORS):
            _launch(kernel, work[start : start + TENSORS], values, held, device)
        for operands, flat, copies in zip(tensors, ready, dense, strict=True):
            for i in kernel.written if flat is None else ():
                if copies[i] is not operands[i]:
                    arrays.write(operands[i], copies[i])


PRECISION = {"f": "float", "d": "double"}  # of numbers that lie on the GPU


def _lie_alike(operands: Sequence) -> bool:
    """Whether all are contiguous, as they nearly always are. A kernel asks for no more than where they begin."""
    shape = operands[0].shape
    return all([a._c_contiguous and a.shape == shape for a in operands])


def _launch(kernel: Update, work: list, values: tuple[float, ...], held: tuple, device: int) -> None:
    dtype = dtypes.of_array(work[0][0][0]).name
    function = _functions.get((kernel, dtype, held, device))
    if function is None:
        name = function_name(kernel, dtype)
        function = _functions[kernel, dtype, held, device] = as_kernel(
            load_source(name, print_update(kernel, dtype, held)).get_function(name)
        )
    found = [[*[a.data.ptr for a in operands], *[a.data.ptr for a in lying], operands[0].size] for operands, lying in work]
    pieces = np.zeros((len(kernel.operands) + len(held) + 1, TENSORS), np.int64)
    pieces[:, : len(work)] = np.array(found).T
    blocks = min(-(-max([sizes[-1] for sizes in found]) // THREADS), MOST_BLOCKS)
    function((blocks, len(work)), (THREADS,), (pieces.reshape(-1).view(f"V{pieces.nbytes}"), *values))
