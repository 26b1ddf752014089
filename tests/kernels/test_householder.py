"""QR of small matrices: PyTorch's bits where they were found out, and reflections that are right for any numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flambeau.kernels.linear_algebra import matrices
from flambeau.kernels.native import native
from flambeau.kernels.templates import householder

pytestmark = pytest.mark.skipif(native.lib is None, reason="nothing is compiled here")
CPUINFO = Path("/proc/cpuinfo")
CPU = CPUINFO.read_text() if CPUINFO.exists() else ""
known = pytest.mark.skipif(
    "GenuineIntel" not in CPU or "avx512f" not in CPU, reason="PyTorch's order of rounding is known for Intel's CPUs with AVX-512"
)

# Each way of Note [the last bits of QR], its borders, and what is left over of vectors and of groups of columns.
SHAPES = [(1, 3), (2, 2), (3, 3), (4, 4), (5, 5), (4, 3), (3, 4), (8, 8), (13, 7), (16, 9), (20, 20), (12, 18)]
SHAPES += [(21, 1), (21, 2), (27, 6), (33, 3), (34, 7), (40, 20), (50, 32), (51, 20), (72, 5), (150, 12), (900, 4)]
SHAPES += [(3, 21), (21, 21), (22, 30), (32, 32), (32, 70), (51, 21), (64, 32), (3, 27, 6), (2, 3, 8, 8), (4, 3, 1)]
REALS = ("float32", "float64")


def special(shape):
    """Matrices with zeros, ones, columns that depend on each other, and numbers whose squares are too large or too small."""
    rng = np.random.default_rng(1)
    a = rng.standard_normal(shape)
    yield from (np.zeros(shape), np.ones(shape), np.triu(a), np.tril(a), (rng.random(shape) < 0.3) * 1.0, rng.integers(-3, 4, shape) * 1.0)
    yield from (a * factor for factor in (1e-42, 1e-25, 1e-18, 1e25, 1e-160, 1e-310, 1e150))
    for number in (0, 1e-25, 1e25):
        for column in {0, shape[-1] - 1}:
            other = a.copy()
            other[..., column] *= number
            yield other


@known
@pytest.mark.parametrize("dtype", REALS)
def test_bits(dtype):
    """A bit of Q, R or the reflections is not PyTorch's."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for shape in SHAPES:
            for a in (np.random.default_rng(0).standard_normal(shape), *special(shape)):
                with np.errstate(over="ignore"):
                    a = a.astype(dtype)
                if np.isfinite(a).all():
                    wanted = [*torch.linalg.qr(torch.from_numpy(a)), *torch.geqrf(torch.from_numpy(a))]
                    for ours, theirs in zip((*matrices.qr(a, "reduced"), *matrices.qr_packed(a)), wanted, strict=True):
                        assert (ours == theirs.numpy()).all(), (shape, a.ravel()[:4])
                        assert ours.size == 1 or ours.strides == tuple(s * ours.itemsize for s in theirs.stride()), shape
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("dtype", REALS)
def test_is_qr(dtype, mode):
    """Q is not orthonormal, R not upper triangular, or Q R not the matrix."""
    eps = np.finfo(dtype).eps
    for shape in SHAPES if mode == "reduced" else SHAPES[::3]:
        for a in (np.random.default_rng(2).standard_normal(shape), *special(shape)):
            with np.errstate(over="ignore", under="ignore"):
                a = a.astype(dtype)
            if not np.isfinite(a).all():
                continue
            assert householder.applies(a)
            q, r = (part.astype(np.float64) for part in matrices.qr(a, mode))
            assert np.abs(q.swapaxes(-1, -2) @ q - np.eye(q.shape[-1])).max() < (50 + shape[-2]) * eps, shape
            assert (np.tril(r, -1) == 0).all()
            size = np.abs(a).max().astype(np.float64)
            assert np.abs(q @ (r / (size or 1)) - a / (size or 1)).max() < 200 * max(eps, np.finfo(dtype).tiny * eps / (size or 1)), shape


def test_nan_is_not_lost():
    """A NaN in a matrix leaves numbers in Q, or touches the other matrices of the batch."""
    for shape in ((3, 4, 3), (3, 27, 6), (3, 25, 25)):
        a = np.random.default_rng(3).standard_normal(shape)
        good, _ = matrices.qr(a, "reduced")
        a[1, 2, 0] = np.nan
        q, _ = matrices.qr(a, "reduced")
        assert np.isnan(q[1]).all() and (q[::2] == good[::2]).all()
