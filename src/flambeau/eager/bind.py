"""Binding: every declaration in `ops/` becomes a function, a Tensor method, an in-place method and an operator."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from flambeau.eager import array_ops, indexing, pointwise, record, views  # noqa: F401  (indexing gives Tensor its brackets)
from flambeau.ops import OPS
from flambeau.tensor import Tensor

functions: dict[str, Callable] = {}  # full public name -> function

BINDERS: dict[str, Callable] = {
    "pointwise": pointwise.bind,
    "array": array_ops.bind,
    "view": views.bind,
    "choice": array_ops.bind_choice,
    "composite": array_ops.bind_composite,
}
INPLACE: dict[str, Callable] = {
    "pointwise": pointwise.bind_inplace,
    "array": array_ops.bind_inplace,
    "choice": array_ops.bind_choice_inplace,
    "composite": array_ops.bind_composite_inplace,
}
NODES = {"pointwise": record.PointwiseNode, "array": record.ArrayNode, "view": record.ArrayNode}

# operator -> (operation, whether the operands are swapped). Where the public function is a choice (add has alpha=, div has
# rounding_mode=), the operator is bound to the one operation it always means.
OPERATORS = {
    "__add__": ("_add", False), "__radd__": ("_add", False), "__sub__": ("_sub", False), "__rsub__": ("_rsub", False),
    "__mul__": ("mul", False), "__rmul__": ("mul", False), "__truediv__": ("_div", False), "__rtruediv__": ("_div", True),
    "__div__": ("_div", False), "__rdiv__": ("_div", True),
    "__floordiv__": ("floor_divide", False), "__rfloordiv__": ("floor_divide", True),
    "__mod__": ("remainder", False), "__rmod__": ("remainder", True), "__pow__": ("pow", False), "__rpow__": ("pow", True),
    "__matmul__": ("matmul", False), "__rmatmul__": ("matmul", True),
    "__and__": ("bitwise_and", False), "__rand__": ("bitwise_and", False), "__or__": ("bitwise_or", False),
    "__ror__": ("bitwise_or", False), "__xor__": ("bitwise_xor", False), "__rxor__": ("bitwise_xor", False),
    "__lshift__": ("bitwise_left_shift", False), "__rlshift__": ("bitwise_left_shift", True),
    "__rshift__": ("bitwise_right_shift", False), "__rrshift__": ("bitwise_right_shift", True),
    "__lt__": ("lt", False), "__le__": ("le", False), "__gt__": ("gt", False), "__ge__": ("ge", False),
    "__eq__": ("eq", False), "__ne__": ("ne", False),
    "__neg__": ("neg", False), "__abs__": ("abs", False), "__invert__": ("bitwise_not", False), "__pos__": ("positive", False),
}  # fmt: skip
REFLECTED = frozenset(n for n in OPERATORS if n.startswith("__r") and n != "__rshift__")
INPLACE_OPERATORS = {
    "__iadd__": "_add", "__isub__": "_sub", "__imul__": "mul", "__itruediv__": "_div", "__idiv__": "_div",
    "__ifloordiv__": "floor_divide_",
    "__imod__": "remainder_", "__ipow__": "pow_", "__iand__": "bitwise_and_", "__ior__": "bitwise_or_", "__ixor__": "bitwise_xor_",
    "__ilshift__": "bitwise_left_shift_", "__irshift__": "bitwise_right_shift_",
}  # fmt: skip


def bind_all() -> None:
    """Bind every declared operation. Runs once, when the package is imported."""
    for op in list(OPS.values()):
        bind_one(op)
    for op in OPS.values():
        public = OPS.get(op.short)
        if public is not None and public is not op and public.public and not op.public:
            op.call.shown = public.call  # what __torch_function__ is told was called
            if hasattr(op, "call_inplace") and hasattr(public, "call_inplace"):
                op.call_inplace.shown = public.call_inplace
    for method, (name, swapped) in OPERATORS.items():
        if name in OPS:
            setattr(Tensor, method, _operator(OPS[name], method, swapped))
    for method, name in INPLACE_OPERATORS.items():
        function = OPS[name].call_inplace if name in OPS else getattr(Tensor, name, None)
        if function is not None:
            operator = _with_other_side(function, method, False)
            operator.__name__ = operator.__qualname__ = method
            operator.op = getattr(function, "op", None)
            setattr(Tensor, method, operator)


def bind_one(op) -> None:
    """Make the functions of one operation and put them where users find them."""
    if op.kind in NODES:
        op.node_class = type(op.grad_name, (NODES[op.kind],), {"op": op})
    op.call = _named(BINDERS[op.kind](op), op, op.short)
    if op.public:
        for name in (op.name, *op.aliases):
            functions[name] = op.call
    if op.attribute:
        setattr(Tensor, op.short, property(op.call, _write_to(op) if op.attribute == "writable" else None, doc=op.__doc__))
    elif op.method:
        short_aliases = [a for a in op.aliases if "." not in a]
        for name in (op.method, *short_aliases):
            setattr(Tensor, name, op.call)
    if op.inplace or op.kind in ("pointwise", "array"):
        op.call_inplace = _named(INPLACE[op.kind](op), op, op.short + "_")
    if op.inplace:
        for name in (op.short, *[a for a in op.aliases if "." not in a]):
            setattr(Tensor, name + "_", op.call_inplace)


def _write_to(op) -> Callable:
    def write(self, value):
        op.call(self).copy_(value if isinstance(value, Tensor) else self.new_tensor(value))

    return write


def _named(function: Callable, op, name: str) -> Callable:
    function.__name__ = name
    function.__qualname__ = name
    function.__module__ = "torch"
    function.__doc__ = op.__doc__
    function.op = op
    return function


def _operator(op, name: str, swapped: bool) -> Callable:
    """The operator of an operation: what the operands do not understand is left to the other side (NotImplemented), not an error."""
    if name in ("__neg__", "__abs__", "__invert__", "__pos__"):
        return op.call
    if op.kind == "pointwise" and not swapped and name not in REFLECTED:
        operator = pointwise.bind_operator(op)
    else:
        operator = _with_other_side(op.call, name, swapped)
    operator.__name__ = operator.__qualname__ = name
    operator.op = op  # it asks __torch_function__ by itself, as the operation it stands for
    return operator


def _with_other_side(function: Callable, name: str, swapped: bool) -> Callable:
    def operator(self, other):
        if name in REFLECTED and not isinstance(self, Tensor):
            raise TypeError(f"descriptor {name!r} for 'Tensor' objects doesn't apply to a {type(self).__name__!r} object")
        try:
            return function(other, self) if swapped else function(self, other)
        except TypeError:
            if isinstance(other, (Tensor, int, float, complex)):
                raise
            return NotImplemented

    return operator


def namespace(prefix: str) -> SimpleNamespace:
    """The functions whose public name starts with `prefix.`, such as linalg."""
    start = prefix + "."
    return SimpleNamespace(**{n[len(start) :]: f for n, f in functions.items() if n.startswith(start)})
