"""Tables of text, and the same tables as HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], sides: str, rule: str = "─") -> str:
    """Columns two spaces apart under a line; `sides` has < or > for each column."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    line = rule * (sum(widths) + 3 * (len(widths) - 1))
    show = lambda row: "   ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()  # noqa: E731
    return "\n".join([show(titles), line, *map(show, rows), line])


MONO = "white-space:pre;font-family:monospace"
CELL = f"padding:1px 10px;border:none;{MONO}"  # notebooks have rules of their own, some for every other row


def html_table(titles: Sequence[str], rows: Sequence[Sequence[str]], sides: str, notes: Sequence[str] = ()) -> str:
    """The same for a notebook."""
    align = ["left" if side == "<" else "right" for side in sides]
    cell = lambda tag, text, side: f'<{tag} style="text-align:{side};{CELL}">{html.escape(text)}</{tag}>'  # noqa: E731
    head = "".join(cell("th", text, side) for text, side in zip(titles, align, strict=True))
    body = "".join("<tr>" + "".join(cell("td", t, side) for t, side in zip(row, align, strict=True)) + "</tr>" for row in rows)
    below = "".join(f'<div style="padding:0 10px;{MONO}">{html.escape(note)}</div>' for note in notes)
    rules = "border-top:1px solid #999;border-bottom:1px solid #999"
    return (
        f'<div><table style="border-collapse:collapse;margin-bottom:4px"><thead><tr>{head}</tr></thead>'
        f'<tbody style="{rules}">{body}</tbody></table>{below}</div>'
    )


def count(n: int | None) -> str:
    """A whole number with separators; a dash for none."""
    return "-" if not n else f"{n:,}"
