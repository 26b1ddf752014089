"""DataLoader.state_dict: a loader made anew goes on exactly where another one stood, random numbers included."""

from __future__ import annotations

import random

import numpy as np
import pytest
import worker_datasets
from worker_datasets import Generators, Streams, first, share

import flambeau
import flambeau.utils.data as OURS

DataLoader = OURS.DataLoader


def program_state():
    """The program's own generators: what a training script saves beside the loader's state."""
    return random.getstate(), np.random.get_state(), flambeau.get_rng_state()


def set_program_state(state):
    random.setstate(state[0])
    np.random.set_state(state[1])
    flambeau.set_rng_state(state[2])


def draws():
    """What a step of training draws in the main process."""
    return flambeau.rand(2).tolist(), random.random(), np.random.rand()


def values(batch):
    return batch.tolist() if isinstance(batch, flambeau.Tensor) else repr(batch)


def run(make, epochs, state=None, stop=None, between=False):
    """Batches and draws of some epochs: [(epoch, batch, draws) ...]. Stops after `stop` batches in all, and returns what was saved there.

    The state is saved inside the loop, or (between) after leaving it.
    """
    loader, start, seen = make(), 0, []
    if state is None:
        flambeau.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
    else:
        start = state["epoch"]
        loader.load_state_dict(state["loader"])
        set_program_state(state["program"])
    for epoch in range(start, epochs):
        if isinstance(loader.sampler, OURS.DistributedSampler):
            loader.sampler.set_epoch(epoch)
        for batch in loader:
            seen.append((epoch, values(batch), draws()))
            if len(seen) == stop:
                if between:
                    break
                return seen, {"epoch": epoch, "loader": loader.state_dict(), "program": program_state()}
        if len(seen) == stop:
            return seen, {"epoch": epoch, "loader": loader.state_dict(), "program": program_state()}
    return seen, None


class Own(OURS.Sampler):
    """A sampler of the user's own, with a state."""

    def __init__(self, n):
        self.n, self.shift = n, 0

    def __iter__(self):
        self.shift += 1
        return iter([(i + self.shift) % self.n for i in range(self.n)])

    def __len__(self):
        return self.n

    def state_dict(self):
        return {"shift": self.shift}

    def load_state_dict(self, state):
        self.shift = state["shift"]


class Plain(OURS.Sampler):
    """A sampler that draws from Python's generator."""

    def __iter__(self):
        return iter(random.sample(range(9), 9))


class Counting(OURS.IterableDataset):
    """A stream that says itself where it stands, and counts how many items it had to make."""

    def __init__(self, n):
        self.n, self.at, self.made = n, None, 0

    def __iter__(self):
        info = OURS.get_worker_info()
        first_, step = (info.id, info.num_workers) if info else (0, 1)
        start, self.at = (first_ if self.at is None else self.at), None
        for i in range(start, self.n, step):
            self.now = i + step
            self.made += 1
            yield i, random.random(), self.made
        self.now = self.n

    def state_dict(self):
        return {"at": self.now}

    def load_state_dict(self, state):
        self.at = state["at"]


class Buffer(OURS.IterableDataset):
    """A stream shuffled through a buffer with a generator of its own, without a state: it must be read again."""

    def __init__(self, n):
        self.n, self.rng = n, np.random.default_rng(0)

    def __iter__(self):
        info = OURS.get_worker_info()
        buffer = []
        for i in range(info.id if info else 0, self.n, info.num_workers if info else 1):
            buffer.append(i)
            if len(buffer) == 4:
                yield buffer.pop(int(self.rng.integers(4)))
        yield from buffer


def fresh():
    """A data set with generators, and the one of its module, as in a new process."""
    worker_datasets.MODULE_LEVEL = np.random.default_rng(0)
    return Generators()


def loaders(workers):
    """Functions that make loaders of every kind."""
    kept = {"num_workers": workers, "persistent_workers": True} if workers else {}
    w = {"num_workers": workers}
    return {
        "streams": lambda: DataLoader(Streams("flambeau"), 2, collate_fn=first, **w),
        "shuffled": lambda: DataLoader(Streams("flambeau"), 2, shuffle=True, collate_fn=first, **w),
        "persistent": lambda: DataLoader(Streams("flambeau"), 2, shuffle=True, collate_fn=first, **kept),
        "generator": lambda: DataLoader(range(9), 2, shuffle=True, generator=flambeau.Generator().manual_seed(5), **w),
        "generators in the data": lambda: DataLoader(fresh(), 2, shuffle=True, collate_fn=first, **w),
        "tensors": lambda: DataLoader(OURS.TensorDataset(flambeau.arange(9)), 2, shuffle=True, collate_fn=OURS.default_collate, **w),
        "replacement": lambda: DataLoader(range(9), 7, sampler=OURS.RandomSampler(range(9), True, 70, flambeau.Generator()), **w),
        "weighted": lambda: DataLoader(range(9), 2, sampler=OURS.WeightedRandomSampler([1.0] * 9, 9), **w),
        "own sampler": lambda: DataLoader(range(9), 2, sampler=Own(9), **w),
        "own plain sampler": lambda: DataLoader(range(9), 2, sampler=Plain(), **w),
        "items": lambda: DataLoader(range(9), None, shuffle=True, **w),
        "stream": lambda: DataLoader(share(OURS, 9), 2, **w),
        "stream of items": lambda: DataLoader(share(OURS, 9), None, **kept),
        "buffer": lambda: DataLoader(Buffer(15), 2, **w),
        "distributed": lambda: DataLoader(range(18), 2, sampler=OURS.DistributedSampler(range(18), 2, 1), **w),
    }  # fmt: skip


@pytest.mark.parametrize("name, workers", [(name, w) for name in loaders(0) for w in (0, 2)] + [("shuffled", 1), ("buffer", 1)])
def test_a_resumed_run_is_the_run(name, workers):
    """Stopped after any batch and resumed in a new loader, a run gives the batches and draws it would have given."""
    make = loaders(workers)[name]
    whole, _ = run(make, 2)
    stops = range(1, len(whole)) if not workers else sorted({2, len(whole) // 2, len(whole) - 1})
    for stop in stops:
        seen, state = run(make, 2, stop=stop)
        rest, _ = run(make, 2, state=state)
        assert seen + rest == whole, f"stopped after {stop} of {len(whole)} batches"


@pytest.mark.parametrize("workers", [0, 2])
def test_between_two_epochs(workers):
    """A state saved after an epoch starts the next one as it would have started; after a `break`, it goes on behind it."""
    names = ("shuffled", "persistent", "generator", "own sampler", "stream", "generators in the data")
    for name in names if not workers else names[1:4]:
        make = loaders(workers)[name]
        whole, _ = run(make, 2)
        one = len(run(make, 1)[0])
        flambeau.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        loader = make()
        seen = [(0, values(batch), draws()) for batch in loader]
        assert seen == whole[:one]
        rest, _ = run(make, 2, {"epoch": 1, "loader": loader.state_dict(), "program": program_state()})
        assert seen + rest == whole, name
        seen, state = run(make, 2, stop=2, between=True)
        assert seen + run(make, 2, state=state)[0] == whole, name


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_with_a_state_is_not_read_again(workers):
    """An IterableDataset with state_dict and load_state_dict goes on by them; items before are not made again."""
    make = lambda: DataLoader(Counting(12), 2, collate_fn=first, num_workers=workers)  # noqa: E731
    loader = make()
    flambeau.manual_seed(0)
    random.seed(0)
    batches = list(loader)
    flambeau.manual_seed(0)
    random.seed(0)
    loader = make()
    iterator = iter(loader)
    assert [next(iterator) for _ in range(3)] == batches[:3]
    state, program = loader.state_dict(), program_state()
    again = make()
    again.load_state_dict(state)
    set_program_state(program)
    rest = list(again)
    assert [[item[:2] for item in b] for b in rest] == [[item[:2] for item in b] for b in batches[3:]]
    assert all(item[2] <= 6 for b in rest for item in b), "the data set made items that were given out before"


def test_states_of_states():
    """A state that was loaded and not yet used is the state; one of a loader that never ran starts at the beginning."""
    loader = loaders(0)["shuffled"]()
    new = loader.state_dict()
    next(iter(loader))
    state = loader.state_dict()
    loader.load_state_dict(state)
    assert loader.state_dict() is state
    loader.load_state_dict(new)
    assert len(list(loader)) == 4


def test_out_of_order_resumes_with_what_is_left():
    """With in_order=False every batch is given out once, before or after resuming."""
    make = lambda: DataLoader(range(20), 2, num_workers=2, in_order=False)  # noqa: E731
    seen, state = run(make, 1, stop=4)
    rest, _ = run(make, 1, state=state)
    assert sorted(i for _, b, _ in seen + rest for i in b) == list(range(20))


def test_another_number_of_workers():
    """Items go on with any number of workers; their random numbers cannot, which is told; a stream cannot be shared out anew."""
    _, state = run(lambda: DataLoader(range(10), 2, shuffle=True, num_workers=2), 1, stop=2)
    with pytest.warns(UserWarning, match="num_workers=2"):
        rest, _ = run(lambda: DataLoader(range(10), 2, shuffle=True), 1, state=state)
    flambeau.manual_seed(0)
    assert [b for _, b, _ in rest] == [b.tolist() for b in DataLoader(range(10), 2, shuffle=True)][2:]
    _, state = run(loaders(2)["streams"], 1, stop=2)
    with pytest.warns(UserWarning, match="num_workers=2"):
        loaders(1)["streams"]().load_state_dict(state["loader"])
    _, state = run(loaders(2)["stream"], 1, stop=2)
    with pytest.raises(ValueError, match="num_workers=2"):
        loaders(0)["stream"]().load_state_dict(state["loader"])


def test_something_else_is_not_a_state():
    """A state dict of something else is refused in words."""
    for wrong in ({}, {"weight": 1}, None):
        with pytest.raises(ValueError, match="not a state of a DataLoader"):
            DataLoader(range(3)).load_state_dict(wrong)


def test_a_state_is_plain_data():
    """Numbers, text, lists, dicts and tensors only, so that a checkpoint with it can be read without running code."""

    def check(value):
        if isinstance(value, dict):
            assert all(isinstance(k, str) for k in value)
            value = list(value.values())
        if isinstance(value, list):
            for part in value:
                check(part)
        else:
            assert value is None or type(value) in (int, float, bool, str, flambeau.Tensor), type(value)

    for name in ("generators in the data", "streams", "buffer", "own sampler"):
        for workers in (0, 2):
            check(run(loaders(workers)[name], 1, stop=2)[1]["loader"])
