"""Recording: the nodes of operations, made while the program runs, and run by backward.

What an operation must save depends only on which of its operands want a gradient. So that is worked out once, as a recipe, and every later
call with the same wants follows it: here, and in compiled code where there is a plan (plans.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from flambeau import modes
from flambeau.eager.saved import Before, SavedTensor, edge_of, save, save_result, saved_array, unpack, unpack_plain
from flambeau.interpreters import stack
from flambeau.kernels import arrays
from flambeau.kernels.language.pointwise import RESULT
from flambeau.kernels.native.native import maker
from flambeau.tensor import PLAIN, Tensor, wrap
from flambeau.tensor.node import FREED, LEAF, Node, freed_error, next_sequence, rename
from flambeau.tensor.storage import Storage

NUMBERS = arrays.NUMBERS
state = modes.state
store = maker(Storage, ("array",), version=0, changed_at=None)


# -- nodes ---------------------------------------------------------------------------------------------------------


class OpNode(Node):
    """A node of a declared operation. `recipe` says what `saved` holds and how it becomes gradients."""

    __slots__ = ("recipe",)
    op: Any = None
    recipes: dict[Any, Any]
    by_operations = False  # derivatives are carried out by operations: somebody else carried this one out, and is asked about those, too
    make: Callable
    recipe: Any

    def __init_subclass__(cls, **options) -> None:
        super().__init_subclass__(**options)
        cls.recipes = {}
        cls.make = maker(cls, ("recipe", "edges", "sequence", "shape", "numpy_dtype"), n_outputs=1, saved=None, hooks=None)
        if cls.op is not None:
            for name in {*cls.op.parameters, *getattr(cls.op, "returns", ()), "result"}:
                shown = "self" if name == "input" else name
                setattr(cls, f"_saved_{shown}", _attribute(name, _saved_value))
                setattr(cls, f"_raw_saved_{shown}", _attribute(name, SavedTensor))

    def saved_at(self, name: str) -> int | None:
        """Where in `saved` the operand, result or option of this name is."""
        raise NotImplementedError


@cache
def _attribute(name: str, answer: Callable) -> property:
    """_saved_self, _saved_other, _saved_result, ...: what a node saved, by PyTorch's names; with _raw_ in front, for hooks on it.

    These are properties, not a __getattr__, which would make every access to an attribute of a node slower.
    """

    def get(node: OpNode):
        at = node.saved_at(name)
        if at is None:
            raise AttributeError(f"{type(node).__name__!r} object has not saved {name!r}")
        return answer(node, at)

    return property(get)


def _saved_value(node: OpNode, at: int):
    if node.saved is FREED:
        raise freed_error()
    entry = node.saved[at]
    return [unpack(v, node) for v in entry] if isinstance(entry, list) else unpack(entry, node)


def start(node: Node, edges: Sequence, result_arrays: Sequence) -> None:
    """What every new node gets: edges, sequence number, the shapes and dtypes of its results (None for one that is no tensor)."""
    node.edges = edges
    node.sequence = next_sequence()
    if len(result_arrays) == 1:
        array = result_arrays[0]
        node.shape, node.numpy_dtype = (None, None) if array is None else (array.shape, array.dtype)
    else:
        node.n_outputs = len(result_arrays)
        node.shape = [None if a is None else a.shape for a in result_arrays]
        node.numpy_dtype = [None if a is None else a.dtype for a in result_arrays]
    if modes.special and state.anomaly:
        remember_origin(node)


def remember_origin(node: Node) -> None:
    """Anomaly mode: the lines of the program that made this node, and the node whose backward did, if one did."""
    from flambeau.autograd import anomaly_mode

    node.metadata["traceback_"] = anomaly_mode.callers()
    if state.modules:
        node.metadata["modules_"] = tuple(state.modules)
    if state.running is not None:
        node.metadata["parent_"] = state.running


def _started(cls, recipe, edges: Sequence, result: Tensor) -> Any:
    """A new node whose only result is this new tensor. `start` and `attach` in one, for the hot path."""
    array = result._array
    result._node = node = cls.make(recipe, edges, next_sequence(), array.shape, array.dtype)
    result._needs = True
    if modes.special and state.anomaly:
        remember_origin(node)
    return node


def ending_in(function: Callable, name: str | Callable[..., str | None]) -> Callable:
    """A function on tensors whose result shows a node of this name: the last one it makes, where PyTorch has one node for all of it.

    `print(mse_loss(x, y))` then says grad_fn=<MseLossBackward0>, although the mean was the last step. What the node does stays what it was.
    """

    def forward(*args, **kwargs):
        before = next_sequence()
        result = function(*args, **kwargs)
        for tensor in result if isinstance(result, tuple) else (result,):
            node = tensor._node if isinstance(tensor, Tensor) else None
            if node is not None and node.sequence > before:  # not that of an operand which is returned as it is
                rename(node, name if isinstance(name, str) else name(*args, **kwargs))
        return result

    return forward


def attach(tensor: Tensor, node: Node, nr: int = 0) -> None:
    """Make `node` the origin of `tensor`."""
    if tensor._retains:
        move_retained(tensor, node, nr)
    tensor._node, tensor._nr, tensor._needs = node, nr, True


def move_retained(tensor: Tensor, node: Node, nr: int) -> None:
    """A tensor that retains its gradient and is written to retains that of its new value."""
    before = tensor._node
    if before is not None and before.hooks is not None and tensor._nr in before.hooks.retaining:
        node._hooks().retaining[nr] = before.hooks.retaining.pop(tensor._nr)


# -- pointwise -----------------------------------------------------------------------------------------------------


class PointwiseRecipe:
    """keep   the operands (and RESULT) that are saved
    steps  per operand None, or (kind of its Gradient, the Gradient, where in `saved` that finds what it uses, its compiled kernel)
    """

    def __init__(self, op, needed: int):
        plans = [op.kernel.gradient(i) if needed >> i & 1 else None for i in range(len(op.operands))]
        self.keep: tuple[int, ...] = tuple(sorted({i for plan in plans if plan is not None for i in plan.uses}))
        self.steps: list[tuple | None] = []
        for plan in plans:
            launch = plan.kernel.launch if plan is not None and plan.kind == "kernel" else None
            self.steps.append(None if plan is None else (plan.kind, plan, tuple([self.keep.index(i) for i in plan.uses]), launch))


class PointwiseNode(OpNode):
    """saved: the operands and the result that the derivatives read;  options: the numbers of the call."""

    options: tuple = ()

    @property
    def hidden(self) -> frozenset[int]:
        """Conditions."""
        return frozenset(i for i, kind in enumerate(self.op.kernel.kinds) if kind != "T")

    def apply(self, grad):
        saved = self.saved
        if saved is FREED:
            raise freed_error()
        sent: list = []
        for step in self.recipe.steps:
            if step is None:
                sent.append(None)
                continue
            kind, plan, slots, launch = step
            if kind == "same":
                sent.append(grad)
            elif kind == "kernel":
                if state.grad or self.by_operations or (modes.special and stack.by_operations()):  # to be differentiated again, or seen
                    from flambeau.eager import interpret

                    sent.append(interpret.gradient(plan, grad, [unpack_plain(saved[i], self) for i in slots], self.options))
                    continue
                operands = [saved_array(saved[i], self) for i in slots]
                array = launch(grad._array, *operands, *self.options)
                sent.append(self._computed(plan, grad, slots, operands) if array is NotImplemented else wrap(array))
            elif kind == "zero":
                sent.append(grad.new_zeros(grad.shape))
            else:
                name = self.op.operands[plan.index]
                raise RuntimeError(f"derivative for {self.op.short} with respect to {name} is not implemented")
        return sent

    def _computed(self, plan, grad: Tensor, slots: tuple, operands: list) -> Tensor:
        """A derivative for which there is no compiled loop; inside vmap, by operations, because only these know what a batch is."""
        if any(hasattr(v, "as_tensor") for v in (grad._array, *operands)):
            from flambeau.eager import interpret

            return interpret.gradient(plan, grad, [unpack_plain(self.saved[i], self) for i in slots], self.options)
        return wrap(_computed(plan.kernel, grad._array, operands, self.options))

    def saved_at(self, name: str) -> int | None:
        place = RESULT if name == "result" else self.op.operands.index(name) if name in self.op.operands else None
        return self.recipe.keep.index(place) if place in self.recipe.keep else None


def _computed(kernel, grad, operands: list, options: tuple):
    """A derivative whose operands have different dtypes, or for which there is no compiled loop.

    It is computed in the gradient's dtype; but a real gradient of a complex operand (abs, angle) takes complex numbers.
    """
    given = (grad, *operands)
    key = next((v.dtype for v in given if not isinstance(v, NUMBERS) and v.dtype.kind == "c"), grad.dtype)
    kinds = zip(given, kernel.kinds, strict=True)
    ready = [v if isinstance(v, NUMBERS) or kind != "T" or v.dtype == key else arrays.cast(v, key) for v, kind in kinds]
    return arrays.run(kernel, ready, options, key, key)


def record_pointwise(op, result: Tensor, operands: tuple, options: tuple = ()) -> None:
    """Make `result` the output of a node of `op`, unless nothing is being recorded."""
    if not state.grad:
        return
    edges = [edge_of(v) for v in operands]
    needed = sum([1 << i for i, edge in enumerate(edges) if edge is not None])
    recipe = _pointwise_recipe(op, needed)
    node = _started(op.node_class, recipe, edges, result)
    if recipe.keep:
        node.saved = [save_result(result) if i == RESULT else save(operands[i]) for i in recipe.keep]
    if options:
        node.options = options


def record_written(op, result: Tensor, operands: tuple, options: tuple, before: Before) -> None:
    """Make `result` the output of a node of the in-place form of `op`; it has been written to, and `before` says what was then."""
    edges = [before.edges.get(id(v)) for v in operands]
    recipe = _pointwise_recipe(op, sum([1 << i for i, edge in enumerate(edges) if edge is not None]))
    node = op.node_class()
    node.recipe = recipe
    start(node, edges, [result._array])
    if recipe.keep:
        node.saved = [save_result(result) if i == RESULT else save(_as_it_was(operands, i, before), before) for i in recipe.keep]
    if options:
        node.options = options
    attach(result, node)


def _pointwise_recipe(op, needed: int) -> PointwiseRecipe:
    cls = op.node_class
    if needed not in cls.recipes:
        cls.recipes[needed] = PointwiseRecipe(op, needed)
    return cls.recipes[needed]


def _as_it_was(values: Sequence, i: int, before: Before | None) -> Any:
    """Argument i; the first of an in-place form as it was before the write, if that is known."""
    return values[i] if i or before is None or before.original is None else before.original


# -- functions on arrays, and views --------------------------------------------------------------------------------

OPERAND, OPERANDS, OPTION, ONE_RESULT, ALL_RESULTS, FACT = range(6)  # what a slot of `saved` holds
GRAD, GRADS, NEEDS, AGAIN = -1, -2, -3, -4  # arguments of a derivative that are not in `saved`
MANY, MANY_WANTED = "many", "many wanted"  # an argument that is a list of tensors
FACTS: dict[str, Callable] = {
    "_shape": lambda t: t._array.shape,
    "_dtype": lambda t: t.dtype,
    "_stride": lambda t: arrays.element_strides(t._array),
    "_device": lambda t: t.device,
    "_turned": lambda t: t._array.flags.fnc,  # whether a matrix is stored by columns: F but not C contiguous
}


class ArrayRecipe:
    """What to do when the arguments are as `key` says: per argument None if it is no tensor, True or False if it is one that wants a gradient
    or does not, MANY_WANTED or MANY if it is a list of tensors.

    keep   what is saved, as (what it is, which argument or result, which fact of it)
    calls  per tensor argument None, or (its derivative, where that finds its arguments); for a joint derivative one call for all. Derivatives have
           plans as operations have
    frees  whether tensors are among what is saved, so that a second backward is an error
    """

    def __init__(self, op, key: tuple):
        self.names = names = (*op.parameters, op.variadic) if op.variadic else op.parameters
        self.wants = [(name, wanted in (True, MANY_WANTED)) for name, wanted in zip(names, key, strict=True) if wanted is not None]
        self.keep: list[tuple] = []
        self.places: dict[str, int] = {"grad": GRAD, "grads": GRADS, "needs": NEEDS, "again": AGAIN}
        self.joint = op.joint_derivative
        if self.joint is not None:
            self.joint_places = self._placed(op, self.joint, key)
            self.joint = _by_plans(
                op, f"of_{'_'.join(name for name, wanted in self.wants if wanted)}_among_{len(self.wants)}", self._as_tuple(self.joint)
            )
        else:
            missing = [n for n, wanted in self.wants if wanted and n not in op.derivatives]
            if missing:
                raise NotImplementedError(f"the derivative for '{op.name}' with respect to {', '.join(missing)} is not implemented")
            self.calls = [self._call(op, name, key) if wanted else None for name, wanted in self.wants]
        self.plain = [kind in (OPTION, FACT) for kind, _, _ in self.keep]
        self.frees = not all(self.plain)

    def _call(self, op, name: str, key: tuple) -> tuple:
        derivative = op.derivatives[name]
        return _by_plans(op, name, derivative), self._placed(op, derivative, key)

    def _as_tuple(self, joint: Callable) -> Callable:
        """What a joint derivative finds, in the order of the operands. It is told which of these want a gradient, which every node of the recipe does."""
        needs, names = dict(self.wants), [name for name, _ in self.wants]
        asked = [place == NEEDS for place in self.joint_places]

        def in_order(*given):
            values = iter(given)
            found = joint(*[dict(needs) if is_needs else next(values) for is_needs in asked])
            return tuple([found.get(name) for name in names])

        self.joint_places = [place for place in self.joint_places if place != NEEDS]
        return in_order

    def _placed(self, op, derivative: Callable, key: tuple) -> list[int]:
        found = []
        for name in needed_names(derivative):
            if name not in self.places:
                self.places[name] = len(self.keep)
                self.keep.append(self._source(op, name, key))
            found.append(self.places[name])
        return found

    def _source(self, op, name: str, key: tuple) -> tuple:
        """Where the value of a name that a derivative asks for comes from."""
        if name in self.names:
            at = self.names.index(name)
            return (OPTION if key[at] is None else OPERAND if isinstance(key[at], bool) else OPERANDS), at, None
        if name == "result":
            return ONE_RESULT, 0, None
        if name == "results":
            return ALL_RESULTS, 0, None
        if name in op.returns:
            return ONE_RESULT, op.returns.index(name), None
        parameter, underscore, fact = name.rpartition("_")
        if underscore + fact in FACTS and parameter in self.names:
            return FACT, self.names.index(parameter), FACTS[underscore + fact]
        raise TypeError(f"the derivative of {op.name} asks for {name!r}, which is no parameter of it")


def _by_plans(op, name: str, derivative: Callable) -> Callable:
    """A derivative as a function that has plans."""
    from flambeau.eager import plans

    return plans.front(op, derivative, f"plans_of_derivative_{name}")


def needed_names(function) -> tuple[str, ...]:
    """The parameters of a derivative."""
    code = function.__code__
    return code.co_varnames[: code.co_argcount]


class ArrayNode(OpNode):
    """saved: what the recipe keeps;  counts: how many tensors each argument that is a list of them has."""

    counts: dict[int, int] | None = None

    @property
    def hidden(self) -> frozenset[int]:
        """Tensor arguments that have no derivative, such as indices."""
        found: list[int] = []
        at = 0
        for i, (name, _) in enumerate(self.recipe.wants):
            n = 1 if self.counts is None else self.counts.get(i, 1)
            if self.op.joint_derivative is None and name not in self.op.derivatives:
                found.extend(range(at, at + n))
            at += n
        return frozenset(found)

    def apply(self, *grads):
        if self.saved is FREED:
            raise freed_error()
        recipe = self.recipe
        if recipe.joint is not None:
            sent = list(recipe.joint(*self._arguments(recipe.joint_places, grads)))
        else:
            sent = [None if call is None else call[0](*self._arguments(call[1], grads)) for call in recipe.calls]
        return sent if self.counts is None else self._flat(sent)

    def _arguments(self, places: list[int], grads: tuple) -> list:
        """What a derivative takes. Saved tensors are unpacked now, so that only those used are checked."""
        recipe, saved = self.recipe, self.saved
        found: list = []
        for place in places:
            if place >= 0:
                value = saved[place]
                if not recipe.plain[place]:
                    value = [unpack_plain(v, self) for v in value] if type(value) is list else unpack_plain(value, self)
            elif place == GRAD:
                value = grads[0]
            else:
                value = grads if place == GRADS else _by_operations(self, grads)
            found.append(value)
        return found

    def _flat(self, sent: list) -> list:
        """Gradients of tensors and of lists of them, one after another."""
        flat: list = []
        for i, value in enumerate(sent):
            count = self.counts.get(i)
            if count is None:
                flat.append(value)
            else:
                flat.extend(value if value is not None else (None,) * count)
        return flat

    def release(self) -> None:
        if self.recipe.frees:
            self.saved = FREED

    def saved_at(self, name: str) -> int | None:
        at = self.recipe.places.get(name)
        return at if at is None or at >= 0 else None


class ConstantSlopeNode(ArrayNode):
    """Of an operation whose derivative does not read its input (`ArrayOp.second_derivative`): with create_graph it still belongs to the graph of the
    input, so that a program may ask for the second derivative. It is zero, which some operations say in so many numbers."""

    def apply(self, *grads):
        sent = super().apply(*grads)
        if state.grad:
            for value, edge in zip(sent, self.edges, strict=True):
                if value is not None and edge is not None and not value.requires_grad:
                    _started(Constant, self.op.second_derivative, (edge,), value)
        return sent


class Constant(OpNode):
    """Of what does not change with the tensor it belongs to."""

    def apply(self, grad):
        return [grad.new_zeros(grad.shape) if self.recipe == "zero" else None]


def _by_operations(node: ArrayNode, grads: tuple) -> bool:
    """Whether a derivative is to be made of operations that have derivatives and, inside vmap, batching rules themselves."""
    return (
        state.grad
        or node.by_operations
        or bool(modes.special and stack.by_operations())
        or any(g is not None and hasattr(g._array, "as_tensor") for g in grads)
    )


def record_view(op, result: Tensor, input: Tensor, values: tuple) -> None:
    """Make one view of `input` the output of a node of `op`; `values` are the arguments, `input` the only tensor among them."""
    cls = op.node_class
    recipe = cls.recipes.get("view") or _view_recipe(op, values)
    node = _started(cls, recipe, (edge_of(input),), result)
    node.saved = saved = []
    for kind, at, fact in recipe.keep:
        saved.append(values[at] if kind == OPTION else fact(values[at]))


def _view_recipe(op, values: tuple) -> ArrayRecipe:
    cls = op.node_class
    if "view" not in cls.recipes:
        cls.recipes["view"] = ArrayRecipe(op, (True, *[None] * (len(values) - 1)))
    return cls.recipes["view"]


def share(node: Any, outputs: Sequence[Tensor]) -> None:
    """Make a node that was made for the first of them the origin of all."""
    if len(outputs) > 1:
        node.n_outputs = len(outputs)
        node.shape, node.numpy_dtype = [o._array.shape for o in outputs], [o._array.dtype for o in outputs]
    for nr, output in enumerate(outputs):
        output._node, output._nr, output._needs = node, nr, True


def record_array(op, results: tuple[Tensor, ...], values: Sequence, before: Before | None = None) -> None:
    """Make the floating results the outputs of a node of `op`, unless nothing is being recorded; `values` are the arguments in order.
    In-place forms say what was `before` the write."""
    if not state.grad:
        return
    edges: list = []
    key: list = []  # per argument: see ArrayRecipe
    counts = None
    for v in values:
        kind = type(v)
        if kind in PLAIN and v._base is None and before is None:
            wanted = v._needs
            node = v._node
            edges.append(None if not wanted else (v, LEAF) if node is None else (node, v._nr))
            key.append(wanted)
        elif kind in _PLAIN_OPTIONS or (kind is tuple and v and type(v[0]) is int):
            key.append(None)
        elif isinstance(v, Tensor):
            edge = edge_of(v) if before is None else before.edges[id(v)]
            edges.append(edge)
            key.append(edge is not None)
        elif kind in (list, tuple) and _are_tensors(v):
            found = [edge_of(t) if before is None else before.edges.get(id(t)) for t in v]
            counts = counts or {}
            counts[len(key) - key.count(None)] = len(found)
            edges += found
            key.append(MANY_WANTED if any(e is not None for e in found) else MANY)
        else:
            key.append(None)
    cls = op.node_class
    wants = tuple(key)
    recipe = cls.recipes.get(wants)
    if recipe is None:
        recipe = cls.recipes[wants] = ArrayRecipe(op, wants)
    node = cls()
    node.recipe = recipe
    if counts:
        node.counts = counts
    outputs = results if len(results) == 1 else [r for r in results if r._is_float()]
    start(node, edges, [r._array for r in outputs])
    node.saved = [_saved(slot, values, results, outputs, before) for slot in recipe.keep]
    for nr, output in enumerate(outputs):
        attach(output, node, nr)


_PLAIN_OPTIONS = {int, float, bool, str, type(None)}


def _are_tensors(values) -> bool:
    """Whether a list or tuple holds tensors (and Nones) only."""
    return any(isinstance(v, Tensor) for v in values) and all(v is None or isinstance(v, Tensor) for v in values)


def _saved(slot: tuple, values, results, outputs, before):
    kind, at, fact = slot
    if kind == OPTION:
        return values[at]
    if kind == FACT:
        value = values[at]
        return [None if v is None else fact(v) for v in value] if type(value) in (list, tuple) else fact(value)
    if kind == OPERAND:
        return save(_as_it_was(values, at, before), before)
    if kind == OPERANDS:
        return [save(v, before) for v in values[at]]
    if kind == ONE_RESULT:
        return _save_output(results[at], outputs)
    return [_save_output(r, outputs) for r in results]


def _save_output(result: Tensor, outputs: Sequence[Tensor]) -> Any:
    """One of several results: by its number if gradients flow through it."""
    for nr, output in enumerate(outputs):
        if output is result:
            return save_result(result, nr)
    return save(result)
