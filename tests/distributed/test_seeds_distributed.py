"""What introductions to PyTorch tell their readers about DistributedDataParallel, run as they tell it: as scripts that say `import torch`.

Each script is started in three ways, by the launcher, by mp.spawn and by mpiexec, and once with real PyTorch under torchrun. All four must print
the same numbers. The texts have nccl and GPUs; here they have gloo and the CPU, and seeds where they had none.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from launching import FOREIGN, OURS, REAL, SOURCES
from worlds import free_port

TIMEOUT = 240  # seconds: PyTorch takes long to start where there is other work

# The least script that trains with DistributedDataParallel.
MINIMUM_VIABLE = """
    # train_ddp.py
    import os
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, Dataset
    from torch.utils.data.distributed import DistributedSampler


    class MyModel(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 5))

        def forward(self, x):
            return self.net(x)


    class MyDataset(Dataset):
        def __init__(self):
            g = torch.Generator().manual_seed(1)
            self.x, self.y = torch.randn(200, 12, generator=g), torch.randint(0, 5, (200,), generator=g)

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            return {"x": self.x[i], "y": self.y[i]}


    def main():
        # torchrun sets these env vars for us
        rank = int(os.environ["RANK"])
        local_rank = int(os.environ["LOCAL_RANK"])
        world_size = int(os.environ["WORLD_SIZE"])

        dist.init_process_group(backend="gloo", rank=rank, world_size=world_size)
        device = torch.device("cpu")

        model = MyModel().to(device)
        model = DDP(model)

        train_set = MyDataset()
        sampler = DistributedSampler(train_set, num_replicas=world_size, rank=rank, shuffle=True)
        loader = DataLoader(train_set, batch_size=32, sampler=sampler, num_workers=1, pin_memory=PIN, persistent_workers=True)
        opt = torch.optim.AdamW(model.parameters(), lr=3e-4)

        for epoch in range(2):
            sampler.set_epoch(epoch)  # ensures different shuffling per epoch
            for batch in loader:
                inputs = batch["x"].to(device, non_blocking=True)
                labels = batch["y"].to(device, non_blocking=True)
                with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
                    loss = F.cross_entropy(model(inputs), labels)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
            print(f"said rank {rank} epoch {epoch} {loss.item():.2f}", flush=True)
        total = sum(p.detach().double().abs().sum() for p in model.parameters()).item()
        print(f"said rank {rank} of {world_size} local {local_rank} weights {total:.1f}", flush=True)
        dist.destroy_process_group()


    if __name__ == "__main__":
        main()
"""

# Distributed training in 30 lines.
THIRTY_LINES = """
    # train_min_ddp.py-torchrun --nproc_per_node=2 train_min_ddp.py
    import os, torch, torch.nn as nn, torch.nn.functional as F
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler

    def main():
        rank = int(os.environ["RANK"]); local = int(os.environ["LOCAL_RANK"]); ws = int(os.environ["WORLD_SIZE"])
        dist.init_process_group("gloo", rank=rank, world_size=ws)
        dev = torch.device("cpu")
        torch.manual_seed(0)
        model = nn.Linear(64, 10).to(dev)
        model = DDP(model)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        ds = TensorDataset(torch.randn(1_000, 64), torch.randint(0, 10, (1_000,)))
        sampler = DistributedSampler(ds, num_replicas=ws, rank=rank, shuffle=True)
        loader = DataLoader(ds, batch_size=64, sampler=sampler, num_workers=1, pin_memory=PIN)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            for x, y in loader:
                x, y = x.to(dev, non_blocking=True), y.to(dev, non_blocking=True)
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = F.cross_entropy(model(x), y)
                opt.zero_grad(set_to_none=True); loss.backward(); opt.step()
            if rank == 0: print(f"said epoch {epoch} loss {loss.item():.2f}")
        dist.destroy_process_group()

    if __name__ == "__main__":
        main()
"""

# Five things that always matter, and what the cards and pitfalls of other texts add: no_sync, shares without overlap, the effective batch.
FIVE_THINGS = """
    import os, tempfile
    from contextlib import nullcontext
    import torch, torch.nn as nn, torch.nn.functional as F
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler

    def said(*words):
        os.write(1, (" ".join(map(str, ("said", *words))) + "\\n").encode())  # as a whole: lines of two ranks do not mix

    def main():
        dist.init_process_group("gloo")
        rank, world_size, local_rank = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
        assert (rank, world_size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        g = torch.Generator().manual_seed(3)
        data = TensorDataset(torch.randn(48, 6, generator=g), torch.randn(48, 2, generator=g), torch.arange(48))

        # DistributedSampler ensures no overlap, and set_epoch another order in each epoch.
        sampler = DistributedSampler(data, shuffle=True)
        loader = DataLoader(data, batch_size=4, sampler=sampler)
        orders = []
        for epoch in (0, 0, 1):
            sampler.set_epoch(epoch)
            orders.append([int(i) for _, _, numbers in loader for i in numbers])
        everyone = [None] * world_size
        dist.all_gather_object(everyone, orders[2])
        said(rank, "same without set_epoch", orders[0] == orders[1], "other with", orders[1] != orders[2])
        said(rank, "no overlap", sorted(i for share in everyone for i in share) == list(range(48)))

        # model.to(device) -> DDP(model); replicas begin as rank 0's, whatever their seeds.
        torch.manual_seed(rank)
        model = DDP(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)).to("cpu"))
        opt = torch.optim.SGD(model.parameters(), lr=0.1 * world_size, momentum=0.9)  # the linear scaling rule
        alone = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        alone.load_state_dict(model.module.state_dict())
        opt_alone = torch.optim.SGD(alone.parameters(), lr=0.1 * world_size, momentum=0.9)

        # Effective batch size = per_device_batch_size * world_size: one process with all samples does the same.
        for step, (x, y, numbers) in enumerate(loader):
            shares = [torch.empty_like(numbers) for _ in range(world_size)]
            dist.all_gather(shares, numbers)
            whole = torch.cat(shares)
            opt.zero_grad(), opt_alone.zero_grad()
            F.mse_loss(model(x), y).backward()
            F.mse_loss(alone(data.tensors[0][whole]), data.tensors[1][whole]).backward()
            opt.step(), opt_alone.step()
        close = all(torch.allclose(a, b, atol=1e-5) for a, b in zip(model.module.parameters(), alone.parameters()))
        said(rank, "as one process", close)

        # Gradient accumulation: no_sync until the last of the small batches.
        opt.zero_grad()
        batches = list(loader)[:4]
        for i, (x, y, _) in enumerate(batches):
            with model.no_sync() if i < 3 else nullcontext():
                (F.mse_loss(model(x), y) / 4).backward()
                if i == 2:
                    local = model.module[0].weight.grad.clone()
        both = [torch.empty_like(local) for _ in range(world_size)]
        dist.all_gather(both, local)
        dist.all_gather(after := [torch.empty_like(local) for _ in range(world_size)], model.module[0].weight.grad)
        said(rank, "no_sync: apart before", not torch.equal(*both), "together after", torch.equal(*after), f"{float(after[0].sum()):.5f}")
        opt.step()

        # Save from rank 0 only, and a barrier after it to keep ranks in lockstep.
        path = os.path.join(tempfile.gettempdir(), os.environ["CHECKPOINT"])
        if rank == 0:
            torch.save({"model": model.module.state_dict(), "opt": opt.state_dict()}, path)
        dist.barrier()
        saved = torch.load(path, map_location="cpu", weights_only=True)
        again = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        again.load_state_dict(saved["model"])
        said(rank, "loaded", all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters())), len(saved["opt"]["state"]))
        said(rank, "names", list(model.state_dict())[0], list(saved["model"])[0])
        said(rank, f"{sum(p.detach().double().abs().sum() for p in model.parameters()).item():.4f}")
        dist.barrier()
        dist.destroy_process_group()

    if __name__ == "__main__":
        main()
"""

# The shape of PyTorch's own tutorial: setup and cleanup, a spawned function, a checkpoint between barriers.
TUTORIAL = """
    import os, sys, tempfile
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    import torch.nn as nn
    import torch.optim as optim
    from torch.nn.parallel import DistributedDataParallel as DDP


    def setup(rank, world_size):
        os.environ["MASTER_ADDR"] = "localhost"
        os.environ["MASTER_PORT"] = os.environ["PORT"]
        dist.init_process_group("gloo", rank=rank, world_size=world_size)
        torch.manual_seed(rank)


    def cleanup():
        dist.destroy_process_group()


    class ToyModel(nn.Module):
        def __init__(self):
            super().__init__()
            self.net1, self.relu, self.net2 = nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5)

        def forward(self, x):
            return self.net2(self.relu(self.net1(x)))


    def weights(model):
        return f"{sum(p.detach().double().abs().sum() for p in model.parameters()).item():.5f}"


    def demo_basic(rank, world_size):
        setup(rank, world_size)
        ddp_model = DDP(ToyModel())
        loss_fn, optimizer = nn.MSELoss(), optim.SGD(ddp_model.parameters(), lr=0.001)
        optimizer.zero_grad()
        outputs = ddp_model(torch.randn(20, 10))
        loss = loss_fn(outputs, torch.randn(20, 5))
        loss.backward()
        optimizer.step()
        print(f"said basic {rank} {loss.item():.5f} {weights(ddp_model)}", flush=True)
        cleanup()


    def demo_checkpoint(rank, world_size):
        setup(rank, world_size)
        ddp_model = DDP(ToyModel())
        path = os.path.join(tempfile.gettempdir(), os.environ["CHECKPOINT"])
        if rank == 0:
            torch.save(ddp_model.state_dict(), path)
        dist.barrier()
        ddp_model.load_state_dict(torch.load(path, map_location={"cpu:0": f"cpu:{rank}"}, weights_only=True))
        loss_fn, optimizer = nn.MSELoss(), optim.SGD(ddp_model.parameters(), lr=0.001)
        optimizer.zero_grad()
        loss = loss_fn(ddp_model(torch.randn(20, 10)), torch.randn(20, 5))
        loss.backward()
        optimizer.step()
        dist.barrier()
        if rank == 0:
            os.remove(path)
        print(f"said checkpoint {rank} {loss.item():.5f} {weights(ddp_model)}", flush=True)
        cleanup()


    def run_demo(demo_fn, world_size):
        mp.spawn(demo_fn, args=(world_size,), nprocs=world_size, join=True)


    if __name__ == "__main__":
        run_demo(demo_basic, 2)
        run_demo(demo_checkpoint, 2)
"""

# What a user writes who starts the processes from Python.
SPAWNED = """
    import os, torch.multiprocessing as mp
    from program import main

    def worker(rank, world_size, port):
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        main()

    if __name__ == "__main__":
        mp.spawn(worker, args=(2, {port}), nprocs=2)
"""


def as_launched(folder: Path) -> list[str]:
    return [sys.executable, *OURS, "--nproc_per_node=2", "program.py"]


def as_spawned(folder: Path) -> list[str]:
    (folder / "driver.py").write_text(textwrap.dedent(SPAWNED).format(port=free_port()))
    return [sys.executable, *OURS, "driver.py"]


def under_mpiexec(folder: Path) -> list[str]:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    if not mpiexec.exists():
        pytest.skip("there is no mpiexec beside this Python: pip install mpich")
    return [str(mpiexec), "-n", "2", sys.executable, *OURS, "program.py"]


def as_torchrun(folder: Path) -> list[str]:
    return [sys.executable, *REAL, "--nproc_per_node=2", f"--master_port={free_port()}", "program.py"]


def alone(folder: Path) -> list[str]:
    return [sys.executable, *OURS, "program.py"]


def alone_with_pytorch(folder: Path) -> list[str]:
    return [sys.executable, "program.py"]


@cache
def lines(program: str, command) -> list[str]:
    """What the ranks of a program said, sorted."""
    with TemporaryDirectory(prefix="seeds") as name:
        folder = Path(name)
        # PyTorch warns that there is nothing to pin memory for; Flambeau is asked for it all the same.
        (folder / "program.py").write_text(textwrap.dedent(program).replace("=PIN", f"={command is not as_torchrun}"))
        clean = {name: value for name, value in os.environ.items() if name not in (*FOREIGN, "PYTHONUNBUFFERED")}
        own = {"PYTHONPATH": SOURCES, "OMP_NUM_THREADS": "1", "TMPDIR": name, "CHECKPOINT": "model.checkpoint", "PORT": str(free_port())}
        done = subprocess.run(command(folder), cwd=folder, env={**clean, **own}, capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return sorted(
            map(str.strip, re.findall("said (?:(?!said ).)*", done.stdout))
        )  # torchrun's workers write the end of a line by itself


def alike(ours: list[str], theirs: list[str], tolerance: float) -> None:
    """The same words, and numbers that differ by no more than the last digit that bfloat16 or the order of sums leaves open."""
    assert len(ours) == len(theirs) > 0, (ours, theirs)
    for our_line, their_line in zip(ours, theirs, strict=True):
        for a, b in zip(our_line.split(), their_line.split(), strict=True):
            if "." in a and a.replace(".", "").lstrip("-").isdigit():
                assert abs(float(a) - float(b)) <= tolerance, (our_line, their_line)
            else:
                assert a == b, (our_line, their_line)


@pytest.mark.parametrize("start", [as_launched, as_spawned, under_mpiexec], ids=lambda start: start.__name__)
@pytest.mark.parametrize(("program", "tolerance"), [(MINIMUM_VIABLE, 0.101), (THIRTY_LINES, 0.03), (FIVE_THINGS, 2e-4)],
                         ids=["minimum_viable", "thirty_lines", "five_things"])  # fmt: skip
def test_scripts(program: str, tolerance: float, start) -> None:
    """A script from a text on DistributedDataParallel, started so, prints something else than with PyTorch and torchrun."""
    alike(lines(program, start), lines(program, as_torchrun), tolerance)


def test_five_things_hold() -> None:
    """One of the things that always matter does not hold here: the answers of the script that asks for them."""
    answers = lines(FIVE_THINGS, as_launched)
    assert len(answers) == 14
    assert not any("False" in line for line in answers), answers


def test_tutorial() -> None:
    """PyTorch's tutorial on DistributedDataParallel, by mp.spawn, gives other losses or weights."""
    alike(lines(TUTORIAL, alone), lines(TUTORIAL, alone_with_pytorch), 1e-4)
