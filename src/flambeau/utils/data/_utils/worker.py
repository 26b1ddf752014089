"""A worker process: receives tasks (indices), sends batches, until the line to the loader ends."""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import parent_process
from typing import Any

from flambeau import settings
from flambeau.exception_wrapper import ExceptionWrapper
from flambeau.utils.data import streams
from flambeau.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher
from flambeau.utils.data.channel import Channel, Shelf

LOOK_AFTER_PARENT = 5.0  # seconds; usually the end of the line tells that the parent is gone

# What a message of a worker is about.
BATCH, END, ERROR = "batch", "end", "error"


@dataclass(frozen=True)
class WorkerInfo:
    """What `get_worker_info()` tells in a worker: its number, how many there are, its seed, and its copy of the data set."""

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: Any = None  # of a worker that is a thread, which there is none of
    worker_method: str = "multiprocessing"


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process of a DataLoader, a `WorkerInfo`; in the main process None."""
    return _worker_info


@dataclass
class Job:
    """Everything a worker is started with."""

    dataset: Any
    iterable: bool
    auto_collation: bool
    collate_fn: Callable
    drop_last: bool
    base_seed: int
    worker_id: int
    num_workers: int
    init_fn: Callable | None
    index: Any  # what stands for the next batch of a stream
    resume: dict | None  # where another worker with this number stood, see resume.py

    def fetcher(self) -> Any:
        """What makes batches of this worker's copy of the data."""
        kind = _IterableDatasetFetcher if self.iterable else _MapDatasetFetcher
        return kind(self.dataset, self.auto_collation, self.collate_fn, self.drop_last)


def run(channel: Channel, job: Job) -> None:
    """The life of a worker."""
    global _worker_info
    _settle()
    seed = streams.seed_worker(job.base_seed, job.worker_id)
    _worker_info = WorkerInfo(job.worker_id, job.num_workers, seed, job.dataset)
    worker = Worker(channel, job)
    worker.prepare()
    try:
        while (message := worker.next_message()) is not None:
            worker.answer(*message)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the loader is gone
    channel.close()


def _settle() -> None:
    """Make a fresh process a worker: one thread, and only the loader decides when it ends."""
    settings.set_num_threads(1)
    # Ctrl-C goes to the whole group of processes; the loader hears it too and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see pool.py
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Objects of the parent will not become garbage here; looking at them would copy the pages they lie on.
    gc.freeze()


class Worker:
    """Fetches batches, and keeps track of the random states they leave behind."""

    def __init__(self, channel: Channel, job: Job) -> None:
        self.channel, self.job = channel, job
        self.shelf = Shelf(channel)
        self.where = f"in DataLoader worker process {job.worker_id}"
        self.problem: ExceptionWrapper | None = None  # while getting ready, to be told with every task
        self.fetcher: Any = None
        self.watch: streams.Watch | None = None
        self.fetched = 0
        self.poll = select.poll()
        self.poll.register(channel.fileno(), select.POLLIN)
        self.parent = os.getppid()

    def prepare(self) -> None:
        """Streams of its own for the generators of the data set, the user's function, and the fetcher; then go where a saved worker stood."""
        job = self.job
        try:
            streams.separate(streams.find(job.dataset, job.collate_fn), job.base_seed, job.worker_id)
            if job.init_fn is not None:
                job.init_fn(job.worker_id)
            saved = job.resume
            if saved is not None and saved["dataset"] is not None:
                job.dataset.load_state_dict(saved["dataset"])
            self.fetcher = job.fetcher()
            if saved is not None:
                self._go_on(saved)
        except Exception:
            self.problem = ExceptionWrapper(where=self.where)

    def _go_on(self, saved: dict) -> None:
        if self.job.iterable:
            self.fetched = saved["fetched"]
            skip(self.fetcher, saved, self.job.index)
        if saved["random"] is not None:
            streams.restore([*streams.GLOBAL, *streams.find(self.job.dataset, self.job.collate_fn)], saved["random"])

    def next_message(self) -> tuple | None:
        """The next task, or None when there will be none."""
        while not self.poll.poll(LOOK_AFTER_PARENT * 1000):
            # Another child of the parent may hold the other end of the line open.
            parent = parent_process()
            if os.getppid() != self.parent or (parent is not None and not parent.is_alive()):
                return None
        try:
            return pickle.loads(self.channel.receive()[0])
        except EOFError:
            return None

    def answer(self, task: int | None, index: Any, returned: list[int]) -> None:
        """Fetch a batch and send it. A task without number starts the next epoch."""
        self.shelf.back(returned)
        if task is None:
            self._begin_epoch()
            return
        data = None
        if self.problem is not None:
            kind, data = ERROR, self.problem
        else:
            try:
                kind, data = BATCH, self.fetcher.fetch(index)
                self.fetched += 1
            except StopIteration:
                if not self.job.iterable:
                    kind, data = ERROR, ExceptionWrapper(where=self.where)
                else:
                    kind = END
            except Exception:
                kind, data = ERROR, ExceptionWrapper(where=self.where)
        try:
            self.shelf.send((task, kind, self._standing()), data)
        except OSError:
            raise
        except Exception as problem:  # the batch cannot be pickled
            problem.add_note("(the batch could not be sent from the worker to the main process)")
            self.shelf.send((task, ERROR, None), ExceptionWrapper(where=self.where))

    def _begin_epoch(self) -> None:
        self.fetched, self.problem = 0, None
        try:
            self.fetcher = self.job.fetcher()
        except Exception:
            self.problem = ExceptionWrapper(where=self.where)

    def _standing(self) -> dict | None:
        """Where this worker stands after a batch, as far as it has changed: what `Progress` saves."""
        fetcher, job = self.fetcher, self.job
        if fetcher is None or (not job.iterable and fetcher.gather is not None):
            return None  # no code but this package's own has run
        if self.watch is None or self.fetched == 1:  # a data set may make its generators when the first item is asked for
            self.watch = streams.Watch(streams.find(job.dataset, job.collate_fn))
        changed = self.watch.changes()
        if not job.iterable:
            return None if changed is None else {"random": changed}
        return standing_of_stream(fetcher, self.fetched) | ({} if changed is None else {"random": changed})


def standing_of_stream(fetcher: Any, fetched: int) -> dict:
    """How far a stream is: the batches fetched, and the state that its iterator, or else the data set, gives of itself."""
    iterator = _state_of(fetcher.dataset_iter)
    dataset = _state_of(fetcher.dataset) if iterator is None else None
    return {"fetched": fetched, "ended": fetcher.ended, "iterator": iterator, "dataset": dataset}


def _state_of(value: Any) -> Any:
    return value.state_dict() if hasattr(value, "state_dict") and hasattr(value, "load_state_dict") else None


def skip(fetcher: Any, saved: dict, index: Any) -> None:
    """Bring the fetcher of a stream to where a saved one stood: by the stream's own state, or else by fetching again and throwing away."""
    if saved["iterator"] is not None:
        fetcher.dataset_iter.load_state_dict(saved["iterator"])
    elif saved["dataset"] is None:
        for _ in range(saved["fetched"]):
            fetcher.fetch(index)
    fetcher.ended = saved["ended"]


def close_inherited() -> None:
    """In a forked process: close the ends of lines that belong to the loaders of its parent, so that only their owner keeps them open."""
    for channel in list(OWNED):
        channel.close()
    OWNED.clear()


OWNED: set[Channel] = set()  # the loaders' ends of all lines of this process

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=close_inherited)
