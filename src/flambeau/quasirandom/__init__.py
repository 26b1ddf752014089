"""Quasirandom numbers: points that fill a cube more evenly than chance would.

>>> SobolEngine(2).draw(3)
tensor([[0.0000, 0.0000],
        [0.5000, 0.5000],
        [0.7500, 0.2500]])
"""

from __future__ import annotations

import numpy as np

from flambeau import dtypes
from flambeau.generators import Generator
from flambeau.quasirandom import directions
from flambeau.tensor import Tensor
from flambeau.tensor.making.interop import from_numpy
from flambeau.tensor.making.random_factories import randint

__all__ = ["SobolEngine"]


class SobolEngine:
    """The sequence of I. M. Sobol (1967), in Gray code order: every next point differs from the last by one direction per dimension.

    dimension  how many coordinates a point has, up to 21201
    scramble   a random triangular matrix and shift of bits per dimension (J. Matoušek, 1998), after A. B. Owen
    seed       of these; without one the default generator is used

    Point i is the exclusive or of the shift and the directions named by the bits of i's Gray code: so the whole state is how many
    points were drawn. Numbers are PyTorch's, bit by bit.
    """

    MAXBIT = directions.BITS
    MAXDIM = directions.DIMENSIONS

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None):
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(f"SobolEngine: there are direction numbers for 1 to {self.MAXDIM} dimensions, but dimension is {dimension}")
        self.dimension, self.scramble, self.seed, self.num_generated = dimension, scramble, seed, 0
        found, shift = directions.unscrambled(dimension), np.zeros(dimension, np.int64)
        if scramble:
            generator = None if seed is None else Generator().manual_seed(seed)
            weights = np.left_shift(1, np.arange(self.MAXBIT))
            shift = randint(2, (dimension, self.MAXBIT), generator=generator).numpy() @ weights
            found = directions.scrambled(found, randint(2, (dimension, self.MAXBIT, self.MAXBIT), generator=generator).numpy())
        self.sobolstate, self.shift = from_numpy(found), from_numpy(shift)
        self._first_point = (self.shift / 2**self.MAXBIT).reshape(1, -1)  # in the default dtype of now, as in PyTorch

    @property
    def quasi(self) -> Tensor:
        """The last point that was drawn, in units of 2^-30."""
        last = max(self.num_generated - 1, 0)
        return from_numpy(directions.points(self.sobolstate.numpy(), self.shift.numpy(), last, 1)[0])

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: dtypes.dtype | None = None) -> Tensor:
        """The next n points. -> (n, dimension)"""
        if self.num_generated + n > 2**self.MAXBIT:
            raise ValueError(f"SobolEngine: the sequence has 2**{self.MAXBIT} points, but {self.num_generated} + {n} are asked for")
        dtype = dtypes.get_default_dtype() if dtype is None else dtype
        drawn = directions.points(self.sobolstate.numpy(), self.shift.numpy(), self.num_generated, n)
        found = from_numpy(drawn / 2**self.MAXBIT).to(dtype)
        if not self.num_generated and n:
            found[0] = self._first_point[0]
        self.num_generated += n
        return found if out is None else out.resize_as_(found).copy_(found)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: dtypes.dtype | None = None) -> Tensor:
        """The next 2**m points, if there are then a power of 2 in all: only so many are balanced. -> (2**m, dimension)"""
        total = self.num_generated + 2**m
        if total.bit_count() != 1:
            raise ValueError(
                f"draw_base2: Sobol points are balanced if there is a power of 2 of them, but {self.num_generated} + 2**{m} is {total}. "
                "draw(n) draws any number"
            )
        return self.draw(2**m, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Begin again with the first point."""
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out the next n points."""
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        said = [f"dimension={self.dimension}", *["scramble=True"] * bool(self.scramble)]
        return f"{type(self).__name__}({', '.join(said if self.seed is None else [*said, f'seed={self.seed}'])})"
