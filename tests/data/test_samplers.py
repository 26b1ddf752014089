"""Samplers give PyTorch's order for PyTorch's seeds, and refuse what PyTorch refuses."""

from __future__ import annotations

import pytest
from loader_oracle import OURS, THEIRS, same


def g(d, seed=3):
    return d.torch.Generator().manual_seed(seed)


def after(d, sampler, generator=None):
    """An order, and what the stream gives afterwards: everything that was drawn was drawn by both."""
    return list(sampler), d.torch.rand(2, generator=generator)


def shared(d, **options):
    """The order of a sampler with a generator, twice, and the stream afterwards."""
    own = g(d)
    sampler = d.RandomSampler(range(10), generator=own, **options)
    return list(sampler), list(sampler), d.torch.rand(2, generator=own)


PROGRAMS = {
    "sequential": lambda d: (list(d.SequentialSampler("abcd")), len(d.SequentialSampler("abcd"))),
    "random": lambda d: after(d, d.RandomSampler(range(20))),
    "random, generator": lambda d: shared(d),
    "random, more than there are": lambda d: shared(d, num_samples=25),
    "random, as many": lambda d: shared(d, num_samples=20),
    "random, fewer": lambda d: shared(d, num_samples=3),
    "random, replaced": lambda d: shared(d, replacement=True),
    "random, replaced, 70": lambda d: shared(d, replacement=True, num_samples=70),
    "random, replaced, 64": lambda d: shared(d, replacement=True, num_samples=64),
    "random, length": lambda d: (len(d.RandomSampler(range(9))), len(d.RandomSampler(range(9), num_samples=4))),
    "random of nothing": lambda d: d.RandomSampler([]),
    "random, replacement": lambda d: d.RandomSampler([1], replacement=1),
    "random, num_samples": lambda d: d.RandomSampler([1], num_samples=1.5),
    "random, no samples": lambda d: d.RandomSampler([1], num_samples=0),
    "subset": lambda d: after(d, d.SubsetRandomSampler(range(3, 30))),
    "subset, generator": lambda d: list(d.SubsetRandomSampler("abcdef", generator=g(d))),
    "weighted": lambda d: after(d, d.WeightedRandomSampler([0.1, 0.9, 2.0, 1.0], 25)),
    "weighted, once each": lambda d: list(d.WeightedRandomSampler([0.1, 0.9, 2.0, 1.0], 4, replacement=False, generator=g(d))),
    "weighted, too many": lambda d: list(d.WeightedRandomSampler([1.0, 2.0], 3, False)),
    "weighted, no samples": lambda d: d.WeightedRandomSampler([1.0], 0),
    "weighted, True": lambda d: d.WeightedRandomSampler([1.0], True),
    "weighted, replacement": lambda d: d.WeightedRandomSampler([1.0], 1, 1),
    "weighted, a matrix": lambda d: d.WeightedRandomSampler([[1.0]], 1),
    "batches": lambda d: (list(d.BatchSampler(range(7), 3, False)), list(d.BatchSampler(range(7), 3, True))),
    "batches, lengths": lambda d: [len(d.BatchSampler(range(n), 3, drop)) for n in (0, 6, 7) for drop in (True, False)],
    "batches of random": lambda d: after(d, d.BatchSampler(d.RandomSampler(range(10)), 4, False)),
    "batches of nothing": lambda d: list(d.BatchSampler([], 2, False)),
    "batch size 0": lambda d: d.BatchSampler([1], 0, False),
    "batch size True": lambda d: d.BatchSampler([1], True, False),
    "batch size 1.5": lambda d: d.BatchSampler([1], 1.5, False),
    "drop_last 1": lambda d: d.BatchSampler([1], 1, 1),
    "abstract": lambda d: list(d.Sampler()),
    "abstract, argument": lambda d: d.Sampler([1]),
    "abstract, length": lambda d: len(d.Sampler()),
    "distributed without group": lambda d: d.DistributedSampler(range(3)),
    "distributed, one of two": lambda d: d.DistributedSampler(range(3), 2),
    "distributed, rank": lambda d: d.DistributedSampler(range(3), 2, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_pytorch(name):
    """A sampler gives another order, draws other numbers or raises another exception than PyTorch's."""
    same(PROGRAMS[name])


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("items, replicas", [(10, 2), (11, 4), (3, 8), (8, 8), (1, 3)])
def test_the_shares_of_replicas_are_pytorchs(shuffle, drop_last, items, replicas):
    """A DistributedSampler gives other indices than PyTorch's, in some epoch, for some rank."""

    def program(d):
        shares = []
        for rank in range(replicas):
            sampler = d.DistributedSampler(range(items), replicas, rank, shuffle=shuffle, seed=5, drop_last=drop_last)
            for epoch in (0, 3):
                sampler.set_epoch(epoch)
                shares.append([len(sampler), *sampler])
        return shares

    same(program)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_may_be_told_until_the_first_batch(workers):
    """set_epoch() between iter(loader) and the first batch is heeded by one of the two loaders only."""

    def program(d):
        sampler = d.DistributedSampler(range(20), 2, 1, seed=5)
        loader = d.DataLoader(range(20), 4, sampler=sampler, num_workers=workers)
        batches = iter(loader)
        sampler.set_epoch(3)
        return [batch.tolist() for batch in batches], [batch.tolist() for batch in loader]

    same(program)


def test_an_order_in_arrays_is_the_order_in_lists():
    """The loader cuts batches out of arrays where it can: order and random draws must be those of iterating over the samplers."""
    from flambeau.utils.data import order

    for sampler, n in ((OURS.RandomSampler, 10), (OURS.RandomSampler, 7), (OURS.SequentialSampler, 70_001)):
        for size, drop in ((4, False), (5, True), (5, False), (100, False), (100, True)):
            for options in ({}, {"num_samples": 25}, {"num_samples": 20}, {"replacement": True, "num_samples": 70}):
                if sampler is OURS.SequentialSampler and options:
                    continue
                one, two = [g(OURS), g(OURS)]
                if sampler is OURS.RandomSampler:
                    first, second = [OURS.RandomSampler(range(n), generator=o, **options) for o in (one, two)]
                else:
                    first = second = sampler(range(n))
                lists = list(OURS.BatchSampler(first, size, drop))
                arrays = [batch.tolist() for batch in order.batches(OURS.BatchSampler(second, size, drop))]
                assert lists == arrays
                assert one.get_state().tolist() == two.get_state().tolist()


def test_an_overridden_sampler_is_asked():
    """A sampler of the user's own class must be iterated over, not passed by."""
    for d in (THEIRS, OURS):

        class Backwards(d.SequentialSampler):
            def __iter__(self):
                return iter(range(len(self.data_source) - 1, -1, -1))

        loader = d.DataLoader(d.TensorDataset(d.torch.arange(5)), batch_size=2, sampler=Backwards(range(5)))
        assert [b[0].tolist() for b in loader] == [[4, 3], [2, 1], [0]]
