"""Einstein's summation: products of tensors whose dimensions have names, summed over the names the result does not have.

    einsum("bik,bkj->bij", a, b)     a batch of matrix products
    einsum("ii", a)                  the trace
    einsum("...ij->...ji", a)        a transpose
    einsum(a, [0, 1], b, [1, 2], [0, 2])

How it runs: every operand becomes a `Term`, a tensor whose dimensions carry distinct labels. Terms are multiplied two at a time, the
cheapest pair first, each pair as one batched matrix product; a label that no later term and not the result needs is summed on the way.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from flambeau import dtypes
from flambeau.ops.declare import composite
from flambeau.ops.matrix import transposed

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # in the order of an implicit result
Label = int  # 0 to 51: a letter; negative: a dimension an ellipsis stands for, counted from its right
ELLIPSIS = None  # in a list of labels that has just been read


class Term(NamedTuple):
    """A tensor and the label of each of its dimensions."""

    tensor: object
    labels: tuple[Label, ...]

    def size(self, label: Label) -> int:
        return self.tensor.shape[self.labels.index(label)]


@composite(method=False)
def einsum(*args):
    """Multiply tensors and sum over dimensions, by an equation such as "ij,jk->ik" (see the top of this file for its forms).

    Without "->" the result has the labels that occur once, in alphabetical order, after the dimensions of any ellipsis.
    A dimension of size 1 broadcasts. A label repeated within one operand is a diagonal.
    """
    operands, inputs, output = _read(args)
    lead = max([t.dim() - len(labels) + 1 for t, labels in zip(operands, inputs, strict=True) if ELLIPSIS in labels], default=0)
    terms = [_term(i, t, labels) for i, (t, labels) in enumerate(zip(operands, inputs, strict=True))]
    result = _implicit(inputs, lead) if output is None else _explicit(output, inputs, lead)
    _check_sizes(terms)
    found = _contract(terms, result)
    return found.tensor.permute([found.labels.index(label) for label in result])


# -- contraction -----------------------------------------------------------------------------------------------------------


def _contract(terms: list[Term], result: tuple[Label, ...]) -> Term:
    terms = [_summed(t, _needed(result, terms[:i] + terms[i + 1 :])) for i, t in enumerate(terms)]
    while len(terms) > 1:
        i, j = _cheapest(terms)
        rest = [t for k, t in enumerate(terms) if k not in (i, j)]
        terms = [*rest, _pair(terms[i], terms[j], _needed(result, rest))]
    return terms[0]


def _needed(result, others) -> set[Label]:
    """The labels a term must still have for the others and for the result."""
    return set(result).union(*(t.labels for t in others))


def _cheapest(terms: list[Term]) -> tuple[int, int]:
    """The pair with the fewest multiplications."""
    pairs = [(i, j) for j in range(len(terms)) for i in range(j)]
    return min(pairs, key=lambda p: _multiplications(terms[p[0]], terms[p[1]])) if len(pairs) > 1 else pairs[0]


def _multiplications(a: Term, b: Term) -> int:
    sizes = {label: max(t.size(label) for t in (a, b) if label in t.labels) for label in {*a.labels, *b.labels}}
    return prod(sizes.values())


def _summed(term: Term, keep: set[Label]) -> Term:
    """Without the labels nobody needs: summed."""
    dims = [d for d, label in enumerate(term.labels) if label not in keep]
    if not dims:
        return term
    return Term(term.tensor.sum(dims), tuple(label for label in term.labels if label in keep))


def _pair(a: Term, b: Term, keep: set[Label]) -> Term:
    """The product of two terms, summed over what they share and nobody else needs."""
    a, b = _without_ones(a, b), _without_ones(b, a)
    a, b = _summed(a, keep.union(b.labels)), _summed(b, keep.union(a.labels))
    shared = [label for label in a.labels if label in b.labels]
    batch = [label for label in shared if label in keep]
    inner = [label for label in shared if label not in keep]
    rows = [label for label in a.labels if label not in shared]
    columns = [label for label in b.labels if label not in shared]
    labels = (*batch, *rows, *columns)
    if not inner:
        return Term(_aligned(a, labels) * _aligned(b, labels), labels)
    left = _grouped(a, batch, rows, inner)  # (batch, rows, inner)
    right = _grouped(b, batch, columns, inner)  # (batch, columns, inner)
    if left.dtype is not right.dtype and not (left.is_floating_point() or left.is_complex()):  # a sum of integers is int64
        dtype = dtypes.promote_types(left.dtype, right.dtype)
        left, right = left.to(dtype), right.to(dtype)
    shape = [*map(a.size, batch), *map(a.size, rows), *map(b.size, columns)]
    return Term(left.bmm(transposed(right)).reshape(shape), labels)


def _without_ones(a: Term, b: Term) -> Term:
    """`a` without the dimensions of size 1 that only repeat along a dimension of b."""
    ones = [d for d, label in enumerate(a.labels) if a.tensor.shape[d] == 1 and label in b.labels and b.size(label) != 1]
    if not ones:
        return a
    return Term(a.tensor.squeeze(tuple(ones)), tuple(label for d, label in enumerate(a.labels) if d not in ones))


def _aligned(term: Term, labels) -> object:
    """The tensor with its dimensions in the order of `labels`, and of size 1 where it has none."""
    own = [label for label in labels if label in term.labels]
    tensor = term.tensor.permute([term.labels.index(label) for label in own])
    return tensor.reshape([term.size(label) if label in own else 1 for label in labels])


def _grouped(term: Term, *groups):
    """The tensor with its dimensions collected into as many as there are groups of labels."""
    tensor = term.tensor.permute([term.labels.index(label) for group in groups for label in group])
    return tensor.reshape([prod(map(term.size, group)) for group in groups])


# -- reading ---------------------------------------------------------------------------------------------------------------


def _read(args):
    """(operands, labels of each, labels of the result or None), with ELLIPSIS where an ellipsis stands."""
    if not args:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one operand and its subscripts list"
        )
    if isinstance(args[0], str):
        equation, *operands = args
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = list(operands[0])
        inputs, output = _read_equation(equation)
    else:
        operands = list(args[:-1:2] if len(args) % 2 else args[::2])
        inputs = [_read_sublist(s) for s in (args[1:-1:2] if len(args) % 2 else args[1::2])]
        output = _read_sublist(args[-1]) if len(args) % 2 else None
    if not operands:
        raise ValueError("einsum(): must provide at least one operand")
    if len(operands) != len(inputs):
        raise RuntimeError(f"einsum(): the equation names {len(inputs)} operands, but {len(operands)} were given")
    return operands, inputs, output


def _read_equation(equation: str):
    left, arrow, right = equation.partition("->")
    inputs = [_read_labels(part, f"operand {i}") for i, part in enumerate(left.split(","))]
    return inputs, _read_labels(right, "the output") if arrow else None


def _read_labels(text: str, where: str) -> list[Label | None]:
    labels: list[Label | None] = []
    text = text.replace(" ", "")
    while text:
        if text.startswith("..."):
            if ELLIPSIS in labels:
                raise RuntimeError(f"einsum(): found '.' for {where} for which an ellipsis was already found")
            labels.append(ELLIPSIS)
            text = text[3:]
        elif text[0] in LETTERS:
            labels.append(LETTERS.index(text[0]))
            text = text[1:]
        else:
            raise RuntimeError(
                f"einsum(): invalid subscript given for {where}: {text[0]!r}. Subscripts are letters (a-zA-Z) or an ellipsis '...'"
            )
    return labels


def _read_sublist(given) -> list[Label | None]:
    labels: list[Label | None] = []
    for item in given:
        if item is Ellipsis:
            labels.append(ELLIPSIS)
        elif isinstance(item, int) and 0 <= item < len(LETTERS):
            labels.append(item)
        else:
            raise ValueError(f"einsum(): subscripts must be Ellipsis or integers in the range [0, {len(LETTERS)}), found {item!r}")
    if labels.count(ELLIPSIS) > 1:
        raise RuntimeError("einsum(): a list of subscripts can have only one ellipsis")
    return labels


def _term(index: int, tensor, labels) -> Term:
    """An operand as a term: its ellipsis spelled out, and a repeated label made a diagonal."""
    named = len(labels) - (ELLIPSIS in labels)
    extra = tensor.dim() - named
    if extra < 0 or (extra and ELLIPSIS not in labels):
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({named}) {'is more than' if extra < 0 else 'does not match'} the number of "
            f"dimensions ({tensor.dim()}) for operand {index}" + ("" if extra < 0 else " and no ellipsis was given")
        )
    spelled: list[Label] = []
    for label in labels:
        spelled.extend(range(-extra, 0) if label is ELLIPSIS else [label])
    for label in dict.fromkeys(spelled):
        while spelled.count(label) > 1:
            first = spelled.index(label)
            second = spelled.index(label, first + 1)
            if tensor.shape[first] != tensor.shape[second]:
                raise RuntimeError(
                    f"einsum(): subscript {LETTERS[label]} is repeated for operand {index} but the sizes don't match, "
                    f"{tensor.shape[second]} != {tensor.shape[first]}"
                )
            tensor = tensor.diagonal(0, first, second)
            spelled = [s for d, s in enumerate(spelled) if d not in (first, second)] + [label]
    return Term(tensor, tuple(spelled))


def _implicit(inputs, lead: int) -> tuple[Label, ...]:
    """The labels that occur once, after those of the ellipsis."""
    every = [label for labels in inputs for label in labels if label is not ELLIPSIS]
    return (*range(-lead, 0), *sorted(label for label in set(every) if every.count(label) == 1))


def _explicit(output, inputs, lead: int) -> tuple[Label, ...]:
    known = {label for labels in inputs for label in labels}
    for label in output:
        if label is not ELLIPSIS and label not in known:
            raise RuntimeError(f"einsum(): output subscript {LETTERS[label]} does not appear in the equation for any input operand")
        if output.count(label) > 1:
            raise RuntimeError(f"einsum(): output subscript {LETTERS[label]} appears more than once in the output")
    return tuple(x for label in output for x in (range(-lead, 0) if label is ELLIPSIS else (label,)))


def _check_sizes(terms: list[Term]) -> None:
    """RuntimeError unless every label has one size, apart from ones."""
    sizes: dict[Label, tuple[int, int]] = {}
    for i, term in enumerate(terms):
        for label, size in zip(term.labels, term.tensor.shape, strict=True):
            known, where = sizes.setdefault(label, (size, i))
            if known == 1:
                sizes[label] = size, i
            elif size not in (1, known):
                name = LETTERS[label] if label >= 0 else "..."
                raise RuntimeError(
                    f"einsum(): subscript {name} has size {size} for operand {i} which does not broadcast with previously seen size {known} "
                    f"(operand {where})"
                )
