"""What can be chosen: dtypes, where pieces are kept, who sends them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flambeau.distributed.collectives.all_gather import all_gather_single
from flambeau.distributed.collectives.reduce_scatter import reduce_scatter_single
from flambeau.dtypes import dtype as dtype_
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty

if TYPE_CHECKING:
    from flambeau.devices import device as device_
    from flambeau.distributed.fsdp._fully_shard.meshes import Meshes
    from flambeau.distributed.groups import ProcessGroup, Work
    from flambeau.distributed.tensor import Shard


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes of a module; optimizers see the parameters' own.

    param_dtype          of whole parameters, so that of the collective that makes them and of what is computed; None: their own
    reduce_dtype         in which gradients are added up over ranks and over passes without a reduction; None: param_dtype
    output_dtype         what forward gives is cast to
    cast_forward_inputs  whether what forward takes is cast to param_dtype
    """

    param_dtype: dtype_ | None = None
    reduce_dtype: dtype_ | None = None
    output_dtype: dtype_ | None = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Pieces, gradients and optimizer states stay where the mesh is."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Pieces, gradients and optimizer states are kept in main memory; whole parameters are made where the mesh is.

    pin_memory  in memory that a GPU reads directly
    """

    pin_memory: bool = True


@dataclass
class DataParallelMeshDims:
    """Which dimensions of a mesh are for data parallelism, where parameters are DTensors on all of it.

    shard      the name, or names, of those that parameters are divided over
    replicate  the name, or names, of those that have the same pieces
    """

    shard: str | tuple[str, ...] | None = None
    replicate: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.shard is None and self.replicate is None:
            raise ValueError("At least one of shard or replicate must be set in DataParallelMeshDims: the names of dimensions of a mesh")

    @property
    def shard_names(self) -> tuple[str, ...]:
        """`shard` as a tuple."""
        return _names(self.shard)

    @property
    def replicate_names(self) -> tuple[str, ...]:
        """`replicate` as a tuple."""
        return _names(self.replicate)


def _names(given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


@dataclass
class ShardPlacementResult:
    """What `shard_placement_fn` may say of a parameter: along which of its dimensions it is cut (None: the first), and over which ranks."""

    placement: Shard | None
    mesh_info: Meshes


class Comm(ABC):
    """A collective of one's own, and the memory that it works on."""

    @abstractmethod
    def allocate(self, size: Sequence[int], *, dtype: dtype_, device: device_) -> Tensor:
        """Memory to send from or to receive in."""


class AllGather(Comm):
    """Makes whole parameters of pieces."""

    @abstractmethod
    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup, async_op: bool = False) -> Work | None:
        """As all_gather_into_tensor."""


class ReduceScatter(Comm):
    """Makes pieces of the sum of whole gradients."""

    @abstractmethod
    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup, op: Any, async_op: bool = False) -> Work | None:
        """As reduce_scatter_tensor."""


class DefaultAllGather(AllGather):
    """What is used unless a program brings its own: all_gather_into_tensor, on memory made for each call."""

    def allocate(self, size: Sequence[int], *, dtype: Any, device: Any) -> Tensor:
        return empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> Any:
        return all_gather_single(output_tensor, input_tensor, group, async_op)


class DefaultReduceScatter(ReduceScatter):
    """What is used unless a program brings its own: reduce_scatter_tensor, on memory made for each call."""

    allocate = DefaultAllGather.allocate

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False) -> Any:
        return reduce_scatter_single(output_tensor, input_tensor, op, group, async_op)
