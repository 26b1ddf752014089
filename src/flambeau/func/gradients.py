"""Reverse mode: grad, grad_and_value, vjp; and forward mode by reverse mode twice: jvp, linearize.

vjp takes a vector from the outputs back to the inputs, w -> w^T J. That is linear in w, so its own derivative by w, applied to a vector v, is
J v: the tape gives forward mode without a forward rule for any operation. It costs about what two backward passes cost, and memory for the
whole computation, where true forward mode would need neither.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flambeau import modes
from flambeau.autograd import api
from flambeau.autograd.tangents import reached, searching
from flambeau.batching import trees
from flambeau.func.tape import Run, _goes_on, check_tensors, fresh, one
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import zeros_like


def grad(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable:
    """The function that computes the gradient of `func`, which returns a single number, with respect to the arguments `argnums`.

    has_aux  func returns (number, something else), and the gradient comes as (gradient, something else)

    >>> grad(lambda x: x**3)(torch.tensor(2.0))
    tensor(12.)
    """
    whole = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def gradient(*args, **kwargs):
        found, value = whole(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def grad_and_value(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable:
    """The function that computes (gradient, value) of `func`; with has_aux, (gradient, (value, aux))."""

    @functools.wraps(func)
    def both(*args, **kwargs):
        chosen = select(args, argnums)
        run = Run("grad_and_value(f)(*args)", lambda given: func(*replaced(args, argnums, given), **kwargs), chosen, has_aux)
        value = run.found
        if not isinstance(value, Tensor):
            raise RuntimeError(f"Expected the given function to return a tensor, but got {type(value)}")
        if value.dim():
            raise RuntimeError(
                f"Expected the given function to return a scalar tensor, but got tensor with {value.dim()} dims. Try .sum() or .mean() on it"
            )
        if not value._is_float():
            raise RuntimeError(f"grad: the function returned {value.dtype}, and only floating-point numbers have derivatives")
        found = trees.unflatten(run.pull([one(value)], keep=False), run.in_shape)
        found, value, aux = run.leave((found, value, run.aux))
        return found, ((value, aux) if has_aux else value)

    return both


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """(func(*primals), the function w -> w^T J), where J is the Jacobian of func at the primals; with has_aux, aux as the third.

    >>> _, back = vjp(torch.sin, torch.tensor(0.0))
    >>> back(torch.tensor(3.0))
    (tensor(3.),)
    """
    run = Run("vjp(f, *primals)", lambda given: func(*given), primals, has_aux)
    check_tensors("vjp(f, *primals)", run)

    def back(*cotangents: Any) -> Any:
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        weights, shape = trees.flatten(given)
        if len(weights) != len(run.outputs) or (shape != run.out_shape and len(cotangents) == 1 and not _alike(shape, run.out_shape)):
            raise RuntimeError(f"Expected pytree structure of cotangents like that of the outputs, {run.out_shape}, found {shape}")
        for w, out in zip(weights, run.outputs, strict=True):
            if not isinstance(w, Tensor) or tuple(w.shape) != tuple(out.shape):
                found = tuple(w.shape) if isinstance(w, Tensor) else type(w).__name__
                raise RuntimeError(f"vjp: a cotangent has the shape of its output, {tuple(out.shape)}, but {found} was given")
        return run.leave(trees.unflatten(run.pull(weights, keep=True), run.in_shape))

    out, aux = run.leave((run.found, run.aux))
    return (out, back, aux) if has_aux else (out, back)


def _alike(a: Any, b: Any) -> bool:
    return a is not None and b is not None and repr(a).replace("list", "tuple") == repr(b).replace("list", "tuple")


def jvp(func: Callable, primals: tuple, tangents: tuple, *, strict: bool = False, has_aux: bool = False) -> tuple:
    """(func(*primals), J v): the derivative of func at the primals in the direction of the tangents v. With has_aux, aux as the third.

    >>> jvp(torch.sin, (torch.tensor(0.0),), (torch.tensor(2.0),))
    (tensor(0.), tensor(2.))
    """
    _check_primals("jvp", primals)
    _check_tangents("jvp", primals, tangents)
    out, push, *aux = _linearized("jvp", func, primals, has_aux, strict)
    return (out, push(tangents, False), *aux)


def linearize(func: Callable, *primals: Any) -> tuple[Any, Callable]:
    """(func(*primals), the linear function v -> J v). Cheaper than jvp where there are many v: the function itself runs only once."""
    out, push = _linearized("linearize", func, primals, False)

    def pushed(*tangents: Any) -> Any:
        _check_tangents("linearize", primals, tangents)
        return push(tangents, True)

    return out, pushed


def _linearized(what: str, func: Callable, primals: Any, has_aux: bool, strict: bool = False) -> tuple:
    """(outputs, push(tangents, keep), perhaps aux): w^T J is computed with a w that is itself an input, and differentiated by it."""
    _check_primals(what, primals)
    run = Run(f"{what}(f, primals, tangents)", lambda given: func(*given), primals, has_aux, forward=True)
    check_tensors(run.what, run)
    if strict and not all(reached(o, run.inputs) for o in run.outputs):
        raise RuntimeError(f"{run.what}: an output does not depend on the primals, which is not allowed with strict=True")
    weights = [fresh(what, zeros_like(o).detach()) if o._is_float() else zeros_like(o) for o in run.outputs]
    with searching():
        rows = run.pull(weights, keep=True, create_graph=True)  # linear in `weights`
    dead = run.dead | {id(w) for w in weights}

    def push(tangents: Any, keep: bool) -> Any:
        pairs = [(r, t) for r, t in zip(rows, trees.leaves_of(tangents), strict=True) if r._edge() is not None]
        asked = [w for w in weights if w.requires_grad]
        found: list = [None] * len(asked)
        if pairs:
            again = modes.state.grad and any(_goes_on(x, dead) for pair in pairs for x in pair)
            ends = [r for r, _ in pairs], asked, [t for _, t in pairs]
            found = list(api.grad(*ends, retain_graph=keep or again, create_graph=again, allow_unused=True))
        by_weight = dict(zip(map(id, asked), found, strict=True))
        columns = [zeros_like(w).detach() if by_weight.get(id(w)) is None else by_weight[id(w)] for w in weights]
        run.dead, run.spent = dead, [*run.spent, *weights]
        return run.leave(trees.unflatten(columns, run.out_shape))

    out, aux = run.leave((run.found, run.aux))
    return (out, push, aux) if has_aux else (out, push)


def _check_primals(what: str, primals: Any) -> None:
    if not isinstance(primals, tuple):
        raise RuntimeError(f"{what}(f, primals, tangents): Expected primals to be a tuple, found {type(primals).__name__}")
    if not trees.leaves_of(primals):
        raise RuntimeError(f"{what}(f, primals, tangents): Expected at least one Tensor among the primals, found none")


def _check_tangents(what: str, primals: tuple, tangents: Any) -> None:
    ps, shape = trees.flatten(primals)
    ts, other = trees.flatten(tangents)
    if shape != other:
        raise RuntimeError(f"{what}: primals and tangents must have the same python structure, {shape}, found {other}")
    for which, values in (("primals", ps), ("tangents", ts)):
        if not all(isinstance(value, Tensor) for value in values):
            raise RuntimeError(f"{what}: {which} must only contain Tensors. Numbers can be made some by torch.tensor")
    for p, t in zip(ps, ts, strict=True):
        if p.shape != t.shape:
            raise RuntimeError(f"{what}: a tangent has the shape of its primal, {tuple(p.shape)}, but {tuple(t.shape)} was given")


# -- argnums -----------------------------------------------------------------------------------------------------------------


def select(args: tuple, argnums: Any) -> Any:
    """The arguments that are differentiated: one, or a tuple."""
    if isinstance(argnums, bool) or not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"argnums must be int or Tuple of them, found {type(argnums)}")
    if isinstance(argnums, int):
        return args[_place(argnums, len(args))]
    if not argnums:
        raise RuntimeError("argnums must be non-empty: it names the arguments to differentiate by")
    places = [_place(n, len(args)) for n in argnums]
    if len(set(places)) != len(places):
        raise RuntimeError(f"argnums elements must be unique, got {tuple(argnums)}")
    return tuple([args[n] for n in places])


def _place(n: Any, count: int) -> int:
    if not isinstance(n, int) or isinstance(n, bool):
        raise RuntimeError(f"argnums must be int or Tuple of them, found {n!r}")
    if not -count <= n < count:
        raise RuntimeError(f"Got argnum={n}, but only {count} positional inputs")
    return n % count


def replaced(args: tuple, argnums: Any, primals: Any) -> list:
    """All arguments, with the primals in their places."""
    found = list(args)
    pairs = [(argnums, primals)] if isinstance(argnums, int) else zip(argnums, primals, strict=True)
    for n, value in pairs:
        found[n] = value
    return found
