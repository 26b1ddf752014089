"""Binding: every declaration in `ops/` becomes a function, a Tensor method, an in-place method and an operator.

Making a thousand functions would take as long as importing all the rest, so `bind_all` only notes their names; whoever asks for one first,
through `flambeau.<name>` or through a tensor, has it made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace

from flambeau import ops
from flambeau.eager import array_ops, indexing, pointwise, record, views
from flambeau.ops import OPS, contents
from flambeau.ops.declare import Op
from flambeau.tensor import Tensor

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
    "choice": partial(array_ops.bind_choice, in_place=True),
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
    """Put every name in its place: operators at once, functions and methods to be made when they are asked for. Runs once, at import."""
    for name in contents.METHODS:
        setattr(Tensor, name, Later(name))
    Op.place, Op.bind = place, bind  # type: ignore[method-assign, assignment]  # for operations that are declared later, too
    for op in list(OPS.values()):
        op.place()
    for op in (indexing._index, *indexing.VIEWS.values()):
        op.bind()  # brackets record these without calling them
    for method, (name, swapped) in OPERATORS.items():
        OPS[name].bind()
        setattr(Tensor, method, _operator(OPS[name], method, swapped))
    for method, name in INPLACE_OPERATORS.items():
        function = OPS[name].call_inplace if name in OPS else getattr(Tensor, name)
        operator = _with_other_side(function, method, False)
        operator.__name__ = operator.__qualname__ = method
        operator.op = getattr(function, "op", None)
        setattr(Tensor, method, operator)


class Later:
    """A method that gives way to the real one when it is first asked for: of a thousand, a program uses a few dozen."""

    op = None

    def __init__(self, name: str):
        self.name = name

    def __get__(self, tensor, kind=None):
        if self.name not in methods:
            contents.load(contents.METHODS[self.name])
        op, form = methods[self.name]
        op.bind()
        method = getattr(op, form)
        setattr(Tensor, self.name, method)
        return method.__get__(tensor, kind)


class Functions(Mapping):
    """The functions by full public name, such as "add" or "linalg.inv", made when they are asked for."""

    def __init__(self) -> None:
        self.operations: dict[str, Op] = {}

    def __getitem__(self, name: str) -> Callable:
        if name in contents.FUNCTIONS:
            contents.load(contents.FUNCTIONS[name])
        elif name not in self.operations:
            contents.load_room(name.rpartition(".")[0])
        op = self.operations[name]
        op.bind()
        return op.call

    def __contains__(self, name) -> bool:
        return name in self.operations or name in contents.FUNCTIONS

    def __iter__(self) -> Iterator[str]:
        return iter({**self.operations, **contents.FUNCTIONS})

    def __len__(self) -> int:
        return len(self.operations | contents.FUNCTIONS)


functions = Functions()
methods: dict[str, tuple[Op, str]] = {}  # name of a method -> its operation, and whether it is its `call` or its `call_inplace`


def place(op: Op) -> None:
    """Put the names of an operation where users find them."""
    if op.public:
        for name in (op.name, *op.aliases):
            functions.operations[name] = op
    if op.attribute:
        write = _write_to(op) if op.attribute == "writable" else None
        setattr(Tensor, op.short, property(lambda self: op.call(self), write, doc=op.__doc__))
    further = [alias for alias in op.aliases if "." not in alias]
    for name in (op.method, *further) if op.method and not op.attribute else ():
        _place_method(name, op, "call")
    for name in (op.short, *further) if op.inplace else ():
        _place_method(f"{name}_", op, "call_inplace")


def _place_method(name: str, op: Op, form: str) -> None:
    methods[name] = op, form
    if name not in contents.METHODS:  # those stand in their place already, unless a user has put something else there
        setattr(Tensor, name, Later(name))


def bind(op: Op) -> None:
    """Make the functions of one operation."""
    if op.bound:
        return
    op.bound = True
    if op.kind in NODES:
        name = op.grad_name or "".join(part.title() for part in op.short.split("_")) + "Backward0"
        op.node_class = type(name, (NODES[op.kind],), {"op": op})
    op.call = _named(BINDERS[op.kind](op), op, op.short)
    if hasattr(op, "call_inplace"):
        op.call_inplace = _named(INPLACE[op.kind](op), op, op.short + "_")
    public = OPS.get(op.short)
    if public is not None and public is not op and public.public and not op.public:
        public.bind()
        op.call.shown = public.call  # what __torch_function__ is told was called
        if hasattr(op, "call_inplace") and hasattr(public, "call_inplace"):
            op.call_inplace.shown = public.call_inplace


def everything() -> None:
    """Make all functions and methods, for those who want to look at them one by one."""
    for op in ops.everything():
        op.bind()
    for name in methods:
        getattr(Tensor, name)


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
    contents.load_room(prefix)
    start = prefix + "."
    return SimpleNamespace(**{n.removeprefix(start): functions[n] for n in functions if n.startswith(start)})
