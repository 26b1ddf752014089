"""Running updates on a GPU: as many tensors per launch as a kernel's parameters have room for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cupy.cuda import Device

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.cuda_launch import load_source
from flambeau.kernels.print_cuda import THREADS
from flambeau.kernels.print_cuda_update import TENSORS, function_name, print_update
from flambeau.kernels.updates import Update, flattened

MOST_BLOCKS = 512  # for one tensor: its threads take several elements then
_functions: dict[tuple, object] = {}


def update(kernel: Update, tensors: Sequence[Sequence], numbers: tuple) -> None:
    """Move tensors of one device and dtype, given by their operands."""
    device = tensors[0][0].data.device_id
    with Device(device):
        ready = [flattened(operands) for operands in tensors]
        dense = [[arrays.contiguous(a) for a in t] if r is None else r for t, r in zip(tensors, ready, strict=True)]
        work = [operands for operands in dense if operands[0].size]
        for start in range(0, len(work), TENSORS):
            _launch(kernel, work[start : start + TENSORS], numbers, device)
        for operands, flat, copies in zip(tensors, ready, dense, strict=True):
            for i in kernel.written if flat is None else ():
                if copies[i] is not operands[i]:
                    arrays.write(operands[i], copies[i])


def _launch(kernel: Update, work: list, numbers: tuple, device: int) -> None:
    dtype = dtypes.of_array(work[0][0]).name
    function = _functions.get((kernel, dtype, device))
    if function is None:
        name = function_name(kernel, dtype)
        function = _functions[kernel, dtype, device] = load_source(name, print_update(kernel, dtype)).get_function(name)
    pieces = np.zeros((len(kernel.operands) + 1, TENSORS), np.int64)
    for i, operands in enumerate(work):
        pieces[:, i] = [*[a.data.ptr for a in operands], operands[0].size]
    blocks = min(-(-int(pieces[-1].max()) // THREADS), MOST_BLOCKS)
    function((blocks, len(work)), (THREADS,), (pieces.reshape(-1).view(f"V{pieces.nbytes}"), *map(float, numbers)))
