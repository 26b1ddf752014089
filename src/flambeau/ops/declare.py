"""How an operation is declared: once, with everything that is true of it.

Five kinds, from the most to the least that is derived:

    @pointwise   a scalar formula: kernels, derivative, in-place and out= forms follow from it
    @on_arrays   a function on arrays (NumPy's or CuPy's) with written derivatives
    @view        a change of geometry: shape, strides, offset in, shape, strides, offset out
    @choice      one public name for several operations: looks at its arguments and names the one to run
    @composite   a function on tensors made of other operations, whose derivative is theirs

A declaration is inert. The tensor layer (`eager/bind.py`) binds it to the function that runs it, `op.call`, when it is first used.
Derivatives and composites call operations by name and by operator, so they are differentiable themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from flambeau.kernels.language.pointwise import FLOATS, INTEGERS, Pointwise
from flambeau.ops import contents
from flambeau.ops.results import NamedResult, named_result


class Declarations(dict):
    """The operations by full name, such as "add" or "linalg.inv". Asking for one whose file was not imported yet imports it."""

    def __missing__(self, name: str) -> Op:
        for subject in contents.homes(name):
            contents.load(subject)
            if name in self:
                return self[name]
        raise KeyError(name)


OPS = Declarations()

ALL_DTYPES = (*FLOATS, *INTEGERS, "bool")
DTYPES = {"all": ALL_DTYPES, "number": (*FLOATS, *INTEGERS), "float": FLOATS, "integer": (*INTEGERS, "bool")}


class Op:
    """What is true of every kind of operation.

    name      full public name; what follows the last dot is the function's. Underscored, it is a building block: not public, no method
    public    whether it is reachable as flambeau.<name>
    method    whether it is a Tensor method (its name, if another)
    attribute whether it is an attribute instead, x.real without parentheses; "writable": x.real = y is an in-place write
    inplace   whether Tensor.<name>_ exists
    aliases   further public names
    grad_name the name of the node in a history, where it is not made from the operation's: relu -> ReluBackward0. Of a composite: the name
              of its last node, where PyTorch has one node for all of it (or a function of the arguments that gives it)
    shown     the name in messages and tracebacks, where it is another
    overlap   where the tensor that the in-place form writes to must not lie. "whole" (of formulas): an operand may be all of it, but share no part of its
              memory; "apart": nor all of it. "repeats": elements of it may be one place (it is expanded); "repeats for numbers": if no operand is a
              tensor; "repeats warned": with a warning
    autocast  what autocast does with it: see autocast.py. None: nothing, or, of what is made of others, what it does with these
    doc       its docstring, where one function is declared under several names
    """

    out_rule = "cast"  # which tensors out= may be
    kind = "op"
    bound = False
    called: Callable | None = None  # node -> the name users see it by, where that depends on the operands and is not grad_name

    def __init__(
        self, function: Callable, *, name=None, public=None, method=None, attribute=False, inplace=False, aliases=(),
        grad_name=None, shown=None, doc=None, overlap=None, autocast=None,
    ):  # fmt: skip
        self.forward = function
        self.name: str = name or function.__name__
        announced = not self.name.startswith("_")
        public, method = announced if public is None else public, announced if method is None else method
        self.short = shown or self.name.rpartition(".")[2]
        if not public and not method:
            self.short = self.short.lstrip("_")  # a building block is shown under the name of what it builds
        self.public: bool = public
        self.method: str | None = (self.short if method is True else method) or None
        self.attribute: bool | str = attribute
        self.inplace: bool = inplace
        self.aliases: tuple[str, ...] = tuple(aliases)
        self.grad_name: str | Callable[..., str | None] | None = grad_name
        self.overlap: str = overlap if overlap is not None else "whole" if self.kind == "pointwise" else ""
        self.autocast: str | Callable[[str, dict], str | None] | None = autocast
        self.__doc__ = doc or function.__doc__
        self.__name__ = self.short
        code = function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self.parameters: tuple[str, ...] = names
        self.n_positional: int = code.co_argcount
        self.variadic: str | None = code.co_varnames[len(names)] if code.co_flags & 4 else None  # the name of *args
        positional = function.__defaults__ or ()
        self.defaults: dict[str, Any] = dict(zip(names[code.co_argcount - len(positional) : code.co_argcount], positional, strict=True))
        self.defaults |= function.__kwdefaults__ or {}
        if self.name in OPS:
            raise ValueError(f"operation {self.name!r} is declared twice")
        OPS[self.name] = self
        self.call: Callable[..., Any] = partial(_bind_first, self, "call")
        if inplace or self.kind in ("pointwise", "array"):
            self.call_inplace: Callable[..., Any] = partial(_bind_first, self, "call_inplace")
        self.place()

    def place(self) -> None:
        """Put the public names where users find them. The tensor layer gives this its meaning."""

    def bind(self) -> None:
        """Make `call` and `call_inplace`. The tensor layer gives this its meaning."""
        raise RuntimeError(f"{self!r} is used before the tensor layer is there to run it")

    def __call__(self, *args, **kwargs):
        return self.call(*args, **kwargs)

    before: Callable | None = None

    def each_time(self, function: Callable) -> Callable:
        """What is looked at even where there is a plan, by function(*arguments): what a plan does not know, such as the histories of operands."""
        self.before = function
        return function

    def __repr__(self) -> str:
        return f"<{self.kind} operation {self.name}>"


def _bind_first(op: Op, form: str, *args, **kwargs):
    """Stands for `call` and `call_inplace` until one of them is used: a program uses few of the thousand operations."""
    op.bind()
    return getattr(op, form)(*args, **kwargs)


class PointwiseOp(Op):
    """A formula for each element. `rule` says which dtype it computes in:

    "promote"  the promoted dtype of the operands
    "float"    the same, integers and bools becoming the default float
    "compare"  the promoted dtype, the result being bool
    "logical"  the promoted dtype read as true or false, the result being bool
    "real"     as "promote", a complex operand giving a real result
    "angle"    as "float", a complex operand giving a real result

    differentiable  False: the result never requires a gradient, whatever the operands do
    numbers         False: Python numbers are refused where a tensor is expected
    number_first    whether the first operand may be a number too: if not said, only in building blocks
    complex         False: complex operands are refused; a sentence: the RuntimeError they are refused with
    refuse_bool     the sentence with which bool operands are refused, where there is a better one than "not implemented"
    kernel          that of another operation with the same formula, where only what is shown to the user differs
    unrounded       the operand that half precision does not round if it is a Python number (PyTorch rounds it on the CPU, but not
                    in products and quotients)
    """

    kind = "pointwise"

    def __init__(
        self, function, *, rule="promote", dtypes=None, kinds=None, options=(), complex=True, differentiable=True, numbers=True,
        number_first=None, refuse_bool=None, kernel=None, unrounded=None, **rest,
    ):  # fmt: skip
        super().__init__(function, **rest)
        self.rule: str = rule
        self.takes_complex: bool = complex is True
        self.refuse_complex: str | None = complex if isinstance(complex, str) else None
        self.takes_numbers: bool = numbers
        self.number_first: bool = numbers and (not self.public if number_first is None else number_first)
        self.refuse_bool: str | None = refuse_bool
        self.differentiable: bool = differentiable and rule not in ("compare", "logical")
        chosen = DTYPES.get(dtypes, dtypes) if dtypes is not None else DTYPES["float" if rule in ("float", "angle") else "all"]
        self.dtypes: tuple[str, ...] = chosen
        operands = [p for p in self.parameters if p not in self.defaults and p not in options]
        options = [p for p in self.parameters if p not in operands]
        self.operands, self.options = tuple(operands), tuple(options)
        self.gradient_formulas: dict[str, Callable | None] = {}
        self.refuse_written: Callable[..., str | None] | None = None
        out = "bool" if rule in ("compare", "logical") else "T"
        self.kernel = kernel or Pointwise(
            self.name.replace(".", "_"), function, operands, options, kinds, out=out, dtypes=chosen,
            gradient_formulas=self.gradient_formulas, unrounded=unrounded,
        )  # fmt: skip

    def derivative(self, **formulas: Callable | None) -> None:
        """Give a derivative by hand where the derived one would lose digits, or should read the result instead of the operand.

        Each formula takes what it needs by name: grad, result, operands, options. None says that there is no derivative: backward raises.
        """
        self.gradient_formulas.update(formulas)

    def no_derivative_written(self, words: Callable[..., str | None]) -> None:
        """Where the in-place form has no derivative: words(*options) is what backward says then, None where it has one."""
        self.refuse_written = words

    def derivative_again(self, function: Callable) -> None:
        """How the derivative is carried out where it is to be differentiated itself: function(formula, grad, saved) on tensors, where formula()
        does what the formula says and `saved` holds the tensors it reads. For what the formula no longer shows: that 2 is 2 * x ** 0."""
        self.kernel.again = function


class ArrayOp(Op):
    """A function on arrays. Tensor arguments arrive as arrays, everything else as it was given.

    promote   names of tensor parameters that are brought to one dtype first
    differentiable  False: the results never require a gradient, whatever the arguments do
    out       "cast": out= may have another dtype than the result; "same": it must have the result's; "apart": that, and
              share no memory with the operands; "whole": nor a part of it with them, but it may be one of them; "any": it may have any;
              "truth": bool or uint8; "decides": its dtype is what dtype= is, unless that is given; "cast rows": what is resized is row-major,
              and does not lie as a new result would; "same detached": operands may want gradients, which do not flow through out=
    returns   names of the results, for a named tuple (or the type of that tuple, where it is not called as the operation is);
              None for a single result. A derivative may ask for a result by this name.
    onto      how to copy an array, where the function writes into its first argument and returns nothing: the operation lets it write
              onto a copy, its in-place form onto the argument itself
    meta      what the result looks like, where a rule of many operations says it (specs.py): see the method of this name
    """

    kind = "array"
    # The derivative does not read the input, and yet the second may be asked for: it is "zero", or "nothing" arrives.
    second_derivative: str | None = None
    # The work for the first result, where that is less: nobody asks for the others, or for a gradient.
    first_alone: Callable | None = None
    find_first_alone: Callable | None = None  # said beforehand, as `work` says it
    find_work: Callable | None = None  # see `work`
    find_work_in_place: Callable | None = None

    def __init__(
        self, function, *, promote=(), returns=None, rule="promote", out="cast", differentiable=True, onto=None, meta=None, **rest
    ):  # fmt: skip
        super().__init__(function, **rest)
        self.differentiable: bool = differentiable
        self.draws: bool = "generator" in self.parameters  # whether the result is random
        self.out_rule: str = out
        self.promote: tuple[str, ...] = tuple(promote)
        self.rule = rule
        if isinstance(returns, str):
            returns = named_result(self.name.replace(".", "_"), returns)
        self.result_type: type[NamedResult] | None = returns
        self.returns: tuple[str, ...] = self.result_type._fields if self.result_type else ()
        self.derivatives: dict[str, Callable] = {}
        self.joint_derivative: Callable | None = None
        self.shape_rule: Callable | None = meta
        self.write: Callable | None = None
        if onto is not None:
            self.write, self.forward = function, _onto_copy(function, onto)
            self.shape_rule = lambda *args, **kwargs: _look(onto((*args, *kwargs.values())[0]))

    def derivative(self, **functions: Callable) -> None:
        """How the gradient reaches each tensor parameter.

        A function takes what it needs by name, and only that is saved: `grad` (`grads` if there are several results), any parameter,
        `result` (`results`), and `<parameter>_shape`, `_stride`, `_dtype`, `_device` or `_turned` (stored by columns) where that is enough. It works on tensors with operations,
        so second derivatives follow.
        """
        self.derivatives.update(functions)

    def joint(self, function: Callable) -> Callable:
        """One derivative for all parameters, where they share work: takes `needs` (a dict name -> bool) too and returns a dict.

        `again` is True where the derivative will itself be differentiated, so that it has to be made of operations."""
        self.joint_derivative = function
        return function

    def writes(self, function: Callable) -> Callable:
        """The in-place form, where it can do better than computing a result and copying it: writes into its first argument."""
        self.write = function
        return function

    def work(self, function: Callable) -> Callable:
        """What calls with arrays in main memory of certain shapes, strides and dtypes, and certain options, will do, said beforehand:
        function(*arguments) -> run(*arrays) -> what forward returns, or NotImplemented where it is to be asked. None: nothing can be said. The
        function sees such arrays, but is not to keep them. If there is a run.into(out, *arrays), out= forms write by that."""
        self.find_work = function
        return function

    def work_in_place(self, function: Callable) -> Callable:
        """The same for the in-place form: run(*arrays) writes to the first, or answers NotImplemented before it does."""
        self.find_work_in_place = function
        return function

    def meta(self, function: Callable) -> Callable:
        """What the result looks like, for tensors without data: the same arguments -> (shape, numpy dtype), row-major, or (shape, dtype,
        strides in elements); a list of them for several results. Most say it in a word, see specs.py."""
        self.shape_rule = function
        return function


def _look(array) -> tuple:
    """What there is to say about an array without data."""
    return array.shape, array.dtype, tuple([s // array.itemsize for s in array.strides])


def _onto_copy(write: Callable, copy: Callable) -> Callable:
    def forward(input, *args, **kwargs):
        out = copy(input)
        write(out, *args, **kwargs)
        return out

    return forward


class ViewOp(Op):
    """A view: `function((shape, strides, offset), *arguments)` gives the new geometry, or a list of them for several results."""

    kind = "view"
    joint_derivative = None
    returns = ()

    def __init__(self, function, *, retype=None, mirror=None, **rest):
        super().__init__(function, **rest)
        self.mirror: str | None = mirror  # "conj" or "neg", where the same elements are read so: see kernels/mirrored.py
        self.retype: Callable | None = retype  # numpy dtype -> that of the view, where elements are read as others (complex as pairs)
        self.derivatives: dict[str, Callable] = {}

    def derivative(self, function: Callable) -> None:
        """How the gradient of the view becomes the gradient of the input: takes `grad`, `input_shape` and arguments by name."""
        self.derivatives["input"] = function


class ChoiceOp(Op):
    """A name for several operations: the function looks at its arguments and returns (operation, *its arguments).

    The in-place and out= forms are those of the operation that was chosen. The first argument must be a tensor, unless `number_first`.
    `row_major`: a new result lies in memory in row-major order, whatever the order of the input's. `planned`: as of composites.
    """

    kind = "choice"

    def __init__(self, function, *, number_first=False, row_major=False, planned=True, **rest):
        super().__init__(function, **rest)
        self.planned: bool = planned
        self.number_first: bool = number_first
        self.row_major: bool = row_major


class CompositeOp(Op):
    """A function on tensors. `out=True` adds an out= argument that receives the result; "same" if it must have the result's dtype, "apart" if
    it must also share no memory with the operands, "cast apart" if only that. With "rows" an out= that is resized is row-major, without
    that it lies as a new result would. "or TypeError" is what PyTorch raises where a dtype does not fit. "cast as eigenvalues" says what errors call the result. `as_view`: the result is often just one view of the input.
    `returns`: the names of the results, which the function gives as any tuple. `planned`: which operations it runs, with which options, is
    told by shapes, strides, dtypes and options, so that calls have plans (eager/plans.py). What looks at the values of a tensor (`item`, `bool`), or warns,
    is noticed, and has none; what depends on a setting that nobody announces (changes.py) has to say False."""

    kind = "composite"

    def __init__(self, function, *, out=False, as_view=False, returns=None, planned=True, **rest):
        super().__init__(function, **rest)
        self.planned: bool = planned
        if returns is not None:
            self.forward = _named(function, named_result(self.name.replace(".", "_"), returns))
        self.as_view: bool = as_view
        self.takes_out: bool = bool(out)
        self.out_rule: str = out if isinstance(out, str) else "cast"


def _named(function: Callable, result_type: type[NamedResult]) -> Callable:
    @wraps(function)
    def forward(*args, **kwargs):
        return result_type(*function(*args, **kwargs))

    return forward


def _decorator(cls):
    def decorate(function=None, **options):
        if function is not None:
            return cls(function)
        return lambda f: cls(f, **options)

    return decorate


pointwise: Any = _decorator(PointwiseOp)
on_arrays: Any = _decorator(ArrayOp)
view: Any = _decorator(ViewOp)
choice: Any = _decorator(ChoiceOp)
composite: Any = _decorator(CompositeOp)


def one_of(run: Callable, which: int) -> Callable:
    """A function that was made ready (`ArrayOp.work`), of whose results one is asked for."""

    def one(*arrays):
        found = run(*arrays)
        return found if found is NotImplemented else found[which]

    return one


def no_derivative(operation: str, argument: str):
    """Stands for a derivative nobody has written: the forward pass works, backward raises."""
    raise NotImplementedError(f"the derivative of {operation} with respect to {argument} is not implemented")
