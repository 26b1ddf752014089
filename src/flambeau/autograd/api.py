"""`backward` and `grad`: what users call."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from flambeau import devices, errors, modes
from flambeau.autograd.engine import looks, run_backward
from flambeau.interpreters import by_name, stack
from flambeau.kernels import arrays
from flambeau.tensor import DISPATCHED, PLAIN, Size, Tensor, wrap
from flambeau.tensor.making.factories import ones_like

state = modes.state


UNRECORDED = (
    "element {} of tensors does not require grad and does not have a grad_fn: nothing was recorded for backward() to walk. Was it computed under "
    "no_grad or inference_mode, cut off by detach(), .item(), .numpy() or argmax, or made of tensors none of which requires grad?"
)


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None) -> None:
    """Add to the `.grad` of the leaves (of `inputs`, if given) the gradient of the sum of `tensors`, weighted by `grad_tensors`.

    >>> x = Tensor([1, 2]).requires_grad_()
    >>> backward((x * x).sum())
    >>> x.grad
    tensor([2., 4.])
    """
    if grad_variables is not None:
        warnings.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=2)
        if grad_tensors is not None:
            raise RuntimeError("backward(): `grad_variables` is the old name of `grad_tensors`, and both were given")
        grad_tensors = grad_variables
    if create_graph:
        _warn_of_cycle()
    _backward(tensors, grad_tensors, retain_graph, create_graph, inputs)


def _backward(tensors, grad_tensors, retain_graph, create_graph, inputs) -> None:
    outputs = _sequence(tensors)
    grads = _gradients(outputs, grad_tensors)
    keep = create_graph if retain_graph is None else retain_graph
    only = None if inputs is None else _aims(inputs)
    roots, seeds = _seeds(outputs, grads, create_graph)
    run_backward(roots, seeds, keep_graph=keep, create_graph=create_graph, only=only)


def _warn_of_cycle() -> None:
    errors.warn(
        "Using backward() with create_graph=True makes a reference cycle: a parameter and its gradient keep each other, and "
        "the whole graph, in memory. autograd.grad makes none; if backward() it must be, set .grad to None when it has been "
        "used"
    )


def _aims(inputs) -> list[tuple]:
    """The edges of the tensors that backward is to reach; those that are no leaves keep their gradient from now on."""
    chosen = _sequence(inputs)
    if not chosen:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty: leave it out to reach all leaves")
    for i, x in enumerate(chosen):
        if not x.requires_grad:
            raise RuntimeError(f"number {i} of `inputs` does not require grad")
        if isinstance(x, Tensor) and not x.is_leaf:
            x.retain_grad()
    return [edge for x in chosen if (edge := x._edge()) is not None]


def tensor_backward(
    self: Tensor, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:  # fmt: skip
    """Add to the `.grad` of every leaf the derivative of this tensor (weighted by `gradient`, if it is not a scalar)."""
    if create_graph:
        _warn_of_cycle()
    edge = self._edge()
    if gradient is not None or inputs is not None or edge is None:
        _backward(self, gradient, retain_graph, create_graph, inputs)
        return
    keep = create_graph if retain_graph is None else retain_graph
    seed = _one(self)
    if type(self._array) is np.ndarray:
        value = self._array.item()
        if value != value:
            state.nan_loss = True  # an optimizer that is about to make a step with gradients of nan says so
    run_backward((edge,), (seed,), keep_graph=keep, create_graph=create_graph)


Tensor.backward = tensor_backward
tensor_backward.__name__, tensor_backward.__qualname__ = "backward", "Tensor.backward"


def grad(
    outputs, inputs, grad_outputs=None, retain_graph: bool | None = None, create_graph: bool = False, only_inputs: bool = True,
    allow_unused: bool | None = None, is_grads_batched: bool = False, materialize_grads: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradients of the sum of `outputs`, weighted by `grad_outputs`, with respect to `inputs`; `.grad` is left alone.

    >>> x = Tensor([1, 2]).requires_grad_()
    >>> grad((x * x).sum(), x)
    (tensor([2., 4.]),)
    """
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads is: zeros are made for what is unused.")
    if not only_inputs:
        warnings.warn("only_inputs argument is deprecated and ignored: backward() accumulates in all leaves.", FutureWarning, stacklevel=2)
    allow_unused = materialize_grads if allow_unused is None else allow_unused
    outputs, inputs = _sequence(outputs), _sequence(inputs)
    if by_name.knows_by_name((*outputs, *inputs)):
        options = {
            "grad_outputs": grad_outputs, "retain_graph": retain_graph, "create_graph": create_graph, "only_inputs": only_inputs,
            "allow_unused": allow_unused, "is_grads_batched": is_grads_batched, "materialize_grads": materialize_grads,
        }  # fmt: skip
        return by_name.call(grad, (*outputs, *inputs), (outputs, inputs), options)
    keep = create_graph if retain_graph is None else retain_graph
    if not inputs:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty: there is nothing to differentiate with respect to")
    if not all(x.requires_grad for x in inputs):
        raise RuntimeError("a tensor to differentiate for does not require grad")
    grads = _gradients(outputs, grad_outputs)
    if is_grads_batched:
        return _batched(outputs, inputs, grads, keep, create_graph, allow_unused, materialize_grads)
    roots, seeds = _seeds(outputs, grads, create_graph)
    edges = [x._edge() for x in inputs]  # None of a view made under no_grad: gradients do not come that way
    unique = {(id(edge[0]), edge[1]): edge for edge in edges if edge is not None}
    found = run_backward(roots, seeds, keep_graph=keep, create_graph=create_graph, capture=list(unique.values()))
    by_edge = dict(zip(unique, found or (), strict=True))
    results = [None if edge is None else by_edge[id(edge[0]), edge[1]] for edge in edges]
    return tuple(
        [_finish(x, g, i, allow_unused, materialize_grads, create_graph) for i, (x, g) in enumerate(zip(inputs, results, strict=True))]
    )


def _finish(x, g: Tensor | None, position: int, allow_unused: bool, materialize: bool, create_graph: bool) -> Tensor | None:
    if g is not None:
        # What a reduction sends back is one number seen many times; a caller expects memory it can write to and view as it likes.
        return g.contiguous() if type(g._array) is np.ndarray and g._array.size > 1 and 0 in g._array.strides else g
    if materialize and not isinstance(x, Tensor):
        raise RuntimeError(
            "materialize_grads cannot be used when the given input is a GradientEdge: what it leads to is not known to be a tensor"
        )
    if materialize:
        return x.detach().new_zeros(x.shape).requires_grad_(create_graph)
    if not allow_unused:
        raise RuntimeError(
            f"tensor {position} to differentiate for appears to not have been used in the graph. Set allow_unused=True to have None for it"
        )
    return None


def _batched(outputs, inputs, grads, keep, create_graph, allow_unused, materialize) -> tuple:
    """One backward pass for all rows of the batched gradients."""
    from flambeau.batching.vmap import vmap

    for i, (out, g) in enumerate(zip(outputs, grads, strict=True)):
        shape = _shape_and_dtype(out)[0]
        if g is not None and tuple(g.shape[1:]) != tuple(shape):
            raise RuntimeError(
                f"If `is_grads_batched=True`, we interpret the first dimension as the batch: grad_output[{i}] has shape "
                f"{tuple(g.shape)}, so {tuple(g.shape[1:])} is left for an output of shape {tuple(shape)}."
            )
    found: tuple = ()

    def row(*given) -> list:
        nonlocal found
        rest = iter(given)
        seeds = [None if g is None else next(rest) for g in grads]
        found = grad(outputs, inputs, seeds, keep, create_graph, True, allow_unused, False, materialize)
        return [g for g in found if g is not None]

    rows = iter(vmap(row)(*[g for g in grads if g is not None]))
    return tuple([None if g is None else next(rows) for g in found])


# -- where backward starts -----------------------------------------------------------------------------------------


def _sequence(values: Any) -> tuple:
    """One tensor (or gradient edge) or several of them, as a tuple."""
    if isinstance(values, Tensor) or hasattr(values, "_edge") or not isinstance(values, Iterable):
        return (values,)
    return tuple(values)


def _gradients(outputs: tuple, grads: Any) -> tuple:
    given = (None,) * len(outputs) if grads is None else _sequence(grads)
    for g in given:
        if g is not None and not isinstance(g, Tensor):
            raise TypeError(f"a gradient is a tensor or None, found {type(g).__name__}")
    if len(given) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    return given


def _seeds(outputs: tuple, grads: tuple, create_graph: bool) -> tuple[list[tuple], list[Tensor]]:
    """The edges where backward starts and the gradients it starts with."""
    seeds = [_first_gradient(i, out, g, create_graph) for i, (out, g) in enumerate(zip(outputs, grads, strict=True))]
    roots = []
    for i, out in enumerate(outputs):
        edge = out._edge() if out.requires_grad else None
        if edge is None:
            raise RuntimeError(UNRECORDED.format(i))
        roots.append(edge)
    return roots, seeds


def _first_gradient(i: int, out, g, create_graph: bool) -> Tensor | None:
    if g is None:
        return _one(out) if out.requires_grad else None
    shape, numpy_dtype = _shape_and_dtype(out)
    if tuple(g._array.shape) != tuple(shape):
        found = f"grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of {Size(shape)}"
        raise RuntimeError(f"Mismatch in shape: {found}.")
    if g.is_complex() != (numpy_dtype.kind == "c"):
        found = f"grad_output[{i}] is of {g.dtype} and output[{i}] of torch.{numpy_dtype}"
        raise RuntimeError(f"complex outputs and their gradients are required to have the same dtype: {found}.")
    if (
        state.levels and hasattr(out._array, "level") and not hasattr(g._array, "level")
    ):  # what is computed of many samples has a gradient for each of them
        from flambeau.batching.batched import lift

        g = lift(g, out._array.level)
    # An alias, so that no leaf takes over the caller's own tensor as its .grad (see Note [stealing gradients]).
    return g if create_graph else g.detach()


_ONES = {one.dtype.num: one for one in (np.ones((), np.float32), np.ones((), np.float64))}


def _one(out) -> Tensor:
    """The gradient of a number with respect to itself."""
    asked = type(out) in DISPATCHED or bool(modes.special and stack.by_operations())
    if not asked and type(out) in PLAIN and type(out._array) is np.ndarray and out._array.dtype.num in _ONES and not out._array.ndim:
        return wrap(_ONES[out._array.dtype.num].copy())
    shape, dtype = _shape_and_dtype(out)
    if any(n != 1 for n in shape):
        cure = "Reduce it first, as in loss.mean().backward(), or pass gradient=..."
        raise RuntimeError(f"grad can be implicitly created only for scalar outputs, and this one has shape {tuple(shape)}. {cure}")
    if dtype.kind == "c":
        raise RuntimeError(f"grad can be implicitly created only for real scalar outputs, found {dtype}")
    if asked:
        with modes.no_grad():
            return ones_like(out)
    array = arrays.empty(shape, dtype, arrays.device_of(out._array) if isinstance(out, Tensor) else devices.cpu)
    arrays.fill(array, 1)
    return wrap(array)


def _shape_and_dtype(out) -> tuple:
    """Of a tensor, or of the output that a gradient edge stands for."""
    return (out._array.shape, out._array.dtype) if isinstance(out, Tensor) else looks(*out._edge())
