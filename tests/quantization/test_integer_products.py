"""The product of 8-bit integers is exact, in every variant for every CPU, in NumPy, and with any number of threads."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import flambeau
from flambeau.kernels.native import native
from flambeau.kernels.templates import quantized

SHAPES = [(1, 1, 1), (1, 5, 3), (3, 64, 64), (7, 77, 65), (13, 300, 130), (50, 129, 1), (49, 1024, 70), (100, 1030, 64), (2, 7, 200)]
CHECK = """
import sys, warnings
warnings.simplefilter("ignore")
{before}
sys.path.insert(0, {folder!r})
import test_integer_products as here
for shape in here.SHAPES:
    here.check(*shape)
print(here.native.lib.variant() if here.native.lib else "numpy")
"""


def reference(x: np.ndarray, weight: np.ndarray, scales, zeros, bias, most: int) -> np.ndarray:
    """The formula in integers of 64 bits, with a last step rounded once."""
    scale, zero = quantized.choose(x, most)
    q = quantized.integers(x, np.float32(1) / np.float32(scale), zero, 0, 255).astype(np.int64)
    sums = (q - zero) @ (weight.astype(np.int64) - zeros.reshape(-1, 1)).T
    return (sums.astype(np.float32).astype(np.float64) * (np.float32(scale) * scales) + bias).astype(np.float32)


def check(rows: int, depth: int, columns: int) -> None:
    rng = np.random.default_rng(rows + depth)
    x = (rng.standard_normal((rows, depth)) + 0.2).astype(np.float32)
    weight = rng.integers(-128, 128, (columns, depth), dtype=np.int8)
    weight[:, :2] = -128  # the products that 16 bits could not hold
    bias, scales = rng.standard_normal(columns).astype(np.float32), rng.random(columns).astype(np.float32) / 10
    for zeros in (np.zeros(columns, np.int32), rng.integers(-9, 9, columns, dtype=np.int32)):
        for most in (127, 255):
            packed = quantized.pack(weight, scales, zeros, bias)
            np.testing.assert_array_equal(quantized.unpack(packed), weight)
            np.testing.assert_array_equal(quantized.linear(x, packed, most), reference(x, weight, scales, zeros, bias, most))


@pytest.mark.parametrize("shape", SHAPES)
def test_results_are_exact(shape):
    """A result differs from the formula computed in 64 bits."""
    check(*shape)


@pytest.mark.parametrize("variant", ["avx2", "baseline", "numpy"])
def test_every_variant_gives_the_same_integers(variant):
    """A CPU without VNNI, or without AVX2, or a machine without a compiler, computes something else."""
    if variant != "numpy" and native.lib is None:
        pytest.skip("nothing was compiled")
    before = 'sys.modules["flambeau.kernels._native"] = None' if variant == "numpy" else ""
    program = CHECK.format(before=before, folder=os.path.dirname(os.path.abspath(__file__)))
    run = subprocess.run([sys.executable, "-c", program], env=os.environ | {"FLAMBEAU_CPU": variant}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() in (variant, "baseline")


def test_threads_do_not_change_a_bit():
    """The result depends on the number of threads."""
    layer = flambeau.ao.quantization.quantize_dynamic(flambeau.nn.Sequential(flambeau.nn.Linear(300, 700)))
    x = flambeau.randn(500, 300)
    before = flambeau.get_num_threads()
    try:
        flambeau.set_num_threads(1)
        alone = layer(x)
        flambeau.set_num_threads(3)
        assert flambeau.equal(layer(x), alone)
    finally:
        flambeau.set_num_threads(before)


def test_a_strided_input_is_read_as_it_is():
    """A transposed, sliced or expanded input gives something else than its copy."""
    layer = flambeau.ao.quantization.quantize_dynamic(flambeau.nn.Sequential(flambeau.nn.Linear(6, 4)))
    x = flambeau.randn(6, 8)
    for strided in (x.t(), flambeau.randn(5, 12)[:, ::2], x[:, 0].expand(3, 6), flambeau.randn(2, 6, 3).transpose(1, 2)):
        assert flambeau.equal(layer(strided), layer(strided.contiguous()))
