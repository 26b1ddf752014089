"""Batches from worker processes: the same batches, seeds and streams as PyTorch's, by shared memory."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from loader_oracle import OURS, same
from worker_datasets import Big, Generators, Streams, first, share

import flambeau
from flambeau.utils.data import channel

DataLoader = OURS.DataLoader


def epochs(d, times=2, **options):
    """What the items of some epochs saw, and what the stream of the main process gives afterwards."""
    generator = options.get("generator")
    if generator is not None:
        options["generator"] = generator = d.torch.Generator().manual_seed(generator)
    loader = d.DataLoader(Streams(d.name), collate_fn=first, **options)
    return [list(loader) for _ in range(times)], d.torch.rand(2), d.torch.rand(1, generator=generator) if generator else None


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 1},
        {"num_workers": 2, "batch_size": 3, "shuffle": True},
        {"num_workers": 2, "generator": 5, "shuffle": True},
        {"num_workers": 2, "persistent_workers": True, "batch_size": 2},
        {"num_workers": 2, "batch_size": 2, "prefetch_factor": 4, "drop_last": True},
        {"num_workers": 2, "batch_size": None, "shuffle": True},
        {"num_workers": 2, "sampler": [3, 3, 1], "worker_init_fn": random.seed},
    ],
    ids="-".join,
)
def test_seeds_and_streams_are_pytorchs(options):
    """torch, random and numpy give other numbers in some worker than under PyTorch, or the main process draws others."""
    same(lambda d: epochs(d, **options))


def test_a_spawned_worker_sees_what_a_forked_one_does():
    """The streams in workers do not depend on how they are started."""
    told = []
    for context in ("fork", "spawn", multiprocessing.get_context("forkserver")):
        flambeau.manual_seed(3)
        told.append(list(DataLoader(Streams("flambeau", 3), num_workers=1, collate_fn=first, multiprocessing_context=context)))
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_order_does_not_depend_on_workers(workers):
    """Batches come in the order of the sampler with any number of workers."""
    flambeau.manual_seed(1)
    seen = [b[0].tolist() for b in DataLoader(OURS.TensorDataset(flambeau.arange(23)), 4, shuffle=True, num_workers=workers)]
    flambeau.manual_seed(1)
    assert seen == [b.tolist() for b in DataLoader(range(23), 4, shuffle=True)]


@pytest.mark.parametrize(
    "options", [{"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": None}, {"prefetch_factor": 5}], ids=str
)
@pytest.mark.parametrize("n", [0, 1, 10, 13])
def test_streams_are_shared_out(options, n):
    """An IterableDataset that takes its share by get_worker_info gives PyTorch's batches in PyTorch's order, in every epoch."""

    def program(d):
        loader = d.DataLoader(share(d, n), num_workers=2, persistent_workers=True, **options)
        return [list(loader), list(loader)]

    same(program)


def test_a_stream_longer_than_its_length_is_told():
    """Workers that each read the whole stream give more than len() promised, and a warning says why."""

    def program(d):
        class Whole(d.IterableDataset):
            def __iter__(self):
                return iter(range(3))

            def __len__(self):
                return 3

        loader = d.DataLoader(Whole(), num_workers=2)
        return len(loader), list(loader)

    same(program)


def test_out_of_order_gives_every_batch_once():
    """With in_order=False a slow batch does not hold up the others, and none is lost."""

    class Slow(OURS.Dataset):
        def __len__(self):
            return 9

        def __getitem__(self, i):
            if i == 0:
                threading.Event().wait(0.5)
            return i

    loader = DataLoader(Slow(), num_workers=2, in_order=False)
    seen = [b.item() for b in loader]
    assert sorted(seen) == list(range(9)) and seen[0] != 0


def test_large_batches_lie_in_shared_memory():
    """Arrays of a batch are not pickled: tensors lie in memory shared with the worker, can be written, and have the right values."""
    for k, (x, y, text) in enumerate(DataLoader(Big(), 2, num_workers=2)):
        assert x.is_shared() and y.is_shared() and x.data_ptr() % 64 == 0
        assert x[:, 0].tolist() == [2 * k, 2 * k + 1] and x.min(1).values.tolist() == x.max(1).values.tolist()
        assert y.tolist() == [[i] * 100 for i in (2 * k, 2 * k + 1)] and text == ("x" * 2 * k, "x" * (2 * k + 1))
        x.add_(1)


def test_segments_are_used_again():
    """While batches are dropped as they come, a worker needs only a few segments for any number of them."""
    loader = DataLoader(Big(60), 1, num_workers=1)
    iterator = iter(loader)
    places = [x.data_ptr() for x, _, _ in iterator]
    assert len(places) == 60 and len(set(places)) < 12


def test_kept_batches_stay_as_they_were():
    """A program that keeps all batches keeps their values, and does not run out of descriptors: some are copied out."""
    before = descriptors()
    batches = list(DataLoader(Big(100), 1, num_workers=2, collate_fn=first))
    assert [b[0][0][7].item() for b in batches] == list(range(100))
    assert descriptors() - before <= 2 * channel.HELD + 4
    rows = [b[0][1] for b in batches]
    del batches
    assert [int(r[0]) for r in rows] == list(range(100)), "NumPy arrays hold the memory too"
    del rows
    gc.collect()
    assert descriptors() <= before + 1


def descriptors() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0


def test_any_kind_of_batch_comes_through():
    """Dtypes, strides, empty and 0-d tensors, parameters, nested containers, text longer than a socket holds."""
    flambeau.manual_seed(0)
    items = [
        flambeau.ones(3, dtype=flambeau.bfloat16), flambeau.ones(2, 0), flambeau.tensor(3), flambeau.arange(6).reshape(2, 3).t(),
        flambeau.ones(2, dtype=flambeau.complex64), flambeau.ones(2, requires_grad=True), flambeau.nn.Parameter(flambeau.ones(2)),
        {"a": [flambeau.arange(40_000.0)[::2], (1, None, "é")]}, np.arange(5)[::2], b"\0" * 300_000, "x" * 300_000, flambeau.arange(24).reshape(2, 3, 4).permute(2, 0, 1),
        flambeau.arange(1_000_000)[10:12],
    ]  # fmt: skip
    back = list(DataLoader(items, batch_size=None, num_workers=2, collate_fn=first_of_one))
    for before, after in zip(items, back, strict=True):
        assert type(before) is type(after)
        if isinstance(before, flambeau.Tensor):
            assert before.dtype == after.dtype and before.requires_grad == after.requires_grad
            assert flambeau.equal(before, after) and before.contiguous().stride() == after.contiguous().stride()
        elif isinstance(before, dict):
            assert flambeau.equal(before["a"][0], after["a"][0]) and before["a"][1] == after["a"][1]
        else:
            assert np.array_equal(before, after)
    assert back[3].stride() == (1, 3) and back[11].stride() == items[11].stride(), "the order in memory is kept"
    assert back[-1].untyped_storage().nbytes() < 100, "only what a view shows was sent"


def first_of_one(item):
    return item


def test_many_indices_do_not_block():
    """Lists of indices larger than a socket's buffer must not make loader and workers wait for each other."""

    class Count(OURS.Dataset):
        def __len__(self):
            return 400_000

        def __getitems__(self, indices):
            return [len(indices), sum(indices)]

        def __getitem__(self, i):
            return i

    sampler = [list(range(100_000)) for _ in range(8)]
    assert [b.tolist() for b in DataLoader(Count(), batch_sampler=sampler, num_workers=2, prefetch_factor=4)] == [[100_000, 4999950000]] * 8


def test_persistent_workers_stay():
    """With persistent_workers the same processes serve all epochs, also after an epoch was left in the middle; without, others do."""

    class Pid(OURS.Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, i):
            return os.getpid()

    def pids(loader):
        return {pid for batch in loader for pid in batch.tolist()}

    loader = DataLoader(Pid(), num_workers=2, persistent_workers=True)
    one = pids(loader)
    for _ in loader:
        break
    assert pids(loader) == one and len(one) == 2
    fresh = DataLoader(Pid(), num_workers=2)
    assert not pids(fresh) & pids(fresh)


def test_pinning_needs_a_gpu_and_says_so():
    """pin_memory=True on a machine without a GPU warns, and the batches are as they would be."""
    if flambeau.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.warns(UserWarning, match="pin_memory"):
        assert [b.tolist() for b in DataLoader(range(4), 2, num_workers=1, pin_memory=True)] == [[0, 1], [2, 3]]


def test_pinning_reaches_every_tensor_and_asks_other_types():
    """A batch type with a pin_memory method of its own is asked, containers keep their kind."""
    from flambeau.utils.data._utils.pin_memory import pin_memory

    class Mine:
        pinned = False

        def pin_memory(self):
            self.pinned = True
            return self

    found = pin_memory({"a": [Mine(), 3, "text"], "b": (Mine(),)})
    assert found["a"][0].pinned and found["a"][1:] == [3, "text"] and found["b"][0].pinned


def test_fork_beside_python_threads_does_not_hang():
    """A loader made in a thread, while others run, works."""
    found = []
    threads = [threading.Thread(target=lambda: found.append(len(list(DataLoader(range(20), 2, num_workers=1))))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [10, 10, 10]


# -- generators that a data set keeps ----------------------------------------------------------------------------------


def drawn(workers, times=1, seed=0, **options):
    """Rows of numbers: one row for each item, one column for each generator."""
    flambeau.manual_seed(seed)
    loader = DataLoader(Generators(), num_workers=workers, collate_fn=first, **options)
    return [[b[0] for b in loader] for _ in range(times)]


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}], ids=str)
def test_generators_of_the_data_set_do_not_repeat(options):
    """A generator kept in the data set gives the same numbers in two workers, or in two epochs."""
    columns = np.array(drawn(2, 2, **options)).reshape(16, 6).T
    assert all(len(set(column)) == 16 for column in columns.tolist())


def test_generators_of_the_data_set_reproduce():
    """The same seed gives the same numbers again, another seed others, with forked and with spawned workers."""
    one = drawn(2)
    assert one == drawn(2) != drawn(2, seed=1)
    for options in ({"multiprocessing_context": "spawn"},):
        assert np.array(one)[..., :5].tolist() == np.array(drawn(2, **options))[..., :5].tolist()


def test_without_workers_generators_are_left_alone():
    """With num_workers=0 a generator of the data set gives its own stream."""
    import worker_datasets

    worker_datasets.MODULE_LEVEL = np.random.default_rng(0)
    (rows,) = drawn(0)
    assert [r[0] for r in rows] == np.random.default_rng(0).random(8).tolist()


def test_nothing_is_left_open():
    """After some epochs this process has the descriptors it had before, and no children."""
    list(DataLoader(Big(4), num_workers=1))
    gc.collect()
    before = descriptors()
    for _ in range(3):
        list(DataLoader(Big(8), num_workers=2))
        for _batch in DataLoader(Big(8), num_workers=2):
            break
        del _batch
    gc.collect()
    assert descriptors() == before and not multiprocessing.active_children()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        assert not children.exists() or not [c for c in children.read_text().split() if is_worker(int(c))]


def is_worker(pid: int) -> bool:
    """Whether a child is a fork of this process; the fork server and the resource tracker are others."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"forkserver" not in command and b"resource_tracker" not in command
