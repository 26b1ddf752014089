"""A batched tensor: many tensors of one shape that a program handles as if they were one.

Note [levels, wrappers and history]

`vmap(f)(x)` runs f once, on a `Batched` that shows the shape of one sample. Behind it stands `value`, an ordinary tensor with one more
dimension, always the first: the batch. Every operation on a Batched is an operation on the values, found by a batching rule (`rules.py`).
Each vmap that is running is a `Level`; nested ones stack up, and the value of a tensor batched at an inner level is a tensor of the level
outside, which may be a Batched again.

Differentiation meets this in two orders, and both must come out right:

    grad(vmap(f))   the tape sees the operations on values. There is nothing to do: values are tensors, and record themselves.
    vmap(grad(f))   the tape must see the operations on *samples*. The gradient of one sample's loss by weights shared by all is not
                    the gradient of the sum of losses.

So a Batched has a history of its own (`_needs`, `_node`, as any tensor) beside the history of its value. The first belongs to the grads
that run inside its vmap, the second to those outside. An operation on a wrapper that wants a gradient is recorded with the operation's own
derivative, which is written with operations; backward then sends wrappers through it, and each step of it is again an operation on values,
which outer tapes record. This is JAX's and functorch's stack of interpreters, with the tape for reverse mode and wrappers for batches.

A grad that starts inside a vmap takes its inputs up to that vmap's level (`lift`), batched there or not: a wrapper with `batched` False
stands for one tensor that all samples share. Its history is then apart from that of the plain tensor, and a gradient that arrives there has
one row per sample. When a vmap ends, only values leave it, and what was recorded inside is forgotten.

The wrapper's `_array` has shape, strides and dtype of a sample, but no data (`Hidden`): code that looks at the geometry works, and code
that wants the numbers fails loudly. Its `_storage` is that of the tensor at the bottom, so that versions are counted where the memory is.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from flambeau import devices, dtypes, modes
from flambeau.eager import inplace
from flambeau.eager.record import attach, start
from flambeau.eager.saved import edge_of
from flambeau.interpreters import by_name
from flambeau.kernels.meta import MetaArray
from flambeau.kernels.native.native import maker
from flambeau.tensor import Tensor
from flambeau.tensor.node import LEAF, Node
from flambeau.tensor.storage import Storage
from flambeau.tensor.tensor import NEW

state = modes.state


class Level:
    """A vmap that is running: how many samples it maps over, and what random numbers mean inside it."""

    __slots__ = ("__weakref__", "active", "depth", "outer_draw", "randomness", "size")

    def __init__(self, size: int, randomness: str):
        self.size, self.randomness, self.active = size, randomness, True
        self.depth = len(state.levels)

    def __enter__(self) -> Level:
        from flambeau.batching import randomness

        state.levels.append(self)
        self.outer_draw, state.draw = state.draw, lambda *call: randomness.draw(self, *call)
        modes.enter()
        return self

    def __exit__(self, *exc) -> None:
        self.active = False
        state.levels.pop()
        state.draw = self.outer_draw
        modes.leave()


class Hidden(MetaArray):
    """The geometry of one sample. It remembers the wrapper's parts, so that a saved result can be made a tensor again."""

    __slots__ = ("batched", "level", "value")
    flags = SimpleNamespace(
        fnc=False, c_contiguous=False
    )  # derivatives ask whether a matrix lies in memory by columns: it is no matter here

    def __init__(self, value: Tensor, level: Level, batched: bool):
        below = value._array
        self.value, self.level, self.batched = value, level, batched
        self.dtype, self.itemsize, self.offset = below.dtype, below.itemsize, 0
        self.shape, self.strides = (below.shape[1:], below.strides[1:]) if batched else (below.shape, below.strides)
        self.ndim = len(self.shape)
        self.size = below.size // max(below.shape[0], 1) if batched else below.size
        if batched and not below.shape[0]:
            self.size = int(np.prod(self.shape))

    def as_tensor(self) -> Batched:
        """A new wrapper, without history."""
        return wrapped(self.value, self.level, self.batched)

    @property
    def device(self) -> devices.device:
        return self.value.device


class Batched(Tensor):
    """A tensor inside vmap. See the note above."""

    __torch_function__ = by_name.disabled_torch_function  # replaced in dispatch.py, once the class has been made without asking members

    _sees_building_blocks = True  # it is told which operation runs, not under which public name
    value: Tensor
    level: Level
    batched: bool
    _look: Any = None  # of a view: the function that makes it from its base

    # -- what has to be asked of the value

    @property
    def device(self) -> devices.device:
        """Where the elements are."""
        return self.value.device

    @property
    def is_cpu(self) -> bool:
        """Whether it is in main memory."""
        return self.value.is_cpu

    def is_conj(self) -> bool:
        """Whether all samples are to be read conjugated."""
        return self.value.is_conj()

    def is_neg(self) -> bool:
        """Whether all samples are to be read negated."""
        return self.value.is_neg()

    def storage_offset(self) -> int:
        """Where in its storage the first sample's first element lies."""
        return self.value.storage_offset()

    def untyped_storage(self):
        """The bytes behind all samples."""
        return self.value.untyped_storage()

    def data_ptr(self) -> int:
        """The address of the first element of the first sample."""
        return self.value.data_ptr()

    def _bump(self) -> None:
        self.value._bump()

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to this tensor, here or at a level outside."""
        return self._wants() or self.value.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def _wants(self) -> bool:
        """Whether a grad inside the vmap has a use for this tensor."""
        return self._needs or (self._base is not None and self._base._needs and self._is_float())

    def _edge(self) -> tuple | None:
        node = self._node if self._base is None else self._view_node()
        return (node, self._nr) if node is not None else (self, LEAF) if self._wants() else None

    def detach(self) -> Tensor:
        """The same memory without history, neither here nor at any level outside."""
        return wrapped(self.value.detach(), self.level, self.batched)

    @property
    def data(self) -> Tensor:
        """Refused, as writing to it is: it would be kept from vmap."""
        raise RuntimeError("accessing `data` under vmap transform is not allowed. Try detach()")

    @data.setter
    def data(self, value: Tensor) -> None:
        raise RuntimeError("mutating directly with `.data` under vmap transform is not allowed. Use the result of an operation instead")

    def _become(self, view: Batched) -> None:
        """Take the place of a view of this tensor: what transpose_ and its like do. The wrapper stays, its parts change."""
        self.value, self.batched, self._array = view.value, view.batched, view._array
        self._node, self._nr, self._needs = view._node, view._nr, view._needs

    def _reinterpret(self, dtype: dtypes.dtype) -> Tensor:
        return wrapped(self.value._reinterpret(dtype), self.level, self.batched)

    def _view_node(self) -> Node | None:
        if self._stamp != self._storage.version and (self._node is not None or self._base._needs) and self._is_float():
            self._stamp = self._storage.version
            with modes.enable_grad():
                again = self._look(self._base)
            self._node, self._nr, self._needs = again._node, again._nr, again._needs
        return self._node

    # -- what has no meaning for many samples at once

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Refused: inside vmap, gradients are asked for by func.grad and its relatives."""
        modes.check_no_transform("Tensor.requires_grad_()")
        raise RuntimeError("Tensor.requires_grad_() of a tensor from inside a vmap that has ended")

    def backward(self, *args, **kwargs) -> None:
        """Refused: see requires_grad_."""
        raise RuntimeError(
            "You are attempting to call Tensor.backward() inside of vmap. Use torch.func.grad there, or call it on vmap's result"
        )

    def __repr__(self, *, tensor_contents=None) -> str:
        inner = "\n".join(("    " + line) for line in repr(self.value).splitlines())
        return f"BatchedTensor(lvl={self.level.depth + 1}, bdim={0 if self.batched else None}, value=\n{inner}\n)"

    __format__ = lambda self, spec: repr(self)  # noqa: E731


def _asks_for_values(name: str, cure: str):
    def refuse(self, *args, **kwargs):
        raise RuntimeError(
            f"vmap: It looks like you're calling {name} on a Tensor that is being mapped over. It stands for {self.level.size} samples, each with "
            f"a value of its own, so there is no single answer. {cure}"
        )

    return refuse


def _becoming(name: str):
    """transpose_, squeeze_, ...: see inplace_views.py."""

    def method(self: Batched, *args, **kwargs) -> Batched:
        if self._base is not None:
            raise NotImplementedError(f"vmap: {name}_ of a view is not implemented. Use {name}, which gives a new tensor")
        check_leaf(self)
        before = wrapped(self.value, self.level, self.batched)
        before._node, before._nr, before._needs = self._node, self._nr, self._needs
        self._become(getattr(before, name)(*args, **kwargs))
        return self

    return method


for _name in ("transpose", "t", "squeeze", "unsqueeze", "swapaxes", "swapdims", "as_strided"):
    setattr(Batched, f"{_name}_", _becoming(_name))


_BRANCH = "There is no data-dependent control flow inside vmap: choose between results with torch.where, or loop over the samples"
_LEAVE = "Return the tensor from the mapped function, and ask the result"
for _name in ("item", "__float__", "__int__", "__long__", "__complex__", "__index__"):
    setattr(Batched, _name, _asks_for_values(".item()", _LEAVE))
for _name in ("__bool__", "__nonzero__", "is_nonzero"):
    setattr(Batched, _name, _asks_for_values("bool()", _BRANCH))
for _name in ("tolist", "numpy", "__array__", "__dlpack__", "apply_", "map_", "map2_"):
    setattr(Batched, _name, _asks_for_values(f".{_name}()", _LEAVE))


def wrapped(value: Tensor, level: Level, batched: bool = True) -> Batched:
    """A new wrapper around a value whose first dimension is the batch, if `batched`."""
    new = _new(Hidden(value, level, batched), value._shared_storage())
    new.value, new.level, new.batched = value, level, batched
    return new


_new: Callable[[Hidden, Storage], Batched] = maker(Batched, ("_array", "_storage"), _inference=False, **NEW)


def lift(tensor: Tensor, level: Level) -> Batched:
    """A tensor as one of this level: itself, or the wrapper of a tensor that all samples share."""
    if isinstance(tensor, Batched) and tensor.level is level:
        return tensor
    return wrapped(tensor, level, False)


def level_of(tensors) -> Level:
    """The innermost level among these tensors; RuntimeError where it has ended."""
    found = max((t.level for t in tensors if isinstance(t, Batched)), key=lambda level: level.depth)
    if not found.active:
        raise RuntimeError(
            "vmap: a tensor from inside a vmap that has ended is being used. It left through a list, a closure or an attribute: return it from "
            "the mapped function instead"
        )
    return found


def too_small(name: str, level: Level) -> RuntimeError:
    return RuntimeError(
        "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that has more elements "
        f"than `self`: {name} would write {level.size} different samples into one tensor that all of them share. Use the out-of-place "
        "form, or make self with zeros_like, clone or new_zeros of a tensor that is mapped over"
    )


def front(tensor: Batched, rank: int | None = None) -> Tensor:
    """The value with the batch in front, repeated without copying if all samples share it; filled up with sizes of 1 to `rank` dimensions."""
    value, size = tensor.value, tensor.level.size
    if not tensor.batched:
        value = value.unsqueeze(0)
    for _ in range(0 if rank is None else rank - tensor._array.ndim):
        value = value.unsqueeze(1)
    return value if tensor.batched else value.expand(size, *value.shape[1:])


def aligned(tensors: list[Batched]) -> list[Tensor]:
    """Values that broadcast as their samples do: batches stand in front of as many dimensions as the longest sample has."""
    rank = max(t._array.ndim for t in tensors)
    return [front(t, rank) if t.batched else t.value for t in tensors]


# -- writing into a wrapper ------------------------------------------------------------------------------------------------


def adopt(self: Batched, result: Batched) -> None:
    """`self` has just been overwritten with the values of `result`: its history is now that of `result`."""
    if self._base is None:
        self._node, self._nr, self._needs = result._node, result._nr, result._needs
        return
    base, node = self._base, inplace.WrittenThroughView()
    node.look = self._look
    start(node, [edge_of(base), edge_of(result)], [base._array])
    attach(base, node)


def check_leaf(self: Batched) -> None:
    """RuntimeError if the write would have to be recorded and cannot be."""
    if self._base is not None and self._view_mode is not None:
        raise inplace.view_error(self, "is being")
    owner = self if self._base is None else self._base
    if owner._needs and owner._node is None:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation. Try x.clone(), and write to that")
