"""DataLoader alone: one epoch, nothing done with the batches. Workers are started and ended within the time."""

from __future__ import annotations

from importlib import import_module

from benchmarks.case import case

ROWS = 60_000


def epoch(torch, dataset, **options):
    """One pass over a data set as a callable."""
    torch.manual_seed(0)
    if options.get("num_workers"):
        options["multiprocessing_context"] = "fork"  # the usual one; the benchmark's own processes are spawned, and would spawn in turn
    loader = torch.utils.data.DataLoader(dataset, batch_size=64, shuffle=True, **options)

    def run():
        for batch in loader:
            last = batch
        return last

    return run


def mnist_like(torch):
    """60000 images of 784 pixels, and labels."""
    return torch.utils.data.TensorDataset(torch.rand(ROWS, 784), torch.randint(0, 10, (ROWS,)))


@case(wanted=0.5)
def tensors(torch, device):
    """TensorDataset of 60000 x 784, batches of 64, shuffled, prepared in this process."""
    return epoch(torch, mnist_like(torch))


@case(wanted=1.0)
def tensors_by_workers(torch, device):
    """The same by two worker processes."""
    return epoch(torch, mnist_like(torch), num_workers=2)


@case(wanted=1.0, workers=[0, 2])
def python_items(torch, device, workers):
    """4000 items of Python work (a line is split into 40 numbers), batches of 64, shuffled."""
    # Imported by name: a worker of the benchmark may be asked for torch or for flambeau.
    Dataset = import_module(f"{torch.__name__}.utils.data").Dataset

    class Lines(Dataset):
        def __init__(self):
            self.lines = [",".join(str((i * 7 + k) % 100) for k in range(40)) for i in range(4000)]

        def __len__(self):
            return len(self.lines)

        def __getitem__(self, i):
            return torch.tensor([float(word) for word in self.lines[i].split(",")]), i % 10

    return epoch(torch, Lines(), num_workers=workers)
