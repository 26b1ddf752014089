"""PowerSGD: gradients travel as products of two thin matrices.

    M (n, m)  ~  P Q^T        P = M Q, averaged and made orthonormal (n, r);  Q = M^T P, averaged (m, r)

One step of power iteration, which begins with the Q of the step before. What the approximation leaves out is added to the next gradient.
Vogels et al., PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization, 2019.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from typing import Any

import numpy as np

from flambeau import dtypes, linalg
from flambeau.distributed.algorithms.ddp_comm_hooks.default_hooks import _allreduce_fut
from flambeau.distributed.data_parallel.arguments import default_group
from flambeau.distributed.data_parallel.grad_bucket import GradBucket
from flambeau.futures import Future, finished
from flambeau.ops.joining import cat, stack
from flambeau.random import fork_rng, manual_seed
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty, zeros
from flambeau.tensor.making.random_factories import randn

__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]

logger = logging.getLogger(__name__)


class PowerSGDState:
    """How to compress, and what is kept from step to step.

    process_group                 who averages; None for all ranks
    matrix_approximation_rank     r: more digits, and more to send
    start_powerSGD_iter           plain all-reduces before: gradients of the first steps are the hardest to compress
    min_compression_rate          what saves less than that is sent as it is
    use_error_feedback            add what was left out to the next gradient
    warm_start                    begin with the Q of the step before
    orthogonalization_epsilon     added to the norms of columns, where there are one or two
    batch_tensors_with_same_shape one product for all matrices of a shape
    """

    __slots__ = [
        "batch_tensors_with_same_shape",
        "compression_stats_logging_frequency",
        "error_dict",
        "iter",
        "matrix_approximation_rank",
        "min_compression_rate",
        "next_stats_report",
        "orthogonalization_epsilon",
        "p_memory_dict",
        "process_group",
        "q_memory_dict",
        "rng",
        "start_powerSGD_iter",
        "total_numel_after_compression",
        "total_numel_before_compression",
        "use_error_feedback",
        "warm_start",
    ]

    def __init__(
        self,
        process_group: Any,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1_000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ):
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because PowerSGD can only be applied after the "
                f"first two iterations in DDP: buckets are made anew after the first. Found {start_powerSGD_iter}"
            )
        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.rng = np.random.RandomState(random_seed)
        self.error_dict: dict[int, Tensor] = {}
        self.p_memory_dict: dict[int, Tensor] = {}
        self.q_memory_dict: dict[int, Tensor] = {}
        self.iter = 0
        self.total_numel_before_compression = self.total_numel_after_compression = 0
        self.compression_stats_logging_frequency = max(1, compression_stats_logging_frequency)
        self.next_stats_report = 0
        self.batch_tensors_with_same_shape = batch_tensors_with_same_shape

    def __getstate__(self) -> dict[str, Any]:
        logger.warning("NOTE: Process group is not serializable and excluded from a saved state.")
        return {slot: getattr(self, slot) for slot in self.__slots__ if slot != "process_group"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.process_group = default_group(None, None)
        logger.warning(
            "NOTE: Process group will be set to a default group (i.e. the world size). If a different group is desired, set it anew."
        )
        for slot, value in state.items():
            setattr(self, slot, value)

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count an iteration when its last bucket comes."""
        if bucket.is_last():
            self.iter += 1
            if self.iter == self.start_powerSGD_iter:
                logger.info("Start to apply PowerSGD after %s iterations.", self.iter)

    def compression_stats(self) -> tuple[float, int, int]:
        """(how much less is sent, the number of elements of all gradients so far, how many were sent)."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return (before / after if after else 0), before, after

    @property
    def size(self) -> int:
        return self._group().size()

    def _group(self) -> Any:
        return self.process_group if self.process_group is not None else default_group(None, None)

    def _sum(self, tensor: Tensor) -> Future[Tensor]:
        return self._group().allreduce([tensor]).get_future().then(lambda future: future.value()[0])

    def _fill_randomly(self, targets: list[Tensor]) -> None:
        """The same random numbers on every rank, while the program's own stay as they are."""
        with fork_rng(devices=[]):
            manual_seed(int(self.rng.randint(1_000_000_000)))
            for target in targets:
                target.copy_(randn(*target.shape, dtype=target.dtype))


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Tensor]:
    """Each matrix of the bucket by itself; what would save little, as vectors do, as it is."""
    buffer = bucket.buffer()
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return _allreduce_fut(state.process_group, buffer)
    number = bucket.index()
    copy = _with_last_error(state, number, buffer)
    thin, whole = _chosen(state, bucket)
    _report_compression_stats(bucket, state)
    groups = _by_shape(thin, together=state.batch_tensors_with_same_shape)
    first = number not in state.q_memory_dict or not state.warm_start
    ps, qs = _factors(state, number, [matrices for _, matrices in groups], buffer, first)
    if first:
        state._fill_randomly(qs)
    for q in qs:
        _orthogonalize(q, state.orthogonalization_epsilon)
    for (_, matrices), q, p in zip(groups, qs, ps, strict=True):
        p.copy_(matrices @ q)
    uncompressed = cat([tensor.reshape(-1) for tensor in whole]) if whole else empty(0, dtype=buffer.dtype, device=buffer.device)
    sent = _allreduce_fut(state.process_group, uncompressed) if len(uncompressed) else None

    if ps:
        state._sum(state.p_memory_dict[number]).wait()
    for (_, matrices), p, q in zip(groups, ps, qs, strict=True):
        _orthogonalize(p, state.orthogonalization_epsilon)
        q.copy_(matrices.transpose(-1, -2) @ p)
    if qs:
        state._sum(state.q_memory_dict[number]).wait().div_(state.size)
    for (tensors, _), p, q in zip(groups, ps, qs, strict=True):
        for tensor, approximation in zip(tensors, p @ q.transpose(-1, -2), strict=True):
            tensor.copy_(approximation.view_as(tensor))
    if sent is not None:
        mean = sent.wait()
        for tensor, part in zip(whole, mean.split([tensor.numel() for tensor in whole]), strict=True):
            tensor.copy_(part.view_as(tensor))
    _keep(state, number, copy, buffer)
    state.maybe_increase_iter(bucket)
    return finished(buffer)


def _with_last_error(state: PowerSGDState, number: int, flat: Tensor) -> Tensor | None:
    """Add what compression lost the last time to gradients, if that is wanted; then a copy of the sum."""
    if not state.use_error_feedback:
        return None
    if number in state.error_dict:
        flat.add_(state.error_dict[number])
    else:
        state.error_dict[number] = zeros(flat.shape, dtype=flat.dtype, device=flat.device)
    return flat.clone()


def _keep(state: PowerSGDState, number: int, copy: Tensor | None, flat: Tensor) -> None:
    """Keep what compression has lost, and the factors, for the next time."""
    if copy is not None:
        state.error_dict[number] = copy - flat
    if not state.warm_start:
        state.p_memory_dict.clear()
        state.q_memory_dict.clear()


def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Tensor]:
    """The whole bucket as one square matrix: quicker, and less precise."""
    buffer = bucket.buffer()
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return _allreduce_fut(state.process_group, buffer)
    number, length = bucket.index(), buffer.shape[0]
    state.total_numel_before_compression += length
    side = math.ceil(math.sqrt(length))
    state.total_numel_after_compression += 2 * side * state.matrix_approximation_rank
    padded = zeros(side * side, dtype=buffer.dtype, device=buffer.device)
    padded[:length].copy_(buffer)
    _report_compression_stats(bucket, state)
    copy = _with_last_error(state, number, padded)
    matrix = padded.view(side, side)
    if not state.warm_start or number not in state.p_memory_dict:
        shape = (side, state.matrix_approximation_rank)
        state.p_memory_dict[number] = empty(shape, dtype=buffer.dtype, device=buffer.device)
        state.q_memory_dict[number] = empty(shape, dtype=buffer.dtype, device=buffer.device)
        state._fill_randomly([state.q_memory_dict[number]])
    p, q = state.p_memory_dict[number], state.q_memory_dict[number]
    _orthogonalize(q)
    p.copy_(matrix @ q)
    state._sum(p).wait()
    _orthogonalize(p)
    q.copy_(matrix.t() @ p)
    state._sum(q).wait().div_(state.size)
    matrix.copy_(p @ q.t())
    _keep(state, number, copy, padded)
    state.maybe_increase_iter(bucket)
    buffer.copy_(padded[:length])
    return finished(buffer)


def _chosen(state: PowerSGDState, bucket: GradBucket) -> tuple[list[tuple[Tensor, Tensor]], list[Tensor]]:
    """(gradients to be compressed, each with itself as a matrix; the others)."""
    thin, whole, after = [], [], 0
    gradients = bucket.gradients()
    for tensor in gradients:
        matrix = tensor.reshape(tensor.shape[0], -1)
        n, m = matrix.shape
        rank = min(n, m, state.matrix_approximation_rank)
        worth, _, sent = _should_compress(n, m, rank, state.min_compression_rate)
        if worth:
            thin.append((tensor, matrix))
        else:
            whole.append(tensor)
        after += sent
    state.total_numel_before_compression += sum(tensor.numel() for tensor in gradients)
    state.total_numel_after_compression += after
    return thin, whole


def _by_shape(thin: list[tuple[Tensor, Tensor]], *, together: bool) -> list[tuple[list[Tensor], Tensor]]:
    """Those of one shape after each other, or as one batch: (gradients, their matrices (*, n, m))."""
    by_shape: dict[Any, list[tuple[Tensor, Tensor]]] = defaultdict(list)
    for pair in thin:
        by_shape[tuple(pair[1].shape)].append(pair)
    if not together:
        return [([tensor], matrix[None]) for pairs in by_shape.values() for tensor, matrix in pairs]
    return [([tensor for tensor, _ in pairs], stack([matrix for _, matrix in pairs])) for pairs in by_shape.values()]


def _factors(state: PowerSGDState, number: int, groups: list[Tensor], buffer: Tensor, first: bool) -> tuple[list[Tensor], list[Tensor]]:
    """P and Q of every group, as views of one piece of memory each, which travels as a whole."""
    ranks = [min(m.shape[1], m.shape[2], state.matrix_approximation_rank) for m in groups]
    if first:
        for memory, dim in ((state.p_memory_dict, 1), (state.q_memory_dict, 2)):
            total = sum(m.shape[0] * m.shape[dim] * rank for m, rank in zip(groups, ranks, strict=True))
            memory[number] = empty(total, dtype=buffer.dtype, device=buffer.device)
    found: list[list[Tensor]] = []
    for memory, dim in ((state.p_memory_dict, 1), (state.q_memory_dict, 2)):
        views, start = [], 0
        for m, rank in zip(groups, ranks, strict=True):
            shape = (m.shape[0], m.shape[dim], rank)
            views.append(memory[number][start : start + math.prod(shape)].view(shape))
            start += math.prod(shape)
        found.append(views)
    return found[0], found[1]


def _orthogonalize(matrices: Tensor, epsilon: float = 0) -> None:
    """Make the columns orthonormal, in place. (*, n, r) with n >= r."""
    batch = matrices if matrices.dim() == 3 else matrices[None]
    if batch.shape[2] > batch.shape[1]:
        raise AssertionError(f"{batch.shape[2]} columns of length {batch.shape[1]} cannot be orthogonal")
    if batch.shape[2] <= 2 or batch.dtype in (dtypes.float16, dtypes.bfloat16):  # QR is for many columns, and not for half precision
        _orthogonalize_gram_schmidt(batch, epsilon)
    else:
        matrices.copy_(linalg.qr(batch)[0].view_as(matrices))


def _orthogonalize_gram_schmidt(matrices: Tensor, epsilon: float = 0) -> None:
    """Column by column; `epsilon` keeps a column of zeros from becoming NaN."""
    count = matrices.shape[2]
    for i in range(count):
        column = matrices[:, :, i : i + 1]
        if epsilon == 0:
            norm = column.norm(dim=1, keepdim=True)
            column.div_(norm.where(norm != 0, norm + 1))
        else:
            column.div_(column.norm(dim=1, keepdim=True) + epsilon)
        if i + 1 < count:
            rest = matrices[:, :, i + 1 :]
            rest.sub_((column * rest).sum(dim=1, keepdim=True) * column)


def _should_compress(num_rows: int, num_cols: int, matrix_approximation_rank: int, min_compression_rate: float) -> tuple[bool, int, int]:
    """(whether it saves enough, elements before, elements that are sent).

    >>> _should_compress(100, 100, 1, 2), _should_compress(4, 3, 2, 2)
    ((True, 10000, 200), (False, 12, 12))
    """
    before = num_rows * num_cols
    after = (num_rows + num_cols) * matrix_approximation_rank
    worth = after * min_compression_rate < before
    return worth, before, after if worth else before


def _report_compression_stats(bucket: GradBucket, state: PowerSGDState) -> None:
    """Log every now and then how much has been saved."""
    if bucket.is_last() and state.iter >= state.next_stats_report:
        rate, before, after = state.compression_stats()
        logger.info(
            "Compression stats: iter %s, total before compression %s, total after compression %s, rate %s", state.iter, before, after, rate
        )
        state.next_stats_report = state.iter + state.compression_stats_logging_frequency
