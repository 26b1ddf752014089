"""`python -m benchmarks`: choose cases and frameworks, run them by turns, print the table, keep it if asked to."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import record, report
from benchmarks.case import Case, select
from benchmarks.frameworks import Framework, parse_frameworks
from benchmarks.machine import REPOSITORY, describe
from benchmarks.result import STATISTICS, Result
from benchmarks.runner import Track, open_track

RESULTS = REPOSITORY / "benchmarks" / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for. The exit status tells of wrong usage, never of a slow result."""
    parser = _parser()
    options = parser.parse_args(arguments)
    cases = select(options.case)
    for pattern in options.case:
        if not select([pattern]):
            parser.error(f"no case matches {pattern}: --list shows them all")
    if options.list:
        list_cases(cases)
        return 0
    frameworks: list[Framework] = options.frameworks
    machine = describe()  # before the imports, which would count as load
    with open_track(frameworks, options.device) as track:
        head = record.begin(machine, _recorded(options), track.roll_call())
        print("\n".join(report.setting(head)), end="\n\n")
        results, interrupted = run_cases(track, cases, options.rounds, options.statistic)
    print("", *[report.summary(results, framework.label) for framework in frameworks[1:]], sep="\n")
    for path in _json_files(options):
        record.write(path, record.to_json(record.complete(head, results)))
    for path in _markdown_files(options):
        record.write(path, report.markdown(head, results, track.absent))
    return 130 if interrupted else 0


def run_cases(track: Track, cases: Sequence[Case], rounds: int, statistic: str) -> tuple[list[Result], bool]:
    """Measure and print row by row. Ctrl-C ends the run and keeps what there is."""
    table = report.Table([framework.label for framework in track.frameworks], cases, track.absent)
    results: list[Result] = []
    print(table.heading(), flush=True)
    try:
        for case in cases:
            results.append(track.run(case, rounds, statistic))
            print(table.row(results[-1]), flush=True)
    except KeyboardInterrupt:
        print(f"interrupted after {len(results)} of {len(cases)} cases", file=sys.stderr)
        return results, True
    return results, False


def _recorded(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "device": options.device,
        "rounds": options.rounds,
        "statistic": options.statistic,
        "frameworks": [framework.label for framework in options.frameworks],
        "cases": options.case,
    }


def list_cases(cases: Sequence[Case]) -> None:
    """What --list prints."""
    width = max(len(case.name) for case in cases)
    for case in cases:
        wanted = "    " if case.wanted is None else f"{case.wanted:.2f}"
        print(f"{case.name:<{width}}  {wanted}  {case.about}".rstrip())


def _json_files(options: argparse.Namespace) -> list[Path]:
    return [*options.json, *[RESULTS / f"{name}.json" for name in options.save]]


def _markdown_files(options: argparse.Namespace) -> list[Path]:
    return [*options.markdown, *[RESULTS / f"{name}.md" for name in options.save]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add(
        "--case",
        metavar="PATTERN",
        action="append",
        default=[],
        help="only cases with PATTERN in their name, * and ? as in the shell; may be repeated",
    )
    add("--rounds", type=positive, default=9, help="rounds in each lane (default: %(default)s)")
    add("--device", default="cpu", help="where the tensors lie: cpu, cuda, cuda:1 ... (default: %(default)s)")
    add(
        "--frameworks",
        type=columns,
        default="torch,flambeau",
        metavar="NAMES",
        help="columns of the table; the first is the baseline, the second is held against the wanted ratio (default: %(default)s)",
    )
    add("--statistic", choices=list(STATISTICS), default="median", help="taken of the rounds (default: %(default)s)")
    add("--list", action="store_true", help="name the cases, with the wanted ratio, and stop")
    add("--json", metavar="FILE", type=Path, action="append", default=[], help="write rounds and setting to FILE")
    add("--markdown", metavar="FILE", type=Path, action="append", default=[], help="write the table to FILE")
    add(
        "--save",
        metavar="NAME",
        action="append",
        default=[],
        help="write benchmarks/results/NAME.json and benchmarks/results/NAME.md",
    )
    return parser


def columns(text: str) -> list[Framework]:
    """What --frameworks names."""
    try:
        return parse_frameworks(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive(text: str) -> int:
    """A number of things that there must be one of."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, found {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
