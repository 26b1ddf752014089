"""Loops along dimensions that are not the last: the compiled loops for columns side by side against NumPy in double precision."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from flambeau.kernels.loops.language import DECLARED
from flambeau.kernels.loops.run import run, side_by_side
from flambeau.kernels.native import native

pytestmark = pytest.mark.skipif(native.lib is None, reason="nothing is compiled here")
# Blocks of 64 columns and of 16, what is left of them, columns that are too long to be copied, and more dimensions on both sides.
CASES = [((5, 64), 0), ((700, 83), 0), ((1500, 35), 0), ((5000, 66), 0), ((3, 20, 4, 9), 1), ((2, 3, 4, 50), 2), ((1, 17), 0)]
TOLERANCE = {"float32": 2e-6, "float64": 1e-14, "float16": 1e-3, "bfloat16": 8e-3}


def expected(name: str, dim: int, x: np.ndarray, grad: np.ndarray) -> np.ndarray:
    """In double precision, by the definition. `x` stands for the result where the program is of a gradient."""
    if name == "softmax_backward":
        return x * (grad - (grad * x).sum(dim, keepdims=True))
    if name == "log_softmax_backward":
        return grad - np.exp(x) * grad.sum(dim, keepdims=True)
    logs = x - np.log(np.exp(x - x.max(dim, keepdims=True)).sum(dim, keepdims=True)) - x.max(dim, keepdims=True)
    return logs if name == "log_softmax" else np.exp(logs)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmax_backward", "log_softmax_backward"])
def test_columns_have_the_values_of_the_definition(name, dtype):
    """A loop along another dimension is wrong, or is not carried out on the columns as they lie."""
    rng = np.random.default_rng(11)
    for shape, dim in CASES:
        x, grad = (rng.standard_normal(shape).astype({"bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype)) for _ in range(2))
        if name.endswith("backward"):
            x = run(DECLARED[name.removesuffix("_backward")], (x,), dim=dim)
        operands = (grad, x) if name.endswith("backward") else (x,)
        found = run(DECLARED[name], operands, dim=dim)
        assert found.dtype == x.dtype and found.flags.c_contiguous
        assert side_by_side(DECLARED[name], operands, (), dim).tobytes() == found.tobytes()
        wanted = expected(name, dim, x.astype(np.float64), grad.astype(np.float64))
        scale = np.abs(wanted).max() if name == "log_softmax_backward" else 1
        np.testing.assert_allclose(
            found.astype(np.float64), wanted, rtol=10 * TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale, err_msg=f"{shape}"
        )


def test_infinity_and_nan_stay_in_their_column():
    """A NaN does not reach all of its column, or reaches another; or -inf has a weight."""
    x = np.zeros((40, 70), np.float32)
    x[3, 5], x[4, 6], x[:, 69], x[7, 68] = np.nan, -np.inf, -np.inf, np.inf
    found = run(DECLARED["softmax"], (x,), dim=0)
    assert [list(np.flatnonzero(reached(np.isnan(found), 0))) for reached in (np.any, np.all)] == [[5, 68, 69]] * 2
    assert found[4, 6] == 0 and np.allclose(found[:, 6].sum(), 1)


def test_columns_have_the_same_bits_with_any_number_of_threads():
    """Softmax along the first dimension depends on the number of threads."""
    x, before = np.random.default_rng(2).standard_normal((300, 1000)).astype(np.float32), native.lib.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            native.lib.set_num_threads(threads)
            found.append(run(DECLARED["softmax"], (x,), dim=0).tobytes())
    finally:
        native.lib.set_num_threads(before)
    assert len(set(found)) == 1
