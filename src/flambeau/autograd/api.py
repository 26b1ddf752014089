"""`backward` and `grad`: what users call."""

from __future__ import annotations

from flambeau.autograd.engine import run_backward
from flambeau.tensor import Tensor, wrap


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None) -> None:
    """Add to the `.grad` of the leaves (of `inputs`, if given) the gradient of the sum of `tensors`, weighted by `grad_tensors`."""
    outputs = _sequence(tensors)
    if grad_variables is not None:
        grad_tensors = grad_variables
    grads = _sequence(grad_tensors) if grad_tensors is not None else (None,) * len(outputs)
    if inputs is not None and isinstance(inputs, (list, tuple)) and not inputs:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty: leave it out to reach all leaves")
    roots, seeds = _seeds(outputs, grads, create_graph)
    keep = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        run_backward(roots, seeds, keep_graph=keep, create_graph=create_graph)
        return
    chosen = _sequence(inputs)
    for x in chosen:
        if x.requires_grad and not x.is_leaf:
            x.retain_grad()
    leaves = {id(x) for x in chosen if x.is_leaf}
    inner = [(x.grad_fn, x._nr) for x in chosen if not x.is_leaf]
    if inner:
        found = run_backward(roots, seeds, keep_graph=True, create_graph=create_graph, capture=inner)
        del found
    run_backward(roots, seeds, keep_graph=keep, create_graph=create_graph, accumulate_into=leaves)


def grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]:
    """The gradients of the sum of `outputs`, weighted by `grad_outputs`, with respect to `inputs`; `.grad` is left alone."""
    outputs, inputs = _sequence(outputs), _sequence(inputs)
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False.")
    allow_unused = materialize_grads if allow_unused is None else allow_unused
    grads = _sequence(grad_outputs) if grad_outputs is not None else (None,) * len(outputs)
    keep = create_graph if retain_graph is None else retain_graph
    for x in inputs:
        if not x.requires_grad:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
    if is_grads_batched:
        return _batched(outputs, inputs, grads, keep, create_graph, allow_unused, materialize_grads)
    roots, seeds = _seeds(outputs, grads, create_graph)
    edges = [x._edge() for x in inputs]
    unique = {(id(e[0]), e[1]): e for e in edges}
    found = run_backward(roots, seeds, keep_graph=keep, create_graph=create_graph, capture=list(unique.values()))
    by_edge = dict(zip(unique, found, strict=True))
    results = [by_edge[id(e[0]), e[1]] for e in edges]
    return tuple(_finish(x, g, i, allow_unused, materialize_grads) for i, (x, g) in enumerate(zip(inputs, results, strict=True)))


def _finish(x: Tensor, g: Tensor | None, position: int, allow_unused: bool, materialize: bool):
    if g is not None:
        return g
    if materialize:
        return x.detach().new_zeros(x.shape)
    if not allow_unused:
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if this is the desired "
            f"behavior (it is input number {position}, of shape {tuple(x.shape)})."
        )
    return None


def _batched(outputs, inputs, grads, keep, create_graph, allow_unused, materialize):
    """One backward pass per row of the batched gradients, stacked."""
    from flambeau.eager.bind import functions

    n = next(len(g) for g in grads if g is not None)
    rows = []
    for i in range(n):
        last = i == n - 1
        row = [None if g is None else g[i] for g in grads]
        rows.append(grad(outputs, inputs, row, retain_graph=keep or not last, create_graph=create_graph, allow_unused=allow_unused,
                         materialize_grads=materialize))  # fmt: skip
    stack = functions["stack"]
    return tuple(None if all(g is None for g in column) else stack(list(column)) for column in zip(*rows, strict=True))


def _sequence(values) -> tuple:
    return tuple(values) if isinstance(values, (tuple, list)) or (hasattr(values, "__next__")) else (values,)


def _seeds(outputs, grads, create_graph: bool):
    """The edges where backward starts and the gradients it starts with."""
    if len(outputs) != len(grads):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(grads)} gradients")
    roots, seeds = [], []
    for i, (out, g) in enumerate(zip(outputs, grads, strict=True)):
        edge = out._edge() if out.requires_grad else None
        if edge is None:
            raise RuntimeError(
                f"element {i} of tensors does not require grad and does not have a grad_fn: nothing was recorded for it. Was it computed under "
                "no_grad, detached, or from tensors without requires_grad=True?"
            )
        roots.append(edge)
        seeds.append(_first_gradient(out, g, create_graph))
    return roots, seeds


def _first_gradient(out: Tensor, g, create_graph: bool) -> Tensor:
    if g is None:
        if out.numel() != 1:
            raise RuntimeError(
                f"grad can be implicitly created only for scalar outputs, and this one has shape {tuple(out.shape)}. "
                "Reduce it first, as in loss.mean().backward(), or pass gradient=..."
            )
        if out.is_complex():
            raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {out.dtype}")
        return out.detach().new_ones(out.shape)
    if not isinstance(g, Tensor):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
    if tuple(g.shape) != tuple(out.shape):
        raise RuntimeError(f"Mismatch in shape: grad_output has a shape of {tuple(g.shape)} and output has a shape of {tuple(out.shape)}.")
    if g.is_complex() != out.is_complex():
        raise RuntimeError(f"For complex Tensors, both grad_output and output are required to have the same dtype: {g.dtype} and {out.dtype}")
    # An alias, so that no leaf takes over the caller's own tensor as its .grad (see Note [stealing gradients]).
    return g if create_graph else wrap(g._array)
