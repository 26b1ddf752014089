"""DistributedSampler gives every rank the indices that PyTorch's gives it, index by index, whatever the options."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
from worlds import run_both

import flambeau
import flambeau.utils.data
from flambeau.utils.data.distributed import DistributedSampler as Ours

oracle = pytest.importorskip("torch")
from torch.utils.data.distributed import DistributedSampler as Theirs  # noqa: E402 - after the skip

SIZES = [1, 2, 3, 7, 10, 64, 101]
RANKS = [1, 2, 3, 4, 8]


def epochs(sampler: Any, numbers: tuple[int, ...]) -> list:
    found = [len(sampler), sampler.num_samples, sampler.total_size]
    for number in numbers:
        sampler.set_epoch(number)
        found.append(list(sampler))
    return found


def said(make: Any) -> Any:
    try:
        return make()
    except Exception as problem:
        return type(problem).__name__


@pytest.mark.parametrize(
    "options", [dict(zip(("shuffle", "drop_last"), pair, strict=True)) for pair in itertools.product((True, False), repeat=2)]
)
@pytest.mark.parametrize("seed", [0, 3, 2**40])
def test_indices(options: dict[str, bool], seed: int) -> None:
    """Some rank reads other samples than with PyTorch."""
    for size, ranks in itertools.product(SIZES, RANKS):
        for rank in range(ranks):
            arguments = dict(num_replicas=ranks, rank=rank, seed=seed, **options)
            ours = said(lambda arguments=arguments, size=size: epochs(Ours(range(size), **arguments), (0, 1, 5)))
            theirs = said(lambda arguments=arguments, size=size: epochs(Theirs(range(size), **arguments), (0, 1, 5)))
            assert ours == theirs, (size, arguments)


def test_shares() -> None:
    """Ranks' shares overlap more than the repetition at the end, leave samples out, or are not of one length."""
    for size, ranks in itertools.product(SIZES, RANKS):
        shares = [list(Ours(range(size), num_replicas=ranks, rank=rank)) for rank in range(ranks)]
        assert len({len(share) for share in shares}) == 1
        assert {i for share in shares for i in share} == set(range(size))


def test_epochs_differ() -> None:
    """set_epoch changes nothing, or the order of an epoch is not always the same."""
    sampler = Ours(range(50), num_replicas=2, rank=0)
    orders = []
    for epoch in (0, 1, 0):
        sampler.set_epoch(epoch)
        orders.append(list(sampler))
    assert orders[0] == orders[2] != orders[1]


def test_forgotten_set_epoch() -> None:
    """A second epoch in the order of the first goes by without a word."""
    sampler = Ours(range(50), num_replicas=2, rank=0)
    first = list(sampler)
    with pytest.warns(UserWarning, match="set_epoch"):
        assert list(sampler) == first
    quiet = Ours(range(50), num_replicas=2, rank=0)
    quiet.set_epoch(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(quiet) == list(quiet)


@pytest.mark.parametrize("rank", [-1, 2, 5])
def test_rank_out_of_range(rank: int) -> None:
    """A rank that there is not is accepted."""
    kinds = [said(lambda cls=cls: cls(range(4), num_replicas=2, rank=rank)) for cls in (Ours, Theirs)]
    assert kinds == ["ValueError"] * 2


def test_without_a_group() -> None:
    """Neither arguments nor a process group say how many replicas there are."""
    assert said(lambda: Ours(range(4))) == said(lambda: Theirs(range(4))) == "ValueError"


def test_names() -> None:
    """A path by which programs import it is missing."""
    assert flambeau.utils.data.DistributedSampler is flambeau.utils.data.distributed.DistributedSampler is Ours


def test_in_a_group() -> None:
    """Rank and number of replicas are not the group's, or a DataLoader with workers reads something else than with PyTorch."""
    ours, theirs = run_both("""
        import TORCH as torch, TORCH.distributed as dist
        from TORCH.utils.data import DataLoader, DistributedSampler, TensorDataset

        def main():
            dist.init_process_group("gloo")
            data = TensorDataset(torch.arange(11))
            sampler = DistributedSampler(data)
            print(sampler.rank, sampler.num_replicas, len(sampler))
            for workers in (0, 2):
                loader = DataLoader(data, batch_size=2, sampler=sampler, num_workers=workers, persistent_workers=workers > 0)
                for epoch in range(2):
                    sampler.set_epoch(epoch)
                    print([x.tolist() for (x,) in loader])
            dist.destroy_process_group()

        if __name__ == "__main__":
            main()
    """)
    assert ours == theirs
