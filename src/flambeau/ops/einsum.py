"""Einstein's summation: products of tensors whose dimensions have names, summed over the names the result does not have.

    einsum("bik,bkj->bij", a, b)     a batch of matrix products
    einsum("ii", a)                  the trace
    einsum("...ij->...ji", a)        a transpose
    einsum(a, [0, 1], b, [1, 2], [0, 2])

How it runs: operands are multiplied two at a time, the cheapest pair first, each pair as one batched matrix product; a label that no later
operand and not the result needs is summed on the way. What to do depends on the equation and the shapes only, so it is planned once for
each: a `Plan` is a list of views, sums and products, which `_follow` carries out.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

from flambeau import dtypes
from flambeau.ops.declare import composite
from flambeau.ops.products import bmm

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # in the order of an implicit result
Label = int  # 0 to 51: a letter; negative: a dimension an ellipsis stands for, counted from its right
ELLIPSIS = None  # in a list of labels as it was read


@composite(method=False, autocast="cuda half")
def einsum(*args):
    """Multiply tensors and sum over dimensions, by an equation such as "ij,jk->ik" (see the top of this file for its forms).

    Without "->" the result has the labels that occur once, in alphabetical order, after the dimensions of any ellipsis.
    A dimension of size 1 broadcasts. A label repeated within one operand is a diagonal.
    """
    operands, inputs, output = _read(args)
    return _follow(_plan(inputs, output, tuple([tuple(t.shape) for t in operands])), operands)


# -- carrying out a plan ---------------------------------------------------------------------------------------------------


Move = tuple[str, tuple]  # a Tensor method and its arguments


class Step(NamedTuple):
    """The product of two operands: how each is laid out first, whether they are matrices, how the result is laid out."""

    first: int
    second: int
    before_first: tuple[Move, ...]
    before_second: tuple[Move, ...]
    matrices: bool
    after: tuple[Move, ...]


class Plan(NamedTuple):
    before: tuple[tuple[Move, ...], ...]  # for each operand
    steps: tuple[Step, ...]
    after: tuple[Move, ...]


def _follow(plan: Plan, operands):
    tensors = [_moved(t, moves) for t, moves in zip(operands, plan.before, strict=True)]
    for step in plan.steps:
        a, b = _moved(tensors[step.first], step.before_first), _moved(tensors[step.second], step.before_second)
        product = bmm(*_one_dtype(a, b)) if step.matrices else a * b
        tensors = [t for i, t in enumerate(tensors) if i not in (step.first, step.second)] + [_moved(product, step.after)]
    return _moved(tensors[0], plan.after)


def _moved(tensor, moves):
    for method, args in moves:
        tensor = getattr(tensor, method)(*args)
    return tensor


def _one_dtype(a, b):
    """Integers that were summed are int64, and go with others that were not; floats of two dtypes are left for bmm to refuse."""
    if a.dtype is b.dtype or a.dtype.category >= dtypes.FLOAT:
        return a, b
    common = dtypes.promote_types(a.dtype, b.dtype)
    return a.to(common), b.to(common)


# -- planning --------------------------------------------------------------------------------------------------------------


class Term(NamedTuple):
    """An operand on its way: its shape, the label of each dimension, and the moves that have brought it there."""

    shape: tuple[int, ...]
    labels: tuple[Label, ...]
    moves: tuple[Move, ...] = ()

    def size(self, label: Label) -> int:
        return self.shape[self.labels.index(label)]

    def without(self, dims, method: str) -> Term:
        """Fewer dimensions: `method` is sum or squeeze."""
        if not dims:
            return self
        kept = [d for d in range(len(self.labels)) if d not in dims]
        labels = tuple([self.labels[d] for d in kept])
        return Term(tuple([self.shape[d] for d in kept]), labels, (*self.moves, (method, (tuple(dims),))))

    def summed(self, keep: set[Label], result: tuple[Label, ...]) -> Term:
        """Without the labels nobody needs; if there are any, the others are in the order of the result."""
        kept = _in_order([label for label in self.labels if label in keep], result)
        if len(kept) == len(self.labels):
            return self
        order = [*kept, *(label for label in self.labels if label not in keep)]
        shape = tuple([self.size(label) for label in order])
        return Term(shape, tuple(order), self.laid_out(order, shape)).without(range(len(kept), len(order)), "sum")

    def laid_out(self, order, shape) -> tuple[Move, ...]:
        """The moves, and then those that put the dimensions in the order of labels `order` and make of them a tensor of `shape`."""
        permuted = tuple([self.labels.index(label) for label in order])
        moves = self.moves
        if permuted != tuple(range(len(permuted))):
            moves = (*moves, ("permute", (permuted,)))
        if tuple([self.shape[d] for d in permuted]) != tuple(shape):
            moves = (*moves, ("reshape", (tuple(shape),)))
        return moves


@lru_cache(1024)
def _plan(inputs, output, shapes) -> Plan:
    lead = max([len(s) - len(labels) + 1 for s, labels in zip(shapes, inputs, strict=True) if ELLIPSIS in labels], default=0)
    terms = [_term(i, s, labels) for i, (s, labels) in enumerate(zip(shapes, inputs, strict=True))]
    result = _implicit(inputs, lead) if output is None else _explicit(output, inputs, lead)
    _check_sizes(terms)
    if len(terms) == 1:
        return Plan((terms[0].moves,), (), _alone(Term(terms[0].shape, terms[0].labels), result))
    terms = [t.summed(_needed(result, terms[:i] + terms[i + 1 :]), result) for i, t in enumerate(terms)]
    before = tuple([t.moves for t in terms])
    terms = [Term(t.shape, t.labels) for t in terms]
    steps = []
    while len(terms) > 1:
        i, j = _cheapest(terms)
        rest = [t for k, t in enumerate(terms) if k not in (i, j)]
        step, product = _pair(i, j, terms[i], terms[j], _needed(result, rest), result)
        steps.append(step)
        terms = [*rest, product]
    last = terms[0]
    return Plan(before, tuple(steps), last.laid_out(result, [last.size(label) for label in result]))


def _alone(term: Term, result: tuple[Label, ...]) -> tuple[Move, ...]:
    """The moves of a single operand: a view, unless there is something to sum. A sum is small, so it is put in order afterwards."""
    left = term.without([d for d, label in enumerate(term.labels) if label not in result], "sum")
    moves = left.laid_out(result, [left.size(label) for label in result])
    return (*moves, ("contiguous", ())) if len(moves) > len(left.moves) > 0 else moves


def _needed(result, others) -> set[Label]:
    """The labels a term must still have for the others and for the result."""
    return set(result).union(*(t.labels for t in others))


def _cheapest(terms: list[Term]) -> tuple[int, int]:
    """The pair with the fewest multiplications."""

    def multiplications(pair: tuple[int, int]) -> int:
        a, b = terms[pair[0]], terms[pair[1]]
        return prod(max(t.size(label) for t in (a, b) if label in t.labels) for label in {*a.labels, *b.labels})

    return min(((i, j) for j in range(len(terms)) for i in range(j)), key=multiplications)


def _pair(i: int, j: int, a: Term, b: Term, keep: set[Label], result: tuple[Label, ...]) -> tuple[Step, Term]:
    """The product of two terms, summed over what they share and nobody else needs.

    Its dimensions are in the order of the result wherever that costs nothing: a program may call `view` on it.
    """
    a, b = _without_ones(a, b), _without_ones(b, a)
    a, b = a.summed(keep.union(b.labels), result), b.summed(keep.union(a.labels), result)
    shared = [label for label in a.labels if label in b.labels]
    inner = [label for label in shared if label not in keep]
    batch, rows, columns = (
        _in_order(group, result)
        for group in (
            [label for label in shared if label in keep],
            [label for label in a.labels if label not in shared],
            [label for label in b.labels if label not in shared],
        )
    )
    labels = (*batch, *rows, *columns)
    if labels != result and {*labels} == {*result}:
        if not inner:
            labels = result
        elif (*batch, *columns, *rows) == result:
            return _pair(j, i, b, a, keep, result)
    sizes = tuple([a.size(label) if label in a.labels else b.size(label) for label in labels])
    if not inner:
        left = a.laid_out([label for label in labels if label in a.labels], [a.size(label) if label in a.labels else 1 for label in labels])
        right = b.laid_out(
            [label for label in labels if label in b.labels], [b.size(label) if label in b.labels else 1 for label in labels]
        )
        return Step(i, j, left, right, False, ()), Term(sizes, labels)
    count, m, n, k = (prod(map(t.size, group)) for t, group in ((a, batch), (a, rows), (b, columns), (a, inner)))
    left = a.laid_out([*batch, *rows, *inner], (count, m, k))
    right = b.laid_out([*batch, *inner, *columns], (count, k, n))
    after = (("reshape", (sizes,)),) if sizes != (count, m, n) else ()
    return Step(i, j, left, right, True, after), Term(sizes, labels)


def _in_order(labels: list[Label], result: tuple[Label, ...]) -> list[Label]:
    """Labels as the result has them, then those it does not have."""
    return sorted(labels, key=lambda label: result.index(label) if label in result else len(result))


def _without_ones(a: Term, b: Term) -> Term:
    """`a` without the dimensions of size 1 that only repeat along a dimension of b."""
    ones = [d for d, label in enumerate(a.labels) if a.shape[d] == 1 and label in b.labels and b.size(label) != 1]
    return a.without(ones, "squeeze")


def _term(index: int, shape, labels) -> Term:
    """An operand as a term: its ellipsis spelled out, and a repeated label made a diagonal."""
    named = len(labels) - (ELLIPSIS in labels)
    extra = len(shape) - named
    if extra < 0 or (extra and ELLIPSIS not in labels):
        how, more = ("is more than", "") if ELLIPSIS in labels else ("does not match", " and no ellipsis was given")
        said = f"the number of subscripts in the equation ({named}) {how} the number of dimensions ({len(shape)}) for operand {index}"
        raise RuntimeError(f"einsum(): {said}{more}")
    spelled: list[Label] = []
    for label in labels:
        spelled.extend(range(-extra, 0) if label is ELLIPSIS else [label])
    sizes, moves = list(shape), []
    for label in dict.fromkeys(spelled):
        while spelled.count(label) > 1:
            first = spelled.index(label)
            second = spelled.index(label, first + 1)
            if sizes[first] != sizes[second]:
                found = f"{LETTERS[label]} is repeated for operand {index} but the sizes don't match, {sizes[second]} != {sizes[first]}"
                raise RuntimeError(f"einsum(): subscript {found}")
            moves.append(("diagonal", (0, first, second)))
            kept = [d for d in range(len(sizes)) if d not in (first, second)]
            spelled, sizes = [spelled[d] for d in kept] + [label], [sizes[d] for d in kept] + [sizes[first]]
    return Term(tuple(sizes), tuple(spelled), tuple(moves))


def _implicit(inputs, lead: int) -> tuple[Label, ...]:
    """The labels that occur once, after those of the ellipsis."""
    every = [label for labels in inputs for label in labels if label is not ELLIPSIS]
    return (*range(-lead, 0), *sorted(label for label in set(every) if every.count(label) == 1))


def _explicit(output, inputs, lead: int) -> tuple[Label, ...]:
    known = {label for labels in inputs for label in labels}
    for label in output:
        if label is not ELLIPSIS and label not in known:
            raise RuntimeError(f"einsum(): output subscript {LETTERS[label]} does not appear in the equation for any input operand")
        if label is not ELLIPSIS and output.count(label) > 1:
            raise RuntimeError(f"einsum(): output subscript {LETTERS[label]} appears more than once in the output")
    return tuple([x for label in output for x in (range(-lead, 0) if label is ELLIPSIS else (label,))])


def _check_sizes(terms: list[Term]) -> None:
    """RuntimeError unless every label has one size, apart from ones."""
    sizes: dict[Label, tuple[int, int]] = {}
    for i, term in enumerate(terms):
        for label, size in zip(term.labels, term.shape, strict=True):
            known, where = sizes.setdefault(label, (size, i))
            if known == 1:
                sizes[label] = size, i
            elif size not in (1, known):
                name = LETTERS[label] if label >= 0 else "..."
                found = f"size {size} for operand {i} which does not broadcast with previously seen size {known} of operand {where}"
                raise RuntimeError(f"einsum(): subscript {name} has {found}")


# -- reading ---------------------------------------------------------------------------------------------------------------


def _read(args):
    """(operands, labels of each, labels of the result or None), with ELLIPSIS where an ellipsis stands."""
    if not args:
        raise ValueError("einsum(): must specify the equation string or a subscripts list, and at least one operand")
    if isinstance(args[0], str):
        equation, *operands = args
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = list(operands[0])
        inputs, output = _read_equation(equation)
    else:
        ends_with_result = len(args) % 2 == 1
        pairs = args[:-1] if ends_with_result else args
        operands, inputs = list(pairs[::2]), tuple([_read_sublist(s) for s in pairs[1::2]])
        output = _read_sublist(args[-1]) if ends_with_result else None
    if not operands:
        raise ValueError("einsum(): must provide at least one operand")
    if len(operands) != len(inputs):
        fewer = "fewer" if len(operands) < len(inputs) else "more"
        said = f"{fewer} operands were provided than specified in the equation"
        raise RuntimeError(f"einsum(): {said}: it names {len(inputs)}, and {len(operands)} were given")
    return operands, inputs, output


@lru_cache(1024)
def _read_equation(equation: str):
    left, arrow, right = equation.partition("->")
    inputs, start = [], 0
    for i, part in enumerate(left.split(",")):
        inputs.append(_read_labels(part, start, f"operand {i}", "for which an ellipsis was already found"))
        start += len(part) + 1
    wanted = _read_labels(right, len(left) + 2, "output", "but an ellipsis (...) was already found") if arrow else None
    return tuple(inputs), wanted


def _read_labels(text: str, start: int, where: str, second: str) -> tuple[Label | None, ...]:
    """The labels of one operand, whose text begins at `start` of the equation; `second` is what to say of another ellipsis."""
    labels: list[Label | None] = []
    for i, mark in enumerate(text.replace("...", "\n  ")):
        if mark == "\n" or mark == ".":
            if ELLIPSIS in labels:
                raise RuntimeError(f"einsum(): found '.' for {where} {second}, in {text!r}")
            if mark == ".":
                raise RuntimeError(f"einsum(): found '.' for {where} that is not part of any ellipsis (...), in {text!r}")
            labels.append(ELLIPSIS)
        elif mark in LETTERS:
            labels.append(LETTERS.index(mark))
        elif mark != " ":
            raise RuntimeError(
                f"einsum(): invalid subscript given at index {start + i}: {mark!r}. Subscripts are letters (a-zA-Z) or '...'"
            )
    return tuple(labels)


def _read_sublist(given) -> tuple[Label | None, ...]:
    for item in given:
        if item is not Ellipsis and not (isinstance(item, int) and 0 <= item < len(LETTERS)):
            said = f"not within the valid range [0, {len(LETTERS)}), nor Ellipsis"
            raise ValueError(f"einsum(): the subscript {item!r} in a list of subscripts is {said}")
    if list(given).count(Ellipsis) > 1:
        raise RuntimeError("einsum(): the subscripts of one tensor can have only one ellipsis")
    return tuple([ELLIPSIS if item is Ellipsis else item for item in given])
