"""Operations on rows: each element of the result depends on all elements along `dim`. One formula of a row says all of it:

    @rowwise()
    def softmax(row):
        powers = e.exp(row - peak(row))
        return powers * (1 / total(powers))

The operation, its loops for the CPU and for GPUs, its derivative (an operation of its own, `_softmax_backward`) and the derivative of that follow
from the formula (kernels/loops/). A loop of several operands along the last dimension is an operation by `looped`; what flows back through it, and what
it does inside vmap, are operations that follow from its formula, too.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import lru_cache

from flambeau.kernels import arrays, layout
from flambeau.kernels.language import expr as e
from flambeau.kernels.language.expr import Expr
from flambeau.kernels.language.simplify import ZERO, add
from flambeau.kernels.loops import derive, run
from flambeau.kernels.loops.language import EACH, LINE, ROW, SHARED, Loop, declare, extent
from flambeau.ops import specs
from flambeau.ops.declare import ArrayOp, on_arrays
from flambeau.ops.reductions import checked_dtype
from flambeau.ops.views import whole


def rowwise(grad_name: str, **columns) -> Callable[[Callable], ArrayOp]:
    """Declare an operation (input, dim, dtype=None) by the formula of a row. `grad_name`: what the node of the derivative's derivative is called."""

    def declared(formula: Callable) -> ArrayOp:
        name = formula.__name__
        loop = declare(Loop(name, formula, "ri"))
        back = declare(derive.backward(loop, 0, f"{name}_backward"))

        def forward(input, dim, dtype=None):
            if dtype is not None:
                input = arrays.cast(input, checked_dtype(name, dtype).numpy)
            if input.dtype.kind in "biuc":
                raise NotImplementedError(f'"{name}" not implemented for {input.dtype.name}. Try {name}(x, dim, dtype=torch.float32)')
            return run.run(loop, (input,), (), layout.wrap_dim(whole(dim), input.ndim))

        forward.__module__ = formula.__module__

        def prepare(input, dim, dtype):
            usual = dtype is None and input.dtype.kind not in "biuc"
            return run.ready(loop, (input,), (), layout.wrap_dim(dim, input.ndim)) if usual else None

        def shape(input, dim, dtype=None):
            layout.wrap_dim(dim, input.ndim)
            return input.shape, input.dtype if dtype is None else dtype.numpy

        op = on_arrays(name=name, doc=formula.__doc__, out="same", **columns)(forward)
        op.work(prepare)
        op.meta(shape)
        again = _backward(name, back, grad_name)
        again.forward.__module__ = formula.__module__
        op.derivative(input=lambda grad, result, dim: again(grad, result, layout.wrap_dim(dim, grad.dim())))
        return op

    return declared


def _backward(name: str, back: Loop, grad_name: str) -> ArrayOp:
    """The operation that carries a gradient from the result y to the input, which has derivatives itself."""

    def forward(g, y, dim):
        return run.run(back, (g, y), (), dim)

    op = on_arrays(
        name=f"_{name}_backward",
        doc=f"How the gradient g of a {name} y reaches its input.",
        public=False,
        method=False,
        grad_name=grad_name,
    )(forward)
    op.meta(specs.contiguous)
    op.derivative(
        g=lambda grad, g, y, dim: gradients(back, [grad], [g, y], dim, (0,))[0],
        y=lambda grad, g, y, dim: gradients(back, [grad], [g, y], dim, (1,))[1],
    )
    return op


# -- loops of several operands -----------------------------------------------------------------------------------------------

LOOPED: dict[str, Loop] = {}  # by the names of their operations


def looped(loop: Loop, **columns) -> Callable[[Callable], ArrayOp]:
    """Declare the operation that carries out a loop. The decorated function shows its parameters: the loop's operands, then its options."""

    def declared(signature: Callable) -> ArrayOp:
        op = on_arrays(**{"public": False, "method": False} | columns)(signature)
        n = len(loop.loads)

        def forward(*given, **named):
            given = (*given, *named.values())
            return run.run(loop, given[:n], given[n:])

        def shapes(*given, **named):
            first = (*given, *named.values())[0]
            found = {ROW: first.shape, EACH: (*first.shape[:-1], 1), SHARED: first.shape[-1:]}
            specs = [(found[access], first.dtype) for access in loop.stores]
            return specs if op.returns else specs[0]

        forward.__module__ = signature.__module__  # the file that declares the operation
        op.forward, op.shape_rule = forward, shapes
        op.work(lambda *given: run.ready(loop, given[:n], given[n:]))
        LOOPED[op.name] = loop
        return op

    return declared


# -- loops by operations -----------------------------------------------------------------------------------------------------

OPERATORS: dict[str, Callable] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "neg": operator.neg, "lt": operator.lt, "gt": operator.gt,
    "exp": lambda x: x.exp(), "log": lambda x: x.log(), "sqrt": lambda x: x.sqrt(), "rsqrt": lambda x: x.rsqrt(), "tanh": lambda x: x.tanh(),
    "where": lambda condition, a, b: a.where(condition, b),
}  # fmt: skip


class _ByOperations:
    """The values of formulas on tensors, by operations, so that they can be differentiated."""

    def __init__(self, tensors, options=(), dim: int | tuple[int, ...] = -1):
        self.tensors, self.options, self.dim = tensors, options, dim  # of rows of lines, whose places are the last dimension, several
        self.known: dict[Expr, object] = {}

    def __call__(self, expr: Expr):
        if expr not in self.known:
            self.known[expr] = self.leaf(expr) if not expr.args else self.mean(expr) if _is_mean(expr) else self.applied(expr)
        return self.known[expr]

    def leaf(self, expr: Expr):
        if expr.op in ("load", "param"):
            return (self.tensors if expr.op == "load" else self.options)[expr.value]
        dims = self.dim if isinstance(self.dim, tuple) else (self.dim,)
        return math.prod([self.tensors[0].shape[d] for d in dims]) if expr.op == "extent" else expr.value

    def mean(self, expr: Expr):
        return self(expr.args[0].args[0]).mean(self.dim, keepdim=True)

    def applied(self, expr: Expr):
        args = [self(a) for a in expr.args]
        if expr.op in derive.SUMS:
            return args[0].sum({"total": self.dim, "line_total": -1, "total_of_lines": -2}[expr.op], keepdim=True)
        return args[0].amax(self.dim, keepdim=True) if expr.op == "peak" else OPERATORS[expr.op](*args)


def _is_mean(expr: Expr) -> bool:
    return expr.op == "div" and expr.args[0].op == "total" and expr.args[1] is extent


def by_operations(loop: Loop, operands, options=(), dim: int | tuple[int, ...] = -1):
    """The stores of a loop, by operations."""
    value = _ByOperations(operands, options, dim)
    n = operands[0].shape[-1:]
    found = [value(v).sum_to_size(n) if access == SHARED else value(v) for v, access in zip(loop.values, loop.stores, strict=True)]
    return tuple(found) if len(found) > 1 else found[0]


def gradients(loop: Loop, grads, operands, dim: int | tuple[int, ...] = -1, wanted=None) -> list:
    """How gradients of the stores (or None) reach the operands, by operations; None where nothing does, or it is not wanted."""
    value = _ByOperations([*operands, *grads], (), dim)
    flows = _flows(loop, tuple([g is not None for g in grads]))
    found: list = [None] * len(operands)
    for k in range(len(operands)) if wanted is None else wanted:
        if flows[k] is not ZERO:
            found[k] = value(flows[k])
            if loop.loads[k] in (SHARED, LINE):
                found[k] = found[k].sum_to_size(tuple(operands[k].shape))
    return found


@lru_cache(None)
def _flows(loop: Loop, there: tuple[bool, ...]) -> list[Expr]:
    """What reaches each operand, where there are gradients of some stores: loads behind those of the operands."""
    seeds: dict[Expr, Expr] = {}
    for k, value in enumerate(loop.values):
        if there[k]:
            seeds[value] = add(seeds.get(value, ZERO), e.load(len(loop.loads) + k))
    return [derive.real(derive.adjoint(loop, seeds, k)) for k in range(len(loop.loads))]
