"""Whole Jacobians: a row (jacrev) or a column (jacfwd) at a time, all of them at once by vmap.

The basis of unit vectors is mapped over the linear function that vjp or jvp gives. For outputs of size m and inputs of size n, jacrev does the
work of m backward passes and jacfwd that of n forward ones: choose the smaller. A Hessian is the Jacobian of a gradient: jacfwd(jacrev).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flambeau.batching import trees
from flambeau.batching.vmap import vmap
from flambeau.func.gradients import _linearized, replaced, select, vjp
from flambeau.ops import OPS
from flambeau.tensor import Tensor


def jacrev(
    func: Callable, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False, chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable:  # fmt: skip
    """The function that computes the Jacobian of `func` by reverse mode: for each output and each input (*output, *input).

    chunk_size  how many rows to compute at a time; 1 is a loop

    >>> jacrev(torch.sin)(torch.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def jacobian(*args, **kwargs):
        chosen = select(args, argnums)
        several = not isinstance(argnums, int)
        of_chosen = lambda *primals: func(*replaced(args, argnums, primals if several else primals[0]), **kwargs)  # noqa: E731
        _check_real("jacrev", "inputs", trees.leaves_of(chosen))
        out, back, *aux = vjp(of_chosen, *(chosen if several else (chosen,)), has_aux=has_aux)
        outputs, out_shape = trees.flatten(out)
        _check_real("jacrev", "outputs", outputs)
        pull = lambda *units: back(trees.unflatten(units, out_shape))  # noqa: E731
        if chunk_size == 1:  # no vmap, so that backward may do what vmap cannot
            rows = trees.mapped(lambda *each: OPS["stack"](each), *[pull(*units) for units in zip(*_basis(outputs), strict=True)])
        else:
            rows = vmap(pull, chunk_size=chunk_size)(*_basis(outputs))
        found = rows if several else rows[0]
        inputs, in_shape = trees.flatten(found)
        blocks = []
        for i, output in enumerate(outputs):
            parts = [_block(x, outputs, i).reshape((*output.shape, *x.shape[1:])) for x in inputs]
            blocks.append(trees.unflatten(parts, in_shape))
        found = trees.unflatten(blocks, out_shape)
        return (found, *aux) if has_aux else found

    return jacobian


def jacfwd(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *, randomness: str = "error") -> Callable:
    """The function that computes the Jacobian of `func` by forward mode: for each output and each input (*output, *input)."""

    @functools.wraps(func)
    def jacobian(*args, **kwargs):
        chosen = select(args, argnums)
        primals = (chosen,) if isinstance(argnums, int) else chosen
        of_chosen = lambda *given: func(*replaced(args, argnums, given if isinstance(argnums, tuple) else given[0]), **kwargs)  # noqa: E731
        inputs, in_shape = trees.flatten(primals)
        _check_real("jacfwd", "inputs", inputs)
        out, push, *aux = _linearized("jvp", of_chosen, primals, has_aux)
        _check_real("jacfwd", "outputs", trees.leaves_of(out))
        columns = vmap(lambda *units: push(trees.unflatten(units, in_shape), True), randomness=randomness)(*_basis(inputs))
        found, out_shape = trees.flatten(columns)
        blocks = []
        for column in found:
            parts = [_block(column, inputs, i).movedim(0, -1).reshape((*column.shape[1:], *x.shape)) for i, x in enumerate(inputs)]
            blocks.append(_of_argnums(trees.unflatten(parts, in_shape), argnums))
        result = trees.unflatten(blocks, out_shape)
        return (result, *aux) if has_aux else result

    return jacobian


def hessian(func: Callable, argnums: int | tuple[int, ...] = 0) -> Callable:
    """The function that computes the second derivatives of `func`: jacfwd(jacrev(func)).

    >>> hessian(lambda x: (x**3).sum())(torch.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)


def _check_real(what: str, which: str, tensors: list) -> None:
    for i, t in enumerate(tensors):
        if isinstance(t, Tensor) and t.is_complex():
            raise RuntimeError(f"{what}: Expected all {which} to be real but received a complex tensor, number {i}. Try view_as_real")


def _of_argnums(found: tuple, argnums: Any) -> Any:
    return found[0] if isinstance(argnums, int) else found


def _basis(tensors: list[Tensor]) -> list[Tensor]:
    """All unit vectors of the space of these tensors together: for each of them (total number of elements, *shape)."""
    sizes = [t.numel() for t in tensors]
    total, at, found = sum(sizes), 0, []
    for t, n in zip(tensors, sizes, strict=True):
        unit = t.detach().new_zeros((total, n))
        unit.diagonal(-at).fill_(1) if n else None
        found.append(unit.reshape((total, *t.shape)))
        at += n
    return found


def _block(x: Tensor, owners: list[Tensor], i: int) -> Tensor:
    """The rows of the basis that belong to owner i."""
    start = sum(t.numel() for t in owners[:i])
    return x if len(owners) == 1 else OPS["narrow"].call(x, 0, start, owners[i].numel())
