"""ProcessGroup: ranks that make collective calls together, and for each kind of device the engine that does them.

Its methods are those that PyTorch's has, which take lists of tensors and a record of options. Programs mostly call the functions
of `torch.distributed`, which check what they are given, and then these.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from typing import Any

from flambeau.devices import device
from flambeau.distributed import options
from flambeau.distributed.groups import arguments, sparse
from flambeau.distributed.groups.work import Work
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.tensor import Tensor

Tensors = Sequence[Tensor]
_numbers = itertools.count()


class BackendKind(Enum):
    """What kind of engine a backend is."""

    UNDEFINED = 0
    GLOO = 1
    NCCL = 2
    UCC = 3
    MPI = 4
    XCCL = 5
    CUSTOM = 6

    @classmethod
    def of(cls, name: str) -> BackendKind:
        return cls.__members__.get(name.upper(), cls.CUSTOM)


class ProcessGroup:
    """Some ranks of a program. Made by `init_process_group` and `new_group`; a class of your own may inherit from it.

    ranks  the ranks of the whole program that are its members, in order
    """

    BackendType = BackendKind
    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL, CUSTOM = BackendKind

    def __init__(self, *where: Any):
        """ProcessGroup(rank, size) or ProcessGroup(store, rank, size)."""
        store, rank, size = where if len(where) == 3 else (None, *where)
        self._rank, self._size, self._store = rank, size, store
        self.ranks = list(range(size))
        self.group_name = self.group_desc = ""
        self.bound_device_id: device | None = None
        self._engines: dict[str, Any] = {}  # by type of device
        self._default = BackendKind.UNDEFINED
        self._kinds: dict[str, str] = {}
        self._world: Any = None  # what it shares with its parent, and the engine that is made before all others
        self._on_mpi: Any = None
        self._id = next(_numbers)

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def name(self) -> str:
        return self._default.name.lower()

    def __repr__(self) -> str:
        engines = ", ".join(f"{kind}: {_name(engine)}" for kind, engine in self._engines.items())
        return f"<ProcessGroup {self.group_desc or self.group_name!r}: rank {self._rank} of {self._size}, {engines or 'no backend'}>"

    # ---- engines ----

    def _register_backend(self, device: device, backend_type: BackendKind, backend: Any = None) -> None:
        """Let this engine make the calls with tensors on devices of this type."""
        self._engines[device.type] = backend
        if self._default is BackendKind.UNDEFINED:
            self._default = backend_type

    def _set_default_backend(self, backend_type: BackendKind) -> None:
        self._default = backend_type

    def _get_backend(self, device: device) -> Any:
        try:
            return self._engines[device.type]
        except KeyError:
            has = ", ".join(f"{kind} ({_name(engine)})" for kind, engine in self._engines.items())
            raise RuntimeError(
                f"No backend type associated with device type {device.type}: this group has backends for {has or 'no device'}. "
                'init_process_group("cpu:gloo,cuda:nccl") has one for both'
            ) from None

    def _get_backend_name(self) -> str:
        return self._default.name.lower()

    def _backend_id(self, backend_type: BackendKind) -> int:
        return backend_type.value

    @property
    def _device_types(self) -> list[device]:
        return [device(kind) for kind in self._engines]

    def _of(self, tensors: Any) -> Any:
        """The engine for the devices of these tensors."""
        while not isinstance(tensors, Tensor):
            if not tensors:
                return next(iter(self._all()))
            tensors = tensors[0]
        return self._get_backend(tensors.device)

    def _all(self) -> list[Any]:
        return list({id(engine): engine for engine in self._engines.values()}.values())

    def set_timeout(self, timeout: timedelta) -> None:
        """How long the calls from now on may take."""
        for engine in self._all():
            engine.timeout = timeout

    _set_default_timeout = set_timeout

    def get_group_store(self) -> Any:
        """The store in which the group's ranks found each other."""
        return self._store

    # ---- collectives ----

    def broadcast(self, tensors: Tensors | Tensor, opts: Any = None, timeout: timedelta | None = None) -> Work:
        if isinstance(tensors, Tensor):
            tensors, opts = [tensors], options.BroadcastOptions(rootRank=opts, timeout=timeout)
        if opts is not None:
            arguments.root(opts, self._size, "broadcast")
        if len(tensors) != 1:
            arguments.single(tensors, "broadcast")
        return self._of(tensors).broadcast(tensors, opts)

    def allreduce(self, tensors: Tensors | Tensor, opts: Any = None, timeout: timedelta | None = None) -> Work:
        tensors = [tensors] if isinstance(tensors, Tensor) else tensors
        if isinstance(opts, (ReduceOp, ReduceOp.RedOpType)):
            opts = options.AllreduceOptions(reduceOp=opts, timeout=timeout)
        if len(tensors) != 1:
            arguments.single(tensors, "allreduce")
        if tensors[0].is_sparse:
            return sparse.all_reduce(self, tensors[0], opts.reduceOp if opts is not None else ReduceOp.SUM)
        return self._of(tensors).allreduce(tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        arguments.coalesced(tensors, "allreduce_coalesced")
        return self._of(tensors).allreduce_coalesced(tensors, opts)

    def reduce(self, tensors: Tensors | Tensor, opts: Any = None, op: Any = ReduceOp.SUM, timeout: timedelta | None = None) -> Work:
        if isinstance(tensors, Tensor):
            tensors, opts = [tensors], options.ReduceOptions(rootRank=opts, reduceOp=op, timeout=timeout)
        if opts is not None:
            arguments.root(opts, self._size, "reduce")
        if len(tensors) != 1:
            arguments.alone(tensors, "reduce", "tensor list")
        return self._of(tensors).reduce(tensors, opts)

    def allgather(self, outputs: Any, tensors: Tensors | Tensor, opts: Any = None) -> Work:
        if isinstance(tensors, Tensor):
            outputs, tensors, opts = [outputs], [tensors], options.AllgatherOptions(timeout=opts)
        arguments.gathered(outputs, tensors, self._size)
        return self._of(tensors).allgather(outputs, tensors, opts)

    def _allgather_base(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Work:
        return self._of(tensor)._allgather_base(output, tensor, opts)

    def allgather_coalesced(self, outputs: Any, tensors: Tensors, opts: Any = None) -> Work:
        return self._of(tensors).allgather_coalesced(outputs, tensors, opts)

    def allgather_into_tensor_coalesced(self, outputs: Tensors, tensors: Tensors, opts: Any = None) -> Work:
        return self._of(tensors).allgather_into_tensor_coalesced(outputs, tensors, opts)

    def gather(self, outputs: Any, tensors: Tensors | Tensor, opts: Any = None, timeout: timedelta | None = None) -> Work:
        if isinstance(tensors, Tensor):
            outputs, tensors, opts = [outputs] if outputs else [], [tensors], options.GatherOptions(rootRank=opts, timeout=timeout)
        opts = opts or options.GatherOptions()
        arguments.root(opts, self._size, "gather")
        arguments.alone(tensors, "gather", "input tensor list")
        arguments.for_all(outputs, self._rank == opts.rootRank, self._size, "gather", "output")
        return self._of(tensors).gather(outputs, tensors, opts)

    def scatter(self, outputs: Tensors | Tensor, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        if isinstance(outputs, Tensor):
            outputs, tensors, opts = [outputs], [tensors] if tensors else [], options.ScatterOptions(rootRank=opts, timeout=timeout)
        opts = opts or options.ScatterOptions()
        arguments.root(opts, self._size, "scatter")
        arguments.alone(outputs, "scatter", "output tensor list")
        arguments.for_all(tensors, self._rank == opts.rootRank, self._size, "scatter", "input")
        return self._of(outputs).scatter(outputs, tensors, opts)

    def reduce_scatter(self, outputs: Tensors | Tensor, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        if isinstance(outputs, Tensor):
            outputs, tensors, opts = [outputs], [tensors], options.ReduceScatterOptions(reduceOp=opts or ReduceOp.SUM, timeout=timeout)
        return self._of(outputs).reduce_scatter(outputs, tensors, opts)

    def _reduce_scatter_base(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Work:
        return self._of(tensor)._reduce_scatter_base(output, tensor, opts)

    def reduce_scatter_tensor_coalesced(self, outputs: Tensors, tensors: Tensors, opts: Any = None) -> Work:
        return self._of(tensors).reduce_scatter_tensor_coalesced(outputs, tensors, opts)

    def alltoall_base(
        self, output: Tensor, tensor: Tensor, output_splits: Sequence[int], input_splits: Sequence[int], opts: Any = None
    ) -> Work:
        return self._of(tensor).alltoall_base(output, tensor, output_splits, input_splits, opts)

    def alltoall(self, outputs: Tensors, tensors: Tensors, opts: Any = None) -> Work:
        arguments.exchanged(outputs, tensors, self._size)
        return self._of(tensors).alltoall(outputs, tensors, opts)

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Work:
        if opts is None or isinstance(opts, timedelta):
            opts = options.BarrierOptions(timeout=timeout or opts)
        return self._of([]).barrier(opts)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        self._get_backend(device("cpu")).monitored_barrier(timeout, wait_all_ranks)

    def send(self, tensors: Tensors, dstRank: int, tag: int = 0, **how: Any) -> Work:
        return self._of(tensors).send(tensors, dstRank, tag, **how)

    def recv(self, tensors: Tensors, srcRank: int, tag: int = 0, **how: Any) -> Work:
        return self._of(tensors).recv(tensors, srcRank, tag, **how)

    def recv_anysource(self, tensors: Tensors, tag: int = 0, **how: Any) -> Work:
        return self._of(tensors).recv_anysource(tensors, tag, **how)

    # ---- life ----

    def subgroup(
        self,
        ranks: Sequence[int],
        *,
        backend: str | None = None,
        timeout: timedelta | None = None,
        options: Any = None,
        name: str,
        desc: str = "undefined",
        use_local_synchronization: bool = False,
    ) -> ProcessGroup | None:
        """A group of some of the ranks of this one, which all call this, or with local synchronization its members alone; None for the others."""
        from flambeau.distributed.groups.start import subgroup

        return subgroup(self, ranks, backend, timeout, options, name, desc, use_local_synchronization)

    def shutdown(self) -> None:
        """The group ends; what has been called is done before."""
        for engine in self._all():
            engine.close()
        self._leave()

    def abort(self) -> None:
        """The group ends at once; what has been called may never be done."""
        for engine in self._all():
            engine.abort()
        self._leave()

    def _leave(self) -> None:
        if self._world is not None and self._world.first is self:
            self._world.end()

    def _wait_for_pending_works(self) -> None:
        for engine in self._all():
            engine.drain()

    def _set_group_name(self, name: str) -> None:
        self.group_name = name

    def _set_group_desc(self, desc: str) -> None:
        self.group_desc = desc

    def _has_hooks(self) -> bool:
        return False

    def _enable_collectives_timing(self) -> None:
        """Calls are always timed where a profiler watches."""

    def _get_sequence_number_for_group(self) -> int:
        """How many collectives the group has begun."""
        return sum(engine.calls for engine in self._all())

    def _set_sequence_number_for_group(self) -> None:
        """The numbers start at 0 on all ranks anyway."""


def _name(engine: Any) -> str:
    return getattr(engine, "kind", type(engine).__name__)
