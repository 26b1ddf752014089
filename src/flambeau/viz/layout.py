"""Placing the boxes of a graph in rows (after Sugiyama): every box below all that lead to it, few crossings, short edges.

1. The row of a box: one below the lowest of its sources; sources that feed only one box are pulled down to just above it.
2. Edges that pass over rows get a bend in each, so that they can be routed between the boxes.
3. Within a row, boxes are sorted by the average place of their neighbours, a few times downwards and upwards.
4. Places: as near to the average of the neighbours as the boxes beside allow.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

ROW, GAP, MARGIN, HALF = 78.0, 18.0, 20.0, 20.0  # distance of rows, between boxes, at the borders; half the height of a box
BEND = 8.0  # the width an edge takes where it passes through a row
SWEEPS = 8


class Places(NamedTuple):
    """centers of the boxes; the points each edge goes through; the size of the whole."""

    centers: list[tuple[float, float]]
    routes: list[list[tuple[float, float]]]
    width: float
    height: float


def layered(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> Places:
    """Place boxes of these widths; edges are (from, to), and point downwards."""
    n = len(widths)
    rows = _rows(n, edges)
    sizes = list(widths)
    chains: list[list[int]] = []
    links: list[tuple[int, int]] = []
    for a, b in edges:
        chain = [a]
        for row in range(rows[a] + 1, rows[b]):
            chain.append(len(sizes))
            sizes.append(BEND)
            rows.append(row)
        chain.append(b)
        chains.append(chain)
        links += itertools.pairwise(chain)
    above: list[list[int]] = [[] for _ in sizes]
    below: list[list[int]] = [[] for _ in sizes]
    for a, b in links:
        below[a].append(b)
        above[b].append(a)
    order = _ordered(rows, above, below)
    xs = _spread(order, sizes, above, below)
    left = min(x - size / 2 for x, size in zip(xs, sizes, strict=True))
    right = max(x + size / 2 for x, size in zip(xs, sizes, strict=True))
    at = lambda i: (xs[i] - left + MARGIN, MARGIN + HALF + rows[i] * ROW)  # noqa: E731
    routes = []
    for chain in chains:
        points = [at(i) for i in chain]
        points[0] = points[0][0], points[0][1] + HALF
        points[-1] = points[-1][0], points[-1][1] - HALF
        routes.append(points)
    return Places([at(i) for i in range(n)], routes, right - left + 2 * MARGIN, max(rows) * ROW + 2 * (MARGIN + HALF))


def _rows(n: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The row of each box: the longest way to it; then boxes without sources move down to just above what they lead to."""
    into: list[list[int]] = [[] for _ in range(n)]
    out: list[list[int]] = [[] for _ in range(n)]
    for a, b in edges:
        out[a].append(b)
        into[b].append(a)
    missing = [len(sources) for sources in into]
    ready = [i for i in range(n) if not missing[i]]
    rows = [0] * n
    while ready:
        a = ready.pop()
        for b in out[a]:
            rows[b] = max(rows[b], rows[a] + 1)
            missing[b] -= 1
            if not missing[b]:
                ready.append(b)
    for i in range(n):
        if not into[i] and out[i]:
            rows[i] = min(rows[b] for b in out[i]) - 1
    return rows


def _ordered(rows: list[int], above: list[list[int]], below: list[list[int]]) -> list[list[int]]:
    order: list[list[int]] = [[] for _ in range(max(rows) + 1)]
    for i, at in enumerate(rows):
        order[at].append(i)
    place = {i: k for row in order for k, i in enumerate(row)}
    for sweep in range(SWEEPS):
        neighbours, sequence = (below, reversed(order)) if sweep % 2 == 0 else (above, iter(order))
        for row in sequence:
            middle = {i: sum(place[j] for j in neighbours[i]) / len(neighbours[i]) if neighbours[i] else place[i] for i in row}
            row.sort(key=lambda i: middle[i])
            for k, i in enumerate(row):
                place[i] = k
    return order


def _spread(order: list[list[int]], sizes: list[float], above: list[list[int]], below: list[list[int]]) -> list[float]:
    xs = [0.0] * len(sizes)
    for row in order:
        x = 0.0
        for i in row:
            xs[i] = x + sizes[i] / 2
            x += sizes[i] + GAP
    for sweep in range(3 * SWEEPS):
        down = sweep % 2
        for row in order if down else reversed(order):
            near = above if down else below
            wanted = [sum(xs[j] for j in near[i]) / len(near[i]) if near[i] else xs[i] for i in row]
            for i, x in zip(row, _apart(wanted, [sizes[i] for i in row]), strict=True):
                xs[i] = x
    return xs


def _apart(wanted: list[float], sizes: list[float]) -> list[float]:
    """Centers in this order, as near to those wanted (least squares) as boxes that do not overlap can be.

    Without the widths of the boxes before it, the left end of each must not be less than that of its neighbour: isotonic regression, which
    pools neighbours that are out of order until none are.
    """
    before, offset = [], 0.0
    pools: list[tuple[float, int]] = []  # (average, how many)
    for x, size in zip(wanted, sizes, strict=True):
        before.append(offset)
        value, number = x - size / 2 - offset, 1
        while pools and pools[-1][0] > value:
            other, many = pools.pop()
            value, number = (value * number + other * many) / (number + many), number + many
        pools.append((value, number))
        offset += size + GAP
    starts = [value for value, number in pools for _ in range(number)]
    return [start + skipped + size / 2 for start, skipped, size in zip(starts, before, sizes, strict=True)]
