"""DataLoader: batches of a data set, in any order, prepared here or by worker processes.

    sampler ──indices──▶ fetcher ──items──▶ collate ──▶ batch
                         (here, or in one of the workers)

With workers, task number k (the indices of batch k) goes to the workers by turns, some tasks ahead of the program; answers may come in
any order and are given out in the order of their numbers. The batches are the same with any number of workers.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.context import BaseContext
from typing import Any, Generic, TypeVar

from flambeau.interpreters import stack
from flambeau.random import Generator
from flambeau.tensor.memory.host_memory import cuda_is_available
from flambeau.utils.data import order, resume, streams
from flambeau.utils.data._utils import worker
from flambeau.utils.data._utils.collate import default_collate, default_convert
from flambeau.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher
from flambeau.utils.data._utils.pin_memory import pin_memory as pinned
from flambeau.utils.data._utils.worker import get_worker_info
from flambeau.utils.data.dataset import Dataset, IterableDataset
from flambeau.utils.data.pool import Pool
from flambeau.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

_T_co = TypeVar("_T_co", covariant=True)


class _DatasetKind:
    """Items by index, or one after another."""

    Map = 0
    Iterable = 1

    @staticmethod
    def create_fetcher(kind: int, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool) -> Any:
        """What makes batches of such a data set."""
        fetcher = _MapDatasetFetcher if kind == _DatasetKind.Map else _IterableDatasetFetcher
        return fetcher(dataset, auto_collation, collate_fn, drop_last)


class _InfiniteConstantSampler(Sampler):
    """None for ever: a stream decides itself what comes next, and when it ends."""

    def __iter__(self):
        return itertools.repeat(None)


class DataLoader(Generic[_T_co]):
    """Batches of a data set.

    dataset             anything with `__getitem__` and `__len__`, or an IterableDataset
    batch_size          items in a batch; None gives the items themselves
    shuffle             a new random order in each epoch
    sampler             an order instead: an iterable of indices; batch_sampler: an iterable of lists of indices
    num_workers         processes that prepare batches; 0: they are prepared here, when they are asked for
    collate_fn          makes a batch of a list of items; stacks tensors (`default_collate`) unless given
    pin_memory          put batches in memory that a GPU reads directly
    drop_last           leave out the last batch if it is short
    timeout             seconds to wait for a batch of a worker; 0: any time, as long as the worker lives
    worker_init_fn      called in every worker with its number, after seeding
    multiprocessing_context  "fork", "spawn" or "forkserver": how workers are started
    generator           where shuffles and the seeds of workers come from; the default generator unless given
    prefetch_factor     batches each worker prepares ahead; 2 unless given
    persistent_workers  keep the workers from one epoch to the next
    in_order            give batches out in their order, not as workers finish them

    >>> len(DataLoader(range(10), batch_size=4)), len(DataLoader(range(10), batch_size=4, drop_last=True))
    (3, 2)
    """

    dataset: Dataset[_T_co]
    batch_size: int | None
    num_workers: int
    pin_memory: bool
    drop_last: bool
    timeout: float
    sampler: Sampler | Iterable
    prefetch_factor: int | None
    pin_memory_device: str
    _iterator: _BaseDataLoaderIter | None
    __initialized = False

    def __init__(
        self,
        dataset: Dataset[_T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler | Iterable | None = None,
        batch_sampler: Sampler[list] | Iterable[list] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_numbers(num_workers, timeout, prefetch_factor, persistent_workers)
        iterable = isinstance(dataset, IterableDataset)
        _check_order(iterable, batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None:
            if iterable:
                sampler = _InfiniteConstantSampler()
            else:
                sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)  # type: ignore[arg-type]
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)

        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers > 0 and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self._dataset_kind = _DatasetKind.Iterable if iterable else _DatasetKind.Map
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        self.collate_fn: Any = collate_fn or (default_collate if self._auto_collation else default_convert)
        self.persistent_workers = persistent_workers
        self._IterableDataset_len_called: int | None = None
        self._iterator = None
        self._progress: resume.Progress | None = None
        self._resume: dict | None = None  # a state to go on from, with the next iterator
        self.__initialized = True
        self.check_worker_number_rationality()

    def __iter__(self) -> Iterator[Any]:
        kept: Any = self._iterator
        if not self.persistent_workers or not self.num_workers:
            return self._get_iterator()
        if kept is not None and (self._resume is not None or kept._pool.closed):
            kept._shutdown_workers()
            kept = None
        if kept is None:
            self._iterator = kept = self._get_iterator()
        else:
            kept._reset(self)
        return kept

    def _get_iterator(self) -> _BaseDataLoaderIter:
        if self.num_workers == 0:
            return _SingleProcessDataLoaderIter(self)
        self.check_worker_number_rationality()
        return _MultiProcessingDataLoaderIter(self)

    def __len__(self) -> int:
        if self._dataset_kind == _DatasetKind.Map:
            return len(self._index_sampler)  # type: ignore[arg-type]
        # Remembered, to warn if the stream turns out to be longer.
        length = self._IterableDataset_len_called = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return length
        whole, rest = divmod(length, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        """What gives the tasks: lists of indices, or single ones."""
        return self.batch_sampler if self._auto_collation else self.sampler

    # -- going on in the middle

    def state_dict(self) -> dict:
        """Where this loader stands, after the last batch it gave out: to be saved beside the model, in the middle of an epoch or between two.

        `load_state_dict` on a loader that was made in the same way goes on exactly there: the next `for batch in loader` gives the rest of the
        epoch. Save and restore the states of the program's own generators beside it (`get_rng_state()`, `random.getstate()`, NumPy's).
        """
        return self._resume if self._resume is not None else resume.state_dict(self, self._progress)

    def load_state_dict(self, state_dict: dict) -> None:
        """Go on where the loader that gave this state stood."""
        self._resume = resume.load(self, state_dict)
        self._progress = None

    # -- attributes

    @property
    def multiprocessing_context(self) -> Any:
        """How workers are started."""
        return self.__context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is not None:
            if self.num_workers == 0:
                raise ValueError(f"multiprocessing_context is for multi-process loading (num_workers > 0), but got {self.num_workers}")
            if isinstance(context, str):
                methods = multiprocessing.get_all_start_methods()
                if context not in methods:
                    raise ValueError(f"multiprocessing_context should specify a valid start method in {methods}, found {context!r}")
                context = multiprocessing.get_context(context)
            if not isinstance(context, BaseContext):
                raise TypeError(
                    f"multiprocessing_context option should be a valid context object or the name of a start method, found {context}"
                )
        self.__context = context

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__initialized and name in _FIXED:
            raise ValueError(f"{name} should not be changed once there is a {type(self).__name__}. Make a new one")
        super().__setattr__(name, value)

    def check_worker_number_rationality(self) -> None:
        """Warn of more workers than there are cores to run them."""
        if not self.num_workers:
            return
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        if cores is None or self.num_workers > cores:
            suggested = "" if cores is None else f", more than the {cores} cores of this system: suggested max number of worker is {cores}"
            slow = "excessive worker creation might get DataLoader running slow or even freeze"
            warnings.warn(f"DataLoader: {self.num_workers} worker processes{suggested}: {slow}", stacklevel=3)


_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


def _check_numbers(num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool) -> None:
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative: 0 means none, and loading in this process.")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError("prefetch_factor option could only be for workers, and there are none (num_workers=0)")
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _check_order(iterable: bool, batch_size: int | None, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool) -> None:
    if iterable:
        given = {"shuffle": shuffle or None, "sampler": sampler, "batch_sampler": batch_sampler}
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}. "
                    "A stream has an order of its own"
                )
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError("batch_sampler option is mutually exclusive with batch_size, drop_last, sampler and shuffle, which it decides")
    if batch_sampler is None and batch_size is None and drop_last:
        raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last: there are no batches")


# -- iterators -------------------------------------------------------------------------------------------------------


class _BaseDataLoaderIter:
    """One pass over a loader (several, with persistent workers)."""

    def __init__(self, loader: DataLoader) -> None:
        self._dataset = loader.dataset
        self._dataset_kind = loader._dataset_kind
        self._auto_collation = loader._auto_collation
        self._drop_last = loader.drop_last
        self._index_sampler = loader._index_sampler
        self._num_workers = loader.num_workers
        self._timeout = loader.timeout
        self._collate_fn = loader.collate_fn
        self._persistent_workers = loader.persistent_workers
        self._pin_memory = loader.pin_memory and _can_pin()
        self._resumed, loader._resume = loader._resume, None
        self._begin(loader)
        if self._resumed is None:
            self._base_seed: int = draw_seed(loader.generator)
            self._progress.seeded = True
        else:
            self._base_seed = self._resumed["epoch"]["base_seed"]
        self._progress.base_seed = self._base_seed

    def _begin(self, loader: DataLoader) -> None:
        """Start an epoch: a new order, or what is left of the one that is resumed."""
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        epoch = self._resumed["epoch"] if self._resumed is not None else None
        self._progress = loader._progress = progress = resume.Progress(loader)
        self._num_yielded = 0
        if epoch is None or epoch["finished"]:
            self._sampler_iter = _from_here(order.batches(self._index_sampler), progress, resume.samplers(loader))
        else:
            progress.start, progress.seeded, progress.turn = resume.private(epoch["start"]), epoch["seeded"], epoch["turn"]
            self._num_yielded = progress.yielded = progress.drawn = epoch["yielded"]
            progress.ahead = set(epoch["ahead"])
            with resume.replaying(loader, progress.start):
                self._sampler_iter = self._replay(loader, epoch)
        if epoch is not None and self._num_workers == self._resumed["num_workers"]:  # type: ignore[index]
            progress.workers = [{**w, "random": streams.with_arrays(w["random"])} for w in epoch["workers"]]

    def _replay(self, loader: DataLoader, epoch: dict) -> Iterator[Any]:
        if self._dataset_kind == _DatasetKind.Iterable:
            return iter(self._index_sampler)
        return resume.replayed_batches(loader, epoch)

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def _next_index(self) -> Any:
        return next(self._sampler_iter)

    def _next_data(self) -> Any:
        raise NotImplementedError

    def __next__(self) -> Any:
        recorder = stack.at(stack.PROFILE)
        if recorder is not None:
            with recorder.range(f"enumerate(DataLoader)#{type(self).__name__}.__next__"):
                return self._next()
        return self._next()

    def _next(self) -> Any:
        try:
            data = self._next_data()
        except StopIteration:
            self._progress.finished = True
            raise
        self._num_yielded += 1
        if self._IterableDataset_len_called is not None and self._dataset_kind == _DatasetKind.Iterable:
            self._check_length()
        return data

    def _check_length(self) -> None:
        expected, found = self._IterableDataset_len_called, self._num_yielded
        if expected is not None and found > expected:
            text = f"{self._dataset} said that it has {expected} samples (len(dataloader)), but {found} samples have been fetched. "
            if self._num_workers:
                text += "For multiprocessing data-loading, this happens where workers do not share the stream between them: see get_worker_info()"
            warnings.warn(text, stacklevel=3)

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __getstate__(self):
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled. The place in an epoch is DataLoader.state_dict()")


def _from_here(batches: Iterator[Any], progress: resume.Progress, samplers: list) -> Iterator[Any]:
    """The batches of an epoch, whose number samplers may be told until the first is asked for."""
    progress.start["samplers"] = resume.positions(samplers)
    yield from batches


def _can_pin() -> bool:
    if cuda_is_available():
        return True
    warnings.warn("pin_memory=True: there is no device to pin memory for, so it is not pinned.", stacklevel=5)
    return False


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Batches are made when they are asked for, in this process."""

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        parts = self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn, self._drop_last
        if self._dataset_kind == _DatasetKind.Iterable and self._resumed is not None:
            self._dataset_fetcher = self._resumed_stream(loader, parts)
        else:
            self._dataset_fetcher = _DatasetKind.create_fetcher(*parts)

    def _resumed_stream(self, loader: DataLoader, parts: tuple) -> Any:
        """A stream, brought to where it stood."""
        saved = self._progress.workers[0]
        own = streams.find(self._dataset, self._collate_fn)
        now = streams.states(own)
        with resume.replaying(loader, self._progress.start):
            streams.restore(own, self._progress.start["dataset"])
            if saved["dataset"] is not None:
                self._dataset.load_state_dict(saved["dataset"])
            fetcher = _DatasetKind.create_fetcher(*parts)
            worker.skip(fetcher, saved, self._next_index())
        streams.restore(own, now)
        return fetcher

    def _next_data(self) -> Any:
        index = self._next_index()
        data = self._dataset_fetcher.fetch(index)
        progress = self._progress
        progress.drawn = progress.yielded = progress.yielded + 1
        if self._dataset_kind == _DatasetKind.Iterable:
            progress.workers[0].update(worker.standing_of_stream(self._dataset_fetcher, progress.yielded))
        return pinned(data) if self._pin_memory else data


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Batches are made by worker processes, some of them ahead.

    _tasks      number -> worker, of all batches that were asked for and not given out
    _ready      number -> (kind of answer, function that unpacks it, where it left the worker), of those that were answered
    """

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        self._in_order = loader.in_order
        self._prefetch = max(loader.prefetch_factor or 0, 1)
        context = loader.multiprocessing_context or multiprocessing.get_context()
        self._pool = Pool(context, [self._job(loader, i) for i in range(self._num_workers)])
        self._workers = self._pool.processes
        self._finalizer = weakref.finalize(self, self._pool.shutdown)
        self._reset(loader, first_iter=True)

    def _job(self, loader: DataLoader, i: int) -> worker.Job:
        iterable = self._dataset_kind == _DatasetKind.Iterable
        return worker.Job(
            dataset=loader.dataset,
            iterable=iterable,
            auto_collation=self._auto_collation,
            collate_fn=self._collate_fn,
            drop_last=self._drop_last,
            base_seed=self._base_seed,
            worker_id=i,
            num_workers=self._num_workers,
            init_fn=loader.worker_init_fn,
            index=next(iter(self._index_sampler)) if iterable else None,
            resume=self._resumed_worker(i),
        )

    def _resumed_worker(self, i: int) -> dict | None:
        """Where worker i stood, if this iterator resumes an epoch (or, with workers that stayed, goes on after one)."""
        if self._resumed is None:
            return None
        saved = self._progress.workers[i]
        return {**resume.NEW_WORKER, "random": saved["random"]} if self._resumed["epoch"]["finished"] else saved

    def _reset(self, loader: DataLoader, first_iter: bool = False) -> None:
        """Start an epoch."""
        if not first_iter:
            self._drain()
            left, self._resumed = self._progress, None
            self._begin(loader)
            self._progress.base_seed = self._base_seed
            for mine, before in zip(self._progress.workers, left.workers, strict=True):
                mine["random"] = before["random"]
            for i in range(self._num_workers):
                self._pool.send(i, None)
        self._send_idx = self._progress.yielded
        self._tasks: dict[int, int] = {}
        self._ready: dict[int, tuple] = {}
        self._workers_status = [True] * self._num_workers
        self._exhausted = False
        self._cycle = self._progress.turn
        for _ in range(self._prefetch * self._num_workers):
            self._try_put_index()

    def _drain(self) -> None:
        """Wait for the answers nobody wants any more: an epoch was left in the middle, and the workers stay."""
        while len(self._ready) < len(self._tasks):
            self._receive()
        for number in sorted(self._ready):
            self._note(self._tasks[number], self._ready[number][2])
        self._tasks, self._ready = {}, {}

    def _try_put_index(self) -> None:
        """Give the next task to the worker whose turn it is."""
        if self._exhausted or not any(self._workers_status):
            return
        try:
            index = self._next_index()
            while self._send_idx in self._progress.ahead:  # given out before the state was saved that is resumed
                self._send_idx += 1
                index = self._next_index()
        except StopIteration:
            self._exhausted = True
            if not self._persistent_workers:
                for i in range(self._num_workers):
                    self._pool.finish(i)
            return
        i = self._next_worker()
        self._tasks[self._send_idx] = i
        self._progress.drawn += 1
        self._pool.send(i, self._send_idx, index)
        self._send_idx += 1

    def _next_worker(self) -> int:
        active = [(self._cycle + k) % self._num_workers for k in range(self._num_workers)]
        active = [i for i in active if self._workers_status[i]]
        if self._in_order:
            chosen = active[0]
        else:
            loads = list(self._tasks.values())
            chosen = min(active, key=loads.count)
        self._cycle = (chosen + 1) % self._num_workers
        return chosen

    def _next_data(self) -> Any:
        if self._timeout:
            until = time.monotonic() + self._timeout
        while True:
            if not self._tasks:
                if not self._persistent_workers:
                    self._shutdown_workers()
                raise StopIteration
            if self._pool.closed:
                raise RuntimeError("the workers of this DataLoader are gone: it was shut down, or one of them died. Iterate over it anew")
            number = next(iter(self._tasks if self._in_order else self._ready), None)
            if number in self._ready:
                return self._give_out(number)  # type: ignore[arg-type]
            self._receive(until - time.monotonic() if self._timeout else None)

    def _receive(self, seconds: float | None = None) -> None:
        """Wait for an answer, and put it where `_next_data` finds it."""
        if self._pool.closed:
            raise RuntimeError(
                "the workers of this DataLoader are gone: it was shut down, or one of them died before. Iterate over it anew"
            )
        messages = self._pool.receive(seconds)
        if not messages and seconds is not None and seconds <= 0.001:
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        for i, (number, kind, standing), unpack in messages:
            if kind == worker.END:
                del self._tasks[number]
                self._workers_status[i] = False
                if not self._persistent_workers:
                    self._pool.finish(i)
                self._try_put_index()
            else:
                self._ready[number] = kind, unpack, standing
        for number, i in self._tasks.items() if self._pool.ended else ():
            if i in self._pool.ended and number not in self._ready:
                self._pool.report(i)  # it left with work to do, politely: os._exit(0) in the data set, say

    def _give_out(self, number: int) -> Any:
        i = self._tasks.pop(number)
        kind, unpack, standing = self._ready.pop(number)
        self._try_put_index()
        data = unpack()
        self._note(i, standing)
        progress = self._progress
        progress.turn = (i + 1) % self._num_workers
        progress.ahead.add(number)
        while progress.yielded in progress.ahead:
            progress.ahead.remove(progress.yielded)
            progress.yielded += 1
        if kind == worker.ERROR:
            data.reraise()
        return pinned(data) if self._pin_memory else data

    def _note(self, i: int, standing: dict | None) -> None:
        """Remember where a worker stood after a batch that was given out."""
        if standing is not None:
            self._progress.workers[i].update(standing)

    def _shutdown_workers(self) -> None:
        """End the workers, and wait until they are gone."""
        self._pool.shutdown()
