"""Jacobians, Hessians and products with them, of plain functions of tensors."""

from __future__ import annotations

from collections.abc import Callable

from flambeau import modes
from flambeau.autograd import api
from flambeau.ops import OPS
from flambeau.tensor import Tensor


def vjp(func: Callable, inputs, v=None, create_graph: bool = False, strict: bool = False):
    """(outputs, v^T J): the product of a vector with the Jacobian."""
    with modes.enable_grad():
        single_in, xs = _inputs(inputs, create_graph, "vjp")
        single_out, outs = _outputs(func(*xs), "vjp", strict)
        vs = _vectors(v, outs, "vjp", "user-provided function returns")
        found = _filled(_grad(outs, xs, vs, create_graph), xs, strict, create_graph)
    return _pack(outs, single_out, create_graph), _pack(found, single_in, create_graph)


def jvp(func: Callable, inputs, v=None, create_graph: bool = False, strict: bool = False):
    """(outputs, J v): the product of the Jacobian with a vector, by differentiating v^T J with respect to v."""
    with modes.enable_grad():
        _single_in, xs = _inputs(inputs, create_graph, "jvp")
        vs = _vectors(v, xs, "jvp", "input to the user-provided function is")
        single_out, outs = _outputs(func(*xs), "jvp", strict)
        dummies = tuple(o.detach().new_zeros(o.shape).requires_grad_() for o in outs)
        back = _filled(_grad(outs, xs, dummies, True), xs, strict)
        found = _filled(_grad(back, dummies, vs, create_graph), outs, strict, create_graph)
    return _pack(outs, single_out, create_graph), _pack(found, single_out, create_graph)


def jacobian(
    func: Callable, inputs, create_graph: bool = False, strict: bool = False, vectorize: bool = False, strategy: str = "reverse-mode"
):
    """d outputs / d inputs: for each pair a tensor of shape (*output, *input)."""
    return _jacobian(func, inputs, create_graph, strict, vectorize, strategy, "jacobian")


def _jacobian(func: Callable, inputs, create_graph: bool, strict: bool, vectorize: bool, strategy: str, what: str):
    if strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError(f"strategy is 'forward-mode' or 'reverse-mode', found {strategy!r}")
    forward = strategy == "forward-mode"
    if strict and vectorize:
        raise RuntimeError(
            f"torch.autograd.functional.{what}: `strict=True` and `vectorize=True` are not supported together. Leave one out"
        )
    if forward and create_graph:
        raise NotImplementedError(
            "jacobian: create_graph=True with forward-mode is not supported, as in PyTorch. func.jacfwd can be nested"
        )
    if forward and not vectorize:
        raise NotImplementedError('jacobian: strategy="forward-mode" is only supported when vectorize=True, as in PyTorch')
    with modes.enable_grad():
        single_in, xs = _inputs(inputs, create_graph, what)
        single_out, outs = _outputs(func(*xs), what, strict)
        rows: tuple
        if forward:
            rows = _by_columns(outs, xs)
        else:
            rows = tuple(_all_rows(o, xs, create_graph) if vectorize else _rows(k, o, xs, create_graph, strict) for k, o in enumerate(outs))
    rows = tuple(tuple(j if create_graph else j.detach() for j in row) for row in rows)
    if single_in:
        rows = tuple(row[0] for row in rows)
    return rows[0] if single_out else rows


def _rows(k: int, out: Tensor, xs, create_graph: bool, strict: bool) -> tuple[Tensor, ...]:
    columns: list[list[Tensor]] = [[] for _ in xs]
    for element in out.reshape(-1).unbind(0):
        grads = _grad((element,), xs, (element.detach().new_ones(()),), create_graph, retain=True)
        for column, g in zip(columns, _filled(grads, xs, strict, create_graph, f"Output {k}"), strict=True):
            column.append(g)
    shapes = [tuple(out.shape) + tuple(x.shape) for x in xs]
    found = zip(columns, xs, shapes, strict=True)
    return tuple(OPS["stack"](c).reshape(shape) if c else x.detach().new_zeros(shape) for c, x, shape in found)


def _all_rows(out: Tensor, xs, create_graph: bool) -> tuple[Tensor, ...]:
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
    back = _grad(outs, xs, weights, True)
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

    def first(*xs):
        found = jacobian(lambda *args: _number(func(*args), "hessian", strict), xs, create_graph=True)
        return _varying(found, strict)

    given = _tuple(inputs, "inputs", "hessian")
    found = _jacobian(first, given, create_graph, strict, vectorize, outer_jacobian_strategy, "hessian")
    return found[0][0] if isinstance(inputs, Tensor) else found


def vhp(func: Callable, inputs, v=None, create_graph: bool = False, strict: bool = False):
    """(value, v^T H) of a scalar function."""
    return _vhp(func, inputs, v, create_graph, strict, "vhp")


def _vhp(func: Callable, inputs, v, create_graph: bool, strict: bool, what: str):
    with modes.enable_grad():
        single, xs = _inputs(inputs, create_graph, what)
        vs = _vectors(v, xs, what, "input to the user-provided function is")
        value = _number(func(*xs), what, strict)
        first = _varying(_filled(_grad((value,), xs, (value.detach().new_ones(()),), True), xs, strict), strict)
        found = _filled(_grad(first, xs, vs, create_graph), xs, strict, create_graph, of="hessian")
    return value if create_graph else value.detach(), _pack(found, single, create_graph)


def hvp(func: Callable, inputs, v=None, create_graph: bool = False, strict: bool = False):
    """(value, H v) of a scalar function. The Hessian is symmetric, so this is `vhp`."""
    return _vhp(func, inputs, v, create_graph, strict, "hvp")


# -- servants ------------------------------------------------------------------------------------------------------


_STRICT = "This is not allowed in strict mode."


def _tuple(values, what: str, function: str) -> tuple[Tensor, ...]:
    """One tensor or several, as a tuple."""
    given = values if isinstance(values, tuple) else (values,)
    for i, x in enumerate(given):
        if not isinstance(x, Tensor):
            kind = "either a Tensor or a tuple of Tensors"
            raise TypeError(f"The {what} given to {function} must be {kind}, but number {i} is of type {type(x).__name__}")
    return given


def _inputs(inputs, create_graph: bool, function: str) -> tuple[bool, tuple[Tensor, ...]]:
    modes.check_no_transform(f"torch.autograd.functional.{function}()")
    single, given = isinstance(inputs, Tensor), _tuple(inputs, "inputs", function)
    if not create_graph:
        return single, tuple(x.detach().clone().requires_grad_() for x in given)
    return single, tuple(x.view_as(x) if x.requires_grad else x.clone().requires_grad_() for x in given)


def _outputs(outputs, function: str, strict: bool) -> tuple[bool, tuple[Tensor, ...]]:
    single, found = isinstance(outputs, Tensor), _tuple(outputs, "outputs of the user-provided function", function)
    for i, out in enumerate(found):
        if strict and not out.requires_grad:
            raise RuntimeError(f"Output {i} of the user-provided function does not require gradients. {_STRICT}")
    return single, found


def _number(outputs, function: str, strict: bool) -> Tensor:
    """The output of a function of one number, without dimensions."""
    single, found = _outputs(outputs, function, strict)
    if not single:
        raise RuntimeError(f"The function given to {function} should return a single Tensor")
    if found[0].numel() != 1:
        what = f"The Tensor returned by the function given to {function} should contain a single element"
        raise RuntimeError(f"{what}, not {found[0].numel()}: its shape is {tuple(found[0].shape)}")
    return found[0].squeeze()


def _vectors(v, like, function: str, when: str) -> tuple[Tensor, ...]:
    """The vectors of a product, one like each tensor; one number need not be given."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if the {when} a single Tensor with a single element.")
        return (like[0].detach().new_ones(like[0].shape),)
    vs = _tuple(v, "v", function)
    if len(vs) != len(like):
        count = (
            "The given v should contain a single Tensor." if len(like) == 1 else f"{function} takes one v for each of {len(like)} tensors."
        )
        raise RuntimeError(f"{count} Found {len(vs)}")
    for i, (a, b) in enumerate(zip(vs, like, strict=True)):
        if tuple(a.shape) != tuple(b.shape):
            which = "v" if len(like) == 1 else f"Entry {i} of v"
            raise RuntimeError(f"{which} has invalid size: should be {b.shape}, found {a.shape}.")
    return vs


def _varying(jacobian: tuple[Tensor, ...], strict: bool) -> tuple[Tensor, ...]:
    """A Jacobian that is to be differentiated again."""
    for i, j in enumerate(jacobian):
        if strict and not j.requires_grad:
            raise RuntimeError(
                f"The jacobian of the user-provided function with respect to input {i} is independent of that input. {_STRICT}"
            )
    return jacobian


def _grad(outs, xs, vs, create_graph: bool, retain: bool | None = None):
    pairs = [(o, w) for o, w in zip(outs, vs, strict=True) if o.requires_grad]
    if not pairs:
        return (None,) * len(xs)
    return api.grad([o for o, _ in pairs], xs, [w for _, w in pairs], create_graph=create_graph, retain_graph=retain, allow_unused=True)


def _filled(grads, like, strict: bool, create_graph: bool = False, who: str = "The output", of: str = "jacobian") -> tuple[Tensor, ...]:
    """Zeros for gradients that are missing. To be `strict`, none may be, nor be a constant where it is to be differentiated again."""
    for i, g in enumerate(grads):
        if strict and g is None:
            raise RuntimeError(f"{who} of the user-provided function is independent of input {i}. {_STRICT}")
        if strict and create_graph and not g.requires_grad:
            raise RuntimeError(f"The {of} of the user-provided function is independent of input {i}. {_STRICT}")
    return tuple(g if g is not None else x.detach().new_zeros(x.shape) for g, x in zip(grads, like, strict=True))


def _pack(tensors, single: bool, create_graph: bool):
    kept = tuple(t if create_graph else t.detach() for t in tensors)
    return kept[0] if single else kept
