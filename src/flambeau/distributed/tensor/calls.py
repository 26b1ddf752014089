"""A call of an operation some of whose arguments are DTensors, taken apart: which tensors there are, what the whole results look like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau import modes
from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor import sharded
from flambeau.distributed.tensor._api import DTensor
from flambeau.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from flambeau.distributed.tensor.pieces import meta_of
from flambeau.distributed.tensor.placement_types import Replicate
from flambeau.eager.arguments import Arguments
from flambeau.eager.array_ops import promote
from flambeau.eager.pointwise import _sorter
from flambeau.interpreters.by_name import DisableTorchFunction
from flambeau.kernels.meta import MetaArray
from flambeau.tensor import Tensor, wrap

replicated_implicitly = [False]  # whether plain tensors among the operands count as replicated


class Call:
    """An operation, its arguments in the order of its parameters, and the DTensors among them.

    values   the arguments; tensors may stand in lists
    tensors  all DTensors, in order; plain tensors of one element have been replicated
    """

    def __init__(self, op: Any, args: tuple, kwargs: dict, in_place: bool):
        self.op, self.in_place = op, in_place
        self.name: str = op.name
        if op.kind == "pointwise":
            if not hasattr(op, "sort"):
                op.sort = _sorter(op)
            operands, options = op.sort(args, kwargs)
            values = (*operands, *[v.item() if isinstance(v, Tensor) else v for v in options])
        else:
            if not hasattr(op, "arguments"):
                op.arguments = Arguments(op)
            values = op.arguments.values(args, kwargs)
        self.mesh = self._mesh(values)
        self.values: list[Any] = [self._adopted(v) for v in values]
        if op.kind == "array" and op.promote:
            named = promote(op, dict(zip(op.parameters, self.values, strict=True)))
            self.values = [named[name] for name in op.parameters]
        self.tensors: list[DTensor] = [
            t for v in self.values for t in (v if isinstance(v, (list, tuple)) else (v,)) if isinstance(t, DTensor)
        ]

    @property
    def differentiable(self) -> bool:
        """Whether the operation has a derivative."""
        return getattr(self.op, "differentiable", True)

    @property
    def recorded(self) -> bool:
        """Whether a gradient is wanted."""
        return modes.state.grad and self.differentiable and any(t.requires_grad for t in self.tensors)

    @property
    def shown(self) -> str:
        """The operation's name in messages."""
        return self.op.short.lstrip("_")

    @property
    def node_name(self) -> str:
        """What a node of the operation is called."""
        kind = getattr(self.op, "node_class", None)
        return kind.__name__ if kind is not None else "".join(part.title() for part in self.op.short.split("_")) + "Backward0"

    def _mesh(self, values: Sequence[Any]) -> DeviceMesh:
        meshes = [t.device_mesh for v in values for t in (v if isinstance(v, (list, tuple)) else (v,)) if isinstance(t, DTensor)]
        if any(mesh is not meshes[0] and mesh != meshes[0] for mesh in meshes):
            other = next(mesh for mesh in meshes if mesh != meshes[0])
            raise NotImplementedError(
                f"{self.shown}: operands on different meshes, {meshes[0]} and {other}. Distribute them over one, by full_tensor()"
            )
        return meshes[0]

    def _adopted(self, value: Any) -> Any:
        if isinstance(value, DTensor):
            return value
        if isinstance(value, Tensor):
            return self._replicated(value)
        if isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value):
            return [self._adopted(v) for v in value]
        return value

    def _replicated(self, plain: Tensor) -> DTensor:
        if plain.numel() != 1 and not replicated_implicitly[0]:
            raise RuntimeError(
                f"{self.shown} got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators! "
                f"Found a plain tensor of shape {tuple(plain.shape)}. Try distribute_tensor(x, {self.mesh}, [Replicate()])"
            )
        device = self.mesh.device_type
        plain = plain if plain.device.type == device or plain.is_meta else plain.to(device)
        return sharded.from_local(plain, DTensorSpec(self.mesh, (Replicate(),) * self.mesh.ndim, meta_of(plain)))

    def argument(self, name: str) -> Any:
        """An argument by the name of its parameter."""
        names = (*self.op.operands, *self.op.options) if self.op.kind == "pointwise" else self.op.parameters
        return self.values[names.index(name)]

    def with_tensors(self, tensors: Sequence[Any]) -> list[Any]:
        """The arguments with others in the places of the DTensors."""
        rest = iter(tensors)

        def put(value: Any) -> Any:
            if isinstance(value, DTensor):
                return next(rest)
            if isinstance(value, list) and any(isinstance(v, DTensor) for v in value):
                return [put(v) for v in value]
            return value

        return [put(v) for v in self.values]

    def run_on(self, tensors: Sequence[Any], in_place: bool | None = None) -> Any:
        """The operation on other tensors, in the places of the DTensors."""
        return self.run_with(self.with_tensors(tensors), in_place)

    def run_with(self, values: Sequence[Any], in_place: bool | None = None) -> Any:
        """The operation with these arguments, in the order of its parameters."""
        op = self.op
        function = op.call_inplace if (self.in_place if in_place is None else in_place) else op.call
        if op.kind == "pointwise":
            n = len(op.operands)
            return function(*values[:n], **dict(zip(op.options, values[n:], strict=True)))
        n = op.n_positional
        return function(*values[:n], **dict(zip(op.parameters[n:], values[n:], strict=True)))

    def metas(self) -> tuple[list[TensorMeta | None], bool]:
        """(what the whole results look like, whether there are several): by running the operation on tensors without data. None: it cannot tell."""
        if self.in_place:
            return [self.tensors[0]._spec.tensor_meta], False
        stand_ins = [wrap(MetaArray(t._array.shape, t._array.dtype, t.stride())) for t in self.tensors]
        try:
            with DisableTorchFunction(), modes.no_grad():
                found = self.run_on(stand_ins)
        except NotImplementedError:
            return [None], False
        several = isinstance(found, (tuple, list))
        return [meta_of(t) for t in listed(found)], several

    def key(self) -> Any:
        """What a decision depends on, hashable; TypeError where some argument is not."""
        described = tuple([(t._spec.placements, t._spec._meta) for t in self.tensors])
        others = tuple([_fixed(v) for v in self.values])
        key = self.op, self.in_place, self.recorded, self.mesh, described, others
        hash(key)
        return key

    def delivered(self, results: list[DTensor], several: bool) -> Any:
        """Results as the operation returns them."""
        if self.op.kind == "view":
            for result in results:
                result._view_mode = "shares"
        kind = getattr(self.op, "result_type", None)
        if kind is not None:
            return kind(*results)
        return tuple(results) if several or len(results) > 1 else results[0]

    def __str__(self) -> str:
        return f"{self.shown}({', '.join(_shown(v) for v in self.values)})"


def _fixed(value: Any) -> Any:
    if isinstance(value, Tensor):
        return Tensor
    if isinstance(value, list):
        return (list, *[_fixed(v) for v in value])
    return (type(value), value)  # 1, 1.0 and True are equal, and mean different things


def _shown(value: Any) -> str:
    if isinstance(value, DTensor):
        return str(value._spec)
    if isinstance(value, (list, tuple)) and any(isinstance(v, DTensor) for v in value):
        return f"[{', '.join(map(_shown, value))}]"
    return repr(value)


def listed(found: Any) -> list[Any]:
    """Results in a list, however many there are."""
    return list(found) if isinstance(found, (tuple, list)) else [found]
