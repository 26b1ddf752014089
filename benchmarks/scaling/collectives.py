"""How long a collective takes: the alpha-beta model, in which a message of n bytes takes latency + n / bandwidth, whoever sends it to whom.

    lap              (p - 1) (a + n / pB)           reduce-scatter, all-gather: p - 1 hops of a p-th each, round a ring
    ring             2 (p - 1) (a + n / pB)         all-reduce: a lap that sums, and a lap that hands the sums round
    tree             2 log p (a + n / B)            up to a root and down again, in one piece
    tree, k pieces   as soon as the first piece is through, another follows every a + 2n / kB

A p-th part of 2 (p - 1) n bytes must go through every rank's link, so no all-reduce takes less than 2 (p - 1) / p n / B. The ring comes
near to that for large n, whereas in latency it pays for every rank, a tree for the logarithm of their number.

With nodes the ring goes through all GPUs of a node and on to the next one: of its p - 1 hops, nodes - 1 are between nodes. As many rings
as there are cards are laid side by side, so that B is a GPU's link within the node or all cards of a node together, whichever is slower.
The tree is a chain within each node and binary between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from benchmarks.scaling.figures import Cluster, Link


def lap(size: float, ranks: int, cluster: Cluster) -> float:
    """Reduce-scatter or all-gather on a ring: `size` bytes are what all ranks have together of the result.

    >>> lap(8e9, 4, alike(Link("", latency=1.0, bandwidth=1e9)))
    9.0
    """
    _, nodes = spread(ranks, cluster)
    hops = (ranks - nodes) * cluster.within.latency + (nodes - 1) * cluster.between.latency
    return hops + (ranks - 1) * size / ranks / slowest(ranks, cluster)


def ring(size: float, ranks: int, cluster: Cluster) -> float:
    """All-reduce on a ring: two laps."""
    return 2 * lap(size, ranks, cluster)


def tree(size: float, ranks: int, cluster: Cluster) -> float:
    """All-reduce on two trees that have half of the data each, in as many pieces as are best.

    Where a rank is inside of one tree it is a leaf of the other, so that all links are used alike: n bytes come up and n go down
    through every link. Hops times a + n / kB until the first piece is through, then k - 1 times a + 2n / kB.
    """
    inside, nodes = spread(ranks, cluster)
    levels = math.ceil(math.log2(nodes))
    hops = 2 * (inside - 1 + levels)
    if not hops:
        return 0.0
    first = 2 * ((inside - 1) * cluster.within.latency + levels * cluster.between.latency)
    another = cluster.between.latency if levels else cluster.within.latency
    whole = size / slowest(ranks, cluster)
    pieces = max(1, round(math.sqrt(max(0, hops - 2) * whole / another)))  # where the derivative of the sum is 0
    return first + hops * whole / pieces + (pieces - 1) * (another + 2 * whole / pieces)


def quicker(size: float, ranks: int, cluster: Cluster) -> float:
    """All-reduce by ring or tree, whichever takes less: libraries choose by size and number of ranks as well."""
    return min(ring(size, ranks, cluster), tree(size, ranks, cluster))


ALL_REDUCE: dict[str, Callable[[float, int, Cluster], float]] = {"quicker": quicker, "ring": ring, "tree": tree}


def spread(ranks: int, cluster: Cluster) -> tuple[int, int]:
    """Ranks in a node, and nodes."""
    inside = min(ranks, cluster.node)
    if ranks % inside:
        raise ValueError(f"{ranks} ranks do not fill nodes of {inside}: try {ranks // inside * inside}")
    return inside, ranks // inside


def slowest(ranks: int, cluster: Cluster) -> float:
    """Bytes a second of what a ring goes through."""
    inside, nodes = spread(ranks, cluster)
    speeds = [cluster.within.bandwidth] * (inside > 1) + [inside * cluster.between.bandwidth] * (nodes > 1)
    return min(speeds, default=math.inf)


def alike(link: Link, ranks: int = 1 << 30) -> Cluster:
    """Ranks that are all joined by the same kind of link, as in the formulas above."""
    return Cluster(link, link, ranks)
