"""NVIDIA's package nvidia-cudnn-frontend, as far as kernels/cuda/cudnn.py calls it, computing in main memory.

It refuses what cuDNN refuses, and where cuDNN would go on and be wrong it fails: attention of float32, a mask of one row for several queries, addresses
that are not aligned, operands of a convolution in different orders.
"""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
from fake_cupy import _at

DTYPES = {"HALF": np.float16, "BFLOAT16": ml_dtypes.bfloat16, "FLOAT": np.float32}
data_type = SimpleNamespace(**{name: name for name in DTYPES})
heur_mode = SimpleNamespace(A="A", FALLBACK="FALLBACK")
NOTES = """TENSOR_CORE DOWN_CONVERT_INPUTS REDUCED_PRECISION_REDUCTION NONDETERMINISTIC FFT WINOGRAD WINOGRAD_TILE_4x4 WINOGRAD_TILE_6x6
WINOGRAD_TILE_13x13"""
numerical_note = SimpleNamespace(**{name: name for name in NOTES.split()})
ran: list[str] = []  # the operations that were carried out


class cudnnGraphNotSupportedError(Exception):
    """The package's."""


def backend_version() -> int:
    return 91900


def create_handle() -> object:
    return object()


def destroy_handle(handle) -> None:
    return None


def set_stream(handle, stream) -> None:
    return None


class Tensor:
    """What a graph knows of something in memory, or on the way."""

    def __init__(self, dim=None, stride=None, data_type=None, uid=None, by_value=False):
        self.by_value = by_value
        self.dim, self.stride, self.kind, self.uid, self.made = dim, stride, data_type, uid, False

    def set_output(self, made):
        self.made = made
        return self

    def set_dim(self, dim):
        self.dim = dim
        return self

    def set_stride(self, stride):
        self.stride = stride
        return self

    def set_data_type(self, kind):
        self.kind = kind
        return self

    def set_uid(self, uid):
        self.uid = uid
        return self

    def array(self, addresses: dict) -> np.ndarray:
        dtype = np.dtype(DTYPES[self.kind])
        assert self.by_value or addresses[self.uid] % 16 == 0, "cuDNN reads 16 bytes at a time"
        return _at(addresses[self.uid], tuple(self.dim), dtype, tuple(s * dtype.itemsize for s in self.stride))

    def read(self, addresses: dict) -> np.ndarray:
        return self.array(addresses).astype(np.float32)


class pygraph:
    """A graph of at most two operations."""

    def __init__(self, io_data_type, intermediate_data_type, compute_data_type, handle):
        assert intermediate_data_type == compute_data_type == "FLOAT" and handle is not None
        self.tensors: list[Tensor] = []
        self.steps, self.plans, self.notes = [], [], []

    def tensor(self, dim, stride, data_type, uid, is_pass_by_value=False) -> Tensor:
        assert len(dim) == len(stride) >= 4 and uid not in [t.uid for t in self.tensors]
        self.tensors.append(Tensor(dim, stride, data_type, uid, is_pass_by_value))
        return self.tensors[-1]

    def _do(self, name, work, count=1):
        results = [Tensor() for _ in range(count)]
        self.steps.append((name, work, results))
        return results if count > 1 else results[0]

    # -- planning ------------------------------------------------------------------------------------------------------

    def validate(self):
        return None

    build_operation_graph = check_support = validate

    def create_execution_plans(self, modes):
        self.plans = [0, 1]

    def deselect_numeric_notes(self, notes):
        self.notes = notes

    def build_plans(self):
        if not self.plans:
            raise RuntimeError("no plans")

    def build_plan_at_index(self, index):
        if index:
            raise cudnnGraphNotSupportedError("a plan that cannot be built")

    def get_execution_plan_count(self) -> int:
        return len(self.plans)

    def get_workspace_size(self) -> int:
        return 64

    def get_workspace_size_plan_at_index(self, index) -> int:
        return 64

    def execute(self, addresses, workspace, handle):
        assert workspace and handle is not None and all(type(a) is int for a in addresses.values())
        values: dict[int, np.ndarray] = {}
        for name, work, results in self.steps:
            ran.append(name)
            found = work(lambda t: values[id(t)] if id(t) in values else t.read(addresses))
            for tensor, value in zip(results, found if isinstance(found, tuple) else (found,), strict=True):
                values[id(tensor)] = value
                if tensor.made:
                    tensor.array(addresses)[...] = value

    def execute_plan_at_index(self, addresses, workspace, index, handle):
        self.execute(addresses, workspace, handle)

    # -- attention -----------------------------------------------------------------------------------------------------

    def sdpa(self, name, q, k, v, generate_stats, attn_scale, use_causal_mask, bias):
        self._check(q, k, v, bias)

        return self._do("sdpa", lambda read: _attend(*map(read, (q, k, v)), bias and read(bias), attn_scale, use_causal_mask)[:2], 2)

    def sdpa_backward(self, name, q, k, v, o, dO, stats, attn_scale, use_causal_mask, use_deterministic_algorithm, bias):
        self._check(q, k, v, bias)

        def work(read):
            qs, ks, vs, out, grad, lse = map(read, (q, k, v, o, dO, stats))
            *_, scores, ks, vs = _attend(qs, ks, vs, bias and read(bias), attn_scale, use_causal_mask)
            with np.errstate(invalid="ignore"):
                p = np.where(scores == -np.inf, 0, np.exp(scores - lse))
            ds = p * (grad @ vs.swapaxes(-1, -2) - (grad * out).sum(-1, keepdims=True)) * attn_scale
            return ds @ ks, _shared(ds.swapaxes(-1, -2) @ qs, k), _shared(p.swapaxes(-1, -2) @ grad, v)

        return self._do("sdpa_backward", work, 3)

    def _check(self, q, k, v, bias):
        for t in (q, k, v):
            assert t.kind in ("HALF", "BFLOAT16"), "cuDNN reads past the end of memory here"
            if t.dim[-1] % 8:
                raise cudnnGraphNotSupportedError("hidden_dim should be multiple of 8")
        if bias is not None:
            assert bias.dim[2:] == [q.dim[2], k.dim[2]], "cuDNN's gradients are wrong here"

    # -- convolution ---------------------------------------------------------------------------------------------------

    def conv_fprop(self, image, weight, padding, stride, dilation):
        return self._convolve("conv_fprop", image, weight, padding, stride, dilation)

    def conv_dgrad(self, loss, filter, padding, stride, dilation):
        return self._convolve("conv_dgrad", loss, filter, padding, stride, dilation)

    def conv_wgrad(self, image, loss, padding, stride, dilation):
        return self._convolve("conv_wgrad", image, loss, padding, stride, dilation)

    def _convolve(self, name, one, other, padding, stride, dilation):
        import torch

        sizes = SimpleNamespace(out=None)

        def work(read):
            first, second = (torch.tensor(read(t), dtype=torch.float64) for t in (one, other))
            into = [t for t in (one, other, sizes.out) if t.dim and t.dim[0] > 1 and min(t.dim[1:]) > 1]
            assert len({t.stride[1] == 1 for t in into}) < 2, "all operands have one order"
            shapes = {"conv_fprop": (one.dim, other.dim), "conv_dgrad": (sizes.out.dim, other.dim), "conv_wgrad": (one.dim, sizes.out.dim)}
            x, w = (torch.zeros(shape, dtype=torch.float64, requires_grad=True) for shape in shapes[name])
            x, w = {"conv_fprop": (first, second), "conv_dgrad": (x, second), "conv_wgrad": (first, w)}[name]
            groups, run = x.shape[1] // w.shape[1], {2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}[x.dim() - 2]
            y = run(x, w, None, stride, padding, dilation, groups)
            if name == "conv_fprop":
                return y.numpy()
            found = torch.autograd.grad(y, x if name == "conv_dgrad" else w, first if name == "conv_dgrad" else second)[0]
            return found.numpy()

        sizes.out = self._do(name, work)
        return sizes.out

    def add(self, a, b):
        assert b.dim[0] == 1 and b.dim[2:] == [1] * (len(b.dim) - 2)
        step = self.steps[-1][2][0]
        made = self._do("add", lambda read: read(a) + read(b))
        set_dim = made.set_dim

        def both(dim):
            step.dim, step.stride = dim, step.stride or [1] * len(dim)
            return set_dim(dim)

        made.set_dim = both
        return made

    # -- batch norm ----------------------------------------------------------------------------------------------------

    def batchnorm(self, name, input, scale, bias, in_running_mean, in_running_var, epsilon, momentum):
        axes = _check_batch(input, scale, bias, in_running_mean, in_running_var)

        def work(read):
            x, weight, shift, old_mean, old_var, eps, part = map(
                read, (input, scale, bias, in_running_mean, in_running_var, epsilon, momentum)
            )
            mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
            rstd, n = 1 / np.sqrt(var + eps), x.size // x.shape[1]
            moved = old_mean + part * (mean - old_mean), old_var + part * (var * n / (n - 1) - old_var)
            return (x - mean) * rstd * weight + shift, mean, rstd, *moved

        return self._do("batchnorm", work, 5)

    def batchnorm_backward(self, name, grad, input, scale, mean, inv_variance):
        axes = _check_batch(input, scale, mean, inv_variance)
        assert grad.stride == input.stride

        def work(read):
            g, x, weight, middle, rstd = map(read, (grad, input, scale, mean, inv_variance))
            y = (x - middle) * rstd
            along, whole = (g * y).sum(axes, keepdims=True), g.sum(axes, keepdims=True)
            n = x.size // x.shape[1]
            return rstd * weight * (g - whole / n - y * along / n), along, whole

        return self._do("batchnorm_backward", work, 3)


def _check_batch(x: Tensor, *numbers: Tensor) -> tuple[int, ...]:
    """The axes that are not channels, which come last in memory."""
    if x.stride[1] != 1 or x.dim[1] % 8:
        raise cudnnGraphNotSupportedError("channels come last, and in eights")
    assert all(t.dim == [1, x.dim[1], *[1] * (len(x.dim) - 2)] and t.kind == "FLOAT" for t in numbers)
    return (0, *range(2, len(x.dim)))


def _attend(q, k, v, bias, scale: float, causal: bool):
    """(out, lse, scores, and keys and values for all heads of the queries)"""
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * scale
    if bias is not None:
        scores = scores + bias
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    most = scores.max(-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        powers = np.where(most == -np.inf, 0, np.exp(scores - most))
        total = powers.sum(-1, keepdims=True)
        out = np.where(total == 0, 0, powers / total) @ v
        lse = np.where(total == 0, -np.inf, most + np.log(total))
    return out, lse, scores, k, v


def _shared(gradient, like: Tensor):
    """That of a head which serves several."""
    batch, heads, *rest = gradient.shape
    return gradient.reshape(batch, like.dim[1], heads // like.dim[1], *rest).sum(2)
