"""The end of backward: a gradient has fully arrived at a leaf. Its hooks run, and it is added to `.grad`.

Note [stealing gradients]: the first gradient of a leaf is kept as it is, not copied, if nobody else can see it. A gradient that is shared (it
went to several places, a hook kept it, the user passed it in, it is a view) is copied, so that writing to one `.grad` never changes
another tensor. Who holds a gradient is read off Python's reference counts: of the tensor, of its array, of its storage.

Note [forgotten zero_grad]: an optimizer marks one gradient that it has made a step with, its version being `spent`. If the next gradient is added
to that very version, nobody has set it to zero since, and the sum is `mixed`; the optimizer says so when it is to make a step with it. Another
optimizer's backward may mix gradients that are zeroed before they are used (the discriminator's, while the generator learns): that is no mistake,
and a gradient that was written to in between is no longer mixed.
"""

from __future__ import annotations

import sys
import threading
from sys import getrefcount
from typing import Any

import numpy as np

from flambeau import forks, modes
from flambeau.interpreters.stack import by_operations
from flambeau.kernels import arrays, layout
from flambeau.kernels.meta import MetaArray
from flambeau.ops.arithmetic import _add
from flambeau.ops.formats import contiguous_format
from flambeau.tensor import DISPATCHED, Tensor, wrap
from flambeau.tensor.node import AccumulateGrad

state = modes.state
_add_into = _add.kernel.launch_into
_adding = threading.RLock()  # two threads may run backward into the same leaves, and who looks at the sum may, too
forks.renewed(sys.modules[__name__], "_adding", threading.RLock)


def accumulate(leaf: Tensor, grad: Tensor) -> None:
    """Add a gradient that has fully arrived to `leaf.grad`, running all hooks of the leaf on the way."""
    grad = run_hooks_before(leaf, grad)
    add_to_grad(leaf, grad)
    run_hooks_after(leaf, grad)


def _apply(self: AccumulateGrad, *grads: Any) -> list:
    accumulate(self.variable, grads[0])
    return []


AccumulateGrad.apply = _apply  # type: ignore[method-assign, assignment]


def run_hooks_before(leaf: Tensor, grad: Tensor) -> Tensor:
    """The gradient as the hooks on the leaf, then those on its AccumulateGrad node, leave it."""
    if leaf._hooks:
        grad = run_hooks(leaf._hooks, grad)
    hooks = leaf._accumulator_hooks
    if hooks is not None and hooks["pre"]:
        for hook in list(hooks["pre"].values()):
            replaced = hook((grad,))
            if replaced is not None:
                grad = replaced[0] if isinstance(replaced, (tuple, list)) else replaced
    return grad


def run_hooks_after(leaf: Tensor, grad: Tensor) -> None:
    """The hooks that want to see `.grad`."""
    if leaf._post_accumulate:
        for hook in list(leaf._post_accumulate.values()):
            if hook(leaf) is not None:
                raise RuntimeError("post accumulate grad hooks should return None. To change the gradient, write to param.grad")
    hooks = leaf._accumulator_hooks
    if hooks is not None:
        for hook in list(hooks["post"].values()):
            hook((), (grad,))


def hooked(leaf: Tensor) -> bool:
    """Whether something is to be called when the leaf receives its gradient."""
    return bool(leaf._hooks or leaf._accumulator_hooks or leaf._post_accumulate)


def run_hooks(hooks: dict | None, grad: Any) -> Any:
    """Call hooks one after the other; what one returns, the next receives."""
    for hook in list((hooks or {}).values()):
        replaced = hook(grad)
        if replaced is not None:
            grad = checked(hook, grad, replaced)
    return grad


def checked(hook: Any, grad: Tensor | None, replaced: Any) -> Tensor:
    """What a hook returned, if it can stand for the gradient."""
    if not isinstance(replaced, Tensor):
        raise TypeError(f"expected Variable, but hook {_name(hook)} returned {type(replaced).__name__}: a hook returns a tensor or None")
    if grad is None:
        return replaced
    if replaced.dtype is not grad.dtype:
        raise RuntimeError(f"hook {_name(hook)} has changed the type of value (was {grad.dtype} got {replaced.dtype})")
    if replaced._array.shape != grad._array.shape:
        raise RuntimeError(f"hook {_name(hook)} has changed the size of value: {tuple(grad.shape)} became {tuple(replaced.shape)}")
    return replaced


def _name(hook: Any) -> str:
    return repr(getattr(hook, "__name__", type(hook).__name__))


def add_to_grad(leaf: Tensor, grad: Tensor) -> None:
    """leaf.grad += grad, where no .grad counts as zero."""
    with _adding:
        have = leaf._grad
        if state.grad:  # create_graph: the sum is part of the graph, and nothing in it is written to
            leaf._grad = _recorded(leaf, grad) if have is None else plus(have, grad)
        elif have is not None:
            storage = have._storage or have._shared_storage()
            if storage.spent >= 0:
                elements: Any = getattr(have._array, "value", have)  # of a sparse one, its values
                _mix(storage, elements._array)
            if (modes.special and by_operations()) or _add_into(have._array, have._array, grad._array) is NotImplemented:
                _add_slowly(leaf, have, grad)
            else:
                storage.version += 1
        elif getrefcount(grad) <= ALONE[0] and getrefcount(grad._array) <= ALONE[1] + _is_stored(grad) and _is_fresh(grad, leaf._array):
            leaf._grad = grad if type(grad) is Tensor and not grad._needs and grad._base is None else wrap(grad._array)
        elif type(grad) in DISPATCHED or (modes.special and by_operations()):
            leaf._grad = _of_wrapper(grad, leaf)
        else:
            leaf._grad = grad.clone() if _is_sparse(grad) else wrap(copied(grad._array, leaf._array))


def plus(have: Tensor, grad: Tensor) -> Tensor:
    """The sum of two gradients; where a dense one comes to a sparse one, it is dense."""
    return grad + have if _is_sparse(have) and not _is_sparse(grad) else have + grad


def _of_wrapper(grad: Tensor, leaf: Tensor) -> Tensor:
    """A gradient that is looked at, or whose class carries operations out: in the memory order of the leaf, and nobody else's."""
    if grad.stride() == leaf.stride() and getrefcount(grad) <= ALONE[0] + 1:
        return grad.detach()
    return grad.clone(memory_format=contiguous_format) if leaf.is_contiguous() else grad.clone()


def _is_sparse(grad: Tensor) -> bool:
    return type(grad._array) is not np.ndarray and hasattr(grad._array, "as_tensor")


def _add_slowly(leaf: Tensor, have: Tensor, grad: Tensor) -> None:
    """leaf.grad += grad by an operation."""
    if _is_sparse(have) and not _is_sparse(grad):
        leaf._grad = grad + have
    else:
        _add.call_inplace(have, grad)


def _recorded(leaf: Tensor, grad: Tensor) -> Tensor:
    """A copy as part of the graph, in the memory order of the leaf."""
    array = grad._array
    if _is_sparse(grad):
        return grad.clone()
    return wrap(arrays.empty_strided(array.shape, _strides_of_grad(leaf._array), array.dtype, arrays.device_of(array))).copy_(grad)


def _mix(storage: Any, array: Any) -> None:
    """Note [forgotten zero_grad]: something is about to be added to a gradient that an optimizer has used."""
    untouched = storage.spent == storage.version and (storage.mixed or _has_some(array))
    storage.spent, storage.mixed = (storage.version + 1, True) if untouched else (-1, False)


def _has_some(array: Any) -> bool:
    """Whether there is anything but zeros: `.grad.data.zero_()` counts no version."""
    return type(array) is not MetaArray and bool(array.any())


def _count(grad: Tensor) -> tuple[int, int]:
    return getrefcount(grad), getrefcount(grad._array)


def _count_when_alone() -> tuple[int, int]:
    """The reference counts that `add_to_grad` sees of a gradient that only its caller holds."""
    grad = wrap(np.zeros(1))
    return _count(grad)


ALONE = _count_when_alone()


def _is_stored(grad: Tensor) -> bool:
    """Whether the tensor's own storage refers to its array as well: it was written to."""
    return grad._storage is not None and grad._storage.array is grad._array


def _is_fresh(grad: Tensor, leaf) -> bool:
    """Whether no other tensor looks at the gradient's memory, and it lies in memory as its leaf does.

    A view of all of a tensor that nobody else holds is as good as that tensor: a transposed weight's gradient is one.
    """
    array, storage, base = grad._array, grad._storage, grad._base
    if type(array) is MetaArray or type(array.base) is np.ndarray:
        return False
    # getrefcount sees the holders, the variable and the argument; of the array, the storage is a second holder.
    if base is not None and (getrefcount(base) > 3 or getrefcount(base._array) > 3 or base._array.size != array.size):
        return False
    if storage is not None and getrefcount(storage) > (3 if base is None else 4):
        return False
    if array.strides == leaf.strides and array.flags.c_contiguous:
        return True
    shape, strides = arrays.view_of(array)
    return strides == _strides_of_grad(leaf) or (not state.enforce_layout and layout.is_non_overlapping_and_dense(shape, strides))


def _strides_of_grad(leaf) -> tuple[int, ...]:
    """Those of the leaf; of a leaf with holes or overlaps, contiguous ones."""
    shape, strides = arrays.view_of(leaf)
    return strides if layout.is_non_overlapping_and_dense(shape, strides) else layout.contiguous_strides(shape)


def copied(array, leaf):
    """A copy in the memory order of the leaf the gradient belongs to."""
    if type(leaf) is np.ndarray and leaf.flags.c_contiguous:
        return arrays.contiguous_copy(array)
    out = arrays.empty_strided(array.shape, _strides_of_grad(leaf), array.dtype, arrays.device_of(array))
    arrays.write(out, array)
    return out
