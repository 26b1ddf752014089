"""Starting values: the same bits as PyTorch's after the same seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from both import both, pytorch, refused, warned

import flambeau
from flambeau.kernels.native import native

CALLS = {
    "uniform_": [{}, {"a": -2, "b": 3}],
    "normal_": [{}, {"mean": 1, "std": 0.02}],
    "trunc_normal_": [{}, {"std": 0.02}, {"mean": 1.0, "std": 2.0, "a": 0.0, "b": 1.5}, {"a": 2.0, "b": 2.5}],
    "xavier_uniform_": [{}, {"gain": 2.0}],
    "xavier_normal_": [{}, {"gain": 2.0}],
    "kaiming_uniform_": [{}, {"a": 5**0.5}, {"mode": "fan_out", "nonlinearity": "relu"}],
    "kaiming_normal_": [{}, {"mode": "fan_out", "nonlinearity": "relu"}],
    "constant_": [{"val": 0.3}],
    "ones_": [{}],
    "zeros_": [{}],
    "eye_": [{}],
    "dirac_": [{}],
    "sparse_": [{"sparsity": 0.3}],
}
SHAPES = {"eye_": [(3, 5)], "dirac_": [(4, 2, 3), (4, 4, 3, 3), (2, 3, 1, 2, 3)], "sparse_": [(10, 4)]}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_values_are_pytorchs_bits(name, dtype):
    """A function of nn.init gives other bits than PyTorch's after the same seed."""
    for options in CALLS[name]:
        for shape in SHAPES.get(name, [(7, 5), (40, 30), (4, 3, 3, 2)]):
            made = []
            for torch in (flambeau, pytorch):
                torch.manual_seed(3)
                tensor = torch.nn.Parameter(torch.empty(shape, dtype=getattr(torch, dtype)))
                assert getattr(torch.nn.init, name)(tensor, **options) is tensor and tensor.grad_fn is None
                made.append(np.asarray(tensor.detach().to(torch.float64)))
            assert (made[0] == made[1]).all(), (options, shape)


CPUINFO = Path("/proc/cpuinfo")
CPU = CPUINFO.read_text() if CPUINFO.exists() else ""


@pytest.mark.skipif(native.lib is None, reason="only the compiled loops round in PyTorch's order")
@pytest.mark.skipif(
    not ("AuthenticAMD" in CPU or ("GenuineIntel" in CPU and "avx512f" in CPU)),
    reason="PyTorch's order is known for AMD's CPUs and for Intel's with AVX-512",
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_orthogonal_is_pytorchs_bits(dtype):
    """orthogonal_ gives other bits than PyTorch's after the same seed."""
    for shape in ((3, 4), (8, 8), (13, 7), (6, 3, 3, 3), (32, 32), (16, 8, 3, 3), (96, 20)):
        made = []
        for torch in (flambeau, pytorch):
            torch.manual_seed(42)
            made.append(torch.nn.init.orthogonal_(torch.empty(shape, dtype=getattr(torch, dtype)), gain=1.5).numpy())
        assert (made[0] == made[1]).all(), shape


@both(tolerance=1e-5)
def test_orthogonal(torch):
    """orthogonal_ gives another matrix, or one that is not orthogonal."""
    seen = []
    for shape in ((4, 4), (3, 6), (6, 3), (2, 3, 4)):
        seen.append(torch.nn.init.orthogonal_(torch.empty(shape), gain=2))
    return seen


@both
def test_gains_and_refusals(torch):
    """calculate_gain gives another number, or wrong arguments another exception."""
    init = torch.nn.init
    names = "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d sigmoid tanh relu selu leaky_relu".split()
    t = torch.empty(2, 3)
    return [
        [init.calculate_gain(n) for n in names],
        init.calculate_gain("leaky_relu", 0.3),
        [
            refused(call)
            for call in (
                lambda: init.calculate_gain("nonsense"),
                lambda: init.calculate_gain("leaky_relu", "a"),
                lambda: init.calculate_gain("leaky_relu", True),
                lambda: init.xavier_uniform_(torch.empty(2)),
                lambda: init.kaiming_normal_(t, mode="sideways"),
                lambda: init.eye_(torch.empty(2)),
                lambda: init.dirac_(t),
                lambda: init.dirac_(torch.empty(3, 2, 2), groups=2),
                lambda: init.orthogonal_(torch.empty(2)),
                lambda: init.sparse_(torch.empty(2), 0.1),
            )
        ],
        warned(lambda: init.kaiming_uniform_(torch.empty(0, 3))),
        warned(lambda: init.uniform(t)),
        warned(lambda: init.trunc_normal_(t, mean=10)),
        warned(lambda: init.xavier_normal(t)),
        init.dirac_(torch.empty(6, 2, 3), groups=3),
        init._calculate_fan_in_and_fan_out(torch.empty(2, 3, 4, 5)),
    ]


@both
def test_generators(torch):
    """A generator that is given is not the one drawn from."""
    generator = torch.Generator().manual_seed(5)
    return [
        torch.nn.init.xavier_uniform_(torch.empty(2, 3), generator=generator),
        torch.nn.init.kaiming_normal_(torch.empty(2, 3), generator=generator),
        torch.nn.init.normal_(torch.empty(2), generator=generator),
        torch.rand(2),
    ]
