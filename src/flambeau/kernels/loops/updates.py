"""Updates: a rule with several results, each written over the operand it is the new value of, for a whole list of tensors at once.

The rule is a formula over one element of each operand (operand 0, and all from 2 on, are written; operand 1, the gradient, is only read) and
over numbers that hold for the whole call:

>>> momentum = Update("example", lambda w, g, b, *, lr, beta: (w - lr * (beta * b + (1 - beta) * g), beta * b + (1 - beta) * g),
...                   ("w", "g", "b"), ("lr", "beta"))
>>> momentum.results[1], momentum.numbers(0.5, 0.75)
(add(mul(p1, x2), mul(p2, x1)), (0.5, 0.75, 0.25))

A rule may give one result more, a condition: `run` says whether it held for any element, as it was before.

What depends on numbers alone, such as 1 - beta, is computed once per call, in Python and so in double precision, and not for each element:
in float32, 1 - 0.999 has lost half of its digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache

import numpy as np

from flambeau.kernels import arrays, layout
from flambeau.kernels.language import expr as e
from flambeau.kernels.loops.language import Loop, precise
from flambeau.kernels.meta import MetaArray
from flambeau.kernels.native import native


class Update:
    """`rule(*operands, *, **options)` -> the new values of operands 0, 2, 3, ..., and perhaps a condition to be noted."""

    def __init__(self, name: str, rule: Callable, operands: Sequence[str], options: Sequence[str]):
        self.name = f"update.{name}"
        self.operands, self.options = tuple(operands), tuple(options)
        self.rule = rule

    @cached_property
    def traced(self) -> tuple[tuple[e.Expr, ...], list[e.Expr]]:
        """The results over operands and numbers, and what these numbers are over the options."""
        loads = {name: e.load(i) for i, name in enumerate(self.operands)}
        params = {name: e.param(i) for i, name in enumerate(self.options)}
        found = tuple(map(e.lift, self.rule(**loads, **params)))
        numbers: list[e.Expr] = []
        memo: dict[e.Expr, e.Expr] = {}
        return tuple([_hoisted(x, numbers, memo) for x in found]), numbers

    @property
    def results(self) -> tuple[e.Expr, ...]:
        """The formulas of what is written."""
        return self.traced[0][: len(self.written)]

    @property
    def noted(self) -> tuple[e.Expr, ...]:
        """The condition that is asked of every element, or nothing."""
        return self.traced[0][len(self.written) :]

    @property
    def n_param(self) -> int:
        """How many numbers the loop takes."""
        return len(self.traced[1])

    @cached_property
    def numbers(self) -> Callable[..., tuple]:
        """The loop's numbers from the options."""
        texts = [_as_python(x, self.options) for x in self.traced[1]]
        return eval(f"lambda {', '.join(self.options)}: ({''.join(text + ', ' for text in texts)})", {"max": max, "min": min})

    @property
    def written(self) -> list[int]:
        """The operands that get new values."""
        return [0, *range(2, len(self.operands))]

    @cached_property
    def loop(self) -> Loop:
        """The rule as a loop, whose row is a whole tensor."""
        return self._as_loop(lambda *given: self.results, [], self.n_param)

    @lru_cache(256)  # noqa: B019 - rules live as long as the program
    def reading(self, held: tuple[tuple[int, str], ...]) -> Loop:
        """The same by options instead of the numbers that are made of them; `held` are those that lie in memory, one for each tensor, and as which dtype."""
        n, places = len(self.operands), {i: place for place, (i, _) in enumerate(held)}
        rest = [i for i in range(len(self.options)) if i not in places]

        def formula(*given):
            found = {e.param(i): given[n + places[i] if i in places else n + len(held) + rest.index(i)] for i in range(len(self.options))}
            numbers = {e.param(k): precise(e.replace(x, found)) for k, x in enumerate(self.traced[1])}
            return tuple([e.replace(x, numbers) for x in self.results])

        return self._as_loop(formula, [f"r:{kind}" for _, kind in held], len(rest))

    def _as_loop(self, formula: Callable, more: list[str], options: int) -> Loop:
        rows, stores = ["ri"] * len(self.operands), ["ri"] * len(self.written)
        return Loop(self.name, formula, " ".join([*rows, *more]), " ".join(stores), options, over=tuple(self.written))

    @cached_property
    def launch(self) -> Callable:
        """launch(lists of arrays, numbers) -> whether the condition held, or NotImplemented where arrays are not dense, or of different dtypes."""
        return getattr(native.kernel(self.name), "update", native.not_compiled)


def run(update: Update, lists: tuple[list, ...], options: Sequence) -> bool:
    """Move all tensors: lists[o][i] is operand o of tensor i. Whether the rule's condition, if it has one, held anywhere.

    An option that is a list lies on the GPU, as do the tensors: an array of one element for each of them.
    """
    if any([type(option) is list for option in options]):
        return _run_reading(update, lists, options)
    numbers = update.numbers(*options)
    held = update.launch(lists, numbers)
    if held is NotImplemented:
        held, kinds = False, [a.dtype for a in lists[0]]
        for kind in dict.fromkeys(kinds):
            chosen = [i for i, k in enumerate(kinds) if k == kind]
            held |= _run_one_by_one(update, tuple([[group[i] for i in chosen] for group in lists]), numbers, len(chosen) < len(kinds))
    return held


def _run_one_by_one(update: Update, lists: tuple[list, ...], numbers: tuple, fewer: bool) -> bool:
    """Tensors of one dtype, if not all together then each as it is."""
    if fewer and (held := update.launch(lists, numbers)) is not NotImplemented:
        return held
    held = False
    cards: dict[tuple, list[Sequence]] = {}  # (device, dtype) -> what one launch can do
    mirrored: list[tuple] = []  # what is written, and what it is to show
    for given in zip(*lists, strict=True):
        seen = [arrays.plain(a) for a in given]
        mirrored += [(given[i], seen[i]) for i in update.written if seen[i] is not given[i]]
        operands = [_as_reals(a) for a in seen] if seen[0].dtype.kind == "c" else seen
        first = operands[0]
        if type(first) is np.ndarray:
            held |= _move_one(update, operands, numbers)
        elif type(first) is not MetaArray:
            cards.setdefault((first.data.device_id, first.dtype), []).append(operands)
    if cards and update.noted:
        raise NotImplementedError(f"{update.name} notes a condition, which only updates on the CPU do")
    for group in cards.values():
        arrays.cuda().update(update, group, numbers)
    for out, shown in mirrored:
        arrays.write(out, shown)
    return held


def _run_reading(update: Update, lists: tuple[list, ...], options: Sequence) -> bool:
    """Tensors on GPUs, by options that lie there, too."""
    cards: dict[tuple, list[int]] = {}
    for i, first in enumerate(lists[0]):
        cards.setdefault((first.data.device_id, first.dtype), []).append(i)
    for chosen in cards.values():
        given = [[lists[o][i] for o in range(len(lists))] for i in chosen]
        operands = [[_as_reals(a) for a in t] if t[0].dtype.kind == "c" else t for t in given]
        arrays.cuda().update_reading(update, operands, [[o[i] for i in chosen] if type(o) is list else o for o in options])
    return False


def _as_reals(array):
    """A complex array as pairs of numbers, each of which moves by itself."""
    real = np.dtype(np.float32 if array.itemsize == 8 else np.float64)
    shape, strides = arrays.view_of(array)
    return arrays.reinterpret(array, real, (*shape, 2), (*[2 * s for s in strides], 1))


def _move_one(update: Update, operands: Sequence[np.ndarray], numbers: tuple) -> bool:
    """One tensor in any layout: through dense copies where it has to be; without a compiled loop by NumPy."""
    flat = flattened(operands)
    ready = [arrays.contiguous(a) for a in operands] if flat is None else flat
    held = update.launch(tuple([a] for a in ready), numbers)
    if held is NotImplemented:
        held = _evaluate(update, ready, numbers)
    if flat is None:
        for i in update.written:
            if ready[i] is not operands[i]:
                arrays.write(operands[i], ready[i])
    return held


def flattened(operands: Sequence) -> list | None:
    """The operands in one dimension, if they lie dense in memory in one and the same order."""
    shape, strides = arrays.view_of(operands[0])
    if any(arrays.view_of(a) != (shape, strides) for a in operands[1:]) or layout.preserve_format_strides(shape, strides) != strides:
        return None
    return [arrays.strided_view(a, (a.size,), (1,)) for a in operands]


def _evaluate(update: Update, operands: Sequence[np.ndarray], numbers: tuple) -> bool:
    from flambeau.kernels.language.evaluate import evaluate_all

    key = np.result_type(*operands) if len({a.dtype for a in operands}) > 1 else operands[0].dtype
    with np.errstate(all="ignore"):
        values = evaluate_all((*update.results, *update.noted), operands, numbers, key)
        found = [np.array(v.astype(operands[i].dtype)) for i, v in zip(update.written, values, strict=False)]
        held = any([bool(v.any()) for v in values[len(found) :]])
    for i, value in zip(update.written, found, strict=True):
        np.copyto(operands[i], value)
    return held


def norms(tensors: Sequence, order: float) -> tuple | None:
    """(the norm of each tensor, (n,); the norm of these, ()) by kernels for a whole list; None where there are none."""
    return None if not _on_gpu(tensors) else arrays.cuda_room.lists.norms(tensors, order)


def clip(tensors: Sequence, total, most: float) -> bool:
    """Multiply a whole list by most / (total + 1e-6), if that is less than one; False where there is no kernel for it."""
    return _on_gpu(tensors) and arrays.cuda_room.lists.clip(tensors, total, most)


def _on_gpu(tensors: Sequence) -> bool:
    return arrays.cuda_room is not None and all([type(a) is arrays.cuda_room.ndarray for a in tensors])


def _hoisted(x: e.Expr, numbers: list[e.Expr], memo: dict[e.Expr, e.Expr]) -> e.Expr:
    """`x` with every number it computes from options alone exchanged for a parameter, of which `numbers` is the list."""
    if x not in memo:
        if x.kind == "T" and x.op != "const" and not e.loads(x):
            if x not in numbers:
                numbers.append(x)
            memo[x] = e.param(numbers.index(x))
        else:
            memo[x] = e.replace(x, {a: _hoisted(a, numbers, memo) for a in x.args}) if x.args else x
    return memo[x]


_PYTHON = {
    "add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "div": "({} / {})", "pow": "({} ** {})", "neg": "(-{})",
    "lt": "({} < {})", "gt": "({} > {})", "eq": "({} == {})", "ne": "({} != {})", "and": "({} and {})", "maximum": "max({}, {})",
    "minimum": "min({}, {})", "where": "({1} if {0} else {2})",
}  # fmt: skip


def _as_python(x: e.Expr, options: Sequence[str]) -> str:
    if x.op == "param":
        return options[x.value]
    return repr(x.value) if x.op == "const" else _PYTHON[x.op].format(*[_as_python(a, options) for a in x.args])
