"""Running updates on a GPU: as many tensors per launch as a kernel's parameters have room for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cupy.cuda import Device

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.cuda.launch import Kernel, load_source
from flambeau.kernels.cuda.print_updates import TENSORS, function_name, print_update
from flambeau.kernels.language.print_cuda import THREADS
from flambeau.kernels.loops.updates import Update, flattened

MOST_BLOCKS = 512  # for one tensor: its threads take several elements then
_functions: dict[tuple, object] = {}


def update(kernel: Update, tensors: Sequence[Sequence], numbers: tuple) -> None:
    """Move tensors of one device and dtype, given by their operands."""
    device = tensors[0][0].data.device_id
    with Device(device):
        ready = [operands if _lie_alike(operands) else flattened(operands) for operands in tensors]
        dense = [[arrays.contiguous(a) for a in t] if r is None else r for t, r in zip(tensors, ready, strict=True)]
        work = [operands for operands in dense if operands[0].size]
        for start in range(0, len(work), TENSORS):
            _launch(kernel, work[start : start + TENSORS], numbers, device)
        for operands, flat, copies in zip(tensors, ready, dense, strict=True):
            for i in kernel.written if flat is None else ():
                if copies[i] is not operands[i]:
                    arrays.write(operands[i], copies[i])


def _lie_alike(operands: Sequence) -> bool:
    """Whether all are contiguous, as they nearly always are. A kernel asks for no more than where they begin."""
    shape = operands[0].shape
    return all([a._c_contiguous and a.shape == shape for a in operands])


def _launch(kernel: Update, work: list, numbers: tuple, device: int) -> None:
    dtype = dtypes.of_array(work[0][0]).name
    function = _functions.get((kernel, dtype, device))
    if function is None:
        name = function_name(kernel, dtype)
        function = _functions[kernel, dtype, device] = Kernel(load_source(name, print_update(kernel, dtype)).get_function(name))
    found = [[*[a.data.ptr for a in operands], operands[0].size] for operands in work]
    pieces = np.zeros((len(kernel.operands) + 1, TENSORS), np.int64)
    pieces[:, : len(work)] = np.array(found).T
    blocks = min(-(-max([sizes[-1] for sizes in found]) // THREADS), MOST_BLOCKS)
    function((blocks, len(work)), (THREADS,), (pieces.reshape(-1).view(f"V{pieces.nbytes}"), *map(float, numbers)))
