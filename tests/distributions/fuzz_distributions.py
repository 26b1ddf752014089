"""Extreme parameters of every distribution: where PyTorch has an answer, ours is the same, and no NaN and no exception.

    python tests/distributions/fuzz_distributions.py --count 1000000 [--jobs 2] [--minutes 5] [--seed 1]

The distributions are those of families.py, with their numbers scaled to the ends of the range of floats. A seed stands for one family and `SETS` of its
parameters, together in its tensors; they are asked for densities, cumulated densities, quantiles, moments, entropies and samples. One input is one set of
parameters with one question, or one that PyTorch refuses to make a distribution of. The suite asks a few thousand.
"""

from __future__ import annotations

import argparse
import random
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
from families import FAMILIES

import flambeau

torch = pytest.importorskip("torch")

USUAL = (0.1, 1.0, 1.0, 1.0, 10.0)
SCALES = (1e-38, 1e-20, 1e-6, *USUAL, 1e6, 1e20, 1e37)
SETS, SECONDS = 64, 1.0
# question -> the answer, given the distribution, the value listed beside it and one that PyTorch drew; whether the answer has the shape of a draw
QUESTIONS: dict[str, tuple[Callable, bool]] = {
    "log_prob": (lambda d, listed, drawn: d.log_prob(listed), False),
    "log_prob of a draw": (lambda d, listed, drawn: d.log_prob(drawn), False),
    "cdf": (lambda d, listed, drawn: d.cdf(listed), False),
    "cdf of a draw": (lambda d, listed, drawn: d.cdf(drawn), False),
    "icdf": (lambda d, listed, drawn: d.icdf(drawn * 0 + 0.3), False),
    "mean": (lambda d, listed, drawn: d.mean, True),
    "mode": (lambda d, listed, drawn: d.mode, True),
    "variance": (lambda d, listed, drawn: d.variance, True),
    "stddev": (lambda d, listed, drawn: d.stddev, True),
    "entropy": (lambda d, listed, drawn: d.entropy(), False),
    "sample": (lambda d, listed, drawn: d.sample((3,)), True),
}


class TooLong(BaseException):
    """A question took more than its seconds of work: of PyTorch's rejection samplers some never end."""


def _stop(*_) -> None:
    raise TooLong


def distribution(t, text: str, scales: np.ndarray, dtype: str):
    """One distribution of one framework; its first dimension is that of `scales` (sets, numbers)."""
    left = iter(scales.T)

    def v(*numbers):
        columns = [(n * next(left)).tolist() for n in numbers]
        made = t.tensor(columns, dtype=getattr(t, dtype))
        return made.T.contiguous() if len(numbers) > 1 else made[0]

    names = {"v": v, "t": lambda x: t.tensor(x, dtype=getattr(t, dtype)), "D": t.distributions}
    return eval(f"D.{text}".replace(".reshape(", ".reshape(-1, "), names)


def within_seconds(question: Callable, *arguments):
    """The answer; the exception if there was one."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return question(*arguments)
    except (TooLong, Exception) as problem:
        return problem
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def failed(*answers) -> bool:
    return any(isinstance(x, BaseException) for x in answers)


class Comparison:
    """One family and its sets of parameters, in both frameworks; `outcomes` counts inputs, `worse` says where ours are no match."""

    def __init__(self, seed: int):
        chance = random.Random(seed)
        self.text, self.value = chance.choice(FUZZED)
        self.dtype = chance.choice(["float32", "float32", "float64"])
        self.scales = np.array([set_of_scales(chance) for _ in range(SETS)])
        self.seed, self.outcomes, self.worse = seed, Counter[str](), list[str]()

    def run(self) -> None:
        """Ask everything of the sets that PyTorch makes a distribution of."""
        rows = np.concatenate([np.array([], int), *self.accepted(np.arange(SETS))])
        if not len(rows):
            return
        theirs = self.made(torch, rows)
        torch.manual_seed(1)
        drawn = within_seconds(theirs.sample)
        questions = dict(QUESTIONS)
        if failed(drawn):
            self.outcomes["too long for PyTorch"] += len(rows)
            del questions["sample"]
            drawn = theirs.mean
        self.ask(questions, rows, drawn, drawn if self.value == "draw" else self.listed(theirs, drawn))

    def accepted(self, rows: np.ndarray) -> list[np.ndarray]:
        """The sets among these of which PyTorch makes distributions: all together, or halves are tried."""
        if not failed(self.made(torch, rows)):
            return [rows]
        if len(rows) == 1:
            self.outcomes["refused by PyTorch"] += 1
            return []
        return [found for half in np.array_split(rows, 2) for found in self.accepted(half)]

    def made(self, t, rows: np.ndarray):
        return within_seconds(distribution, t, self.text, self.scales[rows], self.dtype)

    def listed(self, made, drawn):
        """The value of families.py for every set, or what was drawn where it has no density; the dimension of the sets comes first."""
        value = torch.as_tensor(eval(self.value, {"t": torch.tensor}))
        value = value.to(drawn.dtype) if value.is_floating_point() else value
        inner = drawn.ndim - 1
        samples = max(value.ndim - inner, 0)
        value = value.reshape(*value.shape[:samples], *[1] * bool(samples), *value.shape[samples:])
        inside = made.support.check(value)
        inside = inside.reshape(*inside.shape, *[1] * (value.ndim - inside.ndim)) if value.ndim > inside.ndim else inside
        return torch.where(inside, value, drawn).expand(*value.shape[:samples], *drawn.shape).movedim(samples, 0)

    def ask(self, questions: dict, rows: np.ndarray, drawn, value) -> None:
        """Questions about these sets; halves are asked where one framework refuses all of them for the sake of one."""
        theirs, ours = (self.made(t, rows) for t in (torch, flambeau))
        for question, (ask, like_a_draw) in questions.items():
            samples = value.ndim - drawn.ndim
            given = value.movedim(0, samples), drawn
            torch.manual_seed(0)
            expected = within_seconds(ask, theirs, *given)
            if isinstance(expected, NotImplementedError):
                continue
            if isinstance(expected, TooLong):
                self.outcomes["too long for PyTorch"] += len(rows)
                continue
            flambeau.manual_seed(0)
            found = ours if failed(ours, expected) else within_seconds(ask, ours, *(flambeau.from_numpy(x.numpy()) for x in given))
            if not failed(expected, found):
                dims = len(theirs.batch_shape) + like_a_draw * len(theirs.event_shape)
                self.compare(question, rows, dims, found.numpy(), expected.numpy())
            elif len(rows) > 1:
                for half in np.array_split(np.arange(len(rows)), 2):
                    self.ask({question: questions[question]}, rows[half], drawn[half], value[half])
            elif failed(expected):
                self.outcomes["refused by PyTorch"] += 1
            elif isinstance(found, ValueError) and "to satisfy the constraint" in str(found):
                self.outcomes["refused by Flambeau"] += 1  # which PyTorch forgets to check
            else:
                self.is_worse(question, rows[0], repr(found), expected)

    def compare(self, question: str, rows: np.ndarray, dims: int, ours: np.ndarray, theirs: np.ndarray) -> None:
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, f"seed {self.seed}, {question} of {self.text}"
        ours, theirs = (np.moveaxis(x, x.ndim - dims, 0).reshape(len(rows), -1) for x in (ours, theirs))
        undefined = np.isnan(theirs).any(1)
        missing = (np.isnan(ours) & ~np.isnan(theirs)).any(1) & ~(undefined if question == "sample" else False)
        # PyTorch's Bessel functions, in VonMises, are polynomials of some five digits
        rtol, atol = (1e-3, 1e-5) if self.dtype == "float32" or "VonMises" in self.text else (1e-7, 1e-9)
        same = np.isclose(ours, theirs, rtol, atol, equal_nan=True).all(1)
        # A sample depends on how many numbers those before it took, and those of extreme parameters need not take the same.
        usual = np.isin(self.scales[rows], USUAL).all(1) & (question != "sample")
        for i, row in enumerate(rows):
            if missing[i] or (usual[i] and not same[i]):
                self.is_worse(question, row, ours[i], theirs[i])
            else:
                self.outcomes["NaN in both" if undefined[i] else "the same" if same[i] else "other digits"] += 1

    def is_worse(self, question: str, row: int, ours, theirs) -> None:
        self.outcomes["worse"] += 1
        about = f"seed {self.seed}: {question} of {self.text}, {self.dtype}, scales {self.scales[row][:6].tolist()}"
        self.worse.append(f"{about}: {ours} for {theirs}")


def set_of_scales(chance: random.Random) -> list[float]:
    """A factor for each number: any, usual ones, or one for all."""
    way = chance.random()
    return [chance.choice(SCALES if way < 0.6 else USUAL) for _ in range(8)] if way < 0.8 else [chance.choice(SCALES)] * 8


FUZZED = [(text, value) for text, value in FAMILIES.items() if "v(" in text]
FUZZED += [("GeneralizedPareto(v(0.5, -1.0), v(1.5, 0.3), v(0.2, -0.3))", "t([0.7, -0.9])")]  # PyTorch has it in float32 only


def attempt(seed: int, go_on: bool = False) -> Counter[str]:
    """Ask both; what came of it. AssertionError if ours is worse."""
    comparison = Comparison(seed)
    before = signal.signal(signal.SIGPROF, _stop)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            comparison.run()
    finally:
        signal.signal(signal.SIGPROF, before)
    if go_on:
        print(*comparison.worse, sep="\n", end="\n" * bool(comparison.worse), flush=True)
    assert go_on or not comparison.worse, "\n".join(comparison.worse)
    return comparison.outcomes


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--count", type=int, default=1_000_000)
    arguments.add_argument("--minutes", type=float, default=1e9)
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--seed", type=int, default=int(time.time()))
    arguments.add_argument("--go-on", action="store_true", help="list what was found instead of stopping at the first")
    given = arguments.parse_args()
    start, outcomes, first = time.time(), Counter[str](), given.seed
    with ProcessPoolExecutor(given.jobs, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        while outcomes.total() < given.count and time.time() - start < 60 * given.minutes:
            seeds = range(first, first + 20 * given.jobs)
            first = seeds.stop
            outcomes = sum(pool.map(attempt, seeds, [given.go_on] * len(seeds), chunksize=5), outcomes)
    took = f"{(time.time() - start) / 60:.0f} minutes"
    print(f"seeds {given.seed} to {first - 1}, {outcomes.total()} inputs in {took}: {dict(outcomes)}")


if __name__ == "__main__":
    main()
