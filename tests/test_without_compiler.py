"""Where nothing could be compiled, everything runs on NumPy: one warning says so, `__config__.show()` says so, and the results are PyTorch's.

One mixed program runs twice, in PyTorch here and in Flambeau in a process from which the extension is hidden.
"""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

HIDE = """
import sys
sys.modules["flambeau.kernels._native"] = None  # as if it had not been built
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import flambeau as torch
"""

# The program: fills `results` with tensors and numbers. Runs with `torch` being either of the two.
PROGRAM = """
results = {}
x = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4) / 7 - 1.5
y = torch.linspace(-2, 2, 12).reshape(3, 4)
i = torch.tensor([[0, 2, 1, 3], [3, 3, 0, 1]])
results["arithmetic"] = (x + y) * 2 - x / (y.abs() + 1) + x**2 % 3
results["comparison"] = (x > y) & ~(x == 0) | (y <= -1)
results["transcendental"] = [f(x) for f in (torch.exp, torch.tanh, torch.sin, torch.erf, torch.sigmoid, torch.log1p, torch.lgamma, torch.floor)]
results["activations"] = [torch.relu(x), torch.nn.functional.gelu(x), torch.nn.functional.silu(x), torch.nn.functional.softplus(x)]
results["integers"] = [i // 2, i % 3, i << 2, i ^ 5, -i, i.bitwise_not(), i.double() / 3]
results["halves"] = [x.half() * y.half(), (x.bfloat16() + 1).float(), x.half().sum(), x.bfloat16().exp().float()]
results["linear"] = [torch.nn.functional.linear(x, y), torch.nn.functional.linear(x[0], y, y[:, 0]), torch.nn.functional.bilinear(y[:, :3], y, x)]
results["reductions"] = [x.sum(), x.mean(0), x.max(), *x.max(1), x.var((0, 2)), x.prod(-1), x.argmin(), i.sum(0), (x > 0).all(1), x.norm()]
results["rows"] = [x.softmax(-1), x.log_softmax(0), x.logsumexp(1), x.cumsum(2), x.cummax(1).values]
results["order"] = [*x.sort(-1, descending=True), *x.topk(2), x.flatten().unique(), x.median(), x.quantile(0.25)]
results["shapes"] = [x.transpose(0, 2), x.permute(2, 0, 1).contiguous(), torch.cat([x, x], 1), torch.stack([y, y]), x.roll(1, 0), x.flip(-1)]
results["indexing"] = [x[1], x[:, 1::2], x[..., -1], x[x > 0], x[:, i[0] % 3], y.gather(1, i), torch.where(y > 0, y, 0.5)]
z = y.clone()
z[0] = 7
z[:, 1] += 1
z[z < 0] = 0
z.index_add_(0, torch.tensor([0, 0]), torch.ones(2, 4))
z.mul_(0.5).clamp_(max=3)
results["in place"] = z
results["scatter"] = torch.zeros(3, 4).scatter_add(1, i, torch.ones(2, 4))
m = torch.eye(4) * 3 + y.t() @ y
results["products"] = [y @ y.t(), x @ y.t(), torch.einsum("bij,kj->bik", x, y), torch.outer(y[0], y[1]), y[0] @ y[1], i @ i.t()]
results["linalg"] = [torch.linalg.inv(m), torch.linalg.solve(m, y.t()), torch.linalg.det(m), torch.linalg.cholesky(m), torch.linalg.eigvalsh(m)]
results["fft"] = torch.fft.rfft(x[0]).abs()
torch.manual_seed(3)
results["random"] = [torch.rand(5), torch.randn(40), torch.randint(0, 9, (7,)), torch.randperm(6), torch.bernoulli(torch.full((9,), 0.4))]
w = torch.tensor([[0.5, -1.0], [2.0, 0.25]], dtype=torch.float64, requires_grad=True)
b = torch.zeros(2, dtype=torch.float64, requires_grad=True)
data = torch.tensor([[1.0, 2.0], [-1.0, 0.5], [0.0, 3.0]], dtype=torch.float64)
loss = ((data @ w.t() + b).tanh() ** 2).mean() + w[0].exp().sum().log()
loss.backward()
results["gradients"] = [loss.detach(), w.grad, b.grad]
steps = [torch.optim.SGD([w], lr=0.1, momentum=0.9), torch.optim.AdamW([w, b], amsgrad=True), torch.optim.RMSprop([b], centered=True)]
for optimizer in steps * 3:
    optimizer.step()
results["optimizers"] = [w.detach(), b.detach(), steps[1].state[w]["exp_avg_sq"], steps[0].state[w]["momentum_buffer"]]
(first,) = torch.autograd.grad((w**3).sum(), w, create_graph=True)
(second,) = torch.autograd.grad(first.sigmoid().sum(), w)
results["second derivative"] = second
results["complex"] = [torch.view_as_real(torch.complex(x, x + 1) * 2j), torch.complex(x, x).abs()]
results["empty"] = [torch.zeros(0, 3).sum(), torch.zeros(0, 3) @ torch.zeros(3, 2), torch.zeros(2, 0).mean(0)]
text = repr(y)


def plain(value):
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return (str(value.dtype), value.detach().contiguous().numpy() if value.dtype is not torch.bfloat16 else value.float().numpy())


found = {name: plain(value) for name, value in results.items()}
"""
FINISH = """
import pickle
answer = (found, text, [str(w.message) for w in caught], torch.__config__.show(), torch.get_num_threads())
sys.stdout.buffer.write(pickle.dumps(answer))
"""


def run_hidden(program: str) -> bytes:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def answer():
    return pickle.loads(run_hidden(HIDE + PROGRAM + FINISH))


def compare(name: str, got, expected) -> None:
    if isinstance(expected, list):
        assert len(got) == len(expected), name
        for number, (g, e) in enumerate(zip(got, expected, strict=True)):
            compare(f"{name} {number}", g, e)
        return
    assert got[0] == expected[0], f"{name}: dtype {got[0]}, expected {expected[0]}"
    assert got[1].shape == expected[1].shape, name
    tolerance = {"torch.float16": 2e-3, "torch.bfloat16": 2e-2, "torch.float64": 1e-12}.get(expected[0], 1e-5)
    np.testing.assert_allclose(got[1], expected[1], rtol=tolerance, atol=tolerance / 10, err_msg=name)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_mixed_program_computes_what_pytorch_computes(answer):
    """Without compiled kernels a result is missing or wrong."""
    scope = {"torch": pytest.importorskip("torch")}
    exec(PROGRAM, scope)
    for name, expected in scope["found"].items():
        compare(name, answer[0][name], expected)
    assert answer[1] == scope["text"]


def test_one_warning_says_so(answer):
    """The import warns once, says what is the matter and what to do."""
    (warning,) = answer[2]
    assert "without its compiled kernels" in warning and "C compiler" in warning


def test_the_configuration_says_so(answer):
    """__config__.show() names the missing kernels, and there is one thread."""
    assert "not compiled" in answer[3] and "NumPy" in answer[3]
    assert answer[4] == 1


def test_large_work_and_odd_layouts_run_too():
    """The paths that large arrays and strided views take have an answer without the extension."""
    program = HIDE + (
        "x = torch.ones(600, 700)\n"
        "assert (x.t()[::2] * 2).sum().item() == 350 * 600 * 2\n"
        "assert (x @ x.t())[0, 0].item() == 700\n"
        "v = torch.arange(10.).as_strided((3, 4), (2, 1), 1)\n"
        "assert v.tolist() == [[1, 2, 3, 4], [3, 4, 5, 6], [5, 6, 7, 8]]\n"
        "assert torch.empty(0, 3).stride() == (3, 1)\n"
        "torch.set_num_threads(4)\n"
        "print('fine')\n"
    )
    assert run_hidden(program) == b"fine\n"
