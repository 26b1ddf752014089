"""How a loop is carried out: in passes over the row. A pass computes the reductions whose arguments are known, the last one what is stored.

Every schedule prints the same passes. In the values of a pass, what was found before stands as a local name:

    s0, s1 ...   a reduction that is done: one number for each row;  s0_wide is a total before it was rounded
    l0, l1 ...   the total of a line, which is known at its end and no longer
    n0, n1 ...   what is made of such numbers alone, computed once for each row before the pass
    k0           what is dear to compute (an exponential) and needed again: it waits in a row of its own
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flambeau.kernels.language import expr as e
from flambeau.kernels.language.expr import Expr
from flambeau.kernels.loops.language import EACH, LINE, REDUCTIONS, Loop, in_order, position, unrounded, uses

DEAR = {"exp", "log", "tanh", "sigmoid", "erf", "sin", "cos", "pow", "div", "sqrt", "rsqrt"}


@dataclass(frozen=True)
class Reduced:
    """A reduction that a pass computes: under which name, of which value; what it starts from; whether its place is wanted; and the peak, which the same
    pass finds, that "powers" and "gaps" measure the value by."""

    name: Expr
    op: str
    value: Expr
    start: float | None = None
    placed: bool = False
    peak: Expr | None = None


@dataclass(frozen=True)
class Pass:
    """One walk along the row: `numbers` come before it, and are (name, value) as `kept` are.

    `of_lines`, totals of what is one number for each line, and `by_line`, the stores of such numbers, are for the end of each line.
    """

    numbers: tuple[tuple[Expr, Expr], ...]
    reductions: tuple[Reduced, ...]
    kept: tuple[tuple[Expr, Expr], ...]
    of_lines: tuple[Reduced, ...] = ()
    by_line: tuple[tuple[int, Expr], ...] = ()

    @property
    def values(self) -> list[Expr]:
        """All that is computed at each place, the reductions' first."""
        return [r.value for r in self.reductions] + [value for _, value in self.kept]


@dataclass(frozen=True)
class Passes:
    """`stores`: what the last walk computes for those along the row, with the `numbers` before it; `made`: what is one number for each row.

    `put`: (place, value) of what is another value at one place of the row, written after it: where(position == place, value, ...).
    """

    reducing: tuple[Pass, ...]
    made: dict[int, Expr]
    numbers: tuple[tuple[Expr, Expr], ...]
    stores: dict[int, Expr]
    put: dict[int, tuple[Expr, Expr]]

    @property
    def keeps(self) -> bool:
        """Whether something waits in a row of its own."""
        return any(step.kept for step in self.reducing)

    @property
    def over_first(self) -> bool:
        """Whether what waits may take the place of the first operand: nothing reads that any more, from then on."""
        begun = False
        for step in self.reducing:
            if begun and any(uses(value, e.load(0)) for value in step.values):
                return False
            begun = begun or bool(step.kept)
        return not any(uses(value, e.load(0)) for value in self.stores.values())


def passes(loop: Loop, room: int = 1, puts: bool = True, at_once: bool = False) -> Passes:
    """The passes of a loop, with room for so many rows of what is kept; whether single places of a row may be written after it; and whether a
    peak and what is measured by it are found in one pass."""
    return _Cut(loop, room, at_once).all(puts)


def _about_peak(value: Expr) -> tuple[str, Expr] | None:
    """What a pass can find of v beside the peak of v: "powers", the total of exp(v - peak(v)), or "gaps", that of peak(v) - v."""
    inside = value.args[0] if value.op == "total" else value
    is_power = inside.op == "exp"
    apart = inside.args[0] if is_power else inside
    if value.op != "total" or apart.op != "sub":
        return None
    v, high = apart.args if is_power else reversed(apart.args)
    return ("powers" if is_power else "gaps", high) if high.op == "peak" and high.args[0] is v else None


class _Cut:
    def __init__(self, loop: Loop, room: int, at_once: bool):
        self.loop, self.order = loop, in_order(loop.values)
        self.levels: dict[Expr, int] = {}
        self.peaks = {v: found for v in self.order if at_once and (found := _about_peak(v)) is not None}
        self.placed = {v.args[0]: v for v in self.order if v.op == "place"}
        for value in self.order:
            deepest = max([self.levels[a] for a in value.args], default=0)
            begins = value.op in REDUCTIONS and value not in self.peaks
            self.levels[value] = max(deepest, 1) if value.op == "total_of_lines" else deepest + begins
        self.reductions = [v for v in self.order if v.op in REDUCTIONS]
        self.names = {r: e.local(f"{'l' if r.op == 'line_total' else 's'}{k}") for k, r in enumerate(self.reductions)}
        self.kept = {v: e.local(f"k{k}") for k, v in enumerate(self.dear()[:room])}
        self.hoisted = 0
        self.done: dict[Expr, Expr] = {}

    def dear(self) -> list[Expr]:
        """Dear values that one pass computes for a reduction and a later pass reads again."""
        found, values = [], self.loop.values
        for value in self.order:
            if value.op in DEAR and self.loop.varies(value):
                needed = {self.levels[r] - 1 for r in self.reductions if uses(r.args[0], value)}
                last = any(uses(v, value, stop=self.reductions) for v in values)
                if len(needed) + last > 1 and needed:
                    found.append(value)
        return found

    def all(self, puts: bool) -> Passes:
        along = {k: v for k, v in enumerate(self.loop.values) if self.loop.stores[k] not in (EACH, LINE)}
        made = {k: v for k, v in enumerate(self.loop.values) if self.loop.stores[k] == EACH}
        put = {k: found for k, v in along.items() if puts and (found := self.apart(v))}
        reducing = [self.one(level) for level in range(1, max(self.levels.values()) + 1)]
        of_made = {k: self.named(v) for k, v in made.items()}
        numbers, values = self.hoist([self.named(v.args[2] if k in put else v) for k, v in along.items()])
        of_put = {k: (self.named(at), self.named(value)) for k, (at, value) in put.items()}
        return Passes(tuple(reducing), of_made, numbers, dict(zip(along, values, strict=True)), of_put)

    def apart(self, value: Expr) -> tuple[Expr, Expr] | None:
        """(place, value) if this is one value at one place of the row, and another elsewhere."""
        if value.op != "where" or value.args[0].op != "eq" or position not in value.args[0].args:
            return None
        a, b = value.args[0].args
        at = b if a is position else a
        return None if self.loop.varies(at) or self.loop.varies(value.args[1]) else (at, value.args[1])

    def one(self, level: int) -> Pass:
        found = [r for r in self.reductions if self.levels[r] == level]
        chosen, after = [r for r in found if r.op != "total_of_lines"], [r for r in found if r.op == "total_of_lines"]
        new = [k for k in self.kept if k not in self.done and any(uses(r.args[0], k) for r in chosen)]
        reduced_of = [self.peaks[r][1].args[0] if r in self.peaks else r.args[0] for r in chosen]
        numbers, values = self.hoist([self.named(v) for v in reduced_of] + [self.named(k) for k in new])
        wide = {unrounded(r): e.local(f"{self.names[r].value}_wide", "f64") for r in chosen if r.op == "total"}
        self.done |= {r: self.names[r] for r in chosen} | wide | {k: self.kept[k] for k in new}
        self.done |= {self.placed[r]: e.local(f"{self.names[r].value}_at", "i64") for r in chosen if r in self.placed}
        reduced = tuple([self.reduced(r, v) for r, v in zip(chosen, values, strict=False)])
        of_lines = tuple([Reduced(self.names[r], "total", self.named(r.args[0])) for r in after])
        stored = [k for k, v in enumerate(self.loop.values) if self.loop.stores[k] == LINE and max(self.levels[v], 1) == level]
        by_line = tuple([(k, self.named(self.loop.values[k])) for k in stored])
        self.done = {r: name for r, name in self.done.items() if r.op != "line_total"} | {r: self.names[r] for r in after}
        kept = tuple([(self.kept[k], v) for k, v in zip(new, values[len(chosen) :], strict=True)])
        return Pass(numbers, reduced, kept, of_lines, by_line)

    def reduced(self, r: Expr, value: Expr) -> Reduced:
        if r in self.peaks:
            op, high = self.peaks[r]
            return Reduced(self.names[r], op, value, peak=self.names[high])
        return Reduced(self.names[r], r.op, value, r.value, r in self.placed)

    def named(self, value: Expr) -> Expr:
        """The value with what is done under its name."""
        return e.replace(value, self.done)

    def hoist(self, values: Sequence[Expr]) -> tuple[tuple[tuple[Expr, Expr], ...], list[Expr]]:
        """What is one number for the row, under names, and the values with those in its place. What such a number is made of needs no name."""
        numbers: dict[Expr, Expr] = {}

        def visit(value: Expr) -> bool:
            """Whether it is one number for the row."""
            if value.op == "load":
                return self.loop.loads[value.value] == EACH
            if value.op == "precise":
                numbers.setdefault(value, e.local(f"n{self.hoisted + len(numbers)}"))
                return True
            if value.op in ("local", "position"):
                return value.op == "local" and value.value[0] == "s"
            fixed = [visit(a) for a in value.args]
            if not all(fixed):
                for a, is_fixed in zip(value.args, fixed, strict=True):
                    if is_fixed and a.args and a not in numbers:
                        numbers[a] = e.local(f"n{self.hoisted + len(numbers)}", a.kind)
            return all(fixed)

        for value in values:
            visit(value)
        self.hoisted += len(numbers)
        precise = {value: name for value, name in numbers.items() if value.op == "precise"}
        named = [(name, value if value in precise else e.replace(value, precise)) for value, name in numbers.items()]
        return tuple(named), [e.replace(value, numbers) for value in values]
