"""Small kernels as CUDA C++: arrays put side by side (`cuda/join.py`), a wait (`cuda/gpu.py`), where a graph's random numbers begin (`cuda/graphs.py`)."""

from __future__ import annotations

from flambeau.kernels.language.print_cuda import PREAMBLE, THREADS

MOST = 64  # arrays of one launch: their description is handed over with it
UNITS = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t", 16: "Pack<uint64_t, 2>"}


def print_join(unit: int, wide: bool) -> str:
    """The CUDA C++ that moves units of so many bytes."""
    index = "uint64_t" if wide else "uint32_t"
    return f"""{PREAMBLE}
typedef {UNITS[unit]} Unit;
struct Parts {{ const Unit *source[{MOST}]; long long start[{MOST}], row[{MOST}]; }};
extern "C" __global__ void __launch_bounds__({THREADS})
fl_join(Unit *out, long long outer, long long width, const __grid_constant__ Parts g) {{
    const long long me = (long long)blockIdx.x * {THREADS} + threadIdx.x, row = g.row[blockIdx.y];
    if (me >= outer * row) return;
    const {index} o = ({index})me / ({index})row;
    out[(long long)o * width + g.start[blockIdx.y] + (me - (long long)o * row)] = g.source[blockIdx.y][me];
}}
"""


def print_sleep() -> str:
    """The CUDA C++ that does nothing for so many cycles of the GPU's clock."""
    return """
extern "C" __global__ void
fl_sleep(long long cycles) {
    for (const long long start = clock64(); clock64() - start < cycles;) {}
}
"""


def print_set_words() -> str:
    """The CUDA C++ that writes a seed and an offset."""
    return """
extern "C" __global__ void
fl_set_words(unsigned long long *words, unsigned long long seed, unsigned long long offset) {
    words[0] = seed, words[1] = offset;
}
"""
