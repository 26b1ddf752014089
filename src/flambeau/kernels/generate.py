"""Printing the C of all declared kernels: what `pip install` compiles.

python -m flambeau.kernels.generate DIRECTORY        writes the loops, one file per few kernels
python -m flambeau.kernels.generate --show mul       prints the C of one kernel
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from flambeau.kernels.language import print_c, print_complex, print_dtypes, vecmath
from flambeau.kernels.language.derive import NotDifferentiable
from flambeau.kernels.language.pointwise import Pointwise
from flambeau.kernels.language.print_table import Table, whole_table
from flambeau.kernels.loops import joined, schedules, update_loops
from flambeau.kernels.loops.language import DECLARED
from flambeau.kernels.loops.schedules import SCHEDULES
from flambeau.kernels.loops.source import HEADER
from flambeau.kernels.loops.updates import Update
from flambeau.kernels.templates import (
    counting_loops,
    elimination_loops,
    fold_loops,
    fourier_loops,
    householder_loops,
    index_loops,
    move_loops,
    point_loops,
    pool_loops,
    print_attention,
    print_conv,
    print_gemm,
    print_quantized,
    print_recurrent,
    print_tiles,
    product_loops,
    random_loops,
    scan_loops,
    sorting_loops,
    sparse_loops,
)

ROOMS = {
    "joined.c": joined,
    "counting.c": counting_loops,
    "products.c": product_loops,
    "random.c": random_loops,
    "index.c": index_loops,
    "move.c": move_loops,
    "scans.c": scan_loops,
    "sparse.c": sparse_loops,
    "order.c": sorting_loops,
    "householder.c": householder_loops,
    "elimination.c": elimination_loops,
    "fourier.c": fourier_loops,
    "attention.c": print_attention,
    "recurrent.c": print_recurrent,
    "quantized.c": print_quantized,
    "conv.c": print_conv,
    "pool.c": pool_loops,
    "points.c": point_loops,
}
FILES = 8  # enough that two or more compilers can work side by side


def kernels() -> list[Pointwise]:
    """All kernels that get loops ahead of time: the operations, and their derivatives in floating point."""
    from flambeau.kernels import arrays
    from flambeau.ops import everything

    found: list[Pointwise] = []
    for op in everything():
        if op.kind != "pointwise" or op.kernel in found:
            continue
        found.append(op.kernel)
        if not op.differentiable or not set(op.dtypes) & set(print_c.FLOATS):
            continue
        for i, kind in enumerate(op.kernel.kinds):
            gradient = _gradient(op.kernel, i) if kind == "T" else None
            if gradient is not None and gradient.kind == "kernel":
                found.append(gradient.kernel)
    for cast in arrays.CASTS.values():
        if cast.out in print_c.TYPES:
            cast.dtypes = tuple(print_c.TYPES)
            found.append(cast)
    return found


def updates() -> list[Update]:
    """How optimizers move parameters: every rule, with each set of states it can have."""
    from flambeau.ops import updates

    return updates.everything()


def _gradient(kernel: Pointwise, index: int):
    """The derivative, or None for a formula that has none."""
    try:
        return kernel.gradient(index)
    except NotDifferentiable:
        return None


# What training loops are made of gets loops for every dtype and every CPU variant. The rest is compiled for the dtypes people use it in and
# without AVX-512: compiling everything for everything would make the installation take minutes instead of one.
HOT = frozenset(
    """
    _add _add_scaled _sub _rsub mul _div _rdiv neg abs reciprocal _inverse exp log log1p sqrt rsqrt _root _inverse_root _square _cube _pow tanh
    sigmoid sin cos erf relu _gelu _gelu_tanh _silu _leaky_relu nn_functional_softplus _where _masked_fill maximum minimum _clamp _clamp_min
    _clamp_max lt le gt ge eq ne logical_not logical_and logical_or bitwise_and bitwise_or bitwise_not addcmul _addcdiv _lerp _lerp_by_number
    to_float32 to_bfloat16 to_float16 _glu
    """.split()
)
# These, too, are compiled for AVX-512: functions that are computed rather than copied.
WIDE = frozenset(
    """
    exp2 expm1 log2 log10 tan asin acos atan sinh cosh asinh acosh atanh atan2 erfc erfinv lgamma digamma _hardtanh _fmod _remainder
    _floor_divide _div_floor _nextafter _logaddexp logaddexp2
    """.split()
)
HALVES = ("float16", "bfloat16")
USUAL = ("float32", "float64", "int64", "bool")


def is_hot(kernel: Pointwise) -> bool:
    """Whether a kernel, or the one it is the derivative of, is among the hot ones."""
    return kernel.name in HOT or kernel.name.partition("_grad_")[0] in HOT


def is_wide(kernel: Pointwise) -> bool:
    """Whether a kernel has loops for AVX-512, too."""
    return is_hot(kernel) or kernel.name in WIDE


def instances(kernel: Pointwise) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """(kinds of the operands, dtype, dtype of the result) of every loop of a kernel."""
    for dtype in kernel.dtypes:
        if is_hot(kernel) or dtype in USUAL or kernel.name.startswith("to_"):
            out = dtype if kernel.out == "T" else kernel.out
            yield kernel.kinds, dtype, out
            if kernel.unrounded in kernel.operands and dtype in HALVES:
                number = kernel.operands.index(kernel.unrounded)
                yield (*kernel.kinds[:number], "f32", *kernel.kinds[number + 1 :]), dtype, out


def write_all(directory: Path) -> list[Path]:
    """Write the loops and the table. Files named rest_* are left out of the AVX-512 variant."""
    directory.mkdir(parents=True, exist_ok=True)
    texts: dict[str, list[str]] = {f"{kind}_{i}.c": [] for kind in ("hot", "rest") for i in range(FILES)}
    hot, rest, same = Table(), Table(), dict[str, str]()
    for number, kernel in enumerate(sorted(kernels(), key=lambda kernel: not is_wide(kernel))):
        kind, rows = ("hot", hot) if is_wide(kernel) else ("rest", rest)
        for kinds, dtype, out in instances(kernel):
            name, text = print_c.loop_name(kernel.name, kinds, dtype), _print(kernel, kinds, dtype, out, "@")
            # One loop for all that come down to the same C: what flows through a product is a product, and bytes are bytes.
            function = same.setdefault(text, name)
            if function == name:
                texts[f"{kind}_{number % FILES}.c"].append(text.replace("@", name))
            operands = " ".join(["number" if kind == "f32" else kind for kind in kinds])
            rows.add(kernel.name, function, dtype, operands, len(kernel.options), out=out)
    rooms = {name: room.table() for name, room in ROOMS.items()}
    rooms |= {"complex.c": print_complex.table(kernels()), "updates.c": update_loops.table(updates())}
    rooms |= {f"loops_{schedule}.c": schedules.table(schedule, DECLARED.values()) for schedule in SCHEDULES}
    texts["folds.c"], declared, folds = fold_loops.table()
    declared += hot.declarations + rest.declarations
    for name, (parts, declarations, rows) in rooms.items():
        texts[name] = parts
        declared += declarations
        hot.rows += rows
    texts["gemm_loops.c"] = print_gemm.texts()
    texts["table.c"] = [print_c.IN_BLOCKS, *declared, whole_table(hot.rows, rest.rows, folds)]
    write_headers(directory)
    for name, parts in texts.items():
        _write(directory / name, HEADER + "\n".join(parts))
    return [directory / name for name in texts]


def write_headers(directory: Path) -> None:
    """Write the headers that hand-written and generated C include."""
    for name, room in (("vecmath.h", vecmath), ("dtypes.h", print_dtypes), ("tiles.h", print_tiles)):
        _write(directory / name, room.header())


def _write(path: Path, text: str) -> None:
    """Write only what changed, so that only that is compiled again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def _print(kernel: Pointwise, kinds: tuple[str, ...], dtype: str, out: str, function: str) -> str:
    return print_c.print_loop(function, kernel.expr, kinds, len(kernel.options), dtype, out)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--show"]:
        for kernel in kernels():
            if kernel.name in arguments[1:]:
                for kinds, dtype, out in instances(kernel):
                    print(_print(kernel, kinds, dtype, out, print_c.loop_name(kernel.name, kinds, dtype)))
        for name in [n for n in arguments[1:] if n in DECLARED]:
            for way in SCHEDULES.values():
                if way.takes(DECLARED[name]):
                    print(*[way.print(DECLARED[name], d) for d in way.dtypes if d in DECLARED[name].dtypes], sep="\n")
        for update in updates():
            if update.name in arguments[1:]:
                print(*[update_loops.print_update(update, dtype) for dtype in print_c.FLOATS], sep="\n")
        return
    for path in write_all(Path(arguments[0])):
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
