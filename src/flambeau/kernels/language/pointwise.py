"""A pointwise kernel: a named formula over operands and options, in all its forms.

`Pointwise` ties a formula to its compiled loop, its NumPy evaluation and the kernels of its derivative. It works on arrays that have
been brought to one dtype already; which dtype that is, and who wants a gradient, is the business of the rooms above.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from flambeau.kernels.native import native

FLOATS = ("float32", "float64", "bfloat16", "float16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
GRAD, RESULT = 100, 101  # operand numbers standing for the incoming gradient and the result in derivative formulas


class Pointwise:
    """`formula(*operands, *options)` for each element.

    operands  names of the array operands;  kinds  "T", or "bool" / "i64" for an operand of fixed dtype
    options   names of the numbers that hold for the whole call
    out       "T", "bool", or a dtype name: what the result is stored as
    dtypes    the dtypes for which a loop is compiled ahead of time
    unrounded the operand that may be a number beside half precision without being rounded to it
    """

    def __init__(self, name, formula, operands, options=(), kinds=None, out="T", dtypes=FLOATS, gradient_formulas=None, unrounded=None):
        self.name: str = name
        self.operands: tuple[str, ...] = tuple(operands)
        self.options: tuple[str, ...] = tuple(options)
        self.kinds: tuple[str, ...] = tuple(kinds or ("T",) * len(self.operands))
        self.out: str = out
        self.dtypes: tuple[str, ...] = tuple(dtypes)
        self.unrounded: str | None = unrounded
        self._formula: Callable = formula
        self._gradient_formulas: dict[str, Callable | None] = {} if gradient_formulas is None else gradient_formulas
        self._gradients: dict[int, Gradient] = {}
        self.again: Callable | None = None  # how the derivative is carried out where it is to be differentiated itself, if not as it stands

    @cached_property
    def expr(self):
        """The formula, traced."""
        from flambeau.kernels.language import expr as e

        loads = [e.load(i, kind) for i, kind in enumerate(self.kinds)]
        return e.lift(
            self._formula(**dict(zip(self.operands, loads, strict=True)), **{name: e.param(i) for i, name in enumerate(self.options)})
        )

    @cached_property
    def launch(self) -> Callable:
        """The compiled kernel: launch(*arrays, *options) -> array, or NotImplemented where there is no loop for it."""
        return native.kernel(self.name)

    @cached_property
    def launch_into(self) -> Callable:
        """launch_into(out, *arrays, *options) -> out or NotImplemented."""
        return getattr(self.launch, "into", native.not_compiled)

    def gradient(self, index: int) -> Gradient:
        """How a gradient of the result reaches operand `index`."""
        found = self._gradients.get(index)
        if found is None:
            found = self._gradients[index] = Gradient(self, index)
        return found


class Gradient:
    """The derivative with respect to one operand.

    expr    the formula over load(GRAD), the operands and load(RESULT)
    uses    which operands (and RESULT) it reads besides the gradient, in the order the kernel takes them
    kind    "zero", "same" (the gradient passes unchanged), "kernel", or "missing" (nobody has written it: backward raises)
    """

    def __init__(self, of: Pointwise, index: int):
        from flambeau.kernels.language import derive
        from flambeau.kernels.language import expr as e

        self.of, self.index = of, index
        g, result = e.load(GRAD), e.load(RESULT)
        self.uses: tuple[int, ...] = ()
        name = of.operands[index]
        if name in of._gradient_formulas:
            written = of._gradient_formulas[name]
            if written is None:
                self.kind = "missing"
                return
            self.expr = _call_by_name(written, of, g, result)
        else:
            whole = derive.backward(of.expr, e.load(index, of.kinds[index]), g)
            by_result = e.replace(whole, {of.expr: result})
            # Reading the result instead of the operands is a gain only if it frees all of them.
            free = not (set(e.loads(by_result)) - {GRAD, RESULT})
            self.expr = by_result if free else whole
        self.uses = tuple(i for i in e.loads(self.expr) if i != GRAD)
        self.kind = "zero" if self.expr.op == "const" else "same" if self.expr is g else "kernel"

    @cached_property
    def kernel(self) -> Pointwise:
        """The kernel: operands (gradient, *uses), the forward's options."""
        from flambeau.kernels.language import expr as e

        order = (GRAD, *self.uses)
        kinds = tuple("T" if i in (GRAD, RESULT) else self.of.kinds[i] for i in order)
        table = {e.load(old, kind): e.load(new, kind) for new, (old, kind) in enumerate(zip(order, kinds, strict=True))}
        made = Pointwise(
            f"{self.of.name}_grad_{self.of.operands[self.index]}",
            None,
            ("grad", *(("result" if i == RESULT else self.of.operands[i]) for i in self.uses)),
            self.of.options,
            kinds,
            unrounded=self.of.unrounded,
        )
        made.expr = e.replace(self.expr, table)
        return made


def _call_by_name(written: Callable, of: Pointwise, g, result):
    """A derivative written by hand takes what it needs by name: grad, result, operands and options."""
    from flambeau.kernels.language import expr as e

    known = {"grad": g, "result": result}
    known |= {n: e.load(i, of.kinds[i]) for i, n in enumerate(of.operands)}
    known |= {n: e.param(i) for i, n in enumerate(of.options)}
    code = written.__code__
    return e.lift(written(*(known[n] for n in code.co_varnames[: code.co_argcount])))
