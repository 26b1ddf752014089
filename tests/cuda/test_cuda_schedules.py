"""The numbers of printed CUDA, under every schedule, are those of the NumPy evaluator: on a GPU, or compiled for the CPU where there is none."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau.kernels import arrays
from flambeau.kernels.loops.evaluate import evaluate
from flambeau.kernels.loops.folds import as_loop
from flambeau.kernels.loops.language import DECLARED, ROW, SHARED
from flambeau.kernels.loops.passes import passes
from flambeau.kernels.reductions.fold import FOLDS
from flambeau.ops import cross_entropy, normalization, softmax  # noqa: F401

FOLD = {fold.name: fold for fold in FOLDS}
LOOPS = [
    *[
        DECLARED[name]
        for name in ("softmax", "log_softmax_backward", "layer_norm", "losses", "losses_smoothed", "losses_backward_smoothed")
    ],
    *[as_loop(FOLD[name]) for name in ("sum", "prod", "logsumexp", "any")],
    *[as_loop(FOLD[name], True) for name in ("max", "min")],
]
# name: (rows before, length, rows side by side), then lanes, pack, items, columns, parts
WAYS = {
    "registers": ((70, 96, 1), 8, 4, 4, False, 1),
    "packs": ((5, 96, 1), 32, 4, 0, False, 1),
    "one by one": ((2, 1037, 1), 256, 1, 0, False, 1),
    "columns": ((2, 21, 136), 8, 4, 0, True, 1),
    "columns in registers": ((2, 21, 5), 32, 1, 1, True, 1),
    "parts": ((2, 4096, 1), 32, 4, 0, False, 5),
    "columns in parts": ((1, 300, 48), 8, 2, 0, True, 3),
}


def operands(loop, outer: int, n: int, inner: int, rng) -> list[np.ndarray]:
    """Numbers for a loop: (outer, n, inner), (outer, 1, inner) and (n,)."""
    made = []
    for access, kind in zip(loop.loads, loop.kinds, strict=True):
        shape = (outer, n, inner) if access == ROW else (n,) if access == SHARED else (outer, 1, inner)
        if kind == "i64":
            made.append(rng.integers(0, n, shape))
        else:
            numbers = rng.uniform(0.5, 1.5, shape) if loop.name == "fold_prod" else rng.standard_normal(shape)
            made.append(numbers.astype(np.float64 if kind == "f64" else np.float32))
    return made


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: f"{loop.name}{'_place' * (len(loop.stores) > 1)}")
def test_every_schedule(gpu, monkeypatch, loop, way):
    """A row more or less than what threads share, packs, parts: the numbers do not depend on it."""
    (outer, n, inner), lanes, pack, items, columns, splits = WAYS[way]
    found = passes(loop, room=0, puts=False, at_once=True).reducing if splits > 1 else ()
    unit = lanes if columns else lanes * pack
    chunk = -(-n // (splits * unit)) * unit if splits > 1 else n
    forced = gpu.rows.Way(lanes, pack, items, columns, chunk, -(-n // chunk), tuple(sum(1 + r.placed for r in s.reductions) for s in found))
    gpu.rows.plan.cache_clear()
    monkeypatch.setattr(gpu.rows, "schedule", lambda *given: forced)
    given = operands(loop, outer, n, inner, np.random.default_rng(0))
    options = [3.0 if kind == "i64" else 0.5 for kind in loop.params]
    turned = [a if access == SHARED else np.moveaxis(a, 1, -1) for a, access in zip(given, loop.loads, strict=True)]
    wanted = [np.moveaxis(a, -1, 1) for a in evaluate(loop, turned, options)]
    dtypes = {"i64": np.int64, "bool": np.bool_}
    cards = [arrays.to_device(a, flambeau.device("cuda", 0)) for a in given]
    stores = [
        arrays.empty_beside(cards[0], a.shape, np.dtype(dtypes.get(kind, np.float32)))
        for a, kind in zip(wanted, loop.store_kinds, strict=True)
    ]
    gpu.run_loop(loop, stores, cards, options, gpu.Rows(outer * inner, n, inner, n * inner, int(inner > 1), inner))
    for store, numbers in zip(stores, wanted, strict=True):
        np.testing.assert_allclose(store.get().astype(np.float64), numbers.astype(np.float64), 2e-5, 2e-5)
