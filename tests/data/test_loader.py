"""DataLoader in one process, side by side with PyTorch: arguments, lengths, order, streams, attributes."""

from __future__ import annotations

import json
import pickle

import pytest
from loader_oracle import OURS, THEIRS, same
from test_datasets import stream, tensors


def set_after(d, name):
    setattr(d.DataLoader(range(4)), name, None)


PROGRAMS = {
    "as it comes": lambda d: list(d.DataLoader(range(4))),
    "batches": lambda d: list(d.DataLoader(range(7), 3)),
    "drop_last": lambda d: list(d.DataLoader(range(7), 3, drop_last=True)),
    "items": lambda d: list(d.DataLoader(range(3), batch_size=None)),
    "items, shuffled": lambda d: list(d.DataLoader(range(9), batch_size=None, shuffle=True)),
    "tensor items": lambda d: list(d.DataLoader(tensors(d), batch_size=None)),
    "shuffled": lambda d: [list(d.DataLoader(tensors(d), 4, shuffle=True)) for _ in range(2)] + [d.torch.rand(3)],
    "generator": lambda d: list(d.DataLoader(range(9), 4, True, generator=d.torch.Generator().manual_seed(1))),
    "sampler": lambda d: list(d.DataLoader(range(9), 2, sampler=[5, 3, 1])),
    "weighted": lambda d: [*d.DataLoader(range(4), 3, sampler=d.WeightedRandomSampler([1.0, 2, 3, 4], 7)), d.torch.rand(3)],
    "distributed": lambda d: list(d.DataLoader(range(9), 2, sampler=d.DistributedSampler(range(9), 2, 1))),
    "batch sampler": lambda d: list(d.DataLoader(range(9), batch_sampler=[[1, 2], [3]])),
    "collate_fn": lambda d: list(d.DataLoader(range(4), 2, collate_fn=tuple)),
    "many at once": lambda d: list(d.DataLoader(d.StackDataset(a=range(4), b="abcd"), 2)),
    "nothing": lambda d: list(d.DataLoader([], 2)),
    "nothing, shuffled": lambda d: list(d.DataLoader([], 2, shuffle=True)),
    "stream": lambda d: list(d.DataLoader(stream(d), 2)),
    "stream, drop_last": lambda d: list(d.DataLoader(stream(d), 2, drop_last=True)),
    "stream of items": lambda d: list(d.DataLoader(stream(d), None)),
    "stream of nothing": lambda d: list(d.DataLoader(stream(d, 0), 2)),
    "stream with another length": lambda d: [len(loader := d.DataLoader(stream(d, 5, 3), 1)), list(loader)],
    "length": lambda d: [len(d.DataLoader(range(7), 3, drop_last=drop)) for drop in (True, False)],
    "length of a stream": lambda d: [len(d.DataLoader(stream(d, 7, 7), 3, drop_last=drop)) for drop in (True, False)],
    "length of a stream without": lambda d: len(d.DataLoader(stream(d))),
    "length of an iterator": lambda d: len(iter(d.DataLoader(range(7), 3))),
    "attributes": lambda d: [
        getattr(d.DataLoader(range(7), 3), name)
        for name in "batch_size drop_last num_workers pin_memory timeout prefetch_factor in_order sampler batch_sampler generator".split()
    ],
    "attributes with a batch sampler": lambda d: (lambda x: (x.batch_size, x.drop_last, x.sampler))(
        d.DataLoader(range(3), batch_sampler=[[1]])
    ),
    "pinned without a GPU": lambda d: list(d.DataLoader(range(3), pin_memory=True)),
    "workers below 0": lambda d: d.DataLoader(range(3), num_workers=-1),
    "workers above the cores": lambda d: d.DataLoader(range(3), num_workers=999),
    "timeout below 0": lambda d: d.DataLoader(range(3), timeout=-1),
    "prefetch without workers": lambda d: d.DataLoader(range(3), prefetch_factor=2),
    "prefetch below 0": lambda d: d.DataLoader(range(3), num_workers=1, prefetch_factor=-1),
    "persistent without workers": lambda d: d.DataLoader(range(3), persistent_workers=True),
    "stream shuffled": lambda d: d.DataLoader(stream(d), shuffle=True),
    "stream not shuffled": lambda d: len(list(d.DataLoader(stream(d), shuffle=False))),
    "stream with sampler": lambda d: d.DataLoader(stream(d), sampler=[1]),
    "stream with batch sampler": lambda d: d.DataLoader(stream(d), batch_sampler=[[1]]),
    "sampler and shuffle": lambda d: d.DataLoader(range(3), sampler=[1], shuffle=True),
    "batch sampler and size": lambda d: d.DataLoader(range(3), batch_sampler=[[1]], batch_size=2),
    "batch sampler and shuffle": lambda d: d.DataLoader(range(3), batch_sampler=[[1]], shuffle=True),
    "batch sampler and sampler": lambda d: d.DataLoader(range(3), batch_sampler=[[1]], sampler=[1]),
    "batch sampler and drop_last": lambda d: d.DataLoader(range(3), batch_sampler=[[1]], drop_last=True),
    "items and drop_last": lambda d: d.DataLoader(range(3), None, drop_last=True),
    "batch size 0": lambda d: d.DataLoader(range(3), 0),
    "context without workers": lambda d: d.DataLoader(range(3), multiprocessing_context="fork"),
    "unknown context": lambda d: d.DataLoader(range(3), num_workers=1, multiprocessing_context="no such"),
    "context of another type": lambda d: d.DataLoader(range(3), num_workers=1, multiprocessing_context=3),
    "pickled iterator": lambda d: pickle.dumps(iter(d.DataLoader(range(3)))),
    "worker info here": lambda d: d.get_worker_info(),
    "an error": lambda d: list(d.DataLoader([[1], {}, 3], 3)),
    **{f"set {name}": lambda d, name=name: set_after(d, name)
       for name in "batch_size batch_sampler sampler drop_last dataset persistent_workers num_workers collate_fn timeout".split()},
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_pytorch(name):
    """A loader gives other batches, another exception or another warning than PyTorch's."""
    same(PROGRAMS[name])


def test_a_sampler_that_draws_at_once_draws_before_the_seed_of_the_workers():
    """An __iter__ that is no generator draws its order before the loader draws its seed, and the stream shows that."""

    def program(d):
        class Eager(d.Sampler):
            def __iter__(self):
                return iter([d.torch.randperm(8).tolist()[:4], [1, 2]])

        return list(d.DataLoader(range(8), batch_sampler=Eager())), d.torch.rand(2)

    same(program)


def test_an_error_names_the_item():
    """An exception out of a data set keeps its type and tells which item was asked for."""

    class Broken(OURS.Dataset):
        def __len__(self):
            return 9

        def __getitem__(self, i):
            return {0: 1}[i]

    with pytest.raises(KeyError) as caught:
        list(OURS.DataLoader(Broken(), 3))
    assert "dataset[1]" in caught.value.__notes__[0]


def test_a_break_leaves_nothing_behind():
    """An iterator left in the middle does not disturb the next epoch, and two at once do not disturb each other."""

    def program(d):
        loader = d.DataLoader(range(10), 3, shuffle=True)
        seen = []
        for batch in loader:
            seen.append(batch)
            break
        for a, b in zip(loader, loader, strict=True):
            seen += [a, b]
        return seen

    same(program)


def test_lines_of_json_by_their_offsets(tmp_path):
    """A file of JSON lines, read by byte offsets and padded by a collate function, as programs for language models do."""
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps({"ids": list(range(i + 1)), "text": "é" * i}) + "\n" for i in range(7)))

    def program(d):
        class Lines(d.Dataset):
            def __init__(self):
                self.offsets, offset = [], 0
                with open(path, "rb") as f:
                    for line in f:
                        self.offsets.append(offset)
                        offset += len(line)

            def __len__(self):
                return len(self.offsets)

            def __getitem__(self, i):
                with open(path, "rb") as f:
                    f.seek(self.offsets[i])
                    return json.loads(f.readline())

        def pad(batch):
            longest = max(len(item["ids"]) for item in batch)
            ids = d.torch.tensor([item["ids"] + [0] * (longest - len(item["ids"])) for item in batch])
            return {"input_ids": ids, "labels": ids.masked_fill(ids == 0, -100), "text": [item["text"] for item in batch]}

        train, rest = d.random_split(Lines(), [5, 2])
        return [list(d.DataLoader(part, 2, shuffle=True, collate_fn=pad)) for part in (train, rest)]

    same(program)


def test_attributes_of_iterators_that_libraries_read():
    """Lightning and others look at these."""
    for d in (THEIRS, OURS):
        loader = d.DataLoader(range(6), 2)
        iterator = iter(loader)
        next(iterator)
        assert iterator._num_yielded == 1 and iterator._num_workers == 0 and loader._iterator is None
        assert loader._dataset_kind == d._DatasetKind.Map and loader._auto_collation
        assert iterator._next_data().tolist() == [2, 3] and iter(iterator) is iterator
