"""Where the package scipy-openblas32 is not installed, real products run on our own loops, if the CPU has them, and all others on NumPy.

Each program runs in a process from which the library is hidden, as CPUs without loops of ours would run it, too.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

HIDE = """
import numpy as np
import flambeau as torch
from flambeau.kernels.templates import gemm
from flambeau.kernels.native import native
assert not gemm.bound.cache_info().currsize  # nothing was bound by the import
gemm.library = lambda: ""
"""

PRODUCTS = """
random = np.random.default_rng(0)
layouts = {
    "rows": np.ascontiguousarray,
    "columns": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "a piece": lambda x: np.pad(x, [(1, 2)] * x.ndim)[(slice(1, -2),) * x.ndim],
    "every other": lambda x: np.repeat(x, 2, -1)[..., ::2],
}
shapes = [
    (0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1), (1, 64, 64), (64, 64, 1), (1, 700, 300), (300, 700, 1), (1, 300, 1), (5, 1, 33),
    (3, 5, 7), (40, 50, 2), (40, 50, 8), (7, 96, 40), (16, 400, 250), (64, 300, 256), (130, 257, 129), (200, 800, 50), (5, 20000, 3),
]
for m, k, n in shapes:
    for dtype in (np.float32, np.float64, *((np.complex64, np.float16) if m * k * n < 1e6 else ())):
        for batch in ((), (0,), (3,)) if m * k * n < 1e6 else ((),):
            a, b, c = (random.standard_normal((*batch, *shape)).astype(dtype) for shape in ((m, k), (k, n), (m, n)))
            if dtype is np.complex64:
                a, b = a * (1 + 2j), b * (3 - 1j)
            wide = np.complex128 if dtype is np.complex64 else np.float64
            expected, near = a.astype(wide) @ b.astype(wide), 40 * np.finfo(dtype).eps * (k + 10)
            for one, left in layouts.items():
                for other, right in layouts.items():
                    x, y = (torch.from_numpy(f(z)) for f, z in ((left, a), (right, b)))
                    case = (m, k, n, dtype, batch, one, other)
                    assert np.allclose((x @ y).numpy(), expected, rtol=0, atol=near), case
                    if not batch:
                        found = torch.addmm(torch.from_numpy(c), x, y, beta=2, alpha=0.5).numpy()
                        assert np.allclose(found, 0.5 * expected + 2.0 * c, rtol=0, atol=near), case
                    if n and m and not batch:
                        found = torch.nn.functional.linear(x, y.t(), torch.from_numpy(c[0])).numpy()
                        assert np.allclose(found, expected + c[0], rtol=0, atol=near), case
shared = torch.from_numpy(random.standard_normal((6, 7)))
many = torch.from_numpy(random.standard_normal((4, 5, 6)))
assert np.allclose((many @ shared.expand(4, 6, 7)).numpy(), many.numpy() @ shared.numpy())
for n in (3, 20, 40, 100):
    for dtype in (torch.float32, torch.float64, torch.complex64):
        a = torch.from_numpy(random.standard_normal((n, n)) + n * np.eye(n)).to(dtype)
        for k in (1, 5):
            b = torch.from_numpy(random.standard_normal((n, k))).to(dtype)
            for left in (a, a.mT):
                assert (left @ torch.linalg.solve(left, b) - b).abs().max() < 1e-4, (n, dtype, k)
                for upper in (False, True):
                    x = torch.linalg.solve_triangular(left, b, upper=upper)
                    assert ((left.triu() if upper else left.tril()) @ x - b).abs().max() < 1e-4, (n, dtype, k, upper)
        positive = a @ a.mH
        factor = torch.linalg.cholesky(positive)
        assert (factor @ factor.mH - positive).abs().max() < 1e-3 * n * n, (n, dtype)
        assert (torch.linalg.inv(a) @ a - torch.eye(n)).abs().max() < 1e-4, (n, dtype)
loops = native.lib.variant() != "baseline"
x, z = np.ones((20, 30), np.float32), np.ones((20, 30), np.complex64)
assert gemm.bound() == loops and (native.lib.matmul(x, x.T) is not NotImplemented) == loops
assert native.lib.matmul(z, z.T) is NotImplemented and native.lib.gemm(z, z.T, z[:, :20].copy(), 1, 0, None) is NotImplemented
shown = torch.__config__.show()
assert "BLAS: NumPy's" in shown and ("our own loops" in shown) == loops, shown
"""

# Runs with `torch` being either of the two.
LAYERS = """
results = {}
torch.manual_seed(0)
nn, F = torch.nn, torch.nn.functional
def keep(name, module, *inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    out = module(*inputs)
    out = out[0] if isinstance(out, tuple) else out
    (out * out).sum().backward()
    results[name] = [x.detach().numpy() for x in (out, *(x.grad for x in inputs), *(p.grad for p in getattr(module, "parameters", list)()))]
keep("linear", nn.Linear(40, 30), torch.randn(20, 40))
keep("a sample", nn.Linear(300, 400), torch.randn(1, 300))
keep("one output", nn.Linear(300, 1), torch.randn(50, 300))
keep("bilinear", nn.Bilinear(5, 6, 7), torch.randn(8, 5), torch.randn(8, 6))
keep("convolution", nn.Conv2d(6, 8, 3, padding=1), torch.randn(2, 6, 9, 10))
keep("1 x 1", nn.Conv2d(16, 24, 1), torch.randn(2, 16, 7, 7))
keep("groups", nn.Conv1d(6, 9, 4, stride=2, groups=3), torch.randn(2, 6, 31))
keep("turned", nn.ConvTranspose2d(4, 6, 3, stride=2), torch.randn(2, 4, 5, 6))
keep("attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *(torch.randn(2, 3, 17, 8) for _ in range(3)))
keep("heads", nn.MultiheadAttention(16, 4, batch_first=True), *[torch.randn(2, 9, 16)] * 3)
for kind in (nn.LSTM, nn.GRU, nn.RNN):
    for batch in (1, 5):
        keep((kind.__name__, batch), kind(12, 20, num_layers=2, bidirectional=True), torch.randn(6, batch, 12))
keep("distances", torch.cdist, torch.randn(40, 9), torch.randn(30, 9))
quantized = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 8)), {nn.Linear})
results["quantized"] = [quantized(torch.randn(5, 32)).detach().numpy()]
"""

# A copy of a factor is larger than the memory there is: what needs none takes its place.
NO_MEMORY = """
import resource
random = np.random.default_rng(0)
a, b, out = (np.asarray(random.standard_normal((300, 300)), np.float64) for _ in range(3))
expected = a.T @ b.T
gemm.bound(), torch.set_num_threads(1), native.lib.pool_trim()
pages = int(open("/proc/self/statm").read().split()[0])
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(), before[1]))
kept = []
try:
    while True:
        kept.append(bytearray(1 << 16))  # what the process has already, and does not use
except MemoryError:
    pass
found = native.lib.gemm(a.T, b.T, out, 1, 0, None)
resource.setrlimit(resource.RLIMIT_AS, before)
assert found is out and np.allclose(out, expected)
"""


def run(program: str, cpu: str) -> bytes:
    own = {"OPENBLAS_NUM_THREADS": "1"} | ({"FLAMBEAU_CPU": cpu} if cpu else {})  # NumPy's threads would spin beside ours
    done = subprocess.run([sys.executable, "-c", HIDE + program], capture_output=True, env=os.environ | own)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture(autouse=True)
def compiled():
    from flambeau.kernels.native import native

    if native.lib is None:
        pytest.skip("needs the compiled kernels")


@pytest.mark.parametrize("cpu", ["", "avx2", "baseline"])
def test_products_are_numpys(cpu):
    """Products, sums of products and systems of every layout, empty and batched, agree with NumPy's in double precision."""
    run(PRODUCTS, cpu)


@pytest.mark.filterwarnings("ignore:torch")  # quantization is deprecated there
@pytest.mark.parametrize("cpu", ["", "baseline"])
def test_layers_are_pytorchs(cpu):
    """What layers are made of, and their gradients, are PyTorch's."""
    torch = pytest.importorskip("torch")
    space = {"torch": torch}
    exec(LAYERS, space)
    found = pickle.loads(run(LAYERS + "import pickle, sys; sys.stdout.buffer.write(pickle.dumps(results))", cpu))
    assert found.keys() == space["results"].keys()
    for name, values in space["results"].items():
        for ours, theirs in zip(found[name], values, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4 * max(1, abs(theirs).max(initial=0)), err_msg=str(name))


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_no_memory_for_a_copy():
    """A product that cannot copy its factors is made all the same."""
    run(NO_MEMORY, "")
