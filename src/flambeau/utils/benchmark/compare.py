"""Compare: measurements side by side, a row for each statement, a column for each way to do it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from flambeau.utils.benchmark.measurement import VERY_NOISY, Measurement, select_unit

UNITS = {"ns": "nanoseconds", "us": "microseconds", "ms": "milliseconds", "s": "seconds"}
RESET = "\033[0m\033[0m"
# (up to how many times the best, how it is written)
COLOURS = ((1.0, "\033[92m\033[1m"), (1.1, "\033[34m\033[1m"), (1.9, ""), (5.0, "\033[2m\033[91m"), (math.inf, "\033[31m\033[1m"))


class Compare:
    """A table of measurements for each label; `print()` shows it."""

    def __init__(self, results: list[Measurement]) -> None:
        self._results: list[Measurement] = []
        self.extend_results(results)
        self._trim = self._warn = False
        self._colour: str | None = None

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements."""
        results = list(results)
        if not all(isinstance(r, Measurement) for r in results):
            raise ValueError("Expected an instance of `Measurement`: what Timer's methods return")
        self._results += results

    def trim_significant_figures(self) -> None:
        """Show no digit that means nothing."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Show the best of a column, or of a row, in green, and what takes far longer in red."""
        self._colour = "row" if rowwise else "column"

    def highlight_warnings(self) -> None:
        """Show which times were spread far apart."""
        self._warn = True

    def print(self) -> None:
        """Write the tables to standard output."""
        print(str(self))

    def __str__(self) -> str:
        labels = _in_order(r.task_spec.label for r in self._results)
        return "\n".join(self._table(label, [r for r in self._results if r.task_spec.label == label]) for label in labels)

    def _table(self, label: str | None, results: Sequence[Measurement]) -> str:
        merged = Measurement.merge(results)
        columns = _in_order(r.task_spec.description for r in merged)
        rows = _in_order((r.env, r.as_row_name) for r in merged)
        found = {(r.task_spec.num_threads, r.env, r.as_row_name, r.task_spec.description): r for r in merged}
        unit, scale = select_unit(min(r.median for r in merged))
        threads = sorted({r.task_spec.num_threads for r in merged})
        forms = {c: self._form([r for r in merged if r.task_spec.description == c], scale) for c in columns}
        behind = {c: max(len(self._warning(r)) for key, r in found.items() if key[3] == c) - 1 for c in columns}
        shown = {k: format(r.median / scale, forms[k[3]]) + (self._warning(r) or " " * behind[k[3]]) for k, r in found.items()}
        widest = {c: max(len(text) for key, text in shown.items() if key[3] == c) for c in columns}
        widths = [max(len(c or ""), widest[c]) for c in columns]
        names = _row_names(rows)
        lines = [_line(" " * len(names[0]), [(c or "").center(w) for c, w in zip(columns, widths, strict=True)])]
        wide = len(lines[0])
        for count in threads:
            present = _in_order(key[1:3] for key in found if key[0] == count)
            lines.append(f"{count} threads: ".ljust(wide, "-"))
            for row in present:
                keys = [(count, *row, c) for c in columns]
                texts = [shown.get(key, "").center(w) for key, w in zip(keys, widths, strict=True)]
                lines.append(_line(names[rows.index(row)], self._coloured(keys, texts, found)))
        title = f" {label or ''} ".center(wide - 2, "-")
        lines.insert(0, f"[{title}]")
        lines += ["", f"Times are in {UNITS[unit]} ({unit})."]
        if self._warn and any(r.has_warnings for r in merged):
            lines.append("(! XX%) Times differ much: XX is the interquartile range, in percent of the median.")
        return "\n".join(lines) + "\n"

    def _form(self, results: list[Measurement], scale: float) -> str:
        """How the numbers of a column are written: as wide as the largest, counted by its logarithm as PyTorch does, and equally exact."""
        before = [math.ceil(math.log10(r.median / scale)) for r in results]
        after = min(max(r.significant_figures - n, 0) for r, n in zip(results, before, strict=True)) if self._trim else 1
        return f">{max(*before, 1) + after + (after > 0)}.{after}f"

    def _warning(self, result: Measurement) -> str:
        share = result.iqr / result.median
        return f" (! {share * 100:.0f}%)" if self._warn and share > VERY_NOISY else ""

    def _coloured(self, keys: list[tuple], texts: list[str], found: dict[tuple, Measurement]) -> list[str]:
        if self._colour is None:
            return texts
        result = []
        for key, text in zip(keys, texts, strict=True):
            if key not in found:
                result.append(text)
                continue
            rivals = [k for k in found if k[0] == key[0] and (k[1:3] == key[1:3] if self._colour == "row" else k[3] == key[3])]
            ratio = found[key].median / min(found[k].median for k in rivals)
            colour = next(colour for most, colour in COLOURS if ratio <= most)
            result.append(f"{colour}{text}{RESET}" if colour else text)
        return result


def _in_order(values: Iterable) -> list:
    """The different values, in the order of their first appearance."""
    return list(dict.fromkeys(values))


def _row_names(rows: list[tuple[str | None, str]]) -> list[str]:
    """What stands to the left of each row: where it was measured, if that is known, and what."""
    places = [f"  ({env})  " if env else "" for env, _ in rows]
    room, wide = max(6, *map(len, places)), max(len(name) for _, name in rows)
    return [place.ljust(room) + name.ljust(wide) for place, (_, name) in zip(places, rows, strict=True)]


def _line(name: str, cells: list[str]) -> str:
    return "  |  ".join([name, *cells])
