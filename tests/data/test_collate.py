"""How items become batches, side by side with PyTorch."""

from __future__ import annotations

from collections import OrderedDict, UserDict, UserList, defaultdict, namedtuple

import numpy as np
import pytest
from loader_oracle import OURS, THEIRS, plain, same

Point = namedtuple("Point", "x y")

ITEMS = {
    "tensors": lambda t: [t.ones(2, 3), t.zeros(2, 3)],
    "0-d tensors": lambda t: [t.tensor(1), t.tensor(2)],
    "empty tensors": lambda t: [t.ones(0, 3), t.ones(0, 3)],
    "transposed": lambda t: [t.arange(6.0).reshape(2, 3).t(), t.arange(6.0).reshape(2, 3).t()],
    "bfloat16": lambda t: [t.ones(2, dtype=t.bfloat16), t.zeros(2, dtype=t.bfloat16)],
    "other shapes": lambda t: [t.ones(2), t.ones(3)],
    "other dtypes": lambda t: [t.ones(2), t.ones(2, dtype=t.int64)],
    "a gradient": lambda t: [t.ones(2, requires_grad=True) * 2, t.ones(2)],
    "floats": lambda t: [1.5, 2.5],
    "ints": lambda t: [1, 2],
    "bools": lambda t: [True, False],
    "int and float": lambda t: [1, 2.5],
    "text": lambda t: ["a", "b"],
    "bytes": lambda t: [b"a", b"b"],
    "arrays": lambda t: [np.ones(2), np.zeros(2)],
    "0-d arrays": lambda t: [np.array(1.5), np.array(2.5)],
    "text arrays": lambda t: [np.array(["a"])],
    "object arrays": lambda t: [np.array([None], dtype=object)],
    "float32": lambda t: [np.float32(1), np.float32(2)],
    "bool_": lambda t: [np.bool_(True), np.bool_(False)],
    "int8": lambda t: [np.int8(3), np.int8(4)],
    "tuples": lambda t: [(1, "a"), (2, "b")],
    "lists": lambda t: [[1, t.ones(1)], [2, t.zeros(1)]],
    "empty lists": lambda t: [[], []],
    "unequal lists": lambda t: [[1, 2], [1]],
    "dicts": lambda t: [{"a": 1, "b": [2.0]}, {"a": 3, "b": [4.0]}],
    "ordered": lambda t: [OrderedDict(a=1), OrderedDict(a=2)],
    "default": lambda t: [defaultdict(int, a=1), defaultdict(int, a=2)],
    "user dict": lambda t: [UserDict(a=1), UserDict(a=2)],
    "user list": lambda t: [UserList([1, 2]), UserList([3, 4])],
    "named": lambda t: [Point(1, t.ones(2)), Point(2, t.ones(2))],
    "ranges": lambda t: [range(3), range(3)],
    "a missing key": lambda t: [{"a": 1}, {"b": 1}],
    "None": lambda t: [None, None],
    "sets": lambda t: [{1}, {2}],
    "objects": lambda t: [object()],
    "nothing": lambda t: [],
}  # fmt: skip


@pytest.mark.parametrize("name", ITEMS)
def test_default_collate_is_pytorchs(name):
    """A batch has another structure, dtype, shape or values than PyTorch's, or another exception is raised."""
    same(lambda d: d.default_collate(ITEMS[name](d.torch)))


@pytest.mark.parametrize("name", ITEMS)
def test_default_convert_is_pytorchs(name):
    """With batch_size=None an item is converted in another way than by PyTorch."""
    same(lambda d: [d.default_convert(item) for item in ITEMS[name](d.torch)])


def test_user_types_join_the_default():
    """A function put into default_collate_fn_map is used by default_collate, and `collate` takes a map of its own."""

    class Mine:
        pass

    from flambeau.utils.data._utils.collate import collate, default_collate_fn_map

    def join(batch, *, collate_fn_map=None):
        return f"{len(batch)} of mine"

    assert collate([[Mine(), 1], [Mine(), 2]], collate_fn_map={Mine: join, **default_collate_fn_map})[0] == "2 of mine"
    default_collate_fn_map[Mine] = join
    try:
        assert OURS.default_collate([{"a": Mine()}]) == {"a": "1 of mine"}
    finally:
        del default_collate_fn_map[Mine]


SOURCES = {
    "tensors": lambda d: d.TensorDataset(d.torch.arange(10), d.torch.arange(30.0).reshape(10, 3)),
    "one tensor": lambda d: d.torch.arange(20).reshape(10, 2),
    "transposed": lambda d: d.TensorDataset(d.torch.arange(40.0).reshape(4, 10).t()),
    "bfloat16": lambda d: d.TensorDataset(d.torch.arange(10).to(d.torch.bfloat16)),
    "images": lambda d: d.TensorDataset(d.torch.arange(10 * 2 * 3.0).reshape(10, 1, 2, 3)),
    "large rows": lambda d: d.TensorDataset(d.torch.arange(10 * 90_000).reshape(10, 90_000)),
    "subset": lambda d: d.Subset(SOURCES["tensors"](d), [9, 1, 1, 5, 7]),
    "subset of a subset": lambda d: d.Subset(SOURCES["subset"](d), range(1, 4)),
    "negative subset": lambda d: d.Subset(SOURCES["tensors"](d), [-1, 0]),
    "stack": lambda d: d.StackDataset(SOURCES["tensors"](d), d.torch.arange(10)),
    "named stack": lambda d: d.StackDataset(x=SOURCES["tensors"](d), y=d.torch.arange(10)),
    "concat": lambda d: d.ConcatDataset([SOURCES["tensors"](d), d.TensorDataset(d.torch.arange(2), d.torch.ones(2, 3))]),
    "concat, other dtypes": lambda d: d.ConcatDataset([d.TensorDataset(d.torch.arange(2)), d.TensorDataset(d.torch.ones(2))]),
    "gradients": lambda d: d.TensorDataset(d.torch.ones(4, 2, requires_grad=True)),
    "list": lambda d: list(range(7)),
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("options", [{"batch_size": 4}, {"batch_size": 3, "shuffle": True}, {"batch_sampler": [[0, 1], [1, 1], [-1]]}])
def test_gathered_batches_are_pytorchs(name, options):
    """The short way for rows of tensors gives another batch than putting it together item by item."""
    same(lambda d: list(d.DataLoader(SOURCES[name](d), **options)))


def test_rows_are_gathered_at_once():
    """TensorDataset and what is built of it take the short way; a subclass, which may do anything, does not."""
    from flambeau.utils.data.gather import gatherer

    for name in ("tensors", "one tensor", "subset", "subset of a subset", "stack", "named stack", "concat"):
        assert gatherer(SOURCES[name](OURS)) is not None, name
    for name in ("negative subset", "concat, other dtypes", "gradients", "list"):
        assert gatherer(SOURCES[name](OURS)) is None, name

    class Mine(OURS.TensorDataset):
        pass

    assert gatherer(Mine(OURS.torch.ones(2))) is None


def test_an_index_out_of_range_is_an_error():
    """The short way must not read beyond a tensor, nor clip silently."""
    for d in (THEIRS, OURS):
        with pytest.raises(IndexError):
            list(d.DataLoader(d.TensorDataset(d.torch.arange(3)), sampler=[0, 5], batch_size=2))


def test_a_batch_does_not_share_memory_with_the_data():
    """Writing into a batch must not change the data set."""
    source = OURS.torch.zeros(4, 2)
    for (batch,) in OURS.DataLoader(OURS.TensorDataset(source), batch_size=4):
        batch.fill_(1)
    assert plain(source)[3] == [[0, 0]] * 4
