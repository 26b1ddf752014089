"""Groups of GPUs: NCCL between them, and MPI where ranks share one. NCCL takes one rank per GPU, so one GPU shows a group of one."""

from __future__ import annotations

import pytest
from worlds import ok, run

import flambeau as torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

COLLECTIVES = """
    import flambeau as torch, flambeau.distributed as dist
    from flambeau.distributed import ReduceOp

    torch.cuda.set_device(0)
    dist.init_process_group(BACKEND)
    rank, size = dist.get_rank(), dist.get_world_size()
    def ones(*shape, **how): return torch.full(shape, rank + 1.0, device="cuda", **how)
    total = float(sum(range(1, size + 1)))
    def same(x, expected): assert x.device.type == "cuda" and x.tolist() == expected, (x, expected)

    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
        x = torch.full((5,), rank + 1, dtype=dtype, device="cuda"); dist.all_reduce(x); same(x, [total] * 5)
        x = torch.full((5,), rank + 1, dtype=dtype, device="cuda"); dist.all_reduce(x, ReduceOp.MAX); same(x, [size] * 5)
    x = ones(4); dist.all_reduce(x, ReduceOp.AVG); same(x, [total / size] * 4)
    x = torch.tensor([True, rank == 0], device="cuda"); dist.all_reduce(x); same(x, [True, True])
    x = torch.full((3,), 1 + 1j, device="cuda"); dist.all_reduce(x); same(x, [size * (1 + 1j)] * 3)
    x = ones(4, 6).t()[::2]; dist.all_reduce(x); same(x, [[total] * 4] * 3)
    x = ones(3); work = dist.all_reduce(x, async_op=True); work.wait(); same(x * 2, [2 * total] * 3)
    x = ones(3); dist.broadcast(x, size - 1); same(x, [float(size)] * 3)
    x = ones(3); dist.reduce(x, 0); same(x, [total] * 3) if rank == 0 else None
    out = [torch.empty(2, device="cuda") for _ in range(size)]; dist.all_gather(out, ones(2)); same(torch.stack(out)[:, 0], [r + 1.0 for r in range(size)])
    out = torch.empty(2 * size, device="cuda"); dist.all_gather_into_tensor(out, ones(2)); same(out[::2], [r + 1.0 for r in range(size)])
    out = torch.empty(2, device="cuda"); dist.reduce_scatter(out, [ones(2) for _ in range(size)]); same(out, [total] * 2)
    out = torch.empty(2, device="cuda"); x = ones(2 * size); dist.reduce_scatter_tensor(out, x); same(out, [total] * 2); same(x, [rank + 1.0] * 2 * size)
    out = [torch.empty(2, device="cuda") for _ in range(size)] if rank == 0 else None; dist.gather(ones(2), out)
    if rank == 0: same(torch.stack(out)[:, 1], [r + 1.0 for r in range(size)])
    out = torch.empty(2, device="cuda"); dist.scatter(out, [ones(2) * r for r in range(size)] if rank == 0 else None); same(out, [float(rank)] * 2)
    out = torch.empty(size, device="cuda"); dist.all_to_all_single(out, ones(size)); same(out, [r + 1.0 for r in range(size)])
    out = [torch.empty(2, device="cuda") for _ in range(size)]; dist.all_to_all(out, [ones(2) for _ in range(size)]); same(torch.stack(out)[:, 0], [r + 1.0 for r in range(size)])
    if size == 2:
        x = ones(1000)
        dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
        same(x[:2], [1.0, 1.0])
    objects = [None] * size; dist.all_gather_object(objects, {"rank": rank}); assert objects == [{"rank": r} for r in range(size)]
    dist.barrier()
    dist.destroy_process_group()
    print("right")
"""


def collectives(backend: str) -> str:
    return COLLECTIVES.replace("BACKEND", repr(backend))


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl"])
def test_every_collective_over_nccl(backend):
    """A collective of CUDA tensors over NCCL gives another result than it should."""
    assert ok(run(collectives(backend), 1)) == ["right\n"]


def test_every_collective_of_ranks_that_share_a_gpu_over_mpi():
    """A collective of CUDA tensors over MPI gives another result than it should."""
    assert ok(run(collectives("gloo"), 2)) == ["right\n"] * 2


def test_data_parallel_training_of_ranks_that_share_a_gpu_gives_the_gradients_of_the_whole_batch():
    """Two ranks on one GPU do not end with the parameters of one process that sees the whole batch."""
    program = """
        import flambeau as torch, flambeau.distributed as dist
        from flambeau.nn.parallel import DistributedDataParallel as DDP

        def train(wrap, part):
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 3)).cuda()
            wrapped = wrap(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            x, y = torch.randn(8, 20).cuda(), torch.randn(8, 3).cuda()
            for _ in range(5):
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(wrapped(x[part]), y[part]).backward()
                optimizer.step()
            return torch.cat([p.detach().flatten() for p in model.parameters()])

        dist.init_process_group("gloo")
        rank = dist.get_rank()
        both = train(lambda model: DDP(model, device_ids=[0]), slice(4 * rank, 4 * rank + 4))
        one = train(lambda model: model, slice(None))
        torch.testing.assert_close(both, one)
        print("right")
    """
    assert ok(run(program, 2)) == ["right\n"] * 2
