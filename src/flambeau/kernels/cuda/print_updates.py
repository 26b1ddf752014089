"""Updates as CUDA C++: one kernel for a list of tensors, each a column of blocks.

fl_update_adam_f32(Pieces all, double s0, ...)      all: the addresses of every tensor's operands, and how many elements it has
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.kernels.language.print_cuda import PREAMBLE, THREADS, TYPES, CudaPrinter
from flambeau.kernels.loops.updates import Update

COUNTERS = 256  # in one launch
TENSORS = 48  # in one launch: with 7 operands their addresses are 3 of the 4 kB that a kernel's parameters may have


def function_name(update: Update, dtype: str) -> str:
    """The name of the kernel."""
    return f"fl_{update.name.replace('.', '_')}_{TYPES[dtype][0]}"


def print_update(update: Update, dtype: str, held: tuple[tuple[int, str], ...] = ()) -> str:
    """The CUDA C++ of one kernel.

    held   options that lie on the GPU, one for each tensor, and of which type: the kernel gets the other options instead of the numbers
           that are made of them (see kernels/loops/updates.py), and one thread of each block works these out, in double precision as Python does
    """
    p, n = CudaPrinter(dtype), len(update.operands)
    lines, values = p.bodies(update.results)
    given = [i for i in range(len(update.options)) if i not in dict(held)] if held else range(update.n_param)
    parameters = ", ".join(["const __grid_constant__ Pieces all", *[f"double s{i}" for i in given]])
    head = [f"{p.storage} *const a{i} = ({p.storage} *)all.at[{i}][blockIdx.y];" for i in range(n)]
    if held:
        head = [
            *_numbers(update, held, given, n),
            *[f"const {p.compute} p{i} = {p.number(f'number[{i}]')};" for i in range(update.n_param)],
            *head,
        ]
    else:
        head = [f"const {p.compute} p{i} = {p.number(f's{i}')};" for i in given] + head
    body = [f"const {p.compute} x{i} = {p.read('T', f'a{i}[i]')};" for i in range(n)] + lines
    body += [f"a{i}[i] = {p.stored(dtype, value, 'T')};" for i, value in zip(update.written, values, strict=True)]
    return (
        PREAMBLE
        + f"""
struct Pieces {{ long long at[{n + len(held)}][{TENSORS}]; long long size[{TENSORS}]; }};
extern "C" __global__ void __launch_bounds__({THREADS})
{function_name(update, dtype)}({parameters}) {{
    {_joined(head, 4)}
    for (long long i = (long long)blockIdx.x * {THREADS} + threadIdx.x; i < all.size[blockIdx.y]; i += (long long)gridDim.x * {THREADS}) {{
        {_joined(body, 8)}
    }}
}}
"""
    )


def _numbers(update: Update, held: tuple[tuple[int, str], ...], given: Sequence[int], n: int) -> list[str]:
    lines, values = CudaPrinter("float64").bodies(update.traced[1])
    options = [f"const double p{i} = s{i};" for i in given]
    options += [f"const double p{i} = *(const {kind} *)all.at[{n + place}][blockIdx.y];" for place, (i, kind) in enumerate(held)]
    stored = [f"number[{i}] = {value};" for i, value in enumerate(values)]
    return [
        f"__shared__ double number[{max(update.n_param, 1)}];", "if (threadIdx.x == 0) {",
        *["    " + line for line in (*options, *lines, *stored)], "}", "__syncthreads();",
    ]  # fmt: skip


def print_advance(kind: str) -> str:
    """The CUDA C++ that adds 1 to many counters, a thread for each."""
    return f"""
struct Places {{ {kind} *at[{COUNTERS}]; }};
extern "C" __global__ void
fl_advance_{kind}(const __grid_constant__ Places all, long long n) {{
    if (threadIdx.x < n) *all.at[threadIdx.x] += 1;
}}
"""


def _joined(lines: list[str], indent: int) -> str:
    return ("\n" + " " * indent).join(lines)
