"""FlatParameter: what an optimizer sees of all the parameters of a wrapper: this rank's piece of them, laid end to end."""

from __future__ import annotations

from typing import Any

from flambeau.nn.parameter import Parameter


class FlatParameter(Parameter):
    """A one-dimensional parameter made by FullyShardedDataParallel.

    _fqns         the names of the parameters that lie in it, in order; a shared one under its first name
    _shapes       their shapes
    _numels       their numbers of elements
    """

    _fqns: tuple[str, ...] = ()
    _shapes: tuple[Any, ...] = ()
    _numels: tuple[int, ...] = ()
    _is_flat_param = True
