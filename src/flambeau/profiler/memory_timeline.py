"""Memory over time: bytes in use since the profile began, by what they are for."""

from __future__ import annotations

import gzip
import json
from typing import Any

from flambeau.tracing.kinds import BACKWARD

KINDS = ("activations", "gradients", "optimizer", "other")  # what memory was asked for by
COLORS = ("#e4572e", "#17bebb", "#ffc914", "#8d99ae")


def write(path: str, profiler: Any, device: str) -> None:
    """Write the time line: .html is a picture, .json and .json.gz are [times in us, [bytes of each kind]]."""
    if profiler.recorder is None or profiler.recorder.ledger is None:
        raise ValueError("profile_memory must be set to True for exporting a memory timeline: profile(profile_memory=True)")
    times, sizes = timeline(profiler.recorder, device.partition(":")[0])
    path = str(path)
    if path.endswith(".html"):
        with open(path, "w", encoding="utf-8") as file:
            file.write(page(times, sizes, device))
    elif path.endswith((".json", ".json.gz")):
        with (gzip.open if path.endswith(".gz") else open)(path, "wt", encoding="utf-8") as file:  # type: ignore[operator]
            json.dump([times, sizes, list(KINDS)], file)
    else:
        raise ValueError(f"export_memory_timeline writes .html, .json and .json.gz; found {path!r}")


def timeline(recorder: Any, device: str) -> tuple[list[float], list[list[int]]]:
    """(times in microseconds, bytes in use at that time by kind)."""
    backward = [(start, end) for start, end, kind, *_ in recorder.notes if kind == BACKWARD]
    optimizer = [(n[0], n[1]) for n in recorder.notes if isinstance(n[3], str) and n[3].startswith("Optimizer.")]
    inside = lambda when, spans: any(start <= when <= end for start, end in spans)  # noqa: E731
    held: dict[int, list[int]] = {}
    now, times, sizes = [0] * len(KINDS), [], []
    for when, address, size, where in sorted(recorder.ledger.changes):
        if where != device:
            continue
        if size > 0:
            kind = 1 if inside(when, backward) else 2 if inside(when, optimizer) else 0
            held.setdefault(address, []).append(kind)
        else:
            kind = held[address].pop() if held.get(address) else 3
        now[kind] += size
        times.append((when - recorder.first) / 1e3)
        sizes.append(list(now))
    return times, sizes


def page(times: list[float], sizes: list[list[int]], device: str) -> str:
    """The picture, as a page without anything from elsewhere: areas on top of each other, one per kind."""
    width, height, left, top = 960, 360, 90, 40
    peak = max((sum(s) for s in sizes), default=0) or 1
    last = times[-1] if times else 1.0
    x = lambda t: left + t / last * width  # noqa: E731
    y = lambda b: top + height - b / peak * height  # noqa: E731
    areas = []
    for i in range(len(KINDS)):
        upper = [(x(t), y(sum(s[: i + 1]))) for t, s in zip(times, sizes, strict=True)]
        lower = [(x(t), y(sum(s[:i]))) for t, s in zip(times, sizes, strict=True)]
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in [*_stairs(upper), *reversed(_stairs(lower))])
        areas.append(f'<polygon points="{points}" fill="{COLORS[i]}" fill-opacity="0.85"/>')
        areas.append(f'<rect x="{left + 150 * i}" y="12" width="12" height="12" fill="{COLORS[i]}"/>')
        areas.append(f'<text x="{left + 150 * i + 18}" y="23">{KINDS[i]}</text>')
    for part in range(5):
        at = peak * part / 4
        areas.append(f'<line x1="{left}" x2="{left + width}" y1="{y(at):.1f}" y2="{y(at):.1f}" stroke="#ccc" stroke-width="0.5"/>')
        areas.append(f'<text x="{left - 8}" y="{y(at) + 4:.1f}" text-anchor="end">{at / 2**20:.3g} MB</text>')
        areas.append(f'<text x="{x(last * part / 4):.1f}" y="{top + height + 20}" text-anchor="middle">{last * part / 4e3:.1f} ms</text>')
    title = f"Memory of {device} since the profile began: peak {peak / 2**20:.1f} MB"
    drawing = f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 40}" height="{top + height + 40}" font-family="sans-serif"'
    head = f"<!doctype html><meta charset='utf-8'><title>{title}</title><h2 style='font-family:sans-serif'>{title}</h2>"
    return f'{head}{drawing} font-size="13">{"".join(areas)}</svg>\n'


def _stairs(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Memory does not change between two points: a step, not a slope."""
    found: list[tuple[float, float]] = []
    for point in points:
        if found:
            found.append((point[0], found[-1][1]))
        found.append(point)
    return found
