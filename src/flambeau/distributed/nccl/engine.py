"""The collectives of a group of GPUs, one per rank.

Tensors are used where they are if they are dense, else through a dense copy. What is under way keeps its tensors alive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from datetime import timedelta
from functools import cached_property
from typing import Any

import numpy as np

from flambeau.distributed import options
from flambeau.distributed.groups.engine import Engine, Tensors, describe, dtype_name, unique
from flambeau.distributed.groups.on_mpi import OnMPI, heights_of
from flambeau.distributed.groups.work import Work
from flambeau.distributed.reduce_op import RedOpType, ReduceOp
from flambeau.tensor import Tensor

KINDS = {  # NCCL's numbers for dtypes
    "int8": 0, "uint8": 1, "bool": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
OPS = {RedOpType.SUM: 0, RedOpType.PREMUL_SUM: 0, RedOpType.PRODUCT: 1, RedOpType.MAX: 2, RedOpType.MIN: 3, RedOpType.AVG: 4}
TAG = 1 << 15  # of the wire that compares cards, beside those of subgroups


class OnNCCL(Engine):
    """The collectives of one group.

    device  the GPU of this rank: that of the first tensor, if it was not said at the start
    """

    kind = "nccl"

    def __init__(self, on_mpi: OnMPI, device_id: Any, given: Any):
        wire = on_mpi.wire.subset(range(on_mpi.size), TAG)
        super().__init__(wire, on_mpi.watcher, f"{on_mpi.name}/nccl", on_mpi.desc, on_mpi.ranks, on_mpi.timeout)
        self.device: int | None = getattr(device_id, "index", None)
        self.under_way: deque[tuple[Any, Any]] = deque()  # (event, what must live until then)

    # ---- how a call runs ----

    @cached_property
    def cupy(self) -> Any:
        import cupy
        import cupy.cuda.nccl

        return cupy

    @cached_property
    def comm(self) -> Any:
        """NCCL's communicator; all ranks make it in their first call."""
        nccl = self.cupy.cuda.nccl
        own = nccl.get_unique_id()  # bytes, or in CuPy before 14 a tuple of signed ones
        name = np.frombuffer(own, np.uint8).copy() if isinstance(own, bytes) else np.array(own, np.int8).view(np.uint8)
        self.wire.broadcast(name, 0)  # the ranks use that of rank 0
        given = name.tobytes() if isinstance(own, bytes) else tuple(name.view(np.int8).tolist())
        with self.cupy.cuda.Device(self.device):
            return nccl.NcclCommunicator(self.size, given, self.rank)

    @cached_property
    def stream(self) -> Any:
        """Where collectives run, beside what the program computes."""
        with self.cupy.cuda.Device(self.device):
            return self.cupy.cuda.Stream(non_blocking=True)

    def call(self, said: str, opts: Any, tensors: Tensors, outputs: Tensors, launch: Callable[[int], None]) -> Work:
        """Put a call into the stream, when the ranks have compared their cards. `tensors` are what it touches."""
        work = OnStream(self, outputs)
        self.run(said, _at_once(opts), lambda: self._put(work, tensors, launch), outputs)
        work._finish()
        if not opts.asyncOp:
            work.wait()
        return work

    def _put(self, work: OnStream, tensors: Tensors, launch: Callable[[int], None]) -> None:
        if self.device is None:
            self.device = tensors[0].device.index if tensors else self.cupy.cuda.runtime.getDevice()
        with self.cupy.cuda.Device(self.device):
            comm = self.comm  # made here if this is the first call
            assert comm is not None
            self.stream.wait_event(self.cupy.cuda.get_current_stream().record())
            with self.stream:
                launch(self.stream.ptr)
                work.event = self.stream.record()
        self.under_way.append((work.event, tensors))
        while self.under_way and self.under_way[0][0].done:
            self.under_way.popleft()

    def abort(self) -> None:
        super().abort()
        if "comm" in self.__dict__:
            (self.comm.abort if self.broken else self.comm.destroy)()
            del self.__dict__["comm"]

    def drain(self) -> None:
        super().drain()
        if "stream" in self.__dict__:
            self.stream.synchronize()

    # ---- the collectives ----

    def broadcast(self, tensors: Tensors, opts: Any = None) -> Work:
        opts = opts or options.BroadcastOptions()
        (tensor,) = tensors
        dense = Dense([tensor])
        said = f"broadcast from {self.ranks[opts.rootRank]} {describe(tensor)}"
        return self.call(said, opts, dense.alive, [tensor], dense.after(lambda stream: self.comm.bcast(*dense[0], opts.rootRank, stream)))

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Work:
        opts = opts or options.AllreduceOptions()
        op = operation(opts.reduceOp, tensors[0])
        dense = Dense(tensors, opts.reduceOp)
        said = f"all_reduce {opts.reduceOp.op.name} {describe(*tensors)}"

        def launch(stream: int) -> None:
            with _Together(self.cupy):
                for pointer, count, kind in dense:
                    self.comm.allReduce(pointer, pointer, count, kind, op, stream)

        return self.call(said, opts, dense.alive, list(tensors), dense.after(launch))

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Tensors, opts: Any = None) -> Work:
        opts = opts or options.ReduceOptions()
        (tensor,), root = tensors, opts.rootRank
        op = operation(opts.reduceOp, tensor)
        dense = Dense(tensors, opts.reduceOp)
        pointer, count, kind = dense[0]
        said = f"reduce {opts.reduceOp.op.name} to {self.ranks[root]} {describe(tensor)}"
        launch = dense.after(lambda stream: self.comm.reduce(pointer, pointer, count, kind, op, root, stream), keep=self.rank == root)
        return self.call(said, opts, dense.alive, [tensor], launch)

    def allgather(self, outputs: Sequence[Tensors], tensors: Tensors, opts: Any = None) -> Work:
        opts = opts or options.AllgatherOptions()
        (out,), (tensor,) = outputs, tensors
        self.expect(tensor, out[self.rank], "all_gather: the output for this rank")
        return self._exchange(f"all_gather {describe(*unique(out))}", opts, [tensor] * self.size, out)

    def _allgather_base(self, out: Tensor, tensor: Tensor, opts: Any = None) -> Work:
        opts = opts or options.AllgatherOptions()
        sending, receiving = Dense([tensor]), Dense([out], read=False)
        (source, count, kind), target = sending[0], receiving[0][0]
        launch = receiving.after(lambda stream: self.comm.allGather(source, target, count, kind, stream))
        return self.call(f"all_gather_into_tensor {describe(tensor)}", opts, sending.alive + receiving.alive, [out], launch)

    def gather(self, outputs: Sequence[Tensors], tensors: Tensors, opts: Any = None) -> Work:
        opts = opts or options.GatherOptions()
        (tensor,), root = tensors, opts.rootRank
        out = list(outputs[0]) if outputs else []
        to = [tensor if rank == root else None for rank in range(self.size)]
        return self._exchange(f"gather to {self.ranks[root]} {describe(tensor)}", opts, to, out or [None] * self.size)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        opts = opts or options.ScatterOptions()
        (out,), root = outputs, opts.rootRank
        to = list(inputs[0]) if inputs else [None] * self.size
        receiving = [out if rank == root else None for rank in range(self.size)]
        return self._exchange(f"scatter from {self.ranks[root]} {describe(out)}", opts, to, receiving)

    def reduce_scatter(self, outs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        opts = opts or options.ReduceScatterOptions()
        (out,), parts = outs, inputs[0]
        self.expect(parts[self.rank], out, "reduce_scatter: the output of this rank")
        op = operation(opts.reduceOp, out)
        dense, target = Dense(parts, opts.reduceOp, keep=False), Dense([out], read=False)

        def launch(stream: int) -> None:
            with _Together(self.cupy):
                for rank, (pointer, count, kind) in enumerate(dense):
                    self.comm.reduce(pointer, target[0][0] if rank == self.rank else pointer, count, kind, op, rank, stream)

        said = f"reduce_scatter {opts.reduceOp.op.name} {describe(*unique(parts))}"
        return self.call(said, opts, dense.alive + target.alive, [out], target.after(launch))

    def _reduce_scatter_base(self, out: Tensor, tensor: Tensor, opts: Any = None) -> Work:
        opts = opts or options.ReduceScatterOptions()
        op = operation(opts.reduceOp, tensor)
        sending, receiving = Dense([tensor], opts.reduceOp, keep=False), Dense([out], read=False)
        source, (target, count, kind) = sending[0][0], receiving[0]
        launch = receiving.after(lambda stream: self.comm.reduceScatter(source, target, count, kind, op, stream))
        said = f"reduce_scatter_tensor {opts.reduceOp.op.name} {describe(tensor)}"
        return self.call(said, opts, sending.alive + receiving.alive, [out], launch)

    def alltoall_base(self, out: Tensor, tensor: Tensor, out_splits: Sequence[int], in_splits: Sequence[int], opts: Any = None) -> Work:
        opts = opts or options.AllToAllOptions()
        to = _rows(tensor, in_splits, self.size, "input")
        if not out.is_contiguous():
            raise ValueError("all_to_all_single: the output must be contiguous")
        said = "all_to_all_single " + (dtype_name(tensor) if in_splits or out_splits else describe(tensor))
        return self._exchange(said, opts, to, _rows(out, out_splits, self.size, "output"), [out])

    def alltoall(self, outs: Tensors, tensors: Tensors, opts: Any = None) -> Work:
        return self._exchange(f"all_to_all {dtype_name(tensors[0])}", opts or options.AllToAllOptions(), tensors, outs)

    def barrier(self, opts: Any = None) -> Work:
        opts = opts or options.BarrierOptions()
        work = self.call("barrier", opts, [], [], lambda stream: None)  # the cards, or the next line, have made everyone wait
        if not self.checked:
            self.wire.gather(np.zeros(1, np.uint8), np.empty(self.size, np.uint8))
        self.drain()
        return work

    def send(self, tensors: Tensors, to: int, tag: int = 0, *, wait: bool = False) -> Work:
        sending = Dense(tensors)
        return self._message(sending, list(tensors), lambda stream: self.comm.send(*sending[0], to, stream))

    def recv(self, tensors: Tensors, source: int, tag: int = 0, *, wait: bool = False) -> Work:
        receiving = Dense(tensors, read=False)
        return self._message(receiving, list(tensors), receiving.after(lambda stream: self.comm.recv(*receiving[0], source, stream)))

    def recv_anysource(self, tensors: Tensors, tag: int = 0, *, wait: bool = False) -> Work:
        raise NotImplementedError("NCCL cannot receive from anyone: name the rank that sends")

    def _message(self, dense: Dense, outputs: Tensors, launch: Callable[[int], None]) -> Work:
        """Messages concern two ranks: no cards are compared, NCCL's order counts."""
        work = OnStream(self, outputs)
        self._put(work, dense.alive, launch)
        work._finish()
        return work

    def _exchange(
        self, said: str, opts: Any, to: Sequence[Tensor | None], out: Sequence[Tensor | None], outputs: Tensors | None = None
    ) -> Work:
        """Send to[r] to every rank r, and fill out[r] with what it sends here."""
        sending = [None if tensor is None else Dense([tensor]) for tensor in to]
        receiving = [None if tensor is None else Dense([tensor], read=False) for tensor in out]

        def launch(stream: int) -> None:
            with _Together(self.cupy):
                for rank in range(self.size):
                    if (source := sending[rank]) is not None:
                        self.comm.send(*source[0], rank, stream)
                    if (target := receiving[rank]) is not None:
                        self.comm.recv(*target[0], rank, stream)
            for dense in receiving:
                if dense:
                    dense.write_back()

        alive = [tensor for dense in (*sending, *receiving) if dense for tensor in dense.alive]
        return self.call(said, opts, alive, outputs or [tensor for tensor in out if tensor is not None], launch)


class OnStream(Work):
    """A call that is in the stream of its group."""

    def __init__(self, engine: OnNCCL, outputs: Tensors):
        super().__init__(outputs)
        self.engine = engine
        self.event: Any = None

    def is_completed(self) -> bool:
        return self.event is not None and self.event.done

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Let what the program computes from now on wait for the result."""
        cuda = self.engine.cupy.cuda
        with cuda.Device(self.engine.device):
            cuda.get_current_stream().wait_event(self.event)
        return True


class Dense(list[tuple[int, int, int]]):
    """Tensors as NCCL takes them: (pointer, count, kind) of dense memory on the GPU; copies of those that are not dense.

    read   whether the memory's contents matter
    alive  what must live until the call is over
    """

    def __init__(self, tensors: Tensors, op: ReduceOp | None = None, *, read: bool = True, keep: bool = True):
        self.tensors = list(tensors)
        scaled = op is not None and op.op is RedOpType.PREMUL_SUM
        self.dense = [self._dense(tensor, op if scaled else None, copy=op is not None and not keep) for tensor in self.tensors]
        self.alive = self.tensors + self.dense
        super().__init__((tensor._array.data.ptr, *_size(tensor)) for tensor in self.dense)

    @staticmethod
    def _dense(tensor: Tensor, scale: ReduceOp | None, copy: bool) -> Tensor:
        tensor = tensor.detach()
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        if scale is not None:
            return (tensor * scale.factor).to(tensor.dtype).contiguous()
        return tensor.clone().contiguous() if copy else tensor.contiguous()

    def write_back(self) -> None:
        """Copy what arrived to where the tensors have it, if that is elsewhere."""
        for tensor, dense in zip(self.tensors, self.dense, strict=True):
            if tensor._array.data.ptr != dense._array.data.ptr:
                tensor.detach().copy_(dense)

    def after(self, launch: Callable[[int], Any], keep: bool = True) -> Callable[[int], None]:
        """The launch, and then the copies back."""

        def both(stream: int) -> None:
            launch(stream)
            if keep:
                self.write_back()

        return both


class _Together:
    """Calls that NCCL starts at once."""

    def __init__(self, cupy: Any):
        self.nccl = cupy.cuda.nccl

    def __enter__(self) -> None:
        self.nccl.groupStart()

    def __exit__(self, *problem: object) -> None:
        self.nccl.groupEnd()


def operation(op: ReduceOp, tensor: Tensor) -> int:
    """NCCL's number of a reduction of tensors like this one."""
    if op.op not in OPS:
        raise RuntimeError(
            f"Cannot use ReduceOp.{op.op.name} with NCCL: it has SUM, AVG, PRODUCT, MIN, MAX and PREMUL_SUM. Move the tensor to the CPU"
        )
    if tensor.dtype.is_complex and op.op not in (RedOpType.SUM, RedOpType.AVG, RedOpType.PREMUL_SUM):
        raise ValueError(f"ReduceOp.{op.op.name} of complex numbers is not defined for NCCL: only sums are")
    if str(tensor.dtype) == "torch.bool" and op.op is RedOpType.SUM:
        return OPS[RedOpType.MAX]  # True + True is True, where bytes would say 2
    return OPS[op.op]


def _size(tensor: Tensor) -> tuple[int, int]:
    """(count, kind), where a complex number counts as two."""
    name = dtype_name(tensor)
    if name.startswith("complex"):
        return 2 * tensor.numel(), KINDS["float32" if name == "complex64" else "float64"]
    if name not in KINDS:
        raise RuntimeError(f"NCCL does not move {tensor.dtype}: view it as bytes with tensor.view(torch.uint8)")
    return tensor.numel(), KINDS[name]


def _at_once(opts: Any) -> Any:
    """The same options for a call that is put into the stream on this thread: that takes no time, and what follows is asynchronous anyway."""
    record = copy(opts)
    record.asyncOp = False
    return record


def _rows(tensor: Tensor, splits: Sequence[int], ranks: int, which: str) -> list[Tensor]:
    """The rows of each rank."""
    heights = heights_of(tensor.shape, splits, ranks, which)
    return list(tensor.detach().contiguous().split(heights)) if tensor.ndim else [tensor] * ranks
