"""Updates as CUDA C++: one kernel for a list of tensors, each a column of blocks.

fl_update_adam_f32(Pieces all, double s0, ...)      all: the addresses of every tensor's operands, and how many elements it has
"""

from __future__ import annotations

from flambeau.kernels.language.print_cuda import PREAMBLE, THREADS, TYPES, CudaPrinter
from flambeau.kernels.loops.updates import Update

TENSORS = 48  # in one launch: with 7 operands their addresses are 3 of the 4 kB that a kernel's parameters may have


def function_name(update: Update, dtype: str) -> str:
    """The name of the kernel."""
    return f"fl_{update.name.replace('.', '_')}_{TYPES[dtype][0]}"


def print_update(update: Update, dtype: str) -> str:
    """The CUDA C++ of one kernel."""
    p, operands = CudaPrinter(dtype), range(len(update.operands))
    lines, values = p.bodies(update.results)
    parameters = ", ".join(["const __grid_constant__ Pieces all", *[f"double s{i}" for i in range(update.n_param)]])
    head = [f"const {p.compute} p{i} = {p.number(f's{i}')};" for i in range(update.n_param)]
    head += [f"{p.storage} *const a{i} = ({p.storage} *)all.at[{i}][blockIdx.y];" for i in operands]
    body = [f"const {p.compute} x{i} = {p.read('T', f'a{i}[i]')};" for i in operands] + lines
    body += [f"a{i}[i] = {p.stored(dtype, value, 'T')};" for i, value in zip(update.written, values, strict=True)]
    return (
        PREAMBLE
        + f"""
struct Pieces {{ long long at[{len(update.operands)}][{TENSORS}]; long long size[{TENSORS}]; }};
extern "C" __global__ void __launch_bounds__({THREADS})
{function_name(update, dtype)}({parameters}) {{
    {_joined(head, 4)}
    for (long long i = (long long)blockIdx.x * {THREADS} + threadIdx.x; i < all.size[blockIdx.y]; i += (long long)gridDim.x * {THREADS}) {{
        {_joined(body, 8)}
    }}
}}
"""
    )


def _joined(lines: list[str], indent: int) -> str:
    return ("\n" + " " * indent).join(lines)
