"""Forward mode by hand: tensors that carry a tangent along.

    with dual_level():
        y = f(make_dual(x, v))
        primal, tangent = unpack_dual(y)        # f(x) and J v

There are no forward rules here: a dual is an ordinary tensor at which a tape begins, and `unpack_dual` finds the tangent by differentiating
w -> w^T J once more (see func/gradients.py). So the tangent costs two backward passes when it is asked for, and none before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flambeau import modes
from flambeau.autograd import api, tangents
from flambeau.tensor import Tensor, printing
from flambeau.tensor.making.factories import zeros_like
from flambeau.tensor.node import LEAF

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]

_levels: list[list[Dual]] = []  # of each level its duals
_before: list[bool] = []  # of each level, whether operations were recorded when it began. Inside they are, for the tangents' sake


class Dual(NamedTuple):
    """A tensor that carries a tangent."""

    dual: Tensor
    node: Any  # of the dual, until it is written to
    source: Tensor  # where its tape begins
    primal: Tensor
    tangent: Tensor

    def is_as_made(self) -> bool:
        """Whether the tangent of the dual is the one it was made with."""
        return self.dual.grad_fn is self.node


class UnpackedDualTensor(NamedTuple):
    """A tensor, and its tangent or None."""

    primal: Tensor
    tangent: Tensor | None


def __getattr__(name: str) -> int:
    """`_current_level`, which libraries read: the number of the level that is entered, counted from 0; -1 outside."""
    if name == "_current_level":
        return len(_levels) - 1
    raise AttributeError(name)


class dual_level(modes._Decorator):
    """The context in which duals live: when it ends, they forget their tangents."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: Any) -> None:
        exit_dual_level()


def enter_dual_level() -> int:
    """Begin a level. There can be one at a time: nest func.jvp instead."""
    if _levels:
        raise RuntimeError("Nested forward mode AD is not supported at the moment: use torch.func.jvp, which nests")
    _levels.append([])
    _before.append(modes.state.grad)
    modes.set_recording(not modes.state.inference)
    tangents.begin()
    modes.state.carried.duals = True
    modes.state.carried.switch(_before[-1])
    printing.unpack = unpack_dual
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level."""
    if not _levels:
        raise RuntimeError("exit_dual_level(): there is no level to leave")
    for made in _levels.pop():
        if made.is_as_made() and not made.primal.requires_grad:
            made.dual._node, made.dual._needs = None, False
    printing.unpack = None
    tangents.end()
    modes.set_recording(_before.pop())


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A tensor with the values of `tensor` that carries `tangent` through whatever is computed from it."""
    if not _levels:
        raise RuntimeError("make_dual() works inside of a level: with forward_ad.dual_level()")
    for name, value in (("primal", tensor), ("tangent", tangent)):
        if not value._is_float():
            raise ValueError(f"Expected {name} to be floating point or complex, found {value.dtype}")
    if tuple(tensor.shape) != tuple(tangent.shape):
        shapes = f"the tangent has shape {tuple(tangent.shape)}, and its primal {tuple(tensor.shape)}"
        raise RuntimeError(f"Trying to set a forward gradient that has a different size than that of the original Tensor: {shapes}")
    if any(made.dual is tangent for made in _levels[-1]):
        raise RuntimeError("Expected the tangent of a dual to have none: this one has a forward gradient at the same level")
    if not _lie_alike(tensor, tangent):  # a view of the dual has a tangent that is the same view of this one
        tangent = zeros_like(tensor).copy_(tangent) if tangent.requires_grad else zeros_like(tensor).detach().copy_(tangent)
    source = tangents.alias(tensor.view_as(tensor)) if tensor.requires_grad and _before[-1] else tensor.detach().requires_grad_()
    with modes.enable_grad():
        dual = tangents.alias(source)  # no leaf, so that it can be written to
    _levels[-1].append(Dual(dual, dual._node, source, tensor, tangent))
    if modes.state.carried is not None:  # it is in the thread that began the level
        modes.state.carried.sources.append(source)
    return dual


def push(node: Any, args: tuple, pairs: list[UnpackedDualTensor], outputs: list) -> None:
    """Make what a Function returned duals: its author's jvp says what their tangents are. `pairs` are the tensors among its arguments, apart."""
    if all(pair.tangent is None for pair in pairs):
        return
    rest = iter(pairs)
    given = [next(rest).tangent if isinstance(a, Tensor) else None for a in args]
    level, own = _levels[-1], {id(a): t for a, t in zip(args, given, strict=True) if t is not None}
    if node.writes:  # so does jvp, with the tangents: what was computed of the duals before keeps theirs
        level[:] = [d._replace(tangent=d.tangent.clone()) if any(d.tangent is t for t in given) else d for d in level]
    node.pushed, versions = True, {id(t): t._version for t in own.values()}
    node.saved_for_forward = tuple([None if t is None else unpack_dual(t).primal for t in node.saved_for_forward])
    for out, tangent in zip(outputs, node.push(*given), strict=True):
        if tangent is None or not isinstance(out, Tensor):
            continue
        if id(out) in own and (tangent is not own[id(out)] or tangent._version == versions[id(tangent)]):
            words = "An inplace custom Function is not modifying the forward mode gradients inplace: if forward modifies an input inplace, then the"
            raise RuntimeError(f"{words} jvp function must modify the corresponding gradient inplace, and return it")
        if id(out) not in own and out._base is not None:
            _check_view(out, tangent, args, given)
        source = tangents.alias(out)
        primal = source if _before[-1] and _has_other_leaves(source, modes.state.carried.sources) else out.detach()
        level.append(Dual(out, out._node, source, primal, tangent))
        modes.state.carried.sources.append(source)


def _check_view(out: Tensor, tangent: Tensor, args: tuple, given: list) -> None:
    """RuntimeError unless the tangent of an output that is a view is the like view of the input's tangent."""
    words = "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a view"
    if tangent._base is None:
        raise RuntimeError(f"{words}. Try x_t.view_as(x_t), where x_t is the tangent of the input")
    for a, t in zip(args, given, strict=True):
        if t is not None and any(b is out._base for b in (a, a._base)) and tangent._base is not (t if t._base is None else t._base):
            raise RuntimeError(f"{words} of the {'given tangent' if a._base is None else 'same base as the given tangent'}")


def _lie_alike(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of the same shape lie in memory in the same way."""
    if any(hasattr(t._array, "as_tensor") for t in (a, b)) or not a.numel():
        return True
    strides = all(m == n for m, n, size in zip(a.stride(), b.stride(), a.shape, strict=True) if size > 1)
    return strides and (a.is_conj(), a.is_neg()) == (b.is_conj(), b.is_neg()) and _room(a) == _room(b)


def _room(t: Tensor) -> int:
    return t.untyped_storage().nbytes() // t.element_size()


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """(the tensor without its tangent, its tangent or None if nothing it was computed from has one)."""
    return unpack_duals([tensor])[0]


def unpack_duals(tensors: Sequence[Tensor]) -> list[UnpackedDualTensor]:
    """The same of several tensors, by one search for all tangents."""
    duals = {id(d.dual): _apart(d) for d in (_levels[-1] if _levels else ()) if d.is_as_made()}
    computed = [t for t in tensors if _levels and t.requires_grad and id(t) not in duals and t.grad_fn is not None]
    found = _search(computed) if computed else {}
    return [duals.get(id(t)) or found.get(id(t)) or UnpackedDualTensor(t, None) for t in tensors]


def _apart(made: Dual) -> UnpackedDualTensor:
    primal = made.primal
    return UnpackedDualTensor(primal.view_as(primal) if primal.requires_grad else primal.detach(), made.tangent)


def _search(outs: list[Tensor]) -> dict[int, UnpackedDualTensor]:
    """Of computed tensors, by their id."""
    duals = _levels[-1]
    begins = [d.source for d in duals]
    tracked = _before[-1] and (any(d.tangent.requires_grad for d in duals) or any(_has_other_leaves(o, begins) for o in outs))
    found: tuple = (None,) * len(outs)
    with modes.enable_grad():
        weights = [zeros_like(o).detach().requires_grad_() for o in outs]
        with tangents.searching():
            rows = api.grad(outs, begins, weights, create_graph=True, allow_unused=True) if duals else ()
        pairs = [(r, d.tangent) for r, d in zip(rows, duals, strict=True) if r is not None and r.requires_grad]
        if pairs:
            ends = [r for r, _ in pairs], weights, [t for _, t in pairs]
            with tangents.outside():
                found = api.grad(*ends, retain_graph=True, create_graph=tracked, allow_unused=True)
    # A tangent that was not found is zero where the tensor depends on a dual, and not there where it does not.
    missing = [
        None if t is not None or not tangents.reached(o, begins) else zeros_like(o).detach() for o, t in zip(outs, found, strict=True)
    ]
    results = zip(outs, found, missing, strict=True)
    return {
        id(o): UnpackedDualTensor(o if tracked and not isinstance(o._node, tangents.Hush) else o.detach(), zeros if t is None else t)
        for o, t, zeros in results
    }


def _has_other_leaves(tensor: Tensor, begins: list[Tensor]) -> bool:
    """Whether the tensor was computed from something that wants a gradient beside the duals, such as the weights of a layer."""
    own = {id(source) for source in begins}
    waiting, seen = [tensor.grad_fn], set()
    while waiting:
        for target, nr in (edge for edge in waiting.pop().edges if edge is not None):
            if nr == LEAF and id(target) not in own:
                return True
            if nr != LEAF and id(target) not in seen:
                seen.add(id(target))
                waiting.append(target)
    return False
