"""Products of matrices, by their letters: mk,kn->mn.

    a letter that both operands and the result have (batch)     all are cut there
    one that one operand and the result have                    both are cut there, the other operand is whole: "column-wise"
    one that is summed over                                     both operands are cut there, the results are terms of a sum: "row-wise"

and terms on one side give terms, for a product is linear in each factor. What is added (a bias) is cut as the result is, or shares in its terms.
"""

from __future__ import annotations

from flambeau.distributed.tensor.placement_types import Placement, Shard
from flambeau.distributed.tensor.rules import rule
from flambeau.distributed.tensor.ways import SUM, Question, R, Way

FACTORS = {"mm": ("mk", "kn", "mn"), "bmm": ("bmk", "bkn", "bmn"), "mv": ("mk", "k", "m"), "dot": ("k", "k", "")}
ADDED = {"addmm": ("mk", "kn", "mn"), "baddbmm": ("bmk", "bkn", "bmn")}
BATCH = "abcdefghij"


@rule(*FACTORS)
def product(question: Question) -> list[Way]:
    """Two factors."""
    return [*by_letters(*FACTORS[question.call.name]), question.replicated()]


@rule(*ADDED)
def product_and_sum(question: Question) -> list[Way]:
    """beta * input + alpha * product: (input, factor, factor)."""
    one, other, result = ADDED[question.call.name]
    ways = [
        Way((_added(way.results[0], question.shapes[0], len(result)), *way.operands), way.results) for way in by_letters(one, other, result)
    ]
    return [*ways, question.replicated()]


@rule("_matmul")
def matmul(question: Question) -> list[Way]:
    """(..., M, K), (..., K, N): batches broadcast, so an operand may lack a letter, or have size 1 there."""
    shapes = question.shapes
    rank = max(map(len, shapes))
    letters = BATCH[: rank - 2]

    def named(shape: tuple[int, ...], last: str) -> str:
        lead = letters[len(letters) - len(shape) + 2 :]
        return "".join(x if n > 1 else "?" for x, n in zip(lead, shape, strict=False)) + last

    return [*by_letters(named(shapes[0], "mk"), named(shapes[1], "kn"), letters + "mn"), question.replicated()]


@rule("nn.functional.linear")
def linear(question: Question) -> list[Way]:
    """input (*, in), weight (out, in) or (in,), bias (out,) or () -> (*, out) or (*,)."""
    letters = BATCH[: len(question.shapes[0]) - 1]
    out = "n" if len(question.shapes[1]) == 2 else ""
    ways = by_letters(letters + "k", out + "k", letters + out)
    if len(question.now) == 3:
        ways = [Way((*way.operands, _added(way.results[0], question.shapes[2], len(letters + out))), way.results) for way in ways]
    return [*ways, question.replicated()]


def by_letters(one: str, other: str, result: str) -> list[Way]:
    """The ways of a product whose dimensions have these letters; ? is one that is not to be cut."""
    ways = []
    for letter in dict.fromkeys(one + other):
        if letter == "?":
            continue
        to = Shard(result.index(letter)) if letter in result else SUM
        ways.append(Way((_at(one, letter), _at(other, letter)), (to,)))
    return [*ways, Way((SUM, R), (SUM,)), Way((R, SUM), (SUM,))]


def _at(letters: str, letter: str) -> Placement:
    return Shard(letters.index(letter)) if letter in letters else R


def _added(result: Placement, shape: tuple[int, ...], rank: int) -> Placement:
    """How something that broadcasts to the result is placed to be added to it."""
    if not isinstance(result, Shard):
        return result
    dim = result.dim - rank + len(shape)
    return Shard(dim) if dim >= 0 and shape[dim] > 1 else R
