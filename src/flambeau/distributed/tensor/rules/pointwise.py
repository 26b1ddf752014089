"""Element by element, operands broadcasting: all of them cut through the same dimension of the result, where they have it; else whole.

Terms of a sum (Partial) can stay so where the operation is linear in them: sums, negation, products with what all ranks have.
"""

from __future__ import annotations

from flambeau.distributed.tensor.placement_types import Placement
from flambeau.distributed.tensor.rules import rule
from flambeau.distributed.tensor.ways import Question, R, Way, cuts, moved

# operation -> which of its operands may be terms: all at once, or one of them while the others are whole
TOGETHER = frozenset(
    "_add _sub _add_scaled _sub_scaled _rsub _rsub_scaled neg _clone _to_copy copy _alias deg2rad rad2deg _complex".split()
)
ONE_OF = {"mul": (0, 1), "_div": (0,), "_masked": (0,)}


@rule("pointwise", "_clone", "_to_copy", "copy", "fill", "zero", "_masked", "_complex", "_frexp", "_alias", "_conj", "_neg_view", "_bytes", "_once", "_polygamma",
      "_nextafter_halves", "_div_trunc_halves", "_igamma", "_igammac", "special.zeta", "_with_one_derivative")  # fmt: skip
def broadcasting(question: Question) -> list[Way]:
    """Every operand is a broadcast part of the result."""
    shape = max([*question.shapes, *[r for r in question.results if r is not None]], key=len)
    whole = [
        max((s[d - len(shape) + len(s)] for s in question.shapes if d - len(shape) + len(s) >= 0), default=1) for d in range(len(shape))
    ]
    ways = []
    for placement in dict.fromkeys(_aligned(question, len(shape))):
        operands = tuple(_part(placement, s, whole) for s in question.shapes)
        ways.append(Way(operands, (placement,) * len(question.results)))
    return [*ways, *_of_terms(question), question.replicated()]


def _aligned(question: Question, rank: int) -> list[Placement]:
    """The cuts there are, counted in dimensions of the result."""
    found = []
    for placement, shape in zip(question.now, question.shapes, strict=True):
        found += [moved(p, p.dim + rank - len(shape)) for p in cuts([placement])]
    return found


def _part(placement, shape: tuple[int, ...], whole: list[int]) -> Placement:
    """How an operand is placed whose result is placed so: cut, if it has that dimension."""
    dim = placement.dim - len(whole) + len(shape)
    return moved(placement, dim) if dim >= 0 and shape[dim] == whole[placement.dim] else R


def _of_terms(question: Question) -> list[Way]:
    name, now, n = question.call.name, question.now, len(question.now)
    terms = [p for p in dict.fromkeys(now) if p.is_partial("sum") or p.is_partial("avg")]
    if name in TOGETHER and not _shifted_by_a_number(question):
        return [Way((p,) * n, (p,) * len(question.results)) for p in terms]
    if name in ONE_OF:
        return [
            Way(tuple(p if i == k else R for i in range(n)), (p,)) for p in terms for k in ONE_OF[name] if k < n and _is_tensor(question, k)
        ]
    return []


def _shifted_by_a_number(question: Question) -> bool:
    """x + 1 of terms would add 1 on every rank."""
    return question.call.op.kind == "pointwise" and len(question.now) < len(question.call.op.operands)


def _is_tensor(question: Question, k: int) -> bool:
    return len(question.now) == 2 or hasattr(question.call.values[k], "placements") or k == 0
