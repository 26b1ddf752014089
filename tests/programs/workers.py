"""Processes: a loader whose workers are spawned, and tensors sent through a pool; the classes live in this file."""

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return {"x": torch.full((2,), float(i)), "square": i * i}


def work(tensor):
    return (tensor * 2).sum().item(), tensor.dtype


def main():
    for context in ("fork", "spawn"):
        loader = DataLoader(Squares(), batch_size=2, num_workers=2, multiprocessing_context=context)
        batches = [(batch["x"].tolist(), batch["square"].tolist()) for batch in loader]
        print(context, batches)
        assert batches[1] == ([[2.0, 2.0], [3.0, 3.0]], [4, 9]) and len(batches) == 3
    with mp.get_context("spawn").Pool(2) as pool:
        results = pool.map(work, [torch.ones(3), torch.arange(4)])
    print(results)
    assert results == [(6.0, torch.float32), (12, torch.int64)]


if __name__ == "__main__":
    main()
