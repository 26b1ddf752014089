"""Derivatives of functions of sparse tensors checked against differences: as functions of dense tensors, the elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.sparse import history
from flambeau.sparse.conversion import coalesced_if_coo, in_layout_of, to_dense, values_at
from flambeau.sparse.parts import SparseTensor


def of_elements(func: Callable, inputs: tuple, masked: bool) -> tuple[Callable, tuple]:
    """(a function of dense tensors, what to call it with) that stands for `func` of `inputs`, some of which are sparse.

    masked  only the elements that are stored can change; else every element of a tensor can, so all of them are stored
    """
    places: list[Any] = [None] * len(inputs)
    elements = list(inputs)
    for i, x in enumerate(inputs):
        if isinstance(x, SparseTensor) and x.requires_grad:
            x = coalesced_if_coo(x.detach())
            if not masked:
                full = to_dense(x)
                parts = in_layout_of(full.new_ones(full.shape), x._array)._array
                x = history.build(parts, values_at(full, parts))
            places[i], elements[i] = x._array, x._array.values.clone().requires_grad_()

    def of_values(*args: Any) -> Any:
        built = [a if p is None else history.build(p, a) for a, p in zip(args, places, strict=True)]
        return func(*built)

    return of_values, tuple(elements)


def as_sparse_gradcheck(gradcheck: Callable) -> Callable:
    """gradcheck (or gradgradcheck) that takes functions of sparse tensors with sparse results. masked=True: of the stored elements only."""

    def gradcheck_with_sparse_support(func: Callable, inputs: Any, **kwargs: Any) -> bool:
        masked = bool(kwargs.pop("masked", False))
        given = tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,)

        def dense(result: Any) -> Any:
            if isinstance(result, (list, tuple)):
                return tuple(dense(r) for r in result)
            return to_dense(result, masked_grad=masked) if isinstance(result, SparseTensor) else result

        return gradcheck(*of_elements(lambda *args: dense(func(*args)), given, masked), **kwargs)

    return gradcheck_with_sparse_support
