"""Derivatives of loops: what flows back to an operand, as a loop again.

A gradient that reaches one number for each row is the sum along the row of what its uses send. A peak is taken as constant: it is there to shift
exponents, and a shift cancels in the derivative. The result itself is often what the derivative needs (`in_terms_of`): with y = softmax(x),

    exp(x - peak) / s * g - exp(x - peak) / s / s * total(g * exp(x - peak))        becomes        y * g - y * total(g * y)
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from flambeau.kernels.language import derive
from flambeau.kernels.language import expr as e
from flambeau.kernels.language.expr import Expr, const
from flambeau.kernels.language.simplify import ONE, ZERO, add, mul
from flambeau.kernels.loops.language import (
    NUMBER,
    OF_LINE,
    OF_PLACE,
    ROW,
    Loop,
    extent,
    in_order,
    line_total,
    pick,
    position,
    total,
    total_of_lines,
)

RESULT = e.load(99)
SUMS = ("total", "line_total", "total_of_lines")
SUM_TO = {
    (OF_PLACE, NUMBER): total,
    (OF_PLACE, OF_LINE): line_total,
    (OF_LINE, NUMBER): total_of_lines,
}  # what a flow from here to there is added up by


def backward(loop: Loop, operand: int, name: str) -> Loop:
    """The loop of the gradient of operand `operand`, for loops with one store. It takes the gradient and the result, if that is all it needs; else
    the gradient and the operands, or the operands and the gradient where that is one number for each row."""
    n = len(loop.loads)
    (value,) = loop.values
    found = real(adjoint(loop, {value: e.load(n)}, operand))
    by_result = in_terms_of(loop, value, found)
    order = [n, RESULT.value] if by_result is not None else [n, *range(n)] if loop.stores[0] == ROW else [*range(n), n]
    kinds, access = dict(enumerate(loop.kinds)), dict(enumerate(loop.loads))
    table = {e.load(i, kinds.get(i, "T")): e.load(k, kinds.get(i, "T")) for k, i in enumerate(order)}
    whole = found if by_result is None else by_result
    for v in in_order((whole,)):
        if v.op == "pick":
            table[v] = pick(order.index(v.value), e.replace(v.args[0], table))
    specs = [f"{access.get(i, loop.stores[0])}:{kinds[i]}" if kinds.get(i, "T") != "T" else access.get(i, loop.stores[0]) for i in order]
    made = e.replace(whole, table)
    return Loop(name, lambda *given: made, " ".join(specs), loop.loads[operand], " ".join(loop.params), loop.dtypes)


def real(value: Expr) -> Expr:
    """The formula without conjugates, which are nothing for real numbers."""
    return e.replace(value, {v: real(v.args[0]) for v in in_order((value,)) if v.op == "conj"})


def adjoint(loop: Loop, seeds: dict[Expr, Expr], operand: int) -> Expr:
    """What reaches the operand when the `seeds` flow into values of the loop: reverse accumulation."""
    whole = in_order(tuple(seeds))
    arrived: dict[Expr, Expr] = dict(seeds)
    for value in reversed(whole):
        g = arrived.get(value, ZERO)
        if g is ZERO or not value.args or value.op in derive.FLAT or value.op == "peak":
            continue
        if value.op == "pick":
            source = e.load(value.value)
            arrived[source] = add(arrived.get(source, ZERO), e.where(e.eq(position, value.args[0]), g, const(0)))
            continue
        if value.op in SUMS:
            sent = [g]
        elif value.op == "where":
            sent = [ZERO, e.where(value.args[0], g, const(0)), e.where(value.args[0], const(0), g)]
        else:
            sent = [rule(g) for rule in derive.RULES[value.op](value, *value.args)]
        for argument, flow in zip(value.args, sent, strict=True):
            if flow is not ZERO and (argument.args or argument.op == "load"):
                how = SUM_TO.get((loop.reach(flow), loop.reach(argument)))
                if how is not None:
                    flow = how(flow)
                elif value.op == "total" and not loop.varies(argument):
                    flow = mul(flow, extent)
                arrived[argument] = add(arrived.get(argument, ZERO), flow)
    return arrived.get(e.load(operand), ZERO)


# -- in terms of the result --------------------------------------------------------------------------------------------------


class Term(NamedTuple):
    """A product: a number, and factors with their powers."""

    number: float
    powers: tuple[tuple[Expr, int], ...]


def in_terms_of(loop: Loop, value: Expr, found: Expr) -> Expr | None:
    """`found` with the operands gone and the result in their place, if that can be."""
    sums = _Sums(loop)
    known = {_single(sums(value)): RESULT}
    power = sums.power_of(value)
    if power is not None:
        known[power] = e.exp(RESULT)
    terms = [_replaced(term, known, sums) for term in sums(found)]
    written = _written(terms)
    left = set(e.loads(written)) - {len(loop.loads), RESULT.value}
    return None if left or any(v.op == "pick" for v in in_order((written,))) else written


def _single(terms: list[Term]) -> Term | None:
    return terms[0] if len(terms) == 1 and terms[0].number == 1 else None


class _Sums:
    """Formulas as sums of products: divisions are negative powers, totals are factors."""

    def __init__(self, loop: Loop):
        self.loop = loop

    def __call__(self, value: Expr) -> list[Term]:
        if value.op == "const" and not isinstance(value.value, bool):
            return [Term(float(value.value), ())]
        if value.op == "conj":
            return self(value.args[0])
        if value.op == "neg":
            return [Term(-t.number, t.powers) for t in self(value.args[0])]
        if value.op in ("add", "sub"):
            a, b = value.args
            return _collected([*self(a), *self(b if value.op == "add" else e.node("neg", b))])
        if value.op == "mul":
            return _collected([_product(s, t) for s in self(value.args[0]) for t in self(value.args[1])])
        if value.op in ("div", "reciprocal"):
            above = self(value.args[0]) if value.op == "div" else [Term(1.0, ())]
            below = _single_term(self(value.args[-1]))
            if below is not None:
                inverse = Term(1 / below.number, tuple([(f, -k) for f, k in below.powers]))
                return [_product(t, inverse) for t in above]
            return [_product(t, Term(1.0, ((value.args[-1], -1),))) for t in above]
        if value.op == "total":
            terms = self(value.args[0])
            if all(t.number < 0 for t in terms):
                inside = _written([Term(-t.number, t.powers) for t in terms])
                return [Term(-1.0, ((total(inside), 1),))]
        return [Term(1.0, ((value, 1),))]

    def power_of(self, value: Expr) -> Term | None:
        """exp(value) as a product: the exponential of a sum, where logarithms of totals go back to what they were taken of."""
        plain: list[Term] = []
        powers: Counter[Expr] = Counter()
        for term in self(value):
            only = term.powers[0] if len(term.powers) == 1 else None
            if only and only[1] == 1 and only[0].op == "log" and abs(term.number) == 1:
                powers[only[0].args[0]] += int(term.number)
            else:
                plain.append(term)
        if not powers:
            return None
        inside = {v for v in in_order((value,)) if v.op == "exp" and _same(self(v.args[0]), plain)}
        if len(inside) != 1:
            return None
        powers[inside.pop()] += 1
        return Term(1.0, _sorted(powers))


def _same(a: list[Term], b: list[Term]) -> bool:
    return set(_collected(a)) == set(_collected(b))


def _single_term(terms: list[Term]) -> Term | None:
    return terms[0] if len(terms) == 1 and terms[0].number else None


def _sorted(powers) -> tuple[tuple[Expr, int], ...]:
    return tuple(sorted([(f, k) for f, k in powers.items() if k], key=lambda item: repr(item[0])))


def _product(a: Term, b: Term) -> Term:
    powers = Counter(dict(a.powers))
    for f, k in b.powers:
        powers[f] += k
    return Term(a.number * b.number, _sorted(powers))


def _collected(terms: list[Term]) -> list[Term]:
    found: dict[tuple, float] = {}
    for t in terms:
        found[t.powers] = found.get(t.powers, 0.0) + t.number
    return [Term(number, powers) for powers, number in found.items() if number]


def _replaced(term: Term, known: dict[Term | None, Expr], sums: _Sums) -> Term:
    """The product with what is known under its name, in totals too: a number of the row may go into one."""
    for what, name in known.items():
        if what is None:
            continue
        powers, parts = Counter(dict(term.powers)), dict(what.powers)
        while all(powers[f] * k > 0 and abs(powers[f]) >= abs(k) for f, k in parts.items()):
            for f, k in parts.items():
                powers[f] -= k
            powers[name] += 1
        fixed = {f: k for f, k in parts.items() if not sums.loop.varies(f)}
        varying = {f: k for f, k in parts.items() if sums.loop.varies(f)}
        for factor in [f for f, k in powers.items() if f.op == "total" and k == 1]:
            inner = sums(factor.args[0])
            everywhere = varying and all(all(dict(t.powers).get(f, 0) * k > 0 for f, k in varying.items()) for t in inner)
            if everywhere and all(powers[f] * k > 0 for f, k in fixed.items()):
                for f, k in fixed.items():
                    powers[f] -= k
                into = Term(1.0, _sorted(fixed))
                powers[factor] -= 1
                powers[total(_written([_replaced(_product(t, into), known, sums) for t in inner]))] += 1
        term = Term(term.number, _sorted(powers))
    return term


def _written(terms: list[Term]) -> Expr:
    """Products as a formula again, with what all have in common before the bracket."""
    if not terms:
        return ZERO
    common = Counter(dict(terms[0].powers))
    for t in terms[1:]:
        common &= Counter(dict(t.powers))
    common = Counter({f: k for f, k in common.items() if k > 0 and len(terms) > 1})
    whole = ZERO
    for t in terms:
        powers = Counter(dict(t.powers))
        powers.subtract(common)
        part = _factors(powers)
        if t.number in (1.0, -1.0):
            whole = add(whole, part) if t.number > 0 else (e.node("sub", whole, part) if whole is not ZERO else e.node("neg", part))
        else:
            whole = add(whole, mul(const(t.number), part))
    return mul(_factors(common), whole)


def _factors(powers: Counter) -> Expr:
    above, below = ONE, ONE
    for f, k in powers.items():
        for _ in range(abs(k)):
            above, below = (mul(above, f), below) if k > 0 else (above, mul(below, f))
    return above if below is ONE else e.node("div", above, below)
