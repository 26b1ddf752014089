"""Operations on rows: each element of the result depends on all elements along `dim`. One formula of a row says all of it:

    @rowwise()
    def softmax(row):
        powers = e.exp(row - peak(row))
        return powers * (1 / total(powers))

The operation, its loops for the CPU and for GPUs, its derivative (an operation of its own, `_softmax_backward`) and the derivative of that follow
from the formula (kernels/loops/).
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from flambeau.kernels import arrays, layout
from flambeau.kernels.language.expr import Expr
from flambeau.kernels.loops import derive, run
from flambeau.kernels.loops.language import Loop, declare
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

        forward.__module__ = formula.__module__  # the file that declares the operation

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
    op.meta(lambda g, y, dim: (g.shape, g.dtype))
    further = [derive.backward(back, k, f"{name}_backward_{k}") for k in range(2)]
    op.derivative(
        g=lambda grad, g, y, dim: by_operations(further[0], (grad, g, y), dim),
        y=lambda grad, g, y, dim: by_operations(further[1], (grad, g, y), dim),
    )
    return op


OPERATORS: dict[str, Callable] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "neg": operator.neg, "lt": operator.lt, "gt": operator.gt,
    "exp": lambda x: x.exp(), "log": lambda x: x.log(), "sqrt": lambda x: x.sqrt(), "rsqrt": lambda x: x.rsqrt(), "tanh": lambda x: x.tanh(),
    "where": lambda condition, a, b: a.where(condition, b),
}  # fmt: skip


def by_operations(loop: Loop, tensors, dim: int):
    """The loop carried out on tensors, by operations, so that it can be differentiated again."""
    known: dict[Expr, object] = {}

    def value(expr: Expr):
        if expr not in known:
            known[expr] = leaf(expr) if not expr.args else applied(expr, [value(a) for a in expr.args])
        return known[expr]

    def leaf(expr: Expr):
        return tensors[expr.value] if expr.op == "load" else tensors[0].shape[dim] if expr.op == "extent" else expr.value

    def applied(expr: Expr, args: list):
        if expr.op == "total":
            return args[0].sum(dim, keepdim=True)
        return args[0].amax(dim, keepdim=True) if expr.op == "peak" else OPERATORS[expr.op](*args)

    return value(loop.values[0])
