"""Reducer: averages the gradients of a model over all ranks while backward goes on.

Every parameter tells when its gradient is complete. When that is so for all parameters of a bucket, and of all buckets before it, the gradients
are copied into the bucket, and it is sent; backward computes further ones meanwhile. At the end of backward the reducer waits for the buckets
and writes the averages to `.grad`.

    backward     ... layer 9   layer 8   layer 7   layer 6   layer 5 ...  end
    lane               [ all-reduce of 9, 8 ]  [ all-reduce of 7, 6, 5 ]  wait

Note [the last bucket]: it is full when backward has nothing left to do, so it is sent by the thread that waits for it anyway. A model that fits into
one bucket never wakes another thread.

Note [order]: all ranks send bucket 0 first, then bucket 1 and so on, whatever order gradients come in; the collectives of ranks meet in the order of
their calls. The buckets of the first pass are made in the reverse order of the parameters, later ones in the order in which rank 0 saw gradients come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns as now
from typing import Any

from flambeau import dtypes, modes
from flambeau.distributed import options
from flambeau.distributed.data_parallel.assignment import FIRST_BUCKET_BYTES, MEBIBYTE, assign_by_size
from flambeau.distributed.data_parallel.bucket import Bucket
from flambeau.distributed.data_parallel.complaints import came_twice, never_finished
from flambeau.distributed.data_parallel.grad_bucket import GradBucket
from flambeau.distributed.data_parallel.sparse_bucket import SparseBucket
from flambeau.distributed.data_parallel.unused import leaves_of
from flambeau.errors import warn
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import tensor
from flambeau.tensor.node import accumulator

CommHook = Callable[[GradBucket], Any]


class Reducer:
    """The gradients of `params` and where they go.

    expecting   whether gradients that come are to be reduced: a forward pass has announced them, and not all have been
    arrived     by parameter: the number of the pass in which its gradient came last
    order       the parameters in the order in which gradients came, until the buckets have been made anew
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        bucket_indices: Sequence[Sequence[int]],
        per_bucket_size_limits: Sequence[int],
        process_group: Any,
        expect_sparse_gradients: Sequence[bool] = (),
        bucket_bytes_cap: int = 25 * MEBIBYTE,
        find_unused_parameters: bool = False,
        gradient_as_bucket_view: bool = False,
        param_to_name_mapping: Mapping[int, str] | None = None,
        first_bucket_bytes_cap: int = FIRST_BUCKET_BYTES,
        skip_all_reduce_unused_params: bool = False,
        use_python_reducer: bool = False,
        bucket_bytes_cap_list: Sequence[int] = (),
        batched_grad_copy: bool = False,
    ) -> None:
        self.params = list(params)
        self.names = dict(param_to_name_mapping or {})
        self.group = process_group
        self.expect_sparse = list(expect_sparse_gradients) or [False] * len(self.params)
        self.limits = list(bucket_bytes_cap_list) or list(dict.fromkeys((first_bucket_bytes_cap, bucket_bytes_cap)))
        self.find_unused = find_unused_parameters
        self.as_view = gradient_as_bucket_view
        self.skip_unused = skip_all_reduce_unused_params
        self.dtype: Any = None  # of the buckets, where it is not that of the parameters
        self.static = False
        self.hook: CommHook | None = None
        self.sum = options.AllreduceOptions()
        self.sum_at_once = options.AllreduceOptions(asyncOp=False)

        self.passes = 0
        self.rebuilt = False
        self.expecting = False
        self.started = False  # whether a gradient of this pass has come
        self.arrived = [0] * len(self.params)
        self.order: list[int] | None = []
        self.unused: set[int] = set()  # not reached from the outputs of this forward pass
        self.times: Counter[int] | None = None  # with a static graph: how often each parameter's gradient comes in a pass
        self.to_come: Counter[int] = Counter()
        self.works: list[Any] = []
        self.nowhere: set[int] | None = None if find_unused_parameters else set()  # used by no rank; None: not known yet
        self.initial_size = process_group.size()
        self.joining: tuple[Any, bool] | None = (
            None  # a Work that counts the ranks that still have data, whether to divide by the initial number
        )
        self.futures: list[Any] = []  # what communication hooks give besides, to be waited for
        self.warned = False
        self.logger: Any = None
        self.seen = {"forward": 0, "first": 0, "last": 0, "done": 0}  # when that was in this pass, in nanoseconds
        self.sent_at: list[int] = []  # when each bucket was sent
        self._build(bucket_indices)
        self._handles = [accumulator(p).register_hook(self._listener(i)) for i, p in enumerate(self.params)]

    # ---- buckets ----

    def _build(self, bucket_indices: Sequence[Sequence[int]]) -> None:
        self.assignment = [list(indices) for indices in bucket_indices]
        self.buckets: list[Bucket] = []
        self.bucket_of: dict[int, Bucket] = {}
        for number, indices in enumerate(self.assignment):
            params = [self.params[i] for i in indices]
            if self.expect_sparse[indices[0]]:
                bucket: Bucket = SparseBucket(number, indices, params)
            else:
                bucket = Bucket(number, indices, params, dtype=self.dtype)
            self.buckets.append(bucket)
            self.bucket_of.update(dict.fromkeys(indices, bucket))

    def _rebuild_buckets(self) -> bool:
        """Make the buckets anew in the order in which gradients came, once, after the first pass. Whether that has happened now."""
        self._check_reducer_finalized()
        if self.rebuilt or not self.passes or self.order is None or (self.find_unused and not self.static) or not self.order:
            return False
        order = list(dict.fromkeys([*self.order, *range(len(self.params))]))  # what has not come is put at the end
        chosen, _ = assign_by_size([self.params[i] for i in order], self.limits, self.expect_sparse, order)
        self._build(self._as_on_rank_0(chosen))
        self.rebuilt, self.order = True, None
        return True

    def _as_on_rank_0(self, chosen: list[list[int]]) -> list[list[int]]:
        """The buckets that rank 0 has chosen."""
        if self.group.size() == 1:
            return chosen
        coded = [len(chosen)] + [len(bucket) for bucket in chosen] + [0] * (len(self.params) - len(chosen)) + [i for b in chosen for i in b]
        told = tensor(coded)
        self.group.broadcast([told], options.BroadcastOptions(asyncOp=False)).wait()
        count, *rest = told.tolist()
        lengths, indices = rest[:count], iter(rest[len(self.params) :])
        return [[next(indices) for _ in range(length)] for length in lengths]

    def _push_all_rebuilt_params(self) -> None:
        """Of a rank that never had data: it saw no gradients, so the order is that of the parameters."""
        if self.order is not None and not self.order:
            self.passes, self.order = 1, list(range(len(self.params)))

    def take_part_with_zeros(self) -> None:
        """The collectives of a pass, on a rank that has no gradients."""
        for bucket in self.buckets:
            zeros = bucket.as_zeros(bucket.number + 1 == len(self.buckets))
            if self.hook is not None:
                self.hook(zeros).wait()
            else:
                self.group.allreduce([zeros.buffer()], self.sum_at_once).wait()
        self.unused, before = set(range(len(self.params))), self.unused
        self._unused_everywhere()
        self.unused = before
        self._push_all_rebuilt_params()

    # ---- a pass ----

    def prepare_for_forward(self) -> None:
        """A forward pass begins. If the model was moved since it was wrapped, the buckets move, too."""
        self.seen["forward"] = now()
        if not all(bucket.fits() for bucket in self.buckets):
            order = [index for bucket in self.assignment for index in bucket]
            self._build(assign_by_size([self.params[i] for i in order], self.limits, self.expect_sparse, order)[0])

    def prepare_for_backward(self, outputs: Tensor | Sequence[Tensor]) -> None:
        """Expect gradients of all parameters; with find_unused_parameters, of those from which `outputs` were computed."""
        self._check_reducer_finalized()
        self.passes += 1
        self.expecting, self.started = True, False
        self.sent_at.clear()
        for bucket in self.buckets:
            bucket.pending = len(bucket.indices)
        if self.static:
            if self.times is not None:
                self.to_come = self.times.copy()
                self.unused = {i for i in range(len(self.params)) if not self.times[i]}
        elif self.find_unused:
            reached = leaves_of([outputs] if isinstance(outputs, Tensor) else outputs)
            self.unused = {i for i, p in enumerate(self.params) if id(p) not in reached}
            if not self.unused and not self.warned:
                self.warned = True
                warn(
                    "find_unused_parameters=True was specified in DDP constructor, but all parameters took part in this forward pass. The search "
                    "walks the graph after each forward pass. If no pass leaves parameters out, leave find_unused_parameters out"
                )

    def _listener(self, index: int) -> Callable[[Any, Any], None]:
        def listen(_sent: Any, _arrived: Any) -> None:
            if self.expecting:
                self._autograd_hook(index)

        return listen

    def _autograd_hook(self, index: int) -> None:
        """The gradient of a parameter is complete."""
        if not self.expecting:
            return
        if not self.started:
            self._start()
        if self.static and self._comes_again(index):
            return
        if self.arrived[index] == self.passes or index in self.unused:
            raise RuntimeError(came_twice(self._name(index), self.static))
        self.arrived[index] = self.passes
        if self.order is not None:
            self.order.append(index)
        self._mark_ready(index)

    def _start(self) -> None:
        """The first gradient of a pass has come."""
        self.started = True
        self.seen["first"] = now()
        if self.static and self.times is None:
            _outermost().callbacks.append(self._delay_all_reduce)
        elif self.unused:
            for index in sorted(self.unused):
                self._mark_ready(index)

    def _comes_again(self, index: int) -> bool:
        """Of a static graph: whether this gradient is not yet to be sent. The first pass shows how often each comes, and sends all at its end."""
        if self.times is None:
            self.to_come[index] += 1
            if self.arrived[index] != self.passes and self.order is not None:
                self.order.append(index)
            self.arrived[index] = self.passes
            return True
        self.to_come[index] -= 1
        return self.to_come[index] > 0

    def _delay_all_reduce(self) -> None:
        """The end of the first pass of a static graph."""
        self.times, self.to_come = self.to_come, Counter()
        self.unused = {i for i in range(len(self.params)) if not self.times[i]}
        for index in range(len(self.params)):
            self._mark_ready(index)

    def _mark_ready(self, index: int) -> None:
        bucket = self.bucket_of[index]
        bucket.pending -= 1
        if not bucket.pending:
            self._send_ready()

    def _send_ready(self) -> None:
        """Send what can be sent now: full buckets behind which none is missing."""
        buckets, place = self.buckets, len(self.works)
        while place < len(buckets) and buckets[place].pending <= 0:
            if place + 1 == len(buckets):  # see Note [the last bucket]
                self.seen["last"] = now()
                _innermost().callbacks.append(self._finish)
                self.works.append(None)
            else:
                self.works.append(self._send(buckets[place], wait=False))
            place += 1

    def _send(self, bucket: Bucket, *, wait: bool) -> Any:
        """Fill a bucket and start its all-reduce, or what a hook does instead; a Work or a Future. The result is there already if `wait`."""
        if self.skip_unused and self.unused.issuperset(bucket.indices):
            return None
        self.sent_at.append(now())
        with modes.recording(False):  # backward with create_graph records what it does, and averaging is none of that
            # A hook is given gradients as they are, and averages them itself.
            bucket.fill(1.0 if self.hook is not None else 1.0 / self._divisor())
            if self.as_view:
                bucket.keep()
            if self.hook is not None:
                return self._run_comm_hook(bucket.shown(bucket.number + 1 == len(self.buckets)))
            return self.group.allreduce([bucket.flat], self.sum_at_once if wait else self.sum)

    def _finish(self) -> None:
        """All gradients are there: send the last bucket, wait for the others, and write the averages to `.grad`."""
        self.expecting = False
        self.works[-1] = self._send(self.buckets[-1], wait=True)
        unused = self._unused_everywhere()
        with modes.recording(False):
            for bucket, work in zip(self.buckets, self.works, strict=True):
                if work is not None:
                    result = work.wait()
                    if self.hook is not None:
                        bucket.replace(_tensor_of(result))
                if self.as_view:
                    bucket.give(unused)
                bucket.spread(unused)
        for future in self.futures:
            future.wait()
        self.futures.clear()
        self.works, self.joining = [], None
        self.seen["done"] = now()
        if self.logger is not None:
            self.logger.pass_ended()

    def _unused_everywhere(self) -> set[int]:
        """The parameters that no rank has used: their gradients stay as they are."""
        if self.skip_unused:  # promised to be the same on all ranks
            return self.unused
        if self.nowhere is None or (self.find_unused and not self.static):
            used = tensor([int(i not in self.unused) for i in range(len(self.params))], dtype=dtypes.int32)
            self.group.allreduce([used], self.sum_at_once).wait()
            self.nowhere = {i for i, ranks in enumerate(used.tolist()) if not ranks}
        return self.nowhere

    def _divisor(self) -> float:
        """What the sum of gradients is divided by: the number of ranks; those that still have data, where that is wanted."""
        if self.joining is None:
            return self.group.size()
        work, by_initial = self.joining
        return self.initial_size if by_initial else work.result()[0].item()

    def _check_reducer_finalized(self) -> None:
        """RuntimeError if the gradients of the pass before never came together."""
        if self.expecting and self.started:
            missing = [self._name(i) for i in range(len(self.params)) if self.arrived[i] != self.passes and i not in self.unused]
            raise RuntimeError(never_finished(missing, self.group.rank(), finds_unused=self.find_unused, static=self.static))

    def _name(self, index: int) -> str:
        name = self.names.get(index, "")
        return f"{name or 'parameter'} (index {index}, shape {tuple(self.params[index].shape)})"

    # ---- hooks ----

    def _run_comm_hook(self, bucket: GradBucket) -> Any:
        assert self.hook is not None
        return self.hook(bucket)

    def _run_allreduce_hook(self, bucket: GradBucket) -> Any:
        """A Future of the average of a bucket."""
        flat = bucket.buffer()
        flat.div_(self._divisor())
        return self.group.allreduce([flat], self.sum).get_future()

    def _register_comm_hook(self, state: Any, hook: Callable[[Any, GradBucket], Any]) -> None:
        if self.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once: this model has a hook already")
        self.hook = lambda bucket: hook(state, bucket)

    def _remove_autograd_hooks(self) -> None:
        """Hear of gradients no more."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    # ---- settings ----

    def _set_static_graph(self) -> None:
        if self.passes:
            raise RuntimeError(
                "Expected to set_static_graph before training starts, and a forward pass has been made: say static_graph=True"
            )
        self.static, self.nowhere = True, None

    def _ddp_graph_static(self) -> bool:
        """Whether all passes so far have used the same parameters."""
        return not self.find_unused or not self.unused

    def _set_forward_pass_work_handle(self, work: Any, use_static_world_size: bool) -> None:
        """How many ranks still have data, as soon as it is known; whether averages are over the initial number of ranks all the same."""
        self.joining = (work, use_static_world_size)

    def _install_post_backward_futures(self, futures: Sequence[Any]) -> None:
        """Futures to be waited for at the end of this backward pass."""
        self.futures.extend(futures)

    def _set_mixed_precision_param_dtype(self, dtype: Any) -> None:
        """The dtype in which gradients travel."""
        self.dtype = dtype
        self._build(self.assignment)

    def _set_ddp_runtime_logging_sample_rate(self, rate: int) -> None:
        """How often a pass is measured: here all are."""

    def _update_process_group(self, group: Any) -> None:
        """Go on with other processes."""
        self.group = group

    def get_backward_stats(self) -> list[int]:
        """By bucket, when it was sent, in nanoseconds from the start of backward: see _get_ddp_logging_data."""
        return [sent - self.seen["first"] for sent in self.sent_at]

    def set_logger(self, logger: Any) -> None:
        self.logger = logger


def _innermost() -> Any:
    return modes.state.task


def _outermost() -> Any:
    task = modes.state.task
    while task.outer is not None:
        task = task.outer
    return task


def _tensor_of(result: Any) -> Tensor:
    """What a communication hook's future holds: a tensor, or a list of one."""
    return result[0] if isinstance(result, (list, tuple)) else result
