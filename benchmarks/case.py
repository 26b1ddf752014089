"""A case: one line of the table, declared as a paragraph in `benchmarks/cases/`.

    @case(wanted=1.0, dim=[0, 1])
    def cumsum(torch, device, dim):
        '''Running sum over 2048 x 2048.'''
        x = torch.randn(2048, 2048, device=device)
        return lambda: torch.cumsum(x, dim=dim)

`torch` is whichever framework is on the clock: the same text is run by all of them. What stands before the `return` is
preparation; the returned callable is what gets timed. A list among the options gives one case for each of its values,
here `reductions.cumsum(dim=0)` and `reductions.cumsum(dim=1)`.
"""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Case:
    """What to measure, and how it should compare.

    wanted   the ratio to the baseline that should not be exceeded, if one is wanted
    limit    the value that should not be exceeded whatever the baseline does, in `unit`
    unit     "s", "B" or "%"
    probe    False: `body(torch, device, **options)` runs in a worker, and calls of what it returns are timed
             True:  `body(package)` runs in the parent, and what it returns gives the value itself when called
    """

    name: str
    about: str
    body: Callable[..., Callable[[], Any]]
    options: Mapping[str, Any]
    wanted: float | None
    limit: float | None = None
    unit: str = "s"
    probe: bool = False


Body = Callable[..., Callable[[], Any]]

_declared: dict[str, Case] = {}


def case(*, wanted: float | None, registry: dict[str, Case] = _declared, **options: Any) -> Callable[[Body], Body]:
    """Declare that calls of what the decorated function returns are timed, for every combination of `options`."""

    def declare(body: Body) -> Body:
        for chosen in _combinations(options):
            _add(Case(name=_name(body, chosen), about=_about(body), body=body, options=chosen, wanted=wanted), registry)
        return body

    return declare


def probe(
    *, wanted: float | None, limit: float | None = None, unit: str = "s", registry: dict[str, Case] = _declared
) -> Callable[[Body], Body]:
    """Declare a number that is not the time of a call. In `benchmarks/cases/`: about a package as a whole, found without importing it."""

    def declare(body: Body) -> Body:
        name, about = _name(body, {}), _about(body)
        _add(Case(name=name, about=about, body=body, options={}, wanted=wanted, limit=limit, unit=unit, probe=True), registry)
        return body

    return declare


def declared() -> dict[str, Case]:
    """Every case under its name, in the order of the table."""
    import benchmarks.cases  # noqa: F401  # importing the files is what declares the cases

    return _declared


def select(patterns: Sequence[str]) -> list[Case]:
    """The cases whose name has one of `patterns` in it, with * and ? as in the shell; all of them for no patterns.

    >>> [case.name for case in select(["cumsum(dim=?)"])]
    ['reductions.cumsum(dim=0)', 'reductions.cumsum(dim=1)']
    """

    unanchored = [f"*{pattern}*" for pattern in patterns or [""]]
    return [case for name, case in declared().items() if any(fnmatch.fnmatchcase(name, pattern) for pattern in unanchored)]


def _combinations(options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    choices = [value if isinstance(value, list) else [value] for value in options.values()]
    for values in itertools.product(*choices):
        yield dict(zip(options, values, strict=True))


def _name(body: Body, options: Mapping[str, Any]) -> str:
    """`file.function(option=value)`; the underscore that keeps a function off a builtin's name is dropped."""
    base = f"{body.__module__.rpartition('.')[2]}.{body.__name__.rstrip('_')}"
    chosen = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"{base}({chosen})" if chosen else base


def _about(body: Body) -> str:
    return (body.__doc__ or "").strip().partition("\n")[0]


def _add(new: Case, registry: dict[str, Case]) -> None:
    if new.name in registry:
        raise ValueError(f"two cases are called {new.name}: give one of the functions another name")
    registry[new.name] = new
