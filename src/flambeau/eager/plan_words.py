"""A plan in plain words: `flambeau.plan(torch.softmax, x, dim=-1)`.

    softmax(float32 (2, 3) wants grad, dim=-1)
    1. softmax         float32 (2, 3)
       work            the compiled loop softmax, of argument 0
       saves           result
       backward        input: derivative of softmax, which has plans of its own

What a call comes down to is worked out by carrying it out once the general way; in-place forms are given copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau import modes
from flambeau.eager import plans
from flambeau.kernels.language.pointwise import GRAD, RESULT
from flambeau.kernels.native import native
from flambeau.ops.declare import Op
from flambeau.tensor import Tensor

WIDTH = 16  # of the first column


def plan(function: Callable, *args: Any, **kwargs: Any) -> Shown:
    """What `function(*args, **kwargs)` comes down to: the steps, their work, what they give, what is saved, and what backward will do.

    >>> import flambeau as torch
    >>> print(torch.plan(torch.softmax, torch.zeros(2, 3), dim=-1))
    softmax(float32 (2, 3), dim=-1)
    1. softmax         float32 (2, 3)
       work            the compiled loop softmax, of argument 0
    """
    if not isinstance(function, Callable) or not hasattr(function, "plans"):  # type: ignore[arg-type]
        name = getattr(function, "__name__", function)
        raise TypeError(
            f"plan() takes an operation, such as torch.softmax or torch.Tensor.add_, and {name} is none: "
            + (
                "the compiled kernels are missing, and with them all plans"
                if native.lib is None
                else "it is made of others. Ask for one of them"
            )
        )
    called = f"{function.__name__}({', '.join([*map(_said, args), *(f'{k}={_said(v)}' for k, v in kwargs.items())])})"
    if function.__name__.endswith("_"):
        args = tuple([v.detach().clone() if isinstance(v, Tensor) else v for v in args])
    tensors = list(plans._held((*args, *kwargs.values())))
    wants = modes.state.grad and any(isinstance(t, Tensor) and t.requires_grad for t in tensors)
    op = getattr(function, "op", None)
    by_kind = len(op.operands) if op is not None and op.kind == "pointwise" else 0
    _, made = plans.learn(function.miss, args, kwargs, wants, min(by_kind, len(args)))
    return Shown(called, made.source if made else None, wants)


class Shown:
    """A plan to be printed. `steps` are those of the plan, or None where there is no plan for such calls."""

    def __init__(self, called: str, found: plans.Plan | None, wants: bool):
        self.called, self.plan, self.wants = called, found, wants
        self.steps = None if found is None else found.steps

    def __repr__(self) -> str:
        return "\n".join([self.called, *self._lines()])

    def _lines(self) -> Iterator[str]:
        if self.plan is None:
            yield "no plan: it goes the general way, in Python, because it looks at values, warns, or does more than operations on its arguments"
            return
        if not self.steps:
            yield "nothing to do: it returns its argument"
        for number, step in enumerate(self.steps, 1):
            yield from step_lines(number, step, self.plan, self.wants)


def step_lines(number: int, step: plans.Step, whole: plans.Plan, wants: bool) -> Iterator[str]:
    """One step in words."""
    given = [_spec(*spec) for spec in step.specs] or [f"writes over {_of(step.codes[0], step, whole)}"]
    yield f"{f'{number}. {step.op.short}':{WIDTH + 3}}{', '.join(given)}{', a view' if step.kind == plans.VIEWS else ''}"
    takes = [_of(code, step, whole) for code in step.codes]
    yield _line("work", f"{_work(step)}{f', of {chr(44).join(takes)}'.replace(',', ', ').replace(',  ', ', ') if takes else ''}")
    if wants and step.differentiable and step.floating and step.kind != plans.WRITES:
        yield from _backward_lines(step)


def _line(what: str, words: str) -> str:
    return f"   {what:{WIDTH}}{words}"


def _backward_lines(step: plans.Step) -> Iterator[str]:
    op = step.op
    if op.kind == "pointwise":
        for i, name in enumerate(op.operands):
            if step.tensors[i] >= 0:
                found = op.kernel.gradient(i)
                saves = ["result" if k == RESULT else op.operands[k] for k in found.uses]
                kept = f", of which {' and '.join(saves)} {'is' if len(saves) == 1 else 'are'} saved" if saves else ""
                yield _line("backward", f"{name}: {'the gradient as it is' if found.kind == 'same' else _formula(found.expr, op)}{kept}")
    elif op.joint_derivative is not None:
        yield _line("backward", f"one derivative for all operands, which saves {_names(op.joint_derivative, op)} and has plans of its own")
    else:
        for name, derivative in op.derivatives.items():
            yield _line("backward", f"{name}: a derivative of operations, which saves {_names(derivative, op)} and has plans of its own")


def _formula(expr: Any, op: Op) -> str:
    """A formula as a person would write it."""
    named = dict(enumerate(op.operands)) | {GRAD: "grad", RESULT: "result"}
    if expr.op == "load":
        return named[expr.value]
    if expr.op == "param":
        return op.options[expr.value]
    args = [_formula(a, op) for a in expr.args]
    if expr.op in INFIX:
        return f"({f' {INFIX[expr.op]} '.join(args)})"
    return f"{expr.op}({', '.join(args)})" if expr.args else repr(expr.value)


INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "lt": "<", "gt": ">", "le": "<=", "ge": ">=", "eq": "=="}


def _names(derivative: Callable, op: Op) -> str:
    code = derivative.__code__
    names = [n for n in code.co_varnames[: code.co_argcount] if n not in ("grad", "grads", "needs", "again")]
    return ", ".join(names) or "nothing"


def _work(step: plans.Step) -> str:
    run = step.run
    if step.kind == plans.VIEWS:
        return "another look at the same memory"
    if native.lib is not None and isinstance(getattr(run, "__self__", run), native.lib.Kernel):
        return f"the compiled loop {getattr(step.op.kernel, 'name', step.op.short) if step.op.kind == 'pointwise' else step.op.short}"
    name = getattr(run, "__qualname__", type(run).__name__).replace(".<locals>", "").replace(".<lambda>", "")
    return f"{getattr(run, '__module__', None) or 'compiled'}.{name}".removeprefix("flambeau.")


def _of(code: int, step: plans.Step, whole: plans.Plan) -> str:
    """What a step takes, by its code."""
    if code < plans.VALUE:
        return f"argument {code}" if code < whole.given else f"result of step {_made_by(code, whole)}"
    if code < plans.LIST:
        return repr(step.values[code - plans.VALUE])
    if code < plans.ARGUMENT:
        return f"[{', '.join(['None' if n is None else _of(n, step, whole) for n in step.values[code - plans.LIST]])}]"
    if code < plans.CAST:
        return f"number {code - plans.ARGUMENT} of the call"
    if code < plans.RESULT:
        number = step.values[code - plans.CAST][0]
        return f"{f'number {-1 - number} of the call' if number < 0 else _of(number, step, whole)}, cast"
    return "what backward will want"


def _made_by(number: int, whole: plans.Plan) -> int:
    made = [s.first_result for s in whole.steps]
    return max((i for i, first in enumerate(made, 1) if first <= number), default=1)


def _said(value: Any) -> str:
    if isinstance(value, Tensor):
        return _spec(tuple(value.shape), value.dtype, value.stride()) + (" wants grad" if value.requires_grad else "")
    return f"[{', '.join(map(_said, value))}]" if isinstance(value, list) else repr(value)


def _spec(shape: tuple, dtype: Any, strides: tuple) -> str:
    dense: list[int] = []
    step = 1
    for size in shape[::-1]:
        dense.insert(0, step)
        step *= max(size, 1)
    usual = all(s == d or n == 1 for s, d, n in zip(strides, dense, shape, strict=True))
    return f"{dtype.name} {shape}" + ("" if usual else f" strided {tuple(strides)}")
