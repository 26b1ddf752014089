"""The table, for a terminal and for Markdown.

    case                              torch      flambeau   ratio  wanted
    small_ops.add(grad=False)   1.02 µs  1t        714 ns   0.70x  0.70 ✓
    pointwise.exp               2.31 ms  2t       2.54 ms   1.10x~ 1.00 ✗
    pointwise.gelu              2.60 ms  2t             -          1.00       flambeau: NotImplementedError: ...

A row is printed as soon as it is known, so the columns have fixed widths. `1t` is the thread setting that was the
better one, where several were measured; `~` warns of rounds that disagree.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.case import Case
from benchmarks.result import Reading, Result

_UNITS = {
    "s": [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")],
    "B": [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")],
    "%": [(1.0, "%")],
}
_MARKS = {True: "✓", False: "✗", None: ""}
_VALUE_WIDTH, _RATIO_WIDTH, _WANTED_WIDTH = 15, 9, 18


class Table:
    """Rows of text for the columns `labels`. What is said of a framework in `absent` is not said in every row."""

    def __init__(self, labels: Sequence[str], cases: Iterable[Case], absent: Mapping[str, str] | None = None) -> None:
        self.labels = labels
        self.absent = absent or {}
        self._name_width = max((len(case.name) for case in cases), default=0)

    def heading(self) -> str:
        """The names of the columns."""
        first, *others = self.labels
        columns = [[first], *[[label, "ratio "] for label in others], ["wanted"]]
        return self._line("case", [text for column in columns for text in column], "")

    def row(self, result: Result) -> str:
        """One case."""
        return self._line(result.case.name, cells(result), "; ".join(notes(result, self.absent)))

    def _line(self, name: str, texts: Sequence[str], note: str) -> str:
        first, *pairs, wanted = texts
        line = f"{name:<{self._name_width}}{first:>{_VALUE_WIDTH}}"
        for value, ratio in zip(pairs[::2], pairs[1::2], strict=True):
            line += f"{value:>{_VALUE_WIDTH}}{ratio:>{_RATIO_WIDTH}}"
        return f"{line} {wanted:<{_WANTED_WIDTH}}{note}".rstrip()


def cells(result: Result) -> list[str]:
    """The texts of a row after its name: baseline; value and ratio of each further column; what was wanted, marked."""
    first, *others = result.readings
    texts = [_value(result.readings[first], result)]
    for label in others:
        texts += [_value(result.readings[label], result), _ratio(result, label)]
    return [*texts, _wanted(result)]


def notes(result: Result, absent: Mapping[str, str]) -> list[str]:
    """Why a cell of this row is empty."""
    failed = ((label, reading) for label, reading in result.readings.items() if not reading.rounds)
    return [f"{label}: {reading.error}" for label, reading in failed if reading.error != absent.get(label)]


def summary(results: Sequence[Result], label: str) -> str:
    """One sentence on a column: how it compares on the whole, what was kept of what was wanted, what failed."""
    timed = [ratio for result in results if not result.case.probe and (ratio := result.ratio(label))]
    parts = [f"geometric mean {statistics.geometric_mean(timed):.2f}x over {len(timed)} timed cases"] if timed else []
    verdicts = [result.kept for result in results if result.judged == label and result.kept is not None]
    if verdicts:
        parts.append(f"{sum(verdicts)} of {len(verdicts)} as wanted")
    failed = sum(not result.readings[label].rounds for result in results)
    if failed:
        parts.append(f"{failed} not measured")
    return f"{label}: {', '.join(parts) or 'nothing measured'}"


def markdown(record: Mapping[str, Any], results: Sequence[Result], absent: Mapping[str, str]) -> str:
    """The table as a Markdown page, under a heading that says where and when it was measured."""
    labels = list(record["frameworks"])
    first, *others = labels
    headings = ["case", first, *[text for label in others for text in (label, "ratio")], "wanted"]
    lines = [
        f"# Benchmarks, {record['date'][:10]}",
        "",
        *[f"- {line}" for line in setting(record)],
        "",
        _markdown_row(headings),
        _markdown_row(["---", *["---:"] * (len(headings) - 2), "---"]),
        *[_markdown_row([f"`{result.case.name}`", *cells(result)]) for result in results],
        "",
        *[f"- {summary(results, label)}" for label in others],
    ]
    failures = [f"- `{result.case.name}`: {note}" for result in results for note in notes(result, absent)]
    if failures:
        lines += ["", "Not measured:", "", *failures]
    return "\n".join(lines) + "\n"


def setting(record: Mapping[str, Any]) -> list[str]:
    """Machine, options and frameworks, a line each: what a reader needs before the first number."""
    machine, options = record["machine"], record["options"]
    return [
        f"{machine['processor']}, {machine['usable_cores']} cores, {machine['system']}, Python {machine['python']}",
        f"device {options['device']}, {options['statistic']} of {options['rounds']} rounds",
        *[_introduce(label, framework) for label, framework in record["frameworks"].items()],
        *_busy(machine),
    ]


def amount(value: float, unit: str) -> str:
    """Three digits and a unit of fitting size.

    >>> amount(0.00001234, "s"), amount(754e6, "B"), amount(0, "B")
    ('12.3 µs', '754 MB', '0 B')
    """
    scales = _UNITS[unit]
    # 999.6 of a unit would round to 1000 of it: the next unit begins half a digit early.
    scale, name = next(((scale, name) for scale, name in scales if value >= 0.9995 * scale), scales[-1])
    scaled = value / scale
    digits = 0 if scaled >= 99.95 or unit == name == "B" else 1 if scaled >= 9.995 else 2
    return f"{scaled:.{digits}f} {name}"


def _value(reading: Reading, result: Result) -> str:
    best = reading.best(result.statistic)
    if best is None:
        return "-"
    value, threads = best
    return amount(value, result.case.unit) + ("" if threads is None else f" {threads:>2}t")


def _ratio(result: Result, label: str) -> str:
    ratio = result.ratio(label)
    if ratio is None:
        return ""
    return f"{ratio:.2f}x" + ("~" if result.is_noisy(label) else " ")


def _wanted(result: Result) -> str:
    case = result.case
    texts = [] if case.wanted is None else [f"{case.wanted:.2f}"]
    if case.limit is not None:
        texts.append(amount(case.limit, case.unit))
    return f"{', '.join(texts)} {_MARKS[result.kept]}".strip()


def _introduce(label: str, framework: Mapping[str, Any]) -> str:
    if "error" in framework:
        return f"{label}: not measured, {framework['error']}"
    device = framework["device"]
    return f"{label} {framework['version']}" + ("" if device == "cpu" else f" on {device}")


def _busy(machine: Mapping[str, Any]) -> list[str]:
    load, cores = machine["load_average"], machine["usable_cores"]
    if load is None or load < cores / 2:
        return []
    return [f"busy: load average {load:.1f} on {cores} cores before the run: expect noise"]


def _markdown_row(texts: Iterable[str]) -> str:
    return "| " + " | ".join(text.strip().replace("|", "\\|") for text in texts) + " |"
