"""Extreme parameters of every distribution: where PyTorch has an answer, ours is no NaN and no exception.

    python tests/distributions/fuzz_distributions.py --count 1000000 [--seed 1]

The distributions are those of families.py, with their numbers scaled to the ends of the range of floats; the questions are densities, cumulated
densities, moments, entropies and samples. The suite asks a few hundred.
"""

from __future__ import annotations

import argparse
import random
import signal
import time
import warnings
from collections.abc import Callable

import pytest
from families import FAMILIES

import flambeau

torch = pytest.importorskip("torch")

SCALES = (1e-38, 1e-20, 1e-6, 0.1, 1.0, 1.0, 1.0, 10.0, 1e6, 1e20, 1e37)
QUESTIONS: dict[str, Callable] = {
    "log_prob": lambda d, value: d.log_prob(value),
    "cdf": lambda d, value: d.cdf(value),
    "mean": lambda d, value: d.mean,
    "variance": lambda d, value: d.variance,
    "entropy": lambda d, value: d.entropy(),
    "sample": lambda d, value: d.sample((3,)),
}


class TooLong(BaseException):
    """A question took more than its seconds: of PyTorch's rejection samplers some never end."""


def _stop(*_) -> None:
    raise TooLong


def ask(t, text: str, value: str, scales: list[float], question: str, dtype: str):
    """The answer of one framework; the exception if it raised one."""
    left = iter(scales)

    def v(*numbers):
        return t.tensor([n * next(left) for n in numbers], dtype=getattr(t, dtype))

    names = {"v": v, "t": lambda x: t.tensor(x, dtype=getattr(t, dtype)), "D": t.distributions}
    signal.setitimer(signal.ITIMER_REAL, 5)
    try:
        t.manual_seed(0)
        made = eval(f"D.{text}", names)
        argument = eval(value, names | {"t": lambda x: t.tensor(x)}) if value != "draw" else made.sample()
        return QUESTIONS[question](made, argument)
    except (TooLong, Exception) as problem:
        return problem
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def attempt(seed: int) -> str:
    """Ask both; what came of it. AssertionError if ours is worse."""
    chance = random.Random(seed)
    text, value = chance.choice(list(FAMILIES.items()))
    scales = [chance.choice(SCALES) for _ in range(40)] if chance.random() < 0.8 else [chance.choice(SCALES)] * 40
    question, dtype = chance.choice(list(QUESTIONS)), chance.choice(["float32", "float32", "float64"])
    theirs = ask(torch, text, value, scales, question, dtype)
    if isinstance(theirs, BaseException):
        return "refused by PyTorch"
    ours = ask(flambeau, text, value, scales, question, dtype)
    about = f"seed {seed}: {question} of {text}, {dtype}, scales {scales[:6]}"
    if isinstance(ours, ValueError) and "to satisfy the constraint" in str(ours):
        return "refused by Flambeau"  # which PyTorch forgets to check
    assert not isinstance(ours, BaseException), f"{about}: {ours!r}"
    missing = flambeau.isnan(ours).numpy() & ~torch.isnan(theirs).numpy()
    assert not (missing.any() if question != "sample" else missing.any() and not torch.isnan(theirs).any()), f"{about}: {ours} for {theirs}"
    return "NaN in both" if torch.isnan(theirs).any() else "answered"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--count", type=int, default=1_000_000)
    arguments.add_argument("--minutes", type=float, default=1e9)
    arguments.add_argument("--seed", type=int, default=int(time.time()))
    arguments.add_argument("--go-on", action="store_true", help="list what was found instead of stopping at the first")
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _stop)
    end, outcomes, seed = time.time() + 60 * given.minutes, dict[str, int](), given.seed
    while seed < given.seed + given.count and time.time() < end:
        try:
            outcome = attempt(seed)
        except AssertionError as problem:
            if not given.go_on:
                raise
            print(problem)
            outcome = "worse"
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        seed += 1
    print(f"seeds {given.seed} to {seed - 1}: {outcomes}")


if __name__ == "__main__":
    main()
