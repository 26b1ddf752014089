"""Checking derivatives against differences.

Every tensor counts as a list of real numbers, a complex element as two of them, so that the derivative of an output by an input is a matrix of
real numbers, J. Its columns are differences, (f(x + eps u) - f(x - eps u)) / (2 eps); its rows are what backward gives for one output element, by
PyTorch's convention dL/dRe + i dL/dIm; its columns are also what forward mode gives. The full check compares them for every element; `fast_mode`
compares v^T J u for one direction u of each input and one v of each output, which takes a few calls of the function instead of thousands.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from flambeau import dtypes, modes
from flambeau.autograd import api, engine
from flambeau.kernels import arrays
from flambeau.ops import OPS
from flambeau.tensor import Tensor, wrap
from flambeau.tensor.layouts import strided
from flambeau.tensor.making.factories import zeros_like


class GradcheckError(RuntimeError):
    """The analytical and the numerical derivative differ."""


def gradcheck(
    func: Callable, inputs, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True,
    nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False, check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False, check_forward_ad: bool = False, check_backward_ad: bool = True, fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:  # fmt: skip
    """Whether the derivative of `func` at `inputs` (float64, please) agrees with differences to within atol + rtol * |difference|.

    check_backward_ad           by backward, which must also be linear and give the same twice (to within nondet_tol)
    check_undefined_grad        a gradient that is missing counts as zeros
    check_batched_grad          backward inside vmap gives what it gives outside
    check_forward_ad            by forward mode; check_batched_forward_grad: inside vmap, too
    fast_mode                   along random directions instead of for every element
    masked                      of sparse inputs, the elements that are not stored are constants
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad and check_backward_ad: nothing is left to check")
    for asked, needs, names in (
        (check_batched_grad, check_backward_ad, ("check_batched_grad", "check_backward_ad")),
        (check_batched_forward_grad, check_forward_ad, ("check_batched_forward_grad", "check_forward_ad")),
    ):
        if asked and not needs:
            raise AssertionError(f"Setting {names[0]}=True requires {names[1]} to be True")
    func, given = _of_dense(func, tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,), bool(masked))
    try:
        check = _Check(func, given, eps, atol, rtol, fast_mode)
        outs = check.outputs()
        if not outs:
            check.flat()
            return True
        if check_backward_ad:
            check.backward(outs, nondet_tol, check_grad_dtypes)
        if check_forward_ad:
            check.forward(outs)
            if check_undefined_grad:
                check.missing_tangents(outs)
            if check_batched_forward_grad:
                check.batched_forward()
        if check_batched_grad:
            check.batched_backward()
        if check_backward_ad:
            check.linear(outs)
            if check_undefined_grad:
                check.missing_gradients()
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
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev and check_rev_over_rev: nothing is left to check")
    if check_undefined_grad and not check_rev_over_rev:
        raise AssertionError("check_undefined_grad=True is a check of backward: pass check_rev_over_rev=True")
    if check_batched_grad and not check_rev_over_rev:
        raise AssertionError("check_batched_grad=True is a check of backward: pass check_rev_over_rev=True")
    func, inputs = _of_dense(func, tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,), masked)
    if grad_outputs is None:
        outs = _differentiable(func(*inputs), any_float=True)
        grad_outputs = tuple(_random_like(o, gen_non_contig_grad_outputs).requires_grad_() for o in outs)
    elif isinstance(grad_outputs, Tensor):
        grad_outputs = (grad_outputs,)
    wanted = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]

    def first_derivative(*args):
        xs, gs = list(args[: len(inputs)]), args[len(inputs) :]
        for i in wanted:  # differences are taken of constants, too
            xs[i] = xs[i] if xs[i].requires_grad else xs[i].requires_grad_()
        outs = _differentiable(func(*xs))
        found = api.grad(outs, [xs[i] for i in wanted], gs[: len(outs)], create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(
        first_derivative, (*inputs, *grad_outputs), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
        nondet_tol=nondet_tol, check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad, fast_mode=fast_mode, check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
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
    """One function at one point. What is compared is R J C: rows R of each output, columns C of each input, all of them or one direction."""

    def __init__(self, func, inputs, eps, atol, rtol, fast: bool):
        self.func, self.inputs, self.fast = func, inputs, fast
        self.eps, self.atol, self.rtol = eps, atol, rtol
        self.random = np.random.default_rng(2147483647)  # a stream of our own: the program's is left where it is
        self.places = [_Input(i, x) for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
        if not self.places:
            raise ValueError("gradcheck expects at least one input tensor to require gradient: set requires_grad=True.")
        self.xs = [place.x for place in self.places]
        self.columns = {place: self.directions(place.count) for place in self.places}
        self.slopes: dict[_Input, list[np.ndarray]] = {}

    def outputs(self) -> tuple[Tensor, ...]:
        """The outputs that have a derivative."""
        outs = _differentiable(self.func(*self.inputs))
        self.rows = [self.directions(_count(o)) for o in outs]
        return outs

    def directions(self, count: int) -> np.ndarray:
        """Each element by itself, or one direction for all: (directions, elements)."""
        if not self.fast:
            return np.eye(count)
        u = self.random.random(count)
        return (u / np.linalg.norm(u) if count > 1 else np.ones(count)).reshape(1, count)

    # -- derivatives against differences

    def flat(self) -> None:
        """No output requires a gradient: then differences must vanish, too."""
        for place in self.places:
            for k, slope in enumerate(self.differences(place)):
                if not np.allclose(slope, 0, atol=self.atol):
                    raise GradcheckError(
                        f"Numerical gradient for function expected to be zero (input {place.number}, output {k}), found\n{slope}"
                    )

    def backward(self, outs, nondet_tol: float, check_dtypes: bool) -> None:
        """By backward, row by row."""
        for k, out in enumerate(outs):
            rows = []
            for v in self.rows[k]:
                grads, again = (self.grads((out,), (_as_tensor(v, out),)) for _ in range(2))
                for place, g, h in zip(self.places, grads, again, strict=True):
                    self.check_gradient(place, g, h, nondet_tol, check_dtypes)
                rows.append([place.read(g) for place, g in zip(self.places, grads, strict=True)])
            for i, place in enumerate(self.places):
                found = np.array([row[i] for row in rows]).reshape(len(rows), place.count)
                self.compare("Jacobian", found if not self.fast else found @ self.columns[place].T, place, k, out)

    @staticmethod
    def check_gradient(place: _Input, g, h, nondet_tol: float, check_dtypes: bool) -> None:
        if g is None:
            return
        if check_dtypes and g.dtype is not place.x.dtype:
            raise GradcheckError(f"Backward: the gradient has dtype {g.dtype}, which does not match that of the input, {place.x.dtype}")
        if h is None or np.abs(place.read(g) - place.read(h)).max(initial=0) > nondet_tol:
            raise GradcheckError(
                "Backward is not reentrant, i.e., running it twice with the same input and grad_output gives different values. "
                f"The tolerance for that, nondet_tol, is {nondet_tol}"
            )

    def forward(self, outs) -> None:
        """By forward mode, column by column."""
        for place in self.places:
            columns = [self.tangents({place: u}) for u in self.columns[place]]
            for k, out in enumerate(outs):
                found = np.array([_reals_or_zeros(t[k], out) for t in columns]).reshape(len(columns), _count(out)).T
                self.compare("Jacobian computed with forward mode", found if not self.fast else self.rows[k] @ found, place, k, out)

    def compare(self, what: str, found: np.ndarray, place: _Input, k: int, out: Tensor) -> None:
        slope = self.differences(place, out, k)[k]
        expected = self.rows[k] @ slope if self.fast else slope
        atol = self.atol * np.abs(self.rows[k]).sum() * np.abs(self.columns[place]).sum() if self.fast else self.atol
        if place.x.is_complex() and not self.fast:  # a complex element is compared as a whole
            found, expected = (j[:, ::2] + 1j * j[:, 1::2] for j in (found, expected))
        wrong = ~np.isclose(found, expected, rtol=self.rtol, atol=atol, equal_nan=True)
        if not wrong.any():
            return
        part = ""
        if not self.fast and out.is_complex():  # whose rows are real and imaginary parts by turns
            part = f"While considering the {'imaginary' if wrong[1::2].any() else 'real'} part of complex outputs only, "
        kind = "v^T J u, for random u and v" if self.fast else "derivatives of each output element (columns) by each input element (rows)"
        raise GradcheckError(
            f"{part}{what} mismatch for output {k} with respect to input {place.number},\nnumerical:\n{expected.T}\nanalytical:\n{found.T}\n"
            f"These are {kind}. Greatest difference {np.nanmax(np.abs(found - expected)):.3g}, allowed {atol:g} + {self.rtol:g} * |numerical|"
        )

    # -- what else a derivative must do

    def linear(self, outs) -> None:
        """Backward gives zeros for zeros, in tensors of the kind of the inputs."""
        for place, g in zip(self.places, self.grads(outs, [zeros_like(o) for o in outs]), strict=True):
            if g is None:
                continue
            x, words = place.x, ""
            if g.layout is not x.layout:
                words = f"grad is incorrect layout ({g.layout} is not {x.layout})"
            elif np.any(_reals(g)):
                words = "backward not multiplied by grad_output"
            elif g.dtype is not x.dtype or g.device != x.device or tuple(g.shape) != tuple(x.shape):
                words = f"grad is incorrect: {g.dtype}, {g.device}, {tuple(g.shape)} for {x.dtype}, {x.device}, {tuple(x.shape)}"
            if words:
                raise GradcheckError(words)

    def missing_gradients(self) -> None:
        """A gradient that is missing, of one output or of all, counts as zeros."""
        outs = _differentiable(self.func(*self.inputs))
        aims = {(id(edge[0]), edge[1]): edge for x in self.xs if (edge := x._edge()) is not None}
        for missing in [set(range(len(outs))), *({k} for k in range(len(outs)) if len(outs) > 1)]:
            seeds = [None if k in missing else zeros_like(o) for k, o in enumerate(outs)]
            try:
                edges: Any = [o._edge() for o in outs]
                found = engine.run_backward(edges, seeds, keep_graph=True, create_graph=False, capture=list(aims.values()))
            except RuntimeError as problem:
                self.warn_of_missing()
                raise GradcheckError("Expected backward function to handle undefined output grads: None counts as zeros") from problem
            if any(g is not None and np.any(_reals(g)) for g in found or ()):
                self.warn_of_missing()
                raise GradcheckError("Expected all input grads to be undefined or zero when those of the outputs are")

    @staticmethod
    def warn_of_missing() -> None:
        what = "New undefined gradient support checking feature called backward without gradients; check_undefined_grad=False leaves it out"
        warnings.warn(f"Backwards compatibility: {what}", stacklevel=5)

    def missing_tangents(self, outs) -> None:
        """A tangent that is missing counts as zeros."""
        for place in self.places:
            u, zeros = self.columns[place][:1].sum(0), {p: np.zeros(p.count) for p in self.places if p is not place}
            found = [self.tangents({place: u, **others}) for others in ([{}, zeros] if zeros else [{}])]
            for k, out in enumerate(outs):
                first, *rest = [_reals_or_zeros(tangents[k], out) for tangents in found]
                if not all(np.allclose(first, other, equal_nan=True) for other in rest):
                    raise GradcheckError(f"Expected forward mode to take a missing tangent for zeros, beside that of input {place.number}")

    def batched_backward(self) -> None:
        """Two gradients at once, inside vmap, against one after the other. Of a graph of its own for each output: some tensors of the function
        may keep their gradient (`retain_grad`), and what they keep inside vmap is of no use outside."""
        for k in range(len(self.rows)):
            out = _differentiable(self.func(*self.inputs))[k]
            pair = [_as_tensor(self.random.random(_count(out)), out) for _ in range(2)]
            alone = [self.grads((out,), (seed,)) for seed in pair]
            try:
                together = api.grad(out, self.xs, OPS["stack"](pair), retain_graph=True, allow_unused=True, is_grads_batched=True)
            except RuntimeError as problem:
                raise GradcheckError(f"{_BATCHED}. Inside vmap: {problem}") from problem
            for i, place in enumerate(self.places):
                self.compare_batched(together[i], [grads[i] for grads in alone], place, k)

    def batched_forward(self) -> None:
        """Two tangents at once, inside vmap, against one after the other."""
        from flambeau.batching.vmap import vmap

        for place in self.places:
            pair = [_as_tensor(self.random.random(place.count), place.x) for _ in range(2)]
            alone = [self.tangents({place: t}) for t in pair]
            known = [k for k, t in enumerate(alone[0]) if t is not None]

            def several(t, place=place, known=known):
                found = self.tangents({place: t})
                return [found[k] for k in known]

            try:
                together = vmap(several)(OPS["stack"](pair))
            except RuntimeError as problem:
                raise GradcheckError(f"{_BATCHED}, of input {place.number} by forward mode. Inside vmap: {problem}") from problem
            for k, found in zip(known, together, strict=True):
                self.compare_batched(found, [tangents[k] for tangents in alone], place, k)

    def compare_batched(self, together, alone: Sequence, place: _Input, k: int) -> None:
        for row, one in enumerate(alone):
            found, expected = (np.zeros(()) if t is None else _reals(t) for t in (together if together is None else together[row], one))
            if not np.allclose(found, expected, self.rtol, self.atol, equal_nan=True):
                both = f"inside vmap\n{together}\nand one by one\n{alone}"
                raise GradcheckError(f"{_BATCHED}: of output {k} with respect to input {place.number} it is {both}")

    # -- calls of the function

    def grads(self, outs, seeds) -> tuple:
        """Of all inputs, by backward."""
        return api.grad(outs, self.xs, seeds, retain_graph=True, allow_unused=True)

    def tangents(self, directions: dict) -> list[Tensor | None]:
        """Of all outputs, by forward mode, where inputs move in these directions."""
        from flambeau.autograd import forward_ad

        inputs = list(self.inputs)
        for place in self.places:
            inputs[place.number] = place.x.detach()
        with forward_ad.dual_level():
            for place, u in directions.items():
                tangent = u if isinstance(u, Tensor) else _as_tensor(u, place.x)
                inputs[place.number] = forward_ad.make_dual(inputs[place.number], tangent)
            found = _differentiable(self.func(*inputs), any_float=True)
            return [pair.tangent for pair in forward_ad.unpack_duals(found)]

    def differences(self, place: _Input, out: Tensor | None = None, k: int = 0) -> list[np.ndarray]:
        """J C of all outputs, each (elements, columns)."""
        if place not in self.slopes:
            columns = [self.difference(place, u, out, k) for u in self.columns[place]]
            count = len(columns[0]) if columns else len(_differentiable(self.func(*self.inputs), any_float=True))
            empty = [np.zeros((0, 0))] * count if out is None else [np.zeros((_count(out), 0))] * count
            self.slopes[place] = [np.stack([column[i] for column in columns], 1) for i in range(count)] if columns else empty
        return self.slopes[place]

    def difference(self, place: _Input, u: np.ndarray, out: Tensor | None, k: int) -> list[np.ndarray]:
        sides: list[Any] = []
        for step in (self.eps, -self.eps):
            with place.moved(u * step):
                outs = self.func(*self.inputs)
                found = _differentiable(outs) or _differentiable(outs, any_float=True)
                sides.append([(o.dtype, tuple(o.shape), _reals(o)) for o in found])
        if out is not None:
            sides.append([(out.dtype, tuple(out.shape))] * (k + 1))
        for at, what in ((1, "shape"), (0, "dtype")):
            if len({side[k][at] for side in sides if len(side) > k}) > 1:
                raise AssertionError(f"the function is to return outputs with the same {what} when inputs are perturbed a little")
        return [(here[2] - there[2]) / (2 * self.eps) for here, there in zip(sides[0], sides[1], strict=True)]


_BATCHED = "gradcheck or gradgradcheck failed while testing batched gradient computation"


class _Input:
    """An input that is differentiated."""

    def __init__(self, number: int, x: Tensor):
        self.number, self.x = number, x
        if x.dtype not in (dtypes.float64, dtypes.complex128):
            what = "requires gradient and is not a double precision floating point or complex"
            warnings.warn(f"Input #{number} {what}: this check will likely fail.", stacklevel=5)
        self.count = _count(x)
        if any(step == 0 and n > 1 for step, n in zip(x.stride(), x.shape, strict=True)):
            raise RuntimeError(
                f"The {number}th input has a dimension with stride 0, all of one element. gradcheck moves single ones: try .contiguous()"
            )

    def read(self, g: Tensor | None) -> np.ndarray:
        """The gradients of the elements."""
        return _reals_or_zeros(g, self.x)

    @contextlib.contextmanager
    def moved(self, by: np.ndarray) -> Iterator[None]:
        """The input itself, elsewhere. Nobody notices: the function may hold it, and what was saved of it is still valid afterwards."""
        array = self.x._array
        before = arrays.copy(array)
        with modes.no_grad():
            there = self.x.detach() + _as_tensor(by, self.x)
        arrays.write(array, there._array)
        try:
            yield
        finally:
            arrays.write(array, before)


def _count(t: Tensor) -> int:
    """Real numbers in a tensor."""
    return t.numel() * (2 if t.is_complex() else 1)


def _reals(t: Tensor) -> np.ndarray:
    """The elements as real numbers."""
    dense = t.detach() if t.layout is strided else t.detach().to_dense()
    values = dense.to(dtypes.complex128 if t.is_complex() else dtypes.float64).numpy(force=True).reshape(-1)
    return np.stack([values.real, values.imag], 1).reshape(-1) if values.dtype.kind == "c" else values.copy()


def _reals_or_zeros(t: Tensor | None, like: Tensor) -> np.ndarray:
    return np.zeros(_count(like)) if t is None else _reals(t)


def _as_tensor(reals: np.ndarray, like: Tensor) -> Tensor:
    """Real numbers as the elements of a tensor like another."""
    values = reals.view(np.complex128) if like.is_complex() else reals
    return wrap(np.ascontiguousarray(values).reshape(tuple(like.shape))).to(device=like.device, dtype=like.dtype)


# -- single Jacobians --------------------------------------------------------------------------------------------------


def get_numerical_jacobian(fn: Callable, inputs, target=None, eps: float = 1e-3, grad_out: float = 1.0) -> tuple[Tensor, ...]:
    """For each tensor in `target` (`inputs`) the derivative of the first output of fn(inputs), by differences: (input elements, output elements)."""
    _old("get_numerical_jacobian", grad_out)
    targets = (target,) if isinstance(target, Tensor) else _differentiable(inputs if target is None else target)
    check = _Check(lambda *xs: fn(inputs), targets, eps, 0.0, 0.0, False)
    return tuple(_complex_columns(check.differences(place)[0].T, place.x) for place in check.places)


def get_analytical_jacobian(inputs, output: Tensor, nondet_tol: float = 0.0, grad_out: float = 1.0) -> tuple:
    """(for each input the derivative of the output, by backward: (input elements, output elements); whether backward gave the same twice;
    whether its gradients had the right shapes; whether they had the right dtypes)."""
    _old("get_analytical_jacobian", grad_out)
    check = _Check(None, tuple(inputs), 0.0, 0.0, 0.0, False)
    rows, same, fits, kinds = [], True, True, True
    for v in np.eye(_count(output)):
        grads, again = (check.grads((output,), (_as_tensor(v, output),)) for _ in range(2))
        for x, g, h in zip(check.xs, grads, again, strict=True):
            if g is not None:
                same &= bool(np.abs(_reals(g) - _reals(h)).max(initial=0) <= nondet_tol)
                fits, kinds = fits and tuple(g.shape) == tuple(x.shape), kinds and g.dtype is x.dtype
        rows.append([place.read(g) for place, g in zip(check.places, grads, strict=True)])
    found = [np.stack([row[i] for row in rows], 1) for i in range(len(check.places))]
    return tuple(_complex_columns(j, place.x) for j, place in zip(found, check.places, strict=True)), same, fits, kinds


def _complex_columns(by_reals: np.ndarray, x: Tensor) -> Tensor:
    """A Jacobian by real numbers, (of the input, of the output), with one row for each complex element of the input."""
    return wrap(np.ascontiguousarray(by_reals[::2] + 1j * by_reals[1::2] if x.is_complex() else by_reals))


def _old(name: str, grad_out: float) -> None:
    warnings.warn(
        f"`{name}` was part of PyTorch's private API, never meant to be used: try gradcheck, or func.jacrev",
        FutureWarning,
        stacklevel=3,
    )
    if grad_out != 1.0:
        raise ValueError(f"Expected grad_out to be 1.0. {name} takes it for programs that name it")


class _Callable(ModuleType):
    """Importing this module puts it where `torch.autograd.gradcheck`, the function, was: so it must be able to stand for it."""

    def __call__(self, *args, **kwargs):
        return gradcheck(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
__all__ = ["GradcheckError", "get_analytical_jacobian", "get_numerical_jacobian", "gradcheck", "gradgradcheck"]
