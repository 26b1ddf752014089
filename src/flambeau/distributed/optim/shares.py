"""Which parameters are whose: every rank has nearly as many elements to move.

>>> shared_out([5, 3, 2, 2], 2)
([0, 1, 1, 0], [7, 5])
"""

from __future__ import annotations

from collections.abc import Sequence


def shared_out(sizes: Sequence[int], ranks: int, loads: Sequence[int] = ()) -> tuple[list[int], list[int]]:
    """(the rank of each tensor, the elements of each rank): the largest first, each to the rank that has least so far.

    loads  what the ranks have already
    """
    total = list(loads) or [0] * ranks
    owner = [0] * len(sizes)
    for place in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        rank = total.index(min(total))
        owner[place] = rank
        total[rank] += sizes[place]
    return owner, total
