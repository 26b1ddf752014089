"""Binding: every declaration in `ops/` becomes a function, a Tensor method, an in-place method and an operator.

Making a thousand functions would take as long as importing all the rest, so `bind_all` only notes their names; whoever asks for one first,
through `flambeau.<name>` or through a tensor, has it made.

Note [first calls from several threads]: what is made at its first use is put where others find it when it is complete, and not a line earlier:
a thread that finds it half made would fail, or worse. Where making it takes several steps that others may see, a lock makes them wait.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace

from flambeau import forks, modes, ops
from flambeau.eager import array_ops, indexing, older_calls, plans, pointwise, record, views
from flambeau.interpreters import by_name
from flambeau.ops import OPS, asking, contents
from flambeau.ops.declare import ArrayOp, ChoiceOp, CompositeOp, Op, PointwiseOp, ViewOp
from flambeau.tensor import PLAIN, Tensor

BINDERS: dict[str, Callable] = {
    "pointwise": pointwise.bind, "array": array_ops.bind, "view": views.bind, "choice": array_ops.bind_choice,
    "composite": array_ops.bind_composite,
}  # fmt: skip
INPLACE: dict[str, Callable] = {
    "pointwise": pointwise.bind_inplace, "array": array_ops.bind_inplace, "choice": partial(array_ops.bind_choice, in_place=True),
    "composite": array_ops.bind_composite_inplace,
}  # fmt: skip
NODES = {"pointwise": record.PointwiseNode, "array": record.ArrayNode, "view": record.ArrayNode}

# operator -> operation. Where the public function is a choice (add has alpha=, div has rounding_mode=), the operator is bound to the one
# operation it always means.
UNARY = {"__neg__": "neg", "__abs__": "abs", "__invert__": "bitwise_not", "__pos__": "positive"}
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
BINARY = {
    "add": "_add", "sub": "_sub", "mul": "mul", "truediv": "_div", "div": "_div", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift", "matmul": "matmul",
}  # fmt: skip
COMMUTING = ("add", "mul", "and", "or", "xor")
REFLECTED = frozenset(f"__r{name}__" for name in BINARY)
# Operators that `__torch_function__` knows by their own name; the others it knows by the name of the method: x + y is `add`, 1 + x too.
OWN_NAMES = frozenset(
    """__invert__ __eq__ __floordiv__ __rsub__ __rpow__ __rdiv__ __rtruediv__ __rfloordiv__ __rmod__ __rmatmul__ __and__ __or__ __xor__
    __lshift__ __rshift__ __rlshift__ __rrshift__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__""".split()
)


def bind_all() -> None:
    """Put every name in its place: operators at once, functions and methods to be made when they are asked for. Runs once, at import."""
    for name in contents.METHODS:
        setattr(Tensor, name, Later(name))
    plans.furnish()
    asking.recording, asking.is_watched = lambda: modes.state.grad, lambda: bool(modes.special)
    Op.place, Op.bind = place, bind  # type: ignore[method-assign, assignment]  # for operations that are declared later, too
    for op in list(OPS.values()):
        op.place()
    for op in (indexing._index, *indexing.VIEWS.values()):
        op.bind()  # brackets record these without calling them
    for method, name in (UNARY | {f"__{name}__": name for name in COMPARISONS}).items():
        _place_operator(method, OPS[name])
    for name, operation in BINARY.items():
        op = OPS[operation]
        _place_operator(f"__{name}__", op)
        if name == "sub":
            _place_operator("__rsub__", OPS["_rsub"])
        elif operation == "_div":
            _place_operator(f"__r{name}__", OPS["_rdiv"])
        else:
            _place_operator(f"__r{name}__", op, swapped=name not in COMMUTING)
        if name != "matmul":
            _place_operator(f"__i{name}__", op, in_place=True)


class Later:
    """A method that gives way to the real one when it is first asked for: of a thousand, a program uses a few dozen."""

    op = None

    def __init__(self, name: str):
        self.name = name

    def __get__(self, tensor, kind=None):
        if self.name in contents.METHODS:
            contents.load(contents.METHODS[self.name])  # or wait until another thread has: its derivatives are declared after it
        with _binding:  # see Note [first calls from several threads]
            method = vars(Tensor).get(self.name, self)
            if method is self:
                op, in_place = methods[self.name]
                method = under(self.name, op, in_place, of_tensor=True)
                setattr(Tensor, self.name, method)
        return method.__get__(tensor, kind)


# torch.nn.functional.conv2d is torch.conv2d, as PyTorch has it; of these there are two.
TWICE = frozenset({"sigmoid", "tanh", "rms_norm", "max_pool1d_with_indices"})


class Functions(Mapping):
    """The functions by full public name, such as "add" or "linalg.inv", made when they are asked for."""

    def __init__(self) -> None:
        self.operations: dict[str, Op] = {}
        self.aliases: dict[str, Callable] = {}

    def __getitem__(self, name: str) -> Callable:
        if name in contents.FUNCTIONS:
            contents.load(contents.FUNCTIONS[name])
        elif name not in self.operations:
            contents.load_room(name.rpartition(".")[0])
        op = self.operations[name]
        op.bind()
        short = name.removeprefix("nn.functional.")
        if name == op.name or (short == op.name.removeprefix("nn.functional.") and short not in TWICE):
            return op.call
        with _binding:
            if name not in self.aliases:
                self.aliases[name] = under(name, op)
        return self.aliases[name]

    def __contains__(self, name) -> bool:
        return name in self.operations or name in contents.FUNCTIONS

    def __iter__(self) -> Iterator[str]:
        return iter({**self.operations, **contents.FUNCTIONS})

    def __len__(self) -> int:
        return len(self.operations | contents.FUNCTIONS)


functions = Functions()
methods: dict[str, tuple[Op, bool]] = {}  # name of a method -> its operation, and whether it is its in-place form


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
        _place_method(name, op)
    for name in (op.short, *further) if op.inplace else ():
        _place_method(f"{name}_", op, in_place=True)


def _place_method(name: str, op: Op, in_place: bool = False) -> None:
    methods[name] = op, in_place
    if name not in contents.METHODS:  # those stand in their place already, unless a user has put something else there
        setattr(Tensor, name, Later(name))


def bind(op: Op) -> None:
    """Make the functions of one operation."""
    if op.bound:
        return
    with _binding:  # see Note [first calls from several threads]
        if not op.bound and op not in _half_made:  # the latter: it is asked for by what is made for itself
            _half_made.add(op)
            try:
                _make(op)
                op.bound = True
            finally:
                _half_made.discard(op)


_binding = threading.RLock()
_half_made: set[Op] = set()
forks.renewed(sys.modules[__name__], "_binding", threading.RLock)


def _make(op: Op) -> None:
    if op.kind in NODES:
        words = op.name.replace(".", "_") if op.name.startswith(("linalg.", "special.")) else op.short
        name = op.grad_name or "".join(part.title() for part in words.split("_")) + "Backward0"
        kind = record.ConstantSlopeNode if op.kind == "array" and op.second_derivative else NODES[op.kind]
        op.node_class = type(str(name), (kind,), {"op": op, "called": op.called})
    op.call = _function(op, op.name)
    if hasattr(op, "call_inplace"):
        op.call_inplace = _function(op, f"Tensor.{op.short}_", in_place=True)
    public = OPS.get(op.short)
    if public is not None and public is not op and public.public and not (op.public or op.method or op.inplace):
        # What __torch_function__ is told was called: building blocks are reached through operators.
        public.bind()
        op.call.shown = getattr(Tensor, public.short) if public.method else public.call
        if hasattr(op, "call_inplace") and hasattr(public, "call_inplace"):
            op.call_inplace.shown = public.call_inplace


def under(name: str, op: Op, in_place: bool = False, of_tensor: bool = False) -> Callable:
    """The function that runs `op` where it is called by this name. torch.abs, torch.absolute and Tensor.abs are one operation and three
    functions, for `__torch_function__` is told which of them was called."""
    op.bind()
    if of_tensor and (name == f"{op.short}_" if in_place else name == op.short and not op.public):
        return op.call_inplace if in_place else op.call
    form = "call_inplace" if in_place else "call"
    seen = renamed(op)
    setattr(seen, form, _function(seen, f"Tensor.{name}" if of_tensor else name, in_place))
    return getattr(seen, form)


def renamed(op: Op) -> Op:
    """The operation once more, all the same but for its functions."""
    seen: Op = object.__new__(_RENAMED[type(OPS[op.name])])
    seen.__dict__ = op.__dict__
    for form in ("call", "call_inplace"):
        if hasattr(op, form):
            setattr(seen, form, getattr(op, form))
    return seen


_RENAMED: dict[type, type] = {
    kind: type(kind.__name__, (kind,), {"__slots__": ("call", "call_inplace")})
    for kind in (PointwiseOp, ArrayOp, ViewOp, ChoiceOp, CompositeOp)
}


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


def _function(op: Op, name: str, in_place: bool = False) -> Callable:
    """What runs `op`, or its in-place form, to be called `name`."""
    room, _, short = name.rpartition(".")
    short = name.replace(".", "_") if room in ("linalg", "special", "fft") else short if room or op.public else op.short
    general = older_calls.accepting(op, (INPLACE if in_place else BINDERS)[op.kind](op), short)
    function = plans.front(op, general, "plans_inplace" if in_place else "plans") if _is_planned(op, in_place) else general
    function.__name__ = short
    function.__qualname__ = name if room == "Tensor" else short
    apart = room == "nn.functional" and short not in op.aliases
    function.__module__ = "flambeau.nn.functional" if apart else "torch"  # layers that keep one are pickled by that name
    function.__doc__ = op.__doc__
    function.op = op
    return function


def _is_planned(op: Op, in_place: bool) -> bool:
    """Whether what a call comes down to is told by its arguments: by their geometry, dtypes and options."""
    if op.kind == "choice":
        return bool(op.planned)
    if op.kind == "composite":
        return not in_place and bool(op.planned or op.as_view)
    return True


def _place_operator(method: str, op: Op, swapped: bool = False, in_place: bool = False) -> None:
    """Make Tensor.<method>, which leaves what it does not understand to the other operand (NotImplemented): that is no error."""
    op.bind()
    if op.public and op.method:
        op = getattr(Tensor, op.method + "_" * in_place).op  # x * y is Tensor.mul to those who ask
    if method in UNARY:
        operator = op.call if method != "__invert__" else _inverting(op.call)
    else:
        own = method in OWN_NAMES
        if op.kind == "pointwise" and method not in REFLECTED and not in_place:
            operator = pointwise.bind_operator(op, own)
        else:
            operator = _with_other_side(op, method, swapped, in_place, own)
        operator.__name__ = operator.__qualname__ = "__rdiv__" if method == "__rtruediv__" else method
        operator.op = op  # it asks __torch_function__ by itself, as the operation it stands for
    setattr(Tensor, method, operator)


def _inverting(function: Callable) -> Callable:
    def __invert__(self):
        if by_name.knows_by_name((self,)):
            return by_name.call(__invert__, (self,), (self,), {})
        try:
            return function(self)
        except NotImplementedError as problem:
            raise TypeError(f"~ is only implemented on integer and bool tensors, found {self.dtype}") from problem

    return __invert__


def _with_other_side(op: Op, name: str, swapped: bool, in_place: bool, own: bool) -> Callable:
    function = op.call_inplace if in_place else op.call

    def general(self, other):
        if modes.special or type(self) not in PLAIN:
            if name in REFLECTED and not isinstance(self, Tensor):
                raise TypeError(f"Tensor.{name} takes a tensor as self, and doesn't apply to a {type(self).__name__}")
            if own and by_name.knows_by_name((self, other)):
                return by_name.call(operator, (self, other), (self, other), {})
        try:
            return function(other, self) if swapped else function(self, other)
        except TypeError as problem:
            if isinstance(other, (Tensor, int, float, complex)) and not isinstance(problem, by_name.NobodyAnswered):
                raise
            if name == "__rtruediv__" and hasattr(other, "__array_interface__"):
                return self.reciprocal() * other  # an array divided by a tensor is a tensor in PyTorch; in no other operator
            return NotImplemented

    form = "plans_inplace" if in_place else "plans_swapped" if swapped else "plans"
    operator = plans.front(op, general, form) if _is_planned(op, in_place) else general
    return operator


def namespace(prefix: str) -> SimpleNamespace:
    """The functions whose public name starts with `prefix.`, such as linalg."""
    contents.load_room(prefix)
    start = prefix + "."
    return SimpleNamespace(**{n.removeprefix(start): functions[n] for n in functions if n.startswith(start)})
