"""Recurrent networks on arrays: all steps of one layer in one direction, by the loops of print_recurrent.py, or on a GPU by cuda/recurrent.py.

gates (rows, G H) is the input's part; weight (G H, H), h0 and c0 (N, H). Rows are those of step 0, then of step 1, ...; sizes[t] of them.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate

import numpy as np

from flambeau.kernels import arrays
from flambeau.kernels.arrays import Array
from flambeau.kernels.native import native
from flambeau.kernels.reductions.reduce import reduce
from flambeau.kernels.templates import gemm

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
# Operands of the compiled loops (the first is written to; so are cell and keep forward, and da, dh0 and dc0 backward), and facts about them.
FORWARD = ("out", "gates", "panels", "bias", "h0", "c0", "cell", "keep", "facts")
BACKWARD = ("dx", "keep", "state", "start", "g", "gc", "weight", "dh0", "dc0", "da", "facts")
FACTS = ("first", "rows", "steps", "h", "reverse", "biased", "keeps", "has_g", "has_gc", "ldw", "as_it_lies")
LARGEST = 4096  # bytes of a row of states for which the loops have room: they work on the stack, which may be small in threads
FEW = 4  # samples whose states are multiplied with the weights as they lie, by dot products: to turn them would cost more than it saves
NEAR = 1 << 20  # bytes of weights that stay in a core's own cache
PANEL = {"avx2": 64}  # bytes of a row of a panel of weights, as print_gemm.py has them; 256 for other CPUs


def compiled(cell: str, gates: Array, hidden: int) -> bool:
    """Whether there are loops for these operands."""
    on_cpu = type(gates) is np.ndarray and native.lib is not None and hidden * gates.itemsize <= LARGEST
    on_gpu = arrays.on_gpu(gates)
    return (on_cpu or on_gpu) and gates.dtype.char in "fd" and gates.size > 0 and hidden > 0


def fits(cell: str, input, states: list, params: list, biased, layers, ways: int) -> bool:
    """Whether `network` can do it: plain arrays that fit each other. The long way knows more, and says what is wrong."""
    each = 4 if biased else 2
    arrays_of = [input, *states, *params]
    if (
        len(params) != layers * ways * each
        or any([type(x) is not np.ndarray or x.dtype != input.dtype for x in arrays_of])
        or input.ndim != 3
    ):
        return False
    hidden, wide = params[1].shape[-1], GATES[cell] * params[1].shape[-1]
    for i, x in enumerate(params):
        across = input.shape[2] if i < ways * each else ways * hidden
        if x.shape != ((wide, across) if i % each == 0 else (wide, hidden) if i % each == 1 else (wide,)):
            return False
    return compiled(cell, input, hidden) and all([x.ndim == 3 and x.shape[0] == layers * ways and x.shape[2] == hidden for x in states])


def network(cell: str, input, states: list, params: list, biased, layers, ways: int, batch_first: bool):
    """(outputs (T, N, H) or, with batch_first, (N, T, H), last h, the lstm's last c) of whole sequences through all layers, with nothing kept for backward."""
    each = 4 if biased else 2
    rows, hidden = arrays.contiguous(input.swapaxes(0, 1) if batch_first else input), params[1].shape[-1]
    steps, samples, features = rows.shape
    sizes, x = (samples,) * steps, rows.reshape(steps * samples, features)
    ends = [native.empty(s.shape, s.dtype) for s in states]
    for layer in range(layers):
        outs = []
        for way in range(ways):
            i = layer * ways + way
            w_ih, w_hh, *biases = params[i * each : (i + 1) * each]
            gates = _gates(cell, x, w_ih, biases)
            b_hh = biases[1] if cell == "gru" and biased else None
            h0, c0 = states[0][i], states[1][i] if cell == "lstm" else None
            out, cells, _ = forward(cell, gates, w_hh, b_hh, h0, c0, sizes, way == 1, False)
            last = slice(0, samples) if way else slice((steps - 1) * samples, None)
            for end, found in zip(ends, (out, cells), strict=False):
                arrays.write(end[i], found[last])
            outs.append(out)
        x = outs[0]
        if ways == 2:
            x = native.empty((len(outs[0]), 2 * hidden), input.dtype)
            for way, out in enumerate(outs):
                arrays.write(x[:, way * hidden : (way + 1) * hidden], out)
    found = x.reshape(steps, samples, ways * hidden)
    return found.swapaxes(0, 1) if batch_first else found, *ends


def _gates(cell: str, x: np.ndarray, weight: np.ndarray, biases: list[np.ndarray]) -> np.ndarray:
    """The input's part of the gates of all steps, (rows, G H)."""
    if not biases:
        return gemm.product(x, weight.T)
    bias = biases[0]
    if cell != "gru":  # both only ever occur as a sum
        with np.errstate(all="ignore"):
            bias = biases[0] + biases[1]
    found = gemm.quick_linear(x, weight, bias)
    if found is NotImplemented:
        found = gemm.product_into(native.empty((len(x), len(weight)), x.dtype), x, weight.T, 1, 1, bias)
    return found


def shapes(cell: str, rows: int, hidden: int, keeps: bool) -> list[tuple[int, int]]:
    """Of the outputs, the cell states, what backward needs."""
    widths = (1, int(cell == "lstm"), 0 if cell.startswith("rnn") or not keeps else 4)
    return [(rows if k else 0, k * hidden) for k in widths]


def forward(
    cell: str, gates: Array, weight: Array, bias: Array | None, h0: Array, c0: Array | None, sizes, reverse: bool, keeps: bool
) -> tuple:
    """(outputs (rows, H), the lstm's cell states (rows, H), what backward needs (rows, 4 H)); empty where a cell has none, or nobody wants it."""
    hidden = weight.shape[1]
    results = zip(("out", "cell", "keep"), shapes(cell, sum(sizes), hidden, keeps), strict=True)
    made = {name: arrays.empty_beside(gates, shape, gates.dtype) for name, shape in results}
    given = {n: None if x is None else arrays.contiguous(x) for n, x in (("gates", gates), ("bias", bias), ("h0", h0), ("c0", c0))}
    if type(gates) is not np.ndarray:
        operands = (given["gates"], arrays.contiguous(weight), given["bias"], given["h0"], given["c0"], *made.values())
        arrays.cuda_room.recurrent.forward(cell, *operands, sizes, reverse)
        return tuple(made.values())
    few, wide = sizes[0] <= FEW, PANEL.get(native.lib.variant(), 256) // weight.itemsize
    given |= made | {"panels": arrays.contiguous(weight) if few else _panels(weight, wide)}
    facts = {"biased": bias is not None, "keeps": keeps, "as_it_lies": few, "ldw": wide}
    _run(f"{cell}_forward", FORWARD, sizes, reverse, hidden, given, facts)
    return made["out"], made["cell"], made["keep"]


def backward(cell: str, g, gc, weight, h0, c0, out, cells, keep, sizes, reverse: bool) -> tuple:
    """The gradients of gates, weight, bias, h0 and c0, from those of outputs and cell states (which may be None)."""
    hidden, dtype, device = weight.shape[1], weight.dtype, arrays.device_of(weight)
    dx = arrays.empty((out.shape[0], weight.shape[0]), dtype, device)
    da = arrays.empty(dx.shape, dtype, device) if cell == "gru" else dx
    dh0, dc0 = arrays.empty(h0.shape, dtype, device), arrays.empty(h0.shape if cell == "lstm" else (0, 0), dtype, device)
    h0, start = arrays.contiguous(h0), arrays.contiguous(c0 if cell == "lstm" else h0)
    given = {n: None if x is None else arrays.contiguous(x) for n, x in (("g", g), ("gc", gc))}
    state = cells if cell == "lstm" else out
    if type(dx) is np.ndarray:
        given |= {"state": state, "start": start, "keep": keep, "weight": _whole_vectors(weight)}
        given |= {"dx": dx, "da": None if da is dx else da, "dh0": dh0, "dc0": dc0}
        facts = {"has_g": g is not None, "has_gc": gc is not None}
        _run(f"{cell}_backward", BACKWARD, sizes, reverse, hidden, given, facts | {"ldw": given["weight"].shape[1]})
    else:
        operands = (given["g"], given["gc"], arrays.contiguous(weight), start, state, keep, dx, da, dh0, dc0)
        arrays.cuda_room.recurrent.backward(cell, *operands, sizes, reverse)
    bias = reduce("sum", da, (0,), False, dtype) if cell == "gru" else dc0
    return dx, _of_weight(da, out, h0, sizes, reverse), bias, dh0, dc0


def _run(name: str, operands, sizes, reverse: bool, hidden: int, given: dict, facts: dict) -> None:
    """Launch a loop: an element is a group of samples, given by its first row; operands without samples are the same for all."""
    weights = given.get("panels", given.get("weight"))
    most = 16 if weights.nbytes <= NEAR else 24  # more rows for weights that come from farther away
    if not facts.get("as_it_lies"):  # in which case threads share out the units instead
        most = min(most, max(2, -(-sizes[0] // native.lib.get_num_threads())))  # however they are grouped, each is the same sums
    each, table = _table(tuple(sizes), most, ("h", hidden), ("reverse", reverse), *facts.items())
    first, samples, views = weights.reshape(-1)[:1], sizes[0], []
    for n in operands[:-1]:
        x = given.get(n)
        if x is None or not x.size or x is weights:
            views.append(first)  # is the weights, or not read
        else:
            views.append(x[:1] if n == "bias" else x[0:samples:each, 0])
    flops = 2 * sum(sizes) * weights.size // len(table)
    if native.kernel(f"recurrent.{name}").into(*views, table[:, 0], flops / 64) is NotImplemented:
        raise RuntimeError(f"recurrent.{name} did not take its operands: {[(n, getattr(x, 'shape', None)) for n, x in given.items()]}")


@lru_cache(256)
def _table(sizes: tuple[int, ...], most: int, *facts: tuple[str, int]) -> tuple[int, np.ndarray]:
    """(samples of a group, the facts and offsets of each group)."""
    samples, steps = sizes[0], len(sizes)
    each = -(-samples // -(-samples // most))
    known = {"rows": each, "steps": steps} | dict(facts)
    table = np.empty((-(-samples // each), len(FACTS) + steps + 1), np.int64)
    table[:, : len(FACTS)] = [known.get(n, 0) for n in FACTS]
    table[:, 0] = np.arange(len(table)) * each
    table[:, len(FACTS) :] = [0, *accumulate(sizes)]
    return each, table


def _panels(weight: Array, wide: int) -> Array:
    """weight turned, in panels of so many columns: (panels, H, columns)."""
    rows, hidden = weight.shape
    if rows % wide:
        padded = np.zeros((-(-rows // wide) * wide, hidden), weight.dtype)
        padded[:rows] = weight
        weight = padded
    return arrays.contiguous(weight.reshape(-1, wide, hidden).transpose(0, 2, 1))


def _whole_vectors(weight: Array) -> Array:
    """weight with rows of whole vectors of 64 bytes."""
    lanes = 64 // weight.itemsize
    if weight.shape[1] % lanes == 0:
        return arrays.contiguous(weight)
    padded = np.zeros((weight.shape[0], -(-weight.shape[1] // lanes) * lanes), weight.dtype)
    padded[:, : weight.shape[1]] = weight
    return padded


def _of_weight(da: Array, out: Array, h0: Array, sizes, reverse: bool) -> Array:
    """The gradient of the weight, daᵀ h: one product over all steps, h being the state each row began with."""
    n = sizes[0]
    if sizes[-1] == n:
        found = arrays.empty_beside(da, (da.shape[1], out.shape[1]), da.dtype)
        starts, goes_on = (da[len(da) - n :], da[: len(da) - n]) if reverse else (da[:n], da[n:])
        gemm.product_into(found, starts.T, h0, 1, 0)
        if len(goes_on):
            gemm.product_into(found, goes_on.T, out[n:] if reverse else out[: len(out) - n], 1, 1)
        return found
    xp = arrays.module_of(out)
    return gemm.product(da.T, xp.concatenate([out, h0])[xp.asarray(_before(tuple(sizes), reverse))])


@lru_cache(64)
def _before(sizes: tuple[int, ...], reverse: bool) -> np.ndarray:
    """Where each row's state before it is found: among the rows, or behind them, where the states at the start are."""
    rows = sum(sizes)
    where, offsets = np.empty(rows, np.int64), [0, *accumulate(sizes)]
    for t, size in enumerate(sizes):
        before = t + 1 if reverse else t - 1
        kept = min(size, sizes[before]) if 0 <= before < len(sizes) else 0
        where[offsets[t] : offsets[t] + kept] = np.arange(kept) + (offsets[before] if kept else 0)
        where[offsets[t] + kept : offsets[t + 1]] = rows + np.arange(kept, size)
    return where
