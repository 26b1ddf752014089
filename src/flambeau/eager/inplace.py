"""Writing into tensors: what may be written to, `out=`, and how history follows the write.

Note [in-place writes and history]: after `x.mul_(y)` the tensor x is the output of a new node whose input is what x was before. If x is a
view of `base`, the write changes base, so base gets a new node too: `CopySlices`, which routes the part of base's gradient that lies in the
view through the operation and lets the rest pass. Every view of base then has an outdated history. A view knows the storage's version it was
made at (`_stamp`); if it lags behind, it makes its node anew, as an `as_strided` of base, when it is next asked for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from flambeau import dtypes, errors, modes
from flambeau.eager import plans
from flambeau.eager.record import attach, move_retained, start
from flambeau.eager.saved import edge_of
from flambeau.kernels import arrays, layout
from flambeau.kernels.mirrored import signs, turned_as
from flambeau.ops.complex import _conj, _neg_view, view_as_complex, view_as_real
from flambeau.ops.views import _window
from flambeau.tensor import Tensor, wrap
from flambeau.tensor.layouts import strided
from flambeau.tensor.node import Node, next_sequence, operation, shown


def check_writable(op, self: Tensor, operands=()) -> None:
    """RuntimeError if `self` may not be written to: a leaf being differentiated, an expanded view, an inference tensor, one that shares
    memory with an operand. `operands` are those of the operation, `self` the first."""
    check_changeable(op, self, operands)
    array, allowed = self._array, getattr(op, "overlap", "")
    if 0 in array.strides and layout.has_internal_overlap(array.shape, arrays.element_strides(array)):
        _check_repeats(op, allowed, operands)
    if "whole" in allowed or "apart" in allowed:
        check_apart(self, operands[1:], "apart" in allowed)


def check_changeable(op, self: Tensor, operands=()) -> None:
    """RuntimeError if `self` may not be changed at all, be it its elements or its shape only: a leaf being differentiated, an inference tensor."""
    name = f"{op.short}_" if hasattr(op, "short") else str(op)
    if not isinstance(self, Tensor):
        raise TypeError(f"{name}(): the tensor to write to is a {type(self).__name__}")
    if self._inference and not modes.state.inference:
        raise RuntimeError("Inplace update to inference tensor outside InferenceMode is not allowed. Make a clone() of it to write to.")
    if modes.state.grad:
        _check_leaf(self, operands)
    if modes.special and modes.state.keeping is not None:
        modes.state.keeping.about_to_write(self)


def _check_repeats(op, allowed: str, operands) -> None:
    """RuntimeError or a warning for a write to a tensor some of whose elements are the same memory."""
    if "warned" in allowed:
        what = f"{op.short}_ on expanded tensors is deprecated: several of their elements are one place in memory."
        errors.warn(f"{what} Please clone() the tensor first.")
    elif "repeats" not in allowed or ("for numbers" in allowed and any(isinstance(v, Tensor) for v in operands[1:])):
        what = "more than one element of the written-to tensor refers to a single memory location. Try clone()"
        raise RuntimeError(f"unsupported operation: {what} (an expanded tensor repeats its elements without copying them).")


def check_apart(out: Tensor, operands, wholly: bool) -> None:
    """RuntimeError if an operand shares a part of its memory with `out`; or, `wholly`, all of it."""
    for v in operands:
        if not isinstance(v, Tensor) or not shares_storage(out, v):
            continue
        how = "full" if v is out else arrays.overlap(out._array, v._array)
        if how == "partial" or (wholly and how == "full"):
            raise arrays.overlap_error()


def shares_storage(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are views of the same memory, be it of different parts of it."""
    return a is b or (a._storage is not None and a._storage is b._storage)


def _check_leaf(self: Tensor, operands) -> None:
    """RuntimeError if the write would have to be recorded and cannot be."""
    own = self.requires_grad
    if not own and not any(isinstance(v, Tensor) and v.requires_grad for v in operands):
        return
    if self._base is not None:
        if self._view_mode is not None:
            raise view_error(self, "is being")
        if own and self._base.is_leaf:
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation. Try torch.no_grad().")
    if own and self.is_leaf:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation. Try torch.no_grad(), or x.clone().")


_VIEW_MODES = {
    "multi": "{view} and {what} modified inplace. This view is the output of a function that returns multiple views, which do not allow that: "
    "use the out-of-place form of the operation.",
    "no_grad": "{made} no_grad mode and {what} modified inplace with grad mode enabled. Whether the write is to be recorded is "
    "then ambiguous: put both, the view and the write, either both inside the no_grad block, or both outside.",
    "inference": "{made} inference mode and {what} modified inplace in normal mode. Whether the write is to be recorded is "
    "then ambiguous: put both, the view and the write, either both inside the inference_mode block, or both outside.",
    "function": "{view} and {what} modified inplace. This view was created inside a custom Function (or because an "
    "input was returned as-is), whose backward the write would bypass. Try .clone() on the output of the custom Function.",
}


def view_error(view: Tensor, what: str) -> RuntimeError:
    """A write that cannot be recorded because of how the view came about; `what` says who was written to."""
    which = f"Output {view._nr} of {operation(shown(view._node))} is a view"
    made = "A view was created in" if view._node is None else f"{which} of a view which was created in"
    return RuntimeError(_VIEW_MODES[view._view_mode].format(view=which, made=made, what=what))


def check_result(op, self: Tensor, shape: tuple, result: dtypes.dtype) -> None:
    """RuntimeError unless a result of this shape and dtype fits into `self`."""
    own = tuple(self._array.shape)
    if shape != own:
        raise RuntimeError(f"output with shape {list(own)} doesn't match the broadcast shape {list(shape)}. {op.short} makes a new tensor")
    check_cast(result, self.dtype)


def check_cast(result: dtypes.dtype, wanted: dtypes.dtype, what: str = "result", error: type[Exception] = RuntimeError) -> None:
    """RuntimeError, or another, unless a result of one dtype may be written to memory of another."""
    if not dtypes.can_cast(result, wanted):
        found, asked = dtypes.in_messages(result), dtypes.in_messages(wanted)
        more = f"Expected {what} to be safely castable from {found} dtype, but got {what} with dtype {asked}"
        raise error(f"result type {found} can't be cast to the desired output type {asked}. {more}")


def check_out(op, operands, out: Tensor, result: dtypes.dtype, what: str = "result") -> None:
    """RuntimeError unless `out` may receive the result, which is called `what`."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{op.short}(): argument 'out' must be Tensor, not {type(out).__name__}")
    rule = getattr(op, "out_rule", "")
    followed = () if "detached" in rule else operands
    if modes.state.grad and (out.requires_grad or any(isinstance(v, Tensor) and v.requires_grad for v in followed)):
        _refuse_differentiation(op, operands, out)
    device = next((v.device for v in operands if isinstance(v, Tensor)), out.device)
    if device != out.device:
        raise RuntimeError(f"Expected all tensors to be on the same device, but out is on {out.device} and the operands are on {device}")
    check_cast(result, out.dtype, what, TypeError if "TypeError" in rule else RuntimeError)


def _refuse_differentiation(op, operands: tuple, out: Tensor) -> NoReturn:
    """An out= form computes no derivative, of whichever direction."""
    carried = modes.state.carried
    if carried is not None and any(isinstance(t, Tensor) and carried.reaches(t) for t in (*operands, out)):
        raise NotImplementedError(f"Trying to use forward AD with {op.short}_out that does not support it: an out= function has no tangent")
    what = "functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad"
    which = " (the 'out' tensor was specified and requires gradients)" if out.requires_grad else ""
    raise RuntimeError(f"{op.short}(): {what}{which}. Try torch.no_grad().")


def resize_out(op, out: Tensor, shape: tuple, strides: tuple) -> None:
    """Give `out` the shape of the result; a non-empty tensor of another shape is resized with a warning, as PyTorch does.

    `strides` are those that a fresh result has: what is resized lies in memory as that would, what has the shape stays as it is.
    """
    if tuple(out._array.shape) == tuple(shape):
        check_writable("out=", out)
        return
    if out._array.size:
        words = (
            f"it had shape {list(out.shape)}, which does not match the required output shape {list(shape)}. This behavior is deprecated, and in a "
            "future PyTorch release outputs will not be resized unless they have zero elements. Pass torch.empty(0)."
        )
        errors.warn(f"An output with one or more elements was resized since {words}")
    _take_shape(out, tuple(shape), layout.preserve_format_strides(tuple(shape), tuple(strides)))


def _take_shape(out: Tensor, shape: tuple, strides: tuple) -> None:
    """Another shape for `out`: in its own storage if there is room, so that other views see what is written; else in fresh memory."""
    offset, room = out.storage_offset(), out._storage.nbytes() if out._storage is not None else out._array.nbytes
    if layout.storage_extent(shape, strides, offset) * out._array.itemsize <= room:
        out._array = arrays.strided_view(out._array, shape, strides)
    else:
        out._array = turned_as(arrays.empty_strided(shape, strides, out._array.dtype, out.device), out._array)
        out._storage = None


def decide(op, options: dict, out) -> None:
    """Where the dtype of out= decides in what a result is computed: `options` gets it as dtype=."""
    if "decides" in op.out_rule and isinstance(out, Tensor) and options.get("dtype") is None:
        options["dtype"] = out.dtype


def deliver(op, results, operands, out):
    """The out= form of an operation that has computed fresh results: copy them over."""
    single = isinstance(out, Tensor)
    outs = (out,) if single else tuple(out)
    sources = (results,) if isinstance(results, Tensor) else tuple(results)
    if len(outs) != len(sources):
        raise TypeError(f"{op.short}(): out= takes {len(sources)} tensors, found {len(outs)}")
    called = getattr(results, "_fields", None) or [op.out_rule.partition(" as ")[2] or "result"] * len(outs)
    for o, r, what in zip(outs, sources, called, strict=True):
        check_out(op, operands, o, r.dtype if "cast" in op.out_rule else getattr(o, "dtype", r.dtype), what)
        if op.out_rule == "truth":
            if o.dtype not in (dtypes.bool, dtypes.uint8):
                raise RuntimeError(f"{op.short} only supports bool tensor for result, got: {dtypes.in_messages(o.dtype)}")
        elif "cast" not in op.out_rule and op.out_rule != "any" and o.dtype is not r.dtype:
            wanted, found = (dtypes.in_messages(t.dtype) for t in (r, o))
            words = f"expected scalar_type {wanted} but found {found}. Expected object of scalar type {wanted} but got scalar type {found} for argument 'out'"
            raise RuntimeError(
                f"{op.short}(): Expected out tensor to have dtype {wanted.lower()}, but got {found.lower()} instead ({words})"
            )
        if "apart" in op.overlap:  # from all but the tensor it could have been written to in place
            check_apart(o, operands[1:], True)
        if "apart" in op.out_rule or "whole" in op.out_rule:
            check_writable("out=", o)
            check_apart(o, operands, "apart" in op.out_rule)
    for o, r in zip(outs, sources, strict=True):
        if o.layout is r.layout is strided:
            shape, strides = arrays.view_of(r._array)
            fits = o._array.shape == r._array.shape and type(o._array) is type(r._array)
            resize_out(op, o, shape, layout.contiguous_strides(shape) if "rows" in op.out_rule else strides)
            arrays.write(o._array, r._array)
        else:
            from flambeau.sparse.dispatch import take_over

            fits = False
            take_over(o, r)
        o._bump()
        if modes.watching and fits:
            plans.note_delivered(o, r)
    return out if single or not hasattr(results, "_fields") else type(results)(*outs)


# -- history -------------------------------------------------------------------------------------------------------


def rewrite(self: Tensor, record: Callable[[Tensor], None], position: int = 0) -> None:
    """Give `self` the history of an operation that has just been written into it: `record(result)` records it, `self` was operand `position`."""
    base = self._base
    if base is None:
        record(self)
        return
    look = self.__dict__.get("_look")
    stand_in = wrap(self._array) if look is None else _without_history(self)
    stand_in._storage = self._storage
    record(stand_in)
    inner = stand_in._node
    if look is not None:
        written = WrittenThroughView()
        written.look = look
        start(written, [edge_of(base), (inner, stand_in._nr)], [base._array])
        attach(base, written)
        return
    node = CopySlices()
    node.inner, node.window, node.position = inner, _within(self, base), position
    node.base_layout, node.base_signs = arrays.view_of(base._array), signs(base._array)
    start(node, [edge_of(base), *inner.edges[:position], *inner.edges[position + 1 :]], [base._array])
    attach(base, node)


def _without_history(tensor: Tensor) -> Tensor:
    with modes.no_grad():
        return tensor.detach()


class WrittenThroughView(Node):
    """A base that was written to through a view of it that is no part of memory we could name: `look(base)` makes it."""

    def apply(self, grad):
        result = grad.clone()
        window = self.look(result)
        of_written = window.clone()
        window.zero_()
        return [result, of_written]


def _within(view: Tensor, base: Tensor) -> tuple:
    """What a view is of its base: its shape, strides and offset in elements of its dtype, the offset counted from base's first element, that
    dtype, and whether the memory is read conjugated or negated."""
    array = view._array
    start = arrays.data_pointer(array) - arrays.data_pointer(base._array) if array.size else 0
    return (*arrays.view_of(array), start // array.itemsize), array.dtype, signs(array)


def _seen_as(base: Tensor, geometry: tuple, numpy_dtype, in_mirror: tuple[bool, bool]) -> Tensor:
    """The view of `base` that is so within it. A complex base may be seen as real pairs, or the reverse."""
    return _turned(_part(_turned(base, *signs(base._array)), geometry, numpy_dtype), *in_mirror)


def _turned(tensor: Tensor, conjugated: bool, negated: bool) -> Tensor:
    tensor = _conj(tensor) if conjugated else tensor
    return _neg_view(tensor) if negated else tensor


def _part(base: Tensor, geometry: tuple, numpy_dtype) -> Tensor:
    """The part of a base that is in no mirror."""
    if base._array.dtype == numpy_dtype:
        return _window(base, *geometry)
    if base._array.dtype.kind == "c":
        return _window(view_as_real(base), *geometry)
    shape, strides, offset = geometry
    return view_as_complex(_window(base, (*shape, 2), (*(2 * s for s in strides), 1), 2 * offset))


class CopySlices(Node):
    """A base tensor part of which was overwritten through a view by `inner`, whose operand `position` is that part as it was."""

    def apply(self, grad):
        shape, strides = self.base_layout
        result = _turned(grad.new_empty_strided(shape, strides), *self.base_signs)
        result.copy_(grad)
        window = _seen_as(result, *self.window)
        others = list(self.inner.apply(window.clone()))
        own = others.pop(self.position)
        window.zero_() if own is None else window.copy_(own)
        return [result, *others]

    def release(self) -> None:
        self.inner.release()


def rewriting(base: Tensor) -> Callable | None:
    """rewrite(base, *operands) gives another tensor the history that this one has had since it was written to through a view; None if it takes more."""
    node = base._node
    if type(node) is not CopySlices or node.hooks is not None or not all(node.inner.recipe.plain):
        return None
    inner, position, window, layout, turns = node.inner, node.position, node.window, node.base_layout, node.base_signs
    make, recipe, saved, shape, dtype = type(inner).make, inner.recipe, inner.saved, inner.shape, inner.numpy_dtype

    def rewrite(base: Tensor, *operands: Tensor) -> None:
        edges = [edge_of(v) for v in operands]
        node = CopySlices()
        node.inner = inner = make(recipe, (None, *edges), next_sequence(), shape, dtype)
        inner.saved = list(saved)
        node.position, node.window, node.base_layout, node.base_signs = position, window, layout, turns
        start(node, [edge_of(base), *edges], [base._array])
        attach(base, node)

    return rewrite


def replay_view(view: Tensor) -> None:
    """Make the history of a view anew, from its base as it is now."""
    if view._view_mode is not None:
        raise view_error(view, "its base or another view of it was since")
    base = view._base
    view._stamp = view._storage.version
    with modes.enable_grad():
        look = view.__dict__.get("_look")
        again = _seen_as(base, *_within(view, base)) if look is None else look(base)
    if view._retains:
        move_retained(view, again._node, again._nr)
    view._node, view._nr, view._needs = again._node, again._nr, again._needs


Tensor._replay_view = replay_view
