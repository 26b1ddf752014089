"""Datasets and loaders: custom ones, splits, padding, lines of a JSONL file by their offsets, worker processes."""

import json
import os
import tempfile
from pathlib import Path

import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
    random_split,
)


class Pairs(Dataset):
    def __init__(self, X, y):
        self.X, self.y = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.long)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.X[i], self.y[i]


class JsonlDataset(Dataset):
    """Reads lines when they are asked for; only their offsets are kept."""

    def __init__(self, path):
        self.path = Path(path)
        self.offsets = []
        with open(self.path, "rb") as f:
            offset = 0
            for line in f:
                self.offsets.append(offset)
                offset += len(line)

    def __len__(self):
        return len(self.offsets)

    def __getitem__(self, index):
        with open(self.path, "rb") as f:
            f.seek(self.offsets[index])
            return json.loads(f.readline())


def pad_collate(batch, pad_id=0):
    longest = max(len(item["input_ids"]) for item in batch)
    padded = [item["input_ids"] + [pad_id] * (longest - len(item["input_ids"])) for item in batch]
    labels = [item["input_ids"] + [-100] * (longest - len(item["input_ids"])) for item in batch]
    return {"input_ids": torch.tensor(padded), "labels": torch.tensor(labels)}


class Windows(Dataset):
    """(input, target) pairs of a text of tokens."""

    def __init__(self, tokens, length):
        self.tokens, self.length = tokens, length

    def __len__(self):
        return len(self.tokens) - self.length

    def __getitem__(self, i):
        return self.tokens[i : i + self.length], self.tokens[i + 1 : i + self.length + 1]


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, 10, step))


def main():
    torch.manual_seed(0)
    pairs = Pairs([[i, i + 0.5] for i in range(10)], list(range(10)))
    loader = DataLoader(pairs, batch_size=4, shuffle=True)
    print(len(pairs), len(loader), [tuple(x.shape) for x, _ in loader])
    for epoch in range(2):
        print(epoch, [y.tolist() for _, y in loader])
    print([y.tolist() for _, y in DataLoader(pairs, batch_size=4, drop_last=True, shuffle=True)])

    train, valid = random_split(pairs, [0.8, 0.2], generator=torch.Generator().manual_seed(1))
    print(len(train), len(valid), valid.indices, len(ConcatDataset([pairs, valid])), Subset(pairs, [3, 1])[0])
    sampler = WeightedRandomSampler([1.0] * 5 + [9.0] * 5, num_samples=6)
    print(list(sampler), next(iter(DataLoader(pairs, batch_size=6, sampler=sampler)))[1])
    x, y = next(iter(DataLoader(Windows(torch.arange(20), 4), batch_size=3)))
    print(x, y)
    dataset = TensorDataset(torch.arange(6.0).view(6, 1), torch.arange(6))
    print([(a.flatten().tolist(), b.tolist()) for a, b in DataLoader(dataset, batch_size=4)])

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "lines.jsonl")
        with open(path, "w") as f:
            for i in range(5):
                f.write(json.dumps({"text": "é" * i, "input_ids": list(range(1, i + 2))}) + "\n")
        lines = JsonlDataset(path)
        print(len(lines), lines[3]["text"])
        for batch in DataLoader(lines, batch_size=3, collate_fn=pad_collate):
            print(batch["input_ids"].tolist(), batch["labels"][:, -1].tolist())

    workers = DataLoader(pairs, batch_size=3, shuffle=True, num_workers=2, prefetch_factor=2, persistent_workers=True)
    torch.manual_seed(3)
    for epoch in range(2):
        print(epoch, [y.tolist() for _, y in workers])
    print(sorted(i for batch in DataLoader(Stream(), batch_size=2, num_workers=2) for i in batch.tolist()))
    seeds = DataLoader(list(range(4)), batch_size=None, num_workers=2, worker_init_fn=lambda worker: torch.manual_seed(worker))
    print([int(v) for v in seeds])


if __name__ == "__main__":
    main()
