"""The text of CUDA kernels."""

from __future__ import annotations

import pytest

import flambeau  # noqa: F401 - declares the operations
from flambeau.kernels.language import print_cuda
from flambeau.kernels.language.print_cuda import Instance
from flambeau.ops import OPS, everything


def instance(op: str, dtype: str, modes: tuple, **layout) -> Instance:
    kernel = OPS[op].kernel
    out = dtype if kernel.out == "T" else kernel.out
    return Instance(kernel.name, kernel.expr, kernel.kinds, len(kernel.options), dtype, out, modes, **layout)


def test_names_and_functions():
    """A kernel is named after its operation and dtype, and calls CUDA's own functions."""
    text = print_cuda.print_kernel(instance("exp", "float32", ("array",)))
    assert 'extern "C" __global__' in text and "fl_exp_f32(float *out, const float *a0" in text and "return expf(x0);" in text
    assert "return exp(x0);" in print_cuda.print_kernel(instance("exp", "float64", ("array",)))


def test_half_precision_is_computed_in_float32():
    """bfloat16 is read into float, computed there and rounded once."""
    text = print_cuda.print_kernel(instance("exp", "bfloat16", ("array",), flat=(True,), pack=8))
    assert "fl_f32_to_bf16((float)(formula(fl_bf16_to_f32(v0.item[k]))))" in text and "Pack<uint16_t, 8>" in text


def test_numbers_are_parameters():
    """A Python number is handed over with the launch."""
    text = print_cuda.print_kernel(instance("mul", "int32", ("array", "number")))
    assert "long long s1" in text and "const int32_t x1 = (int32_t)s1;" in text


def test_numbers_beside_half_precision():
    """PyTorch takes a number beside half precision as it is in sums, products and quotients, and rounds it first anywhere else."""
    kept = print_cuda.print_kernel(instance("mul", "bfloat16", ("array", "number")))
    assert "const float x1 = (float)s1;" in kept
    rounded = print_cuda.print_kernel(instance("_remainder", "bfloat16", ("array", "number")))
    assert "const float x1 = fl_bf16_to_f32(fl_f32_to_bf16((float)s1));" in rounded  # 1e-41 is 0 then, and the remainder NaN


def test_complex_numbers():
    """Complex formulas include CuPy's header and print literals with two parts."""
    text = print_cuda.print_kernel(instance("mul", "complex64", ("array", "number")))
    assert text.startswith('#include "cupy/complex.cuh"') and "double s1, double s1_imag" in text
    assert "cupy" not in print_cuda.print_kernel(instance("mul", "float32", ("array", "one")))


@pytest.mark.parametrize("name", sorted(op.name for op in everything() if op.kind == "pointwise"))
def test_every_formula_prints(name):
    """Every declared formula has a CUDA kernel for its first dtype, and for complex numbers if it takes them."""
    op = OPS[name]
    modes = ("array",) * len(op.kernel.kinds)
    for dtype in (*op.dtypes[:1], *(("complex64",) if op.takes_complex else ())):
        out = "bool" if op.kernel.out == "bool" else dtype
        kernel = op.kernel
        text = print_cuda.print_kernel(Instance(kernel.name, kernel.expr, kernel.kinds, len(kernel.options), dtype, out, modes))
        assert text.count("{") == text.count("}")
