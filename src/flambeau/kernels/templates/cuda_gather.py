"""Reading and writing at indices as CUDA C++: one kernel for gather, scatter, rows, x[i, j] and sums by index.

An element has two places: `near`, where the index counts (a result, or the values to be written), and `far`, where it points to. The loops
go over the near side; what the indices do not say about the far one follows from the steps of the loops.

    take       near = far            put     far = near            add, multiply, maximum, minimum    far = far (+) near, atomically
    spell      near = the index itself, counted from the front; -1 for a bad one

An index out of bounds is noted (`cuda/error_notes.py`): what would have been read is 0, what would have been written is not.
"""

from __future__ import annotations

from typing import NamedTuple

from flambeau.dtypes import BY_NAME
from flambeau.kernels.language.print_cuda import NOTE, PREAMBLE, THREADS, TYPES, printer

# What is moved as it is, by its size in bytes: 16 is a whole pack, 17 is 16 bytes that begin anywhere a multiple of 8 does.
UNITS = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t", 16: "Pack<uint64_t, 2>", 17: "Pair"}


class GatherInstance(NamedTuple):
    """One kernel.

    how      what is done: see above
    far      the dtype of the far side where numbers are combined, else the size of the units moved
    near     the dtype of the near side where numbers are combined
    indices  the C types of the indices, as "lli": l for int64, i for int32
    wide     whether positions need 64 bits
    """

    how: str
    far: str | int
    near: str
    indices: str
    wide: bool

    @property
    def function(self) -> str:
        return f"fl_index_{self.how}"


def print_gather(k: GatherInstance) -> str:
    """The CUDA C++ of one kernel."""
    far = near = UNITS[k.far] if isinstance(k.far, int) else TYPES[k.far][1]
    head = step = ""
    if isinstance(k.far, str):
        head, step, near = _combining(k.how, k.far, k.near)
    reads = "".join(_READ.replace("@m", str(m)) for m in range(len(k.indices)))
    given = "".join(
        f", const {'int64_t' if kind == 'l' else 'int32_t'} *i{m}, long long step{m}, long long size{m}, long long dim{m}"
        for m, kind in enumerate(k.indices)
    )
    act = {
        "take": "    near[at[0]] = good ? far[place] : Near{};\n",
        "put": "    if (good) far[place] = near[at[0]];\n",
        "spell": "    near[at[0]] = good ? (Near)place : (Near)-1;\n",
    }.get(k.how, step)
    index, offset = ("uint64_t", "int64_t") if k.wide else ("uint32_t", "int32_t")
    count = 2 + len(k.indices)
    return f"""{PREAMBLE}{NOTE}
struct Pair {{ uint64_t low, high; }};
typedef {far} Far; typedef {near} Near;
{head}
extern "C" __global__ void __launch_bounds__({THREADS})
{k.function}(Near *near, Far *far, int64_t *note, long long kind, long long wrap, long long skip, long long n{given}, const __grid_constant__ Geometry<{count}, {index}> g) {{
    const long long me = (long long)blockIdx.x * {THREADS} + threadIdx.x;
    if (me >= n) return;
    {offset} at[{count}];
    locate(g, ({index})me, at);
    long long place = at[1];
    bool good = true;
{reads}{act}}}
"""


_READ = """    {
        const long long given = i@m[at[2 + @m]], here = given < 0 && wrap ? given + size@m : given;
        if (given == skip) return;
        if (here < 0 || here >= size@m) good = false, fl_note(note, kind, given, size@m, dim@m, 0);
        else place += here * step@m;
    }
"""


def _combining(how: str, far: str, near: str) -> tuple[str, str, str]:
    """(what comes before the kernel, what it does, the type of the near side) for one operation."""
    p, values = printer(far), printer(near)
    formulas = {"multiply": "a * b", "maximum": p.print_maximum("a", "b"), "minimum": p.print_minimum("a", "b")}
    word = "unsigned long long" if BY_NAME[far].itemsize == 8 else "unsigned int"
    head = f"""union Both {{ Far value; {word} bits; }};
__device__ inline Far combined(Far a, Far b) {{ return {formulas.get(how, "a")}; }}
"""
    added = "unsigned long long" if far == "int64" else p.storage
    step = f"    if (!good) return;\n    const Far value = (Far){values.read('T', 'near[at[0]]')};\n    Far *const target = far + place;\n"
    return head, step + (f"    atomicAdd(({added} *)target, ({added})value);\n" if how == "add" else _EXCHANGE), values.storage


# Write the combination if nobody has written since; else combine again. What changes nothing need not be written.
_EXCHANGE = """    Both seen, next, found;
    found.value = *target;
    do {
        seen = found;
        next.value = combined(seen.value, value);
        if (next.bits == seen.bits) return;
        found.bits = atomicCAS(&((Both *)target)->bits, seen.bits, next.bits);
    } while (found.bits != seen.bits);
"""
