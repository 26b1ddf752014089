"""Softmax and its relatives of many short rows, and of rows in half precision: the compiled loops against NumPy in double precision."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import flambeau
import flambeau.ops.softmax
from flambeau.kernels.loops.language import DECLARED
from flambeau.kernels.loops.run import run
from flambeau.kernels.native import native

pytestmark = pytest.mark.skipif(native.lib is None, reason="nothing is compiled here")
TOLERANCE = {"float32": 2e-6, "float64": 1e-14, "float16": 1e-3, "bfloat16": 8e-3}
# Every length a vector may end in, more rows than a buffer holds, what is cut for threads with a rest, and rows too long to be widened.
SHAPES = [*((40, c) for c in (*range(1, 20), 31, 32, 33, 63, 64, 65)), (3000, 10), (7, 11, 5), (20001, 3), (3, 5000)]


def expected(name: str, x: np.ndarray, grad: np.ndarray) -> np.ndarray:
    """In double precision, by the definition. `x` stands for the result where the program is of a gradient."""
    if name == "softmax_backward":
        return x * (grad - (grad * x).sum(-1, keepdims=True))
    if name == "log_softmax_backward":
        return grad - np.exp(x) * grad.sum(-1, keepdims=True)
    logs = x - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)) - x.max(-1, keepdims=True)
    return logs if name == "log_softmax" else np.exp(logs)


def operands_of(name: str, shape: tuple[int, ...], dtype: str) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(5)
    x, grad = (rng.standard_normal(shape).astype({"bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype)) for _ in range(2))
    if name.endswith("backward"):
        return grad, run(DECLARED[name.removesuffix("_backward")], (x,))
    return (x,)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmax_backward", "log_softmax_backward"])
def test_short_rows_have_the_values_of_the_definition(name, dtype):
    """Rows that are worked on side by side are not what they are alone."""
    for shape in SHAPES:
        operands = operands_of(name, shape, dtype)
        found = run(DECLARED[name], operands)
        assert found.dtype == operands[0].dtype and found.shape == shape and found.flags.c_contiguous
        wanted = expected(name, operands[-1].astype(np.float64), operands[0].astype(np.float64))
        bound = TOLERANCE[dtype] * (1 + np.abs(wanted).max())
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=TOLERANCE[dtype], atol=bound, err_msg=f"{shape}")


def test_what_is_no_number_stays_in_its_row():
    """A NaN or an infinity of one short row reaches another, or gets lost in its own."""
    x = np.random.default_rng(3).standard_normal((64, 10)).astype(np.float32)
    x[3, 9], x[4, 0], x[7, 5] = np.nan, np.nan, np.inf
    x[9, :] = -np.inf
    x[11, 2] = -np.inf
    for name in ("softmax", "log_softmax"):
        found = run(DECLARED[name], (x,))
        assert set(np.isnan(found).any(-1).nonzero()[0]) == {3, 4, 7, 9}
        assert np.isnan(found[[3, 4, 9]]).all() and found[11, 2] == (0 if name == "softmax" else -np.inf)


def test_short_rows_have_the_same_bits_with_any_number_of_threads():
    """How many threads there are can be told from a result."""
    threads = flambeau.get_num_threads()
    try:
        for name in ("softmax", "log_softmax", "softmax_backward", "log_softmax_backward"):
            operands, found = operands_of(name, (30011, 7), "float32"), []
            for count in (1, 2, 3):
                flambeau.set_num_threads(count)
                found.append(run(DECLARED[name], operands).tobytes())
            assert found[0] == found[1] == found[2]
    finally:
        flambeau.set_num_threads(threads)
