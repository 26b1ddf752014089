"""The tensor: a strided array with a dtype, a device and perhaps a history.

This file has what a tensor *is*: its data, geometry, storage and gradient. What can be *done* with it, every method that is an
operation, is attached by `eager/bind.py` from the declarations in `ops/`.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from flambeau import changes, devices, dtypes, errors, modes
from flambeau.interpreters import stack
from flambeau.kernels import arrays, layout
from flambeau.kernels.native.native import maker
from flambeau.ops import formats
from flambeau.tensor.node import LEAF, Node, RemovableHandle, shown
from flambeau.tensor.storage import Storage

if TYPE_CHECKING:
    from flambeau._surface import Methods  # what eager/bind.py attaches, written down by tools/surface.py
else:
    Methods = object


class Size(tuple):
    """A shape. Prints as torch.Size([2, 3]); slicing and adding give Sizes again."""

    __slots__ = ()

    def __new__(cls, sizes=()):
        self = tuple.__new__(cls, sizes)
        for i, n in enumerate(self):
            if type(n) is not int:
                if not hasattr(n, "__index__"):
                    raise TypeError(f"torch.Size() is made of ints, but item {i} is {type(n).__name__!r}")
                if isinstance(n, Tensor):
                    return cls([m.__index__() if isinstance(m, Tensor) else m for m in self])
        return self

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(repr, self))}])"

    def numel(self) -> int:
        """The number of elements a tensor of this shape has."""
        return prod(self)

    def __getitem__(self, index, item=tuple.__getitem__):
        found = item(self, index)
        return found if type(found) is int else Size(found) if isinstance(index, slice) else found

    def __add__(self, other):
        if isinstance(other, tuple):
            return Size(tuple.__add__(self, other))
        if hasattr(other, "__radd__"):
            return NotImplemented
        raise TypeError(f"can only concatenate tuple (not {type(other).__name__}) to torch.Size")

    def __radd__(self, other):
        return Size(other + tuple(self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times):
        return Size(tuple.__mul__(self, times))

    __rmul__ = __mul__

    def __reduce__(self):
        return Size, (tuple(self),)


_sizes: dict[tuple, Size] = {}  # shapes as Sizes: to look one up takes a third of the time that making it takes


def _remembered(shape: tuple) -> Size:
    size = Size(shape)
    if all([type(n) is int for n in shape]):
        if len(_sizes) > 1000:
            _sizes.clear()
        _sizes[shape] = size
    return size


class Tensor(Methods):
    """A multi-dimensional array whose history can be differentiated.

    >>> Tensor([1, 2]) + 1
    tensor([2., 3.])
    """

    # What every operation looks at has a slot, which is read several times as fast as a default on the class. `wrap` sets
    # all of them. The rest is rare.
    __slots__ = (
        "__dict__", "__weakref__", "_array", "_base", "_grad", "_inference", "_needs", "_node", "_nr", "_stamp", "_storage", "_view_mode",
    )  # fmt: skip
    _array: Any  # numpy.ndarray, cupy.ndarray or MetaArray, or a Mirrored of one of these
    _storage: Storage | None
    _needs: bool  # takes part in differentiation
    _node: Node | None  # the operation that made it
    _nr: int  # which output of that operation it is
    _base: Tensor | None  # the tensor this one is a view of
    _stamp: int  # for views: the version of the storage when `_node` was last made
    _inference: bool  # made in inference mode
    _view_mode: str | None  # how a view came about, where that forbids writing to it: see eager/inplace.py
    _grad: Tensor | None
    _hooks: dict | None = None  # of a leaf: called with its gradient
    _post_accumulate: dict | None = None
    _accumulator_hooks: dict | None = None
    _detached_at: Any = None  # after detach_(): the number of the node that had made it
    _swapped_at: Any = None  # a number: see Note [graphs of swapped tensors] in swapping.py
    _retains = False

    __array_priority__ = 1000  # NumPy leaves `ndarray * tensor` to us

    def __new__(cls, *args, **kwargs):
        return cls._constructed(*args, **kwargs)  # see making/legacy.py

    # -- geometry

    @property
    def shape(self) -> Size:
        """The size of every dimension."""
        shape = self._array.shape
        try:
            return _sizes[shape]
        except (KeyError, TypeError):  # the latter: a list, where there is no data
            return _remembered(tuple(shape))

    def size(self, dim: int | None = None):
        """The shape, or the size of one dimension."""
        if dim is None:
            return self.shape
        shape = self._array.shape
        return shape[layout.wrap_dim(dim, len(shape), scalar_ok=False)]

    def stride(self, dim: int | None = None):
        """The step, in elements, to the next element along every dimension, or along one."""
        strides = arrays.element_strides(self._array)
        return strides if dim is None else strides[layout.wrap_dim(dim, len(strides), scalar_ok=False)]

    def storage_offset(self) -> int:
        """Where in its storage the first element lies, in elements."""
        s = self._storage
        if modes.watching:
            changes.each_time()  # the storage is no part of what a call looks like
        return 0 if s is None else (arrays.data_pointer(self._array) - arrays.data_pointer(s.array)) // self._array.itemsize

    def dim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    ndimension = dim
    ndim = property(dim)

    def numel(self) -> int:
        """The number of elements."""
        return self._array.size

    nelement = numel

    def __len__(self) -> int:
        if not self._array.ndim:
            raise TypeError("len() of a 0-d tensor: it has no first dimension. Its value is t.item()")
        return self._array.shape[0]

    def is_contiguous(self, memory_format=None) -> bool:
        """Whether the elements lie in memory in the order of their indices (or in channels-last order, if asked)."""
        array = self._array
        if type(array) is np.ndarray and array.size and (memory_format is None or memory_format is formats.contiguous_format):
            return array.flags.c_contiguous
        return formats.holds(*arrays.view_of(array), memory_format)

    def data_ptr(self) -> int:
        """The address of the first element."""
        return arrays.data_pointer(self._array) if self._array.size else 0

    # -- what the elements are

    @property
    def dtype(self) -> dtypes.dtype:
        """The type of the elements."""
        return dtypes.OF_NUMPY[self._array.dtype]

    @property
    def device(self) -> devices.device:
        """Where the elements are."""
        return arrays.device_of(self._array)

    def element_size(self) -> int:
        """Bytes per element."""
        return self._array.itemsize

    itemsize = property(element_size)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._array.size * self._array.itemsize

    @property
    def is_cuda(self) -> bool:
        """Whether it is on a GPU."""
        return self.device.type == "cuda"

    @property
    def is_cpu(self) -> bool:
        """Whether it is in main memory."""
        return type(self._array) is np.ndarray or self.device.type == "cpu"

    @property
    def is_meta(self) -> bool:
        """Whether it has a shape but no data."""
        return self.device.type == "meta"

    def is_floating_point(self) -> bool:
        """Whether the elements are real floating-point numbers."""
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Whether the elements are complex numbers."""
        return self.dtype.is_complex

    def is_signed(self) -> bool:
        """Whether the elements can be negative."""
        return self.dtype.is_signed

    # -- storage

    def _shared_storage(self) -> Storage:
        """The storage, made now if nothing has shared it so far."""
        if self._storage is None:
            made = Storage(self._array)
            if self._storage is None:  # else another thread was quicker: see Note [counting without a lock] in modes.py
                self._storage = made
        return self._storage  # type: ignore[return-value]

    @property
    def _version(self) -> int:
        if self._inference:
            raise RuntimeError("Inference tensors do not track version counter.")
        return 0 if self._storage is None else self._storage.version

    def _bump(self) -> None:
        """Note an in-place write."""
        storage = self._storage or self._shared_storage()
        storage.version += 1
        if modes.watching:
            changes.each_time()
        if not modes.paused or modes.state.grad:  # a derivative may ask for what was there before, and will have to say who overwrote it
            storage.changed_at = errors.place()

    # -- history

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to this tensor."""
        return self._needs or (self._base is not None and self._base._needs and not self._inference and self._is_float())

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if type(value) is not bool:
            raise RuntimeError(f"requires_grad must be a bool, not {type(value).__name__}")
        self.requires_grad_(value)

    @requires_grad.deleter
    def requires_grad(self) -> None:
        raise RuntimeError("requires_grad cannot be deleted: set it to False")

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Start (or stop) recording operations on this leaf, so that `backward` fills its `.grad`."""
        if type(requires_grad) is not bool:
            raise TypeError(f"requires_grad_(): argument 'requires_grad' (position 1) must be bool, not {type(requires_grad).__name__}")
        if self.requires_grad:  # others may be made inside of a transform, such as the parameters of a layer
            modes.check_no_transform("Tensor.requires_grad_()")
        if not self.is_leaf:
            if requires_grad:
                return self
            raise RuntimeError("you can only change requires_grad flags of leaves. Try x.detach(), which needs no gradient.")
        if requires_grad and not self._is_float():
            raise RuntimeError(f"Only Tensors of floating point and complex dtype can require gradients, found {self.dtype}. Try x.float()")
        if requires_grad and self._inference and not modes.state.inference:
            raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
        self._needs = bool(requires_grad)
        return self

    def _is_float(self) -> bool:
        return dtypes.OF_NUMPY[self._array.dtype].category >= dtypes.FLOAT

    @property
    def is_leaf(self) -> bool:
        """Whether it was made by the user and not by a recorded operation."""
        return self.grad_fn is None

    @property
    def grad_fn(self) -> Node | None:
        """The operation that made this tensor, if it was recorded."""
        return shown(self._node if self._base is None else self._view_node())

    def _view_node(self) -> Node | None:
        """The history of a view, made anew if its base was written to since."""
        if self._stamp != self._storage.version and (self._node is not None or self._base._needs) and self._is_float():
            self._replay_view()  # see eager/inplace.py
        return self._node

    def _edge(self) -> tuple | None:
        """Where a gradient for this tensor goes."""
        node = self._node if self._base is None else self._view_node()
        return (node, self._nr) if node is not None else (self, LEAF) if self._needs else None  # a view made under no_grad has neither

    @property
    def output_nr(self) -> int:
        """Which output of its `grad_fn` it is."""
        return self._nr

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name != "__cuda_array_interface__" or self.is_cuda]

    def _is_view(self) -> bool:
        return self._base is not None and not self._inference

    @property
    def grad(self) -> Tensor | None:
        """The gradient `backward` has accumulated here: None before the first."""
        if self._grad is None and not self.is_leaf and not self._retains and self._needs:
            words = "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed, which backward() does not fill"
            warnings.warn(f"{words}. Call .retain_grad() on it before.", stacklevel=2)
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            self._check_grad(value)
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    def _check_grad(self, value) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"assigned grad is expected to be a Tensor or None, found {type(value).__name__}")
        if value is self:
            raise RuntimeError("a tensor cannot be its own grad")
        if "_grad_dtype" in self.__dict__:
            own, given = self.__dict__["_grad_dtype"], value.dtype
            if own is not None and given is not own:
                words = f"dtype {given} to a tensor with grad_dtype {dtypes.in_messages(own)}"
                raise RuntimeError(f"attempting to assign a gradient with {words}")
        for what in ("device", "shape") if "_grad_dtype" in self.__dict__ else ("dtype", "device", "shape"):
            wanted, found = getattr(self, what), getattr(value, what)
            if wanted != found:
                raise RuntimeError(f"assigned grad has data of a different {what}: expected {wanted}, found {found}")

    def retain_grad(self) -> None:
        """Keep the gradient of this non-leaf tensor in `.grad` during backward."""
        if not self.requires_grad:
            raise RuntimeError("can't retain_grad: the tensor has requires_grad=False")
        modes.check_no_transform("Tensor.retain_grad()")
        node = self.grad_fn
        if node is None or self._retains:
            return
        node._hooks().retaining[self._nr] = weakref.ref(self)
        self._retains = True

    @property
    def retains_grad(self) -> bool:
        """Whether this non-leaf keeps its gradient."""
        return self._retains and not self.is_leaf

    def register_hook(self, hook) -> RemovableHandle:
        """Call hook(grad) when the gradient of this tensor is known; what it returns replaces the gradient."""
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook: the tensor doesn't require gradient")
        node = self.grad_fn
        if node is None:
            modes.leaf_hooks = True
            self._hooks = {} if self._hooks is None else self._hooks
            return RemovableHandle(self._hooks, hook)
        return RemovableHandle(node._hooks().of_tensors.setdefault(self._nr, {}), hook)

    @property
    def _backward_hooks(self) -> dict | None:
        """What `register_hook` registered, for those who copy or send a tensor."""
        node = self.grad_fn
        return self._hooks if node is None else node._hooks().of_tensors.get(self._nr)

    @_backward_hooks.setter
    def _backward_hooks(self, hooks: dict | None) -> None:
        node = self.grad_fn
        if node is None:
            self._hooks, modes.leaf_hooks = hooks, True
        else:
            node._hooks().of_tensors[self._nr] = hooks or {}

    def register_post_accumulate_grad_hook(self, hook) -> RemovableHandle:
        """Call hook(tensor) each time a gradient has been added to this leaf's `.grad`."""
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook: the tensor doesn't require gradient")
        if not self.is_leaf:
            raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
        modes.leaf_hooks = True
        self._post_accumulate = {} if self._post_accumulate is None else self._post_accumulate
        return RemovableHandle(self._post_accumulate, hook)

    @property
    def data(self) -> Tensor:
        """The same memory without history; writing through it is not noticed by backward (prefer `detach`)."""
        alias = wrap(self._array)
        alias._storage = Storage(self._shared_storage().array)
        return alias

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"data must be a tensor, found {type(value).__name__}")
        if hasattr(value._array, "owner") and type(value) is type(self):
            self._array = value._array.of_tensor(self)
            return
        if hasattr(value._array, "as_tensor"):
            raise RuntimeError("Attempted to set the data of a tensor to one of an incompatible tensor type: it is sparse, or inside vmap")
        if self._needs and not value._is_float():
            raise RuntimeError("a tensor that requires grad must be floating point or complex dtype, and so must its data")
        self._array = value._array
        self._storage = value._shared_storage()

    @data.deleter
    def data(self) -> None:
        raise RuntimeError("A tensor cannot be without data: to free its memory, drop the tensor, or set .data to torch.empty(0)")

    def detach(self) -> Tensor:
        """The same memory without history: gradients stop here. Writes through either are seen by both, and by backward."""
        if (modes.special and stack.at(stack.DISPATCH) is not None) or type(self) in DISPATCHED:
            found = self._asked_to_detach()
            if found is not None:
                return found
        return _alias(self._array, self._storage or self._shared_storage(), self._inference)

    def detach_(self) -> Tensor:
        """Forget this tensor's own history."""
        if self._base is not None:
            raise RuntimeError("Can't detach views in-place: their base has a history, too. Use detach() instead.")
        if self._node is not None:  # nodes that have saved it find that its array is another one, and look closer
            self._detached_at = self._node.sequence
            self._array = arrays.strided_view(self._array, self._array.shape, arrays.element_strides(self._array), 0)
        self._node, self._nr, self._needs, self._base = None, 0, False, None
        return self

    def _reinterpret(self, dtype: dtypes.dtype) -> Tensor:
        """The same bytes read as another dtype: a view without history."""
        for bit, is_set in (("conjugate view tensors", self.is_conj()), ("tensors with negative bit set", self.is_neg())):
            if is_set:
                raise RuntimeError(f"torch.Tensor.view is not supported for {bit} when converting to a different dtype. Try x.clone()")
        place = *arrays.view_of(self._array), self.storage_offset()
        shape, strides, _offset = layout.view_dtype(*place, self._array.itemsize, dtype.itemsize)
        alias = wrap(arrays.reinterpret(self._array, dtype.numpy, shape, strides))
        alias._storage = self._shared_storage()
        if not self.requires_grad:
            alias._base = self._base if self._base is not None else self
            alias._stamp = alias._storage.version
        return alias

    def is_inference(self) -> bool:
        """Whether it was made in inference mode."""
        return self._inference

    def __hash__(self) -> int:
        return id(self)

    # -- Python protocols that are not operations

    def __repr__(self, *, tensor_contents=None) -> str:
        from flambeau.tensor import printing

        return printing.tensor_repr(self, tensor_contents=tensor_contents, default_dtype=dtypes.get_default_dtype())

    def describe(self):
        """The tensor at a glance: shape, dtype, range, mean, std, how many NaN, infinities and zeros, a small histogram."""
        from flambeau.tensor import describe

        return describe.describe(self)

    def __format__(self, spec: str) -> str:
        from flambeau.tensor import printing

        return printing.tensor_format(self, spec)


PLAIN: set[type] = {Tensor}  # tensor types that behave as Tensor itself: no __torch_function__ of their own
DISPATCHED: set[type] = set()  # tensor types that carry operations out themselves, by a __torch_dispatch__: see dispatch/

# What a tensor of any kind has that has no history.
NEW: dict[str, Any] = {"_needs": False, "_node": None, "_nr": 0, "_base": None, "_grad": None, "_stamp": 0, "_view_mode": None}

# wrap(array): a new tensor over an array, without history.
wrap: Callable[[Any], Tensor] = maker(Tensor, ("_array",), _storage=None, _inference=False, **NEW)
_alias: Callable[[Any, Storage, bool], Tensor] = maker(Tensor, ("_array", "_storage", "_inference"), **NEW)
