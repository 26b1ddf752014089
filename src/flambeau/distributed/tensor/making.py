"""zeros_like(x), x.new_ones(size), rand_like(x) and their like, of a DTensor: DTensors on the same mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.distributed.tensor import drawing
from flambeau.distributed.tensor._api import DTensor, wrapped
from flambeau.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from flambeau.distributed.tensor.pieces import meta_of
from flambeau.distributed.tensor.placement_types import Replicate
from flambeau.interpreters.by_name import DisableTorchFunction
from flambeau.kernels.meta import MetaArray
from flambeau.tensor import wrap
from flambeau.tensor.making.factories import empty_like

LIKE = frozenset("zeros_like ones_like empty_like full_like".split())
DRAWN_LIKE = frozenset("rand_like randn_like randint_like".split())


def made(function: Callable, args: tuple, kwargs: dict) -> Any:
    """A function that makes tensors, given a DTensor. New ones of another size are replicated."""
    name = getattr(function, "__name__", str(function))
    self = args[0] if args else kwargs.get("input", kwargs.get("self"))
    if not isinstance(self, DTensor) or not (name in LIKE or name in DRAWN_LIKE or name.startswith("new_")):
        raise NotImplementedError(f"{name}() of a DTensor is not implemented. Try it on x.full_tensor() or x.to_local()")
    wants = bool(kwargs.pop("requires_grad", False))
    if name.startswith("new_"):
        result = _new(function, name, self, args[1:], kwargs)
    else:
        result = _like(function, name, self, args[1:], kwargs)
    return result.requires_grad_() if wants else result


def _like(function: Callable, name: str, self: DTensor, rest: tuple, kwargs: dict) -> DTensor:
    mesh = self.device_mesh
    placements = tuple(Replicate() if p.is_partial() and name != "zeros_like" else p for p in self.placements)
    # Pieces on the meta device come to the mesh.
    there = str(kwargs.get("device")) == mesh.device_type == self._local_tensor.device.type
    kwargs = kwargs | {"device": None} if there else kwargs
    with DisableTorchFunction():
        stand_in = wrap(MetaArray(self._array.shape, self._array.dtype, self.stride()))
        whole = meta_of(empty_like(stand_in, **{k: v for k, v in kwargs.items() if k in ("dtype", "memory_format")}))
        if name in DRAWN_LIKE:
            local = drawing.drawn(
                mesh, whole.shape, whole.dtype, placements, lambda blank: function(blank, *rest, **kwargs | {"dtype": whole.dtype})
            )
        else:
            local = function(self._local_tensor, *rest, **kwargs)  # terms, too, have the shape of the whole
    return wrapped(local, DTensorSpec(mesh, placements, whole))


def _new(function: Callable, name: str, self: DTensor, rest: tuple, kwargs: dict) -> DTensor:
    with DisableTorchFunction():
        same = name in ("new_zeros", "new_ones", "new_empty", "new_full") and _size(name, rest, kwargs) == tuple(self.shape)
        if same and not any(p.is_partial() for p in self.placements):  # it is as large as self: most likely something of its kind
            local_shape = tuple(self._local_tensor.shape)
            further = rest[1:] if name == "new_full" else ()
            named = {k: v for k, v in kwargs.items() if k != "size"}
            local = function(self._local_tensor, local_shape, *further, **named)
            meta = TensorMeta(self._spec.shape, meta_of(wrap(MetaArray(self._array.shape, self._array.dtype))).stride, local.dtype)
            return wrapped(local, DTensorSpec(self.device_mesh, self.placements, meta))
        local = function(self._local_tensor, *rest, **kwargs)
    return wrapped(local, DTensorSpec(self.device_mesh, (Replicate(),) * self.device_mesh.ndim, meta_of(local)))


def _size(name: str, rest: tuple, kwargs: dict) -> tuple:
    size = kwargs.get("size", rest[0] if rest and isinstance(rest[0], (tuple, list)) else rest)
    return tuple(size) if isinstance(size, (tuple, list)) else (size,)
