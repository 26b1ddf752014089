"""Data sets and how they combine, side by side with PyTorch."""

from __future__ import annotations

import pytest
from loader_oracle import OURS, same


def double(d):
    """A data set that gives whole batches at once."""

    class Double(d.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return i

        def __getitems__(self, indices):
            return [10 * i for i in indices]

    return Double()


def stream(d, n=5, length=None):
    """0 ... n - 1 one after another, with a length if one is given."""

    class Stream(d.IterableDataset):
        def __iter__(self):
            return iter(range(n))

    if length is not None:
        Stream.__len__ = lambda self: length
    return Stream()


def tensors(d, n=6):
    return d.TensorDataset(d.torch.arange(n), d.torch.arange(2 * n).reshape(n, 2) * 0.5)


PROGRAMS = {
    "tensor items": lambda d: [tensors(d)[i] for i in (0, -1, slice(1, 3), [0, 2])],
    "tensor length": lambda d: len(tensors(d)),
    "tensors of other lengths": lambda d: d.TensorDataset(d.torch.ones(2), d.torch.ones(3)),
    "tensors without rows": lambda d: d.TensorDataset(d.torch.tensor(1.0)),
    "no tensors": lambda d: len(d.TensorDataset()),
    "item of an abstract set": lambda d: d.Dataset()[0],
    "length of an abstract set": lambda d: len(d.Dataset()),
    "abstract stream": lambda d: d.IterableDataset(),
    "sum of sets": lambda d: [(tensors(d) + tensors(d))[i] for i in (0, 7, -1)],
    "sum of streams": lambda d: list(stream(d) + stream(d, 2)),
    "stream and set": lambda d: list(stream(d) + tensors(d)),
    "length of streams": lambda d: len(d.ChainDataset([stream(d, 5, 5), stream(d, 2, 2)])),
    "streams without length": lambda d: len(d.ChainDataset([stream(d), stream(d)])),
    "concat": lambda d: [d.ConcatDataset([range(3), [7], range(2)])[i] for i in range(-6, 6)],
    "concat sizes": lambda d: (len(d.ConcatDataset([range(3), [7]])), d.ConcatDataset([range(3), [7]]).cumulative_sizes),
    "concat too far back": lambda d: d.ConcatDataset([range(3)])[-4],
    "concat too far": lambda d: d.ConcatDataset([range(3)])[3],
    "concat of nothing": lambda d: d.ConcatDataset([]),
    "concat of a stream": lambda d: d.ConcatDataset([stream(d)]),
    "old spelling": lambda d: d.ConcatDataset([range(3)]).cummulative_sizes,
    "stack of two": lambda d: [d.StackDataset(range(3), "abc")[1], len(d.StackDataset(range(3), "abc"))],
    "stack with names": lambda d: d.StackDataset(x=range(3), y="abc")[2],
    "stack, many": lambda d: [d.StackDataset(double(d), range(4)).__getitems__([1, 2]), d.StackDataset(a=double(d)).__getitems__([1])],
    "stack of nothing": lambda d: d.StackDataset(),
    "stack, other lengths": lambda d: d.StackDataset(range(3), range(2)),
    "stack, both ways": lambda d: d.StackDataset(range(3), a=range(3)),
    "subset": lambda d: [d.Subset(range(10), [3, 5, 7])[1], len(d.Subset(range(10), [3, 5, 7]))],
    "subset by list": lambda d: d.Subset(tensors(d), [3, 5])[[0, 1]],
    "subset, many": lambda d: [d.Subset(double(d), [3, 1]).__getitems__([0, 1]), d.Subset(range(9), [3, 1]).__getitems__([0, 1])],
    "split": lambda d: [list(s.indices) for s in d.random_split(range(10), [7, 3])],
    "split by generator": lambda d: [
        list(s.indices) for s in d.random_split(range(10), [0.5, 0.5], generator=d.torch.Generator().manual_seed(3))
    ],
    "split by fractions": lambda d: [list(s.indices) for s in d.random_split(range(11), [0.3, 0.3, 0.4])],
    "split too small": lambda d: [len(s) for s in d.random_split(range(2), [0.3, 0.3, 0.4])],
    "split into one": lambda d: [len(s) for s in d.random_split(range(5), [1.0])],
    "split, wrong sum": lambda d: d.random_split(range(5), [2, 2]),
    "split, wrong fractions": lambda d: d.random_split(range(5), [0.5, 0.3]),
    "split, negative fraction": lambda d: d.random_split(range(5), [1.5, -0.5]),
    "split with an empty part": lambda d: [len(s) for s in d.random_split(range(5), [5, 0])],
    "generic": lambda d: issubclass(d.Dataset[int].__origin__, d.Dataset),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_pytorch(name):
    """A data set gives other items, another exception or another warning than PyTorch's."""
    same(PROGRAMS[name])


def test_a_subset_that_overrides_one_of_two_is_told():
    """A subclass of Subset with its own __getitem__ would be passed by, as batches are asked for by __getitems__."""

    def program(d):
        class Mine(d.Subset):
            def __getitem__(self, i):
                return -1

        Mine(range(5), [1, 2])

    assert same(program) == "NotImplementedError"


def test_the_public_names_are_pytorchs():
    """Names that libraries import from the submodules of torch.utils.data must be there."""
    from flambeau.utils.data import _utils, dataloader, dataset, distributed, sampler

    assert set(dataset.__all__) <= vars(dataset).keys() and set(sampler.__all__) <= vars(sampler).keys()
    assert distributed.DistributedSampler is OURS.DistributedSampler
    names = "DataLoader _BaseDataLoaderIter _SingleProcessDataLoaderIter _MultiProcessingDataLoaderIter get_worker_info default_collate"
    assert all(hasattr(dataloader, name) for name in names.split())
    names = "collate default_collate default_convert default_collate_fn_map collate_tensor_fn default_collate_err_msg_format"
    assert all(hasattr(_utils.collate, name) for name in names.split())
    assert not hasattr(OURS, "IterDataPipe"), "data pipes are not part of this package"
