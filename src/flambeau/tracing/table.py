"""The table of a profile, laid out as PyTorch lays out its own: columns 12 wide, two spaces apart, names and shapes as wide as they need."""

from __future__ import annotations

import math
from typing import Any

WIDTH, GAP = 12, 2
SOURCE = "Source Location"
FLOPS = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")
UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}


def build(
    events: Any, sort_by: str | None, row_limit: int, max_source: int, max_name: int, max_shapes: int, header: str | None, top_level: bool,
    unit: str | None,
) -> str:  # fmt: skip
    """The table of these events."""
    if not events:
        return ""
    if unit is not None and unit not in UNITS:
        raise ValueError(f"time_unit is one of {', '.join(UNITS)}; found {unit!r}")
    device = events._use_device if any(e.device_time_total for e in events) or events._use_device else None
    if sort_by is not None:
        attribute = sort_by.replace("cuda", "device").replace("xpu", "device")
        events = _like(sorted(events, key=lambda e: getattr(e, attribute), reverse=True), events)
    columns = _columns(events, device, max_source, max_name, max_shapes, unit)
    line = (" " * GAP).join("-" * width for _, width, _ in columns) + " " * GAP

    def row(cells: list) -> str:
        sides = ["<" if title == SOURCE else ">" for title, _, _ in columns]
        return "".join(f"{cell:{side}{width}}" + " " * GAP for cell, side, (_, width, _) in zip(cells, sides, columns, strict=True))

    length = sum(width + GAP for _, width, _ in columns) - GAP
    text: list[str] = []
    if header is not None:
        text += ["=" * length, header]
    if top_level:
        text += ["=" * length, "The report shows operations of the top level only"]
    text += [line, row([title for title, _, _ in columns]), line]
    sourced = [(sum(w + GAP for _, w, _ in columns[:i]), width) for i, (title, width, _) in enumerate(columns) if title == SOURCE]
    shown = 0
    for event in events:
        if shown == row_limit:
            break
        if top_level and event.cpu_parent is not None:
            continue
        shown += 1
        text.append(row([cell(event) for _, _, cell in columns]))
        if sourced:
            at, width = sourced[0]
            text += [" " * at + _cut(entry, width, front=True) + " " * GAP for entry in (event.stack or ())[1:]]
            text.append(" " * (at + 2 * GAP + WIDTH))
    total = lambda name: _time(sum(getattr(e, name) for e in events), unit)  # noqa: E731
    text += [line, f"Self CPU time total: {total('self_cpu_time_total')}"]
    if device:
        text.append(f"Self {device.upper()} time total: {total('self_device_time_total')}")
    return "\n".join(text) + "\n"


def _like(found: list, events: Any) -> Any:
    again = type(events)(found)
    again.__dict__.update(events.__dict__)
    return again


def _columns(events: Any, device: str | None, max_source: int, max_name: int, max_shapes: int, unit: str | None) -> list[tuple]:
    """(title, width, event -> cell) of each column."""
    cpu = sum(e.self_cpu_time_total for e in events)
    name_width = _wide(max(len(e.key) for e in events), max_name)
    columns: list[tuple] = [
        ("Name", name_width, lambda e: _cut(e.key, name_width)),
        ("Self CPU %", WIDTH, lambda e: _share(e.self_cpu_time_total, cpu)),
        ("Self CPU", WIDTH, lambda e: _time(e.self_cpu_time_total, unit)),
        ("CPU total %", WIDTH, lambda e: _share(e.cpu_time_total, cpu) if not e.is_async else "0.00%"),
        ("CPU total", WIDTH, lambda e: _time(e.cpu_time_total, unit)),
        ("CPU time avg", WIDTH, lambda e: _time(e.cpu_time, unit)),
    ]
    if device:
        gpu, short = sum(e.self_device_time_total for e in events), device.upper()
        columns += [
            (f"Self {short}", WIDTH, lambda e: _time(e.self_device_time_total, unit)),
            (f"Self {short} %", WIDTH, lambda e: _share(e.self_device_time_total, gpu)),
            (f"{short} total", WIDTH, lambda e: _time(e.device_time_total, unit)),
            (f"{short} time avg", WIDTH, lambda e: _time(e.device_time, unit)),
        ]
    if events._profile_memory:
        columns += [
            ("CPU Mem", WIDTH, lambda e: _size(e.cpu_memory_usage)),
            ("Self CPU Mem", WIDTH, lambda e: _size(e.self_cpu_memory_usage)),
        ]
        if device:
            short = device.upper()
            columns.append((f"{short} Mem", WIDTH, lambda e: _size(e.device_memory_usage)))
            columns.append((f"Self {short} Mem", WIDTH, lambda e: _size(e.self_device_memory_usage)))
    columns.append(("# of Calls", WIDTH, lambda e: e.count))
    if any(e.input_shapes for e in events):
        width = _wide(max(len(str(e.input_shapes)) for e in events), max_shapes)
        columns.append(("Input Shapes", width, lambda e: str(e.input_shapes)[:width]))
    if any(e.stack for e in events):
        source = _wide(max(len(entry) for e in events for entry in e.stack or ()), max_source)
        columns.append((SOURCE, source, lambda e: _cut(e.stack[0], source, front=True) if e.stack else ""))
    if events._with_flops:
        most = max((e.flops or 0 for e in events), default=0)
        if most > 0:
            power = min(int(math.log10(most) / 3), len(FLOPS) - 1)
            show = lambda e: "--" if not e.flops else f"{e.flops / 1000**power:8.3f}"  # noqa: E731
            columns.append((f"Total {FLOPS[power]}", WIDTH, show))
    return columns


def _wide(longest: int, limit: int | None) -> int:
    return longest + 4 if limit is None else min(longest + 4, limit)


def _cut(text: str, width: int, front: bool = False) -> str:
    if len(text) <= (width if front else width - 4):
        return text
    return "..." + text[-(width - 3) :] if front else text[: width - 3] + "..."


def _time(us: float, unit: str | None = None) -> str:
    if unit is None:
        unit = "s" if us >= 1e6 else "ms" if us >= 1e3 else "us"
    return f"{us / UNITS[unit]:.3f}{unit}"


def _share(part: float, whole: float) -> str:
    return "NaN" if whole == 0 else f"{part * 100 / whole:.2f}%"


def _size(count: int) -> str:
    for unit, size in (("GB", 2**30), ("MB", 2**20), ("KB", 2**10)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"
