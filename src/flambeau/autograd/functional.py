"""Jacobians, Hessians and products with them, of plain functions of tensors."""

from __future__ import annotations

from collections.abc import Callable

from flambeau.autograd import api, modes
from flambeau.ops import OPS
from flambeau.tensor import Tensor


def vjp(func: Callable, inputs, v=None, create_graph: bool = False, strict: bool = False):
    """(outputs, v^T J): the product of a vector with the Jacobian."""
    with modes.enable_grad():
        single_in, xs = _inputs(inputs, create_graph)
        single_out, outs = _outputs(func(*xs), "vjp")
        vs = _vectors(v, outs, "vjp")
        found = _grad(outs, xs, vs, create_graph, strict)
    found = _filled(found, xs, strict)
    return _pack(outs, single_out, create_graph), _pack(found, single_in, create_graph)


def jvp(func: Callable, inputs, v=None, create_graph: bool = False, strict: bool = False):
    """(outputs, J v): the product of the Jacobian with a vector, by differentiating v^T J with respect to v."""
    with modes.enable_grad():
        _single_in, xs = _inputs(inputs, create_graph)
        vs = _vectors(v, xs, "jvp") if v is not None or any(x.numel() != 1 for x in xs) else tuple(x.detach().new_ones(x.shape) for x in xs)
        single_out, outs = _outputs(func(*xs), "jvp")
        dummies = tuple(o.detach().new_zeros(o.shape).requires_grad_() for o in outs)
        back = _filled(_grad(outs, xs, dummies, True, strict), xs, strict)
        live = [(b, w) for b, w in zip(back, vs, strict=True) if b.requires_grad]
        found = _grad([b for b, _ in live], dummies, [w for _, w in live], create_graph, strict)
    found = _filled(found, outs, strict)
    return _pack(outs, single_out, create_graph), _pack(found, single_out, create_graph)


def jacobian(
    func: Callable, inputs, create_graph: bool = False, strict: bool = False, vectorize: bool = False, strategy: str = "reverse-mode"
):
    """d outputs / d inputs: for each pair a tensor of shape (*output, *input)."""
    if strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError(f'Expected strategy to be either "forward-mode" or "reverse-mode", found {strategy!r}')
    forward = strategy == "forward-mode"
    if strict and vectorize:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorize=True` are not supported together. Leave one out"
        )
    if forward and create_graph:
        raise NotImplementedError(
            "jacobian: create_graph=True with forward-mode is not supported, as in PyTorch. func.jacfwd can be nested"
        )
    if forward and not vectorize:
        raise NotImplementedError('jacobian: strategy="forward-mode" is only supported when vectorize=True, as in PyTorch')
    with modes.enable_grad():
        single_in, xs = _inputs(inputs, create_graph)
        single_out, outs = _outputs(func(*xs), "jacobian")
        rows: tuple
        if forward:
            rows = _by_columns(outs, xs)
        else:
            rows = tuple((_all_rows if vectorize else _rows)(out, xs, create_graph, strict) for out in outs)
    rows = tuple(tuple(j if create_graph else j.detach() for j in row) for row in rows)
    if single_in:
        rows = tuple(row[0] for row in rows)
    return rows[0] if single_out else rows


def _rows(out: Tensor, xs, create_graph: bool, strict: bool) -> tuple[Tensor, ...]:
    columns: list[list[Tensor]] = [[] for _ in xs]
    for element in out.reshape(-1).unbind(0):
        grads = _grad((element,), xs, (element.detach().new_ones(()),), create_graph, strict, retain=True)
        for column, g in zip(columns, _filled(grads, xs, strict), strict=True):
            column.append(g)
    shapes = [tuple(out.shape) + tuple(x.shape) for x in xs]
    found = zip(columns, xs, shapes, strict=True)
    return tuple(OPS["stack"](c).reshape(shape) if c else x.detach().new_zeros(shape) for c, x, shape in found)


def _all_rows(out: Tensor, xs, create_graph: bool, strict: bool) -> tuple[Tensor, ...]:
    """The same in one backward pass for all elements."""
    shapes = [tuple(out.shape) + tuple(x.shape) for x in xs]
    grads: tuple = (None,) * len(xs)
    if out.requires_grad and out.numel():
        grads = api.grad(out, xs, _units(out), True, create_graph, allow_unused=True, is_grads_batched=True)
    found = zip(grads, xs, shapes, strict=True)
    return tuple(x.detach().new_zeros(shape) if g is None else g.reshape(shape) for g, x, shape in found)


def _units(x: Tensor) -> Tensor:
    """One tensor like x for each of its elements, which is 1 there and 0 elsewhere."""
    units = x.detach().new_zeros((x.numel(), x.numel()))
    units.diagonal().fill_(1)
    return units.reshape((x.numel(), *x.shape))


def _by_columns(outs, xs) -> tuple[tuple[Tensor, ...], ...]:
    """Forward mode: the derivative of w -> w^T J by w, in the direction of each element of each input."""
    weights = tuple(o.detach().new_zeros(o.shape).requires_grad_() for o in outs)
    back = _grad(outs, xs, weights, True, False)
    columns = []
    for x, row in zip(xs, back, strict=True):
        found: tuple = (None,) * len(outs)
        if row is not None and row.requires_grad and x.numel():
            found = api.grad(row, weights, _units(x), True, False, allow_unused=True, is_grads_batched=True)
        columns.append([None if c is None else c.movedim(0, -1) for c in found])
    zeros = lambda o, x: x.detach().new_zeros(tuple(o.shape) + tuple(x.shape))  # noqa: E731
    return tuple(
        tuple(zeros(o, x) if c[k] is None else c[k].reshape(tuple(o.shape) + tuple(x.shape)) for c, x in zip(columns, xs, strict=True))
        for k, o in enumerate(outs)
    )


def hessian(
    func: Callable, inputs, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
):  # fmt: skip
    """Second derivatives of a scalar function: for each pair of inputs a tensor of shape (*input_i, *input_j)."""
    single = isinstance(inputs, Tensor)

    def first(*xs):
        _check_scalar(func(*xs), "hessian")
        return jacobian(func, xs[0] if single else xs, create_graph=True, strict=strict)

    return jacobian(first, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)


def vhp(func: Callable, inputs, v=None, create_graph: bool = False, strict: bool = False):
    """(value, v^T H) of a scalar function."""
    with modes.enable_grad():
        single, xs = _inputs(inputs, create_graph)
        vs = _vectors(v, xs, "vhp")
        value = func(*xs)
        _check_scalar(value, "vhp")
        first = _filled(_grad((value,), xs, (value.detach().new_ones(value.shape),), True, strict), xs, strict)
        live = [(f, w) for f, w in zip(first, vs, strict=True) if f.requires_grad]
        found = _grad([f for f, _ in live], xs, [w for _, w in live], create_graph, strict)
    found = _filled(found, xs, strict)
    return value if create_graph else value.detach(), _pack(found, single, create_graph)


def hvp(func: Callable, inputs, v=None, create_graph: bool = False, strict: bool = False):
    """(value, H v) of a scalar function. The Hessian is symmetric, so this is `vhp`."""
    return vhp(func, inputs, v, create_graph, strict)


# -- servants ------------------------------------------------------------------------------------------------------


def _inputs(inputs, create_graph: bool) -> tuple[bool, tuple[Tensor, ...]]:
    single = isinstance(inputs, Tensor)
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    for i, x in enumerate(given):
        if not isinstance(x, Tensor):
            raise TypeError(f"The inputs given must be either a Tensor or a tuple of Tensors but number {i} is a {type(x).__name__}.")
    if not create_graph:
        return single, tuple(x.detach().clone().requires_grad_() for x in given)
    return single, tuple(x.view_as(x) if x.requires_grad else x.clone().requires_grad_() for x in given)


def _outputs(outputs, what: str) -> tuple[bool, tuple[Tensor, ...]]:
    single = isinstance(outputs, Tensor)
    found = (outputs,) if single else outputs
    if not isinstance(found, (tuple, list)) or not all(isinstance(o, Tensor) for o in found):
        raise TypeError(f"The outputs of the user-provided function given to {what} must be either a Tensor or a tuple of Tensors.")
    return single, tuple(found)


def _vectors(v, like, what: str) -> tuple[Tensor, ...]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if the output of the function given to {what} is a single number.")
        return (like[0].detach().new_ones(like[0].shape),)
    vs = (v,) if isinstance(v, Tensor) else tuple(v)
    if len(vs) != len(like):
        raise RuntimeError(f"{what} expects as many vectors as there are tensors: {len(like)}, found {len(vs)}")
    for a, b in zip(vs, like, strict=True):
        if tuple(a.shape) != tuple(b.shape):
            raise RuntimeError(f"{what}: v has shape {tuple(a.shape)} where {tuple(b.shape)} was expected")
    return vs


def _check_scalar(value, what: str) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"The function given to {what} should return a single Tensor")
    if value.numel() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {what} should contain a single element: {tuple(value.shape)}")


def _grad(outs, xs, vs, create_graph: bool, strict: bool, retain: bool | None = None):
    pairs = [(o, w) for o, w in zip(outs, vs, strict=True) if o.requires_grad]
    if len(pairs) < len(outs) and strict:
        raise RuntimeError("The output of the user-provided function is independent of the inputs. This is not allowed in strict mode.")
    if not pairs:
        return (None,) * len(xs)
    return api.grad([o for o, _ in pairs], xs, [w for _, w in pairs], create_graph=create_graph, retain_graph=retain, allow_unused=True)


def _filled(grads, like, strict: bool) -> tuple[Tensor, ...]:
    if strict and any(g is None for g in grads):
        raise RuntimeError("The output of the user-provided function is independent of an input. This is not allowed in strict mode.")
    return tuple(g if g is not None else x.detach().new_zeros(x.shape) for g, x in zip(grads, like, strict=True))


def _pack(tensors, single: bool, create_graph: bool):
    kept = tuple(t if create_graph else t.detach() for t in tensors)
    return kept[0] if single else kept
