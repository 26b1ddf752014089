"""Checking derivatives against differences.

For every element of every output and every element of every input, the derivative that backward gives is compared with
(f(x + eps) - f(x - eps)) / (2 eps). A complex number counts as two real ones, by PyTorch's convention: the gradient of a real L is
dL/dRe + i dL/dIm.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from flambeau import dtypes
from flambeau.autograd import api, modes
from flambeau.layouts import strided
from flambeau.tensor import Tensor, wrap


class GradcheckError(RuntimeError):
    """The analytical and the numerical derivative differ."""


def gradcheck(
    func: Callable, inputs, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True,
    nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False, check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False, check_forward_ad: bool = False, check_backward_ad: bool = True, fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:  # fmt: skip
    """Whether the derivative of `func` at `inputs` (float64, please) agrees with differences to within atol + rtol * |difference|.

    Every element is checked in any case: `fast_mode`, which samples, and `check_batched_grad`, which is about vmap, change nothing here.
    masked: of sparse inputs, only the stored elements can change; else all of them can.
    """
    if check_forward_ad or check_batched_forward_grad:
        raise NotImplementedError("gradcheck: forward-mode differentiation is not implemented, so check_forward_ad must be False")
    func, inputs = _of_dense(func, tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,), bool(masked))
    try:
        _Check(func, inputs, eps, atol, rtol, nondet_tol).run(check_undefined_grad, check_grad_dtypes)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable, inputs, grad_outputs=None, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False, check_batched_grad: bool = False, check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True,
    fast_mode: bool = False, masked: bool = False,
) -> bool:  # fmt: skip
    """Whether the second derivative agrees with differences of the first."""
    func, inputs = _of_dense(func, tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,), masked)
    if grad_outputs is None:
        with modes.no_grad():
            outs = _differentiable(func(*inputs), any_float=True)
        grad_outputs = tuple(_random_like(o, gen_non_contig_grad_outputs).requires_grad_() for o in outs)
    elif isinstance(grad_outputs, Tensor):
        grad_outputs = (grad_outputs,)
    wanted = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]

    def first_derivative(*args):
        xs, gs = args[: len(inputs)], args[len(inputs) :]
        outs = _differentiable(func(*xs))
        found = api.grad(outs, [xs[i] for i in wanted], gs[: len(outs)], create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None and g.requires_grad)

    return gradcheck(
        first_derivative, (*inputs, *grad_outputs), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
        nondet_tol=nondet_tol, check_undefined_grad=False, check_grad_dtypes=check_grad_dtypes,
    )  # fmt: skip


def _of_dense(func: Callable, inputs: tuple, masked: bool) -> tuple[Callable, tuple]:
    """The function and its inputs, as a function of the elements where inputs are sparse."""
    if all(not isinstance(x, Tensor) or x.layout is strided for x in inputs):
        return func, inputs
    from flambeau.sparse import checking

    return checking.of_elements(func, inputs, masked)


def _random_like(o: Tensor, strided: bool) -> Tensor:
    """Numbers from -1 to 1, of PyTorch's stream: what a program draws afterwards is what it would have drawn there."""
    gaps, shape = strided and o.numel() > 1, tuple(o.shape)
    size = (*shape[:-1], 2 * shape[-1]) if gaps else shape
    real: Any = o.detach().real if o.is_complex() else o.detach()
    t = real.new_empty((*size, 2)).uniform_(-1, 1).view(o.dtype).squeeze(-1) if o.is_complex() else real.new_empty(size).uniform_(-1, 1)
    return t[..., 1::2] if gaps else t


def _differentiable(outputs, any_float: bool = False) -> tuple[Tensor, ...]:
    flat = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    if any(isinstance(o, Tensor) and o.layout is not strided for o in flat):
        raise ValueError("Sparse output is not supported at gradcheck yet. Call to_dense(masked_grad=...) on it in the function")
    return tuple(o for o in flat if isinstance(o, Tensor) and o._is_float() and (any_float or o.requires_grad))


class _Check:
    def __init__(self, func, inputs, eps, atol, rtol, nondet_tol):
        self.func, self.inputs = func, inputs
        self.eps, self.atol, self.rtol, self.nondet_tol = eps, atol, rtol, nondet_tol
        self.wanted = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
        self.xs = [inputs[i] for i in self.wanted]
        if not self.wanted:
            raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True.")
        for i, x in zip(self.wanted, self.xs, strict=True):
            if x.dtype not in (dtypes.float64, dtypes.complex128):
                what = "requires gradient and is not a double precision floating point or complex"
                warnings.warn(f"Input #{i} {what}: this check will likely fail.", stacklevel=3)

    def run(self, check_undefined: bool, check_dtypes: bool) -> None:
        outs = _differentiable(self.func(*self.inputs))
        if not outs:
            self.check_flat()
            return
        for k, out in enumerate(outs):
            for i, a, n in zip(self.wanted, self.analytical(out, check_dtypes), self.numerical(k, out), strict=True):
                self.compare(i, k, a, n)
        if check_undefined and len(outs) > 1:
            self.check_undefined(outs)

    def check_flat(self) -> None:
        """No output requires a gradient: then differences must vanish, too."""
        for k, out in enumerate(_differentiable(self.func(*self.inputs), any_float=True)):
            for i, n in zip(self.wanted, self.numerical(k, out), strict=True):
                if not np.allclose(n, 0, atol=self.atol):
                    raise GradcheckError(f"Numerical gradient for function expected to be zero (input {i}, output {k}), found\n{n}")

    def grads(self, outs, seeds) -> tuple:
        return api.grad(outs, self.xs, seeds, retain_graph=True, allow_unused=True)

    def analytical(self, out: Tensor, check_dtypes: bool) -> list[np.ndarray]:
        """One row per output degree of freedom, one column per input degree of freedom."""
        rows: list[list] = [[] for _ in self.xs]
        widths = [x.numel() * (2 if x.is_complex() else 1) for x in self.xs]
        for j, weight in _directions(out):
            seed = np.zeros(out.numel(), out.dtype.numpy)
            seed[j] = weight
            g_out = wrap(seed.reshape(tuple(out.shape)))
            grads = self.grads(out, g_out)
            again = self.grads(out, g_out) if j == 0 else grads
            for row, width, x, g, h in zip(rows, widths, self.xs, grads, again, strict=True):
                if g is not None and check_dtypes and g.dtype is not x.dtype:
                    raise GradcheckError(f"the gradient has dtype {g.dtype}, the input {x.dtype}")
                if g is not None and np.abs(_numpy(g) - _numpy(h)).max(initial=0) > self.nondet_tol:
                    raise GradcheckError("Backward is not reentrant, i.e., with same input and grad_output it gives different values")
                row.append(np.zeros(width) if g is None else _as_reals(_numpy(g)))
        return [np.array(r).reshape(len(r), n) for r, n in zip(rows, widths, strict=True)]

    def numerical(self, k: int, out: Tensor) -> list[np.ndarray]:
        found = []
        rows = len(_directions(out))
        for x in self.xs:
            steps = (self.eps, 1j * self.eps) if x.is_complex() else (self.eps,)
            columns = [self.difference(k, x._array, index, step) for index in np.ndindex(*x._array.shape) for step in steps]
            found.append(np.array(columns).reshape(-1, rows).T if columns else np.zeros((rows, 0)))
        return found

    def difference(self, k: int, data: np.ndarray, index, step) -> np.ndarray:
        before = data[index].copy()
        values = []
        for sign in (1, -1):
            data[index] = before + sign * step
            outs = self.func(*self.inputs)
            out = (_differentiable(outs) or _differentiable(outs, any_float=True))[k]
            values.append(_numpy(out.detach()).astype(np.complex128 if out.is_complex() else np.float64).copy())
        data[index] = before
        return _as_reals((values[0] - values[1]) / (2 * self.eps))

    def compare(self, i: int, k: int, a: np.ndarray, n: np.ndarray) -> None:
        if not np.allclose(a, n, rtol=self.rtol, atol=self.atol, equal_nan=True):
            raise GradcheckError(
                f"Jacobian mismatch for output {k} with respect to input {i},\nnumerical:\n{n.T}\nanalytical:\n{a.T}\n"
                f"greatest difference {np.nanmax(np.abs(a - n)):.3g}, allowed {self.atol:g} + {self.rtol:g} * |numerical|"
            )

    def check_undefined(self, outs) -> None:
        """A gradient that is missing for one of several outputs must count as zeros."""
        for k, out in enumerate(outs):
            ones = wrap(np.ones(tuple(out.shape), out.dtype.numpy))
            zeros = [ones if j == k else wrap(np.zeros(tuple(o.shape), o.dtype.numpy)) for j, o in enumerate(outs)]
            for a, b in zip(self.grads(out, ones), self.grads(outs, zeros), strict=True):
                x, y = (0 if g is None else _numpy(g) for g in (a, b))
                if not np.allclose(x, y, rtol=self.rtol, atol=self.atol, equal_nan=True):
                    raise GradcheckError("Expected backward function to handle undefined output grads: none must count as zero")


def _directions(out: Tensor) -> list[tuple]:
    """(element, weight) for every real degree of freedom of the output."""
    return [(j, weight) for j in range(out.numel()) for weight in ((1.0, 1j) if out.is_complex() else (1.0,))]


def _numpy(t: Tensor) -> np.ndarray:
    return np.asarray(t._array)


def _as_reals(values: np.ndarray) -> np.ndarray:
    flat = np.ascontiguousarray(values).reshape(-1)
    return np.stack([flat.real, flat.imag], 1).reshape(-1) if flat.dtype.kind == "c" else flat.astype(np.float64)


class _Callable(ModuleType):
    """Importing this module puts it where `torch.autograd.gradcheck`, the function, was: so it must be able to stand for it."""

    def __call__(self, *args, **kwargs):
        return gradcheck(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]
