"""`python -m benchmarks.distributed`: two ranks of each framework on this machine, by turns; print the table, keep it if asked to."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence

from benchmarks import record, report
from benchmarks.__main__ import RESULTS, columns, list_cases, positive, run_cases
from benchmarks.distributed.cases import select
from benchmarks.distributed.track import open_track
from benchmarks.distributed.world import RANKS
from benchmarks.machine import describe
from benchmarks.result import STATISTICS


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
    machine = describe()  # before the imports, which would count as load
    with open_track(options.frameworks, options.threads) as track:
        head = record.begin(machine, _recorded(options), track.roll_call())
        print("\n".join(report.setting(head)), end="\n\n")
        results, interrupted = run_cases(track, cases, options.rounds, options.statistic)
    print("", *[report.summary(results, framework.label) for framework in options.frameworks[1:]], sep="\n")
    for name in options.write or []:
        record.write(RESULTS / f"{name}.json", record.to_json(record.complete(head, results)))
        record.write(RESULTS / f"{name}.md", report.markdown(head, results, track.absent))
    return 130 if interrupted else 0


def _recorded(options: argparse.Namespace) -> dict[str, object]:
    return {
        "device": f"cpu, {RANKS} ranks with {options.threads} thread{'s' * (options.threads > 1)} each",
        "rounds": options.rounds,
        "statistic": options.statistic,
        "frameworks": [framework.label for framework in options.frameworks],
        "cases": options.case,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distributed", description=__doc__)
    add = parser.add_argument
    add("case", metavar="PATTERN", nargs="*", help="only cases with PATTERN in their name, * and ? as in the shell")
    add("--rounds", type=positive, default=50, help="rounds in each world (default: %(default)s)")
    add("--threads", type=positive, default=1, help="threads of each rank (default: %(default)s)")
    add(
        "--frameworks",
        type=columns,
        default="torch,flambeau",
        metavar="NAMES",
        help="columns of the table; the first is the baseline, and may be the only one (default: %(default)s)",
    )
    add("--statistic", choices=list(STATISTICS), default="median", help="taken of the rounds (default: %(default)s)")
    add("--list", action="store_true", help="name the cases, with the wanted ratio, and stop")
    add(
        "--write",
        metavar="NAME",
        nargs="?",
        action="append",
        const=f"distributed-cpu-{datetime.date.today()}",
        help="write benchmarks/results/NAME.json and .md (default: %(const)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
