"""The JSON file: everything a run found, every round included, with what is needed to read it a year later."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.result import STATISTICS, Reading, Result

FORMAT = 1


def begin(machine: Mapping[str, Any], options: Mapping[str, Any], frameworks: Mapping[str, Any]) -> dict[str, Any]:
    """The head of the record: date, machine, options, and each framework's version or the reason it is missing."""
    return {
        "format": FORMAT,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": dict(machine),
        "options": dict(options),
        "frameworks": dict(frameworks),
    }


def complete(head: Mapping[str, Any], results: Sequence[Result]) -> dict[str, Any]:
    """The whole record."""
    return {**head, "results": [entry(result) for result in results]}


def entry(result: Result) -> dict[str, Any]:
    """One case. Values are seconds or bytes for one call, ratios are to the first framework."""
    case = result.case
    others = list(result.readings)[1:]
    return {
        "case": case.name,
        "unit": case.unit,
        "wanted": case.wanted,
        "limit": case.limit,
        "kept": result.kept,
        "ratios": {label: result.ratio(label) for label in others},
        "readings": {label: _reading(reading) for label, reading in result.readings.items()},
    }


def write(path: Path, text: str) -> None:
    """Put `text` in the file `path`, making the folders it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def to_json(record: Mapping[str, Any]) -> str:
    """The record as text, a case to a line: a diff of two files then shows the cases that moved."""
    head = json.dumps({**record, "results": []}, indent=2)
    lines = ",\n    ".join(json.dumps(entry) for entry in record["results"])
    return head.replace('"results": []', f'"results": [\n    {lines}\n  ]') + "\n"


def _reading(reading: Reading) -> dict[str, Any]:
    return {
        "error": reading.error,
        "settings": [
            {
                "threads": threads,
                **{name: _short(take(rounds)) for name, take in STATISTICS.items()},
                "rounds": [_short(value) for value in rounds],
            }
            for threads, rounds in reading.rounds.items()
        ],
    }


def _short(value: float) -> float:
    """Six digits: more than any clock here gives."""
    return float(f"{value:.6g}")
