"""Which ranks make up a mesh, by arithmetic: every dimension is a walk through the list of all ranks.

A dimension is a list of loops (size, step). Those of a mesh (dp=2, tp=3) over 6 ranks are dp: [(2, 3)] and tp: [(3, 1)]; flattened into one
dimension they are [(2, 3), (3, 1)], which is the same walk as [(6, 1)]. Slicing a mesh is choosing dimensions, flattening is joining them, and
what is left of the list then says how many such meshes there are, beside each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

Loop = tuple[int, int]  # how many ranks, how far each is from the last


class Layout:
    """The dimensions of a mesh, each a tuple of loops, the outermost first."""

    __slots__ = ("dims",)

    def __init__(self, dims: Sequence[Sequence[Loop]]):
        self.dims = tuple(_joined(loops) for loops in dims)

    @classmethod
    def row_major(cls, shape: Sequence[int]) -> Layout:
        """All ranks in order, the last dimension the quickest."""
        steps = [prod(shape[i + 1 :]) for i in range(len(shape))]
        return cls([[(size, step)] for size, step in zip(shape, steps, strict=True)])

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of every dimension."""
        return tuple(prod(size for size, _ in loops) for loops in self.dims)

    @property
    def strides(self) -> tuple:
        """The step of every dimension; a tuple of them for one that no single step can walk."""
        return tuple(loops[0][1] if len(loops) == 1 else tuple(step for _, step in loops) for loops in self.dims)

    @property
    def numel(self) -> int:
        """How many ranks a mesh has."""
        return prod(self.shape)

    def __getitem__(self, chosen: Sequence[int]) -> Layout:
        return Layout([self.dims[i] for i in chosen])

    def flattened(self) -> Layout:
        """All dimensions as one."""
        return Layout([[loop for loops in self.dims for loop in loops]])

    def unflattened(self, dim: int, sizes: Sequence[int]) -> Layout:
        """One dimension cut into several."""
        return Layout([*self.dims[:dim], *_cut(self.dims[dim], sizes), *self.dims[dim + 1 :]])

    def start(self, place: int) -> int:
        """Where in the list the first rank of the mesh stands that the rank at `place` belongs to."""
        return place - sum(place // step % size * step for loops in self.dims for size, step in loops)

    def places(self, start: int = 0) -> list[int]:
        """Where in the list the ranks of the mesh stand whose first is at `start`, in the order of the mesh."""
        loops = [loop for dim in self.dims for loop in dim]
        return [start + sum(i * step for i, (_, step) in zip(at, loops, strict=True)) for at in product(*[range(n) for n, _ in loops])]

    def starts(self, total: int) -> Iterator[int]:
        """The first ranks of all meshes of this layout among `total` ranks."""
        return (place for place in range(total) if self.start(place) == place)

    def overlaps(self) -> bool:
        """Whether two dimensions go through the same ranks."""
        places = self.places()
        return len(set(places)) < len(places)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.dims == other.dims

    def __hash__(self) -> int:
        return hash(self.dims)

    def __repr__(self) -> str:
        return f"Layout{self.dims}"


def _joined(loops: Sequence[Loop]) -> tuple[Loop, ...]:
    """The same walk in as few loops as can be: those of size 1 go, and one that continues the next is joined with it."""
    found: list[Loop] = []
    for size, step in loops:
        if size == 1:
            continue
        if found and found[-1][1] == size * step:
            found[-1] = found[-1][0] * size, step
        else:
            found.append((size, step))
    return tuple(found) or ((1, loops[-1][1] if loops else 1),)


def _cut(loops: Sequence[Loop], sizes: Sequence[int]) -> list[list[Loop]]:
    """A walk as several, one inside the other, of these sizes."""
    if len(loops) != 1:
        raise NotImplementedError(
            f"a dimension that needs the steps {[s for _, s in loops]} cannot be cut. Unflatten before you flatten others"
        )
    ((_, step),) = loops
    return [[(size, step * prod(sizes[i + 1 :]))] for i, size in enumerate(sizes)]
