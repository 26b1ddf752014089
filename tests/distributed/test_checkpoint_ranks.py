"""Checkpoints of several processes: saved by some, loaded by others, in another number and with other placements, by either library."""

from __future__ import annotations

import errno
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from worlds import World, ok, run

import flambeau
import flambeau.distributed.checkpoint as dcp

# Every rank has this in the beginning.
START = """
    import os, sys, warnings
    import TORCH as torch
    import TORCH.distributed as dist
    import TORCH.distributed.checkpoint as dcp
    from TORCH.distributed.device_mesh import init_device_mesh
    from TORCH.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    folder = os.environ["FOLDER"]
    mesh = init_device_mesh("cpu", (size,))

    def tensors():
        shapes = {"even": (4, 3), "odd": (5, 3), "few": (1, 4), "none": (0, 2), "line": (7,), "cube": (3, 2, 5)}
        return {name: torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape) + 1 for name, shape in shapes.items()}

    def place(dim):
        return [Replicate() if dim is None else Shard(dim)]

    def fits(name, dim):
        return dim is None or dim < tensors()[name].dim()

    def sharded(dim, blank=False):
        made = {name: torch.zeros_like(value) if blank else value for name, value in tensors().items()}
        return {name: distribute_tensor(value, mesh, place(dim)) if fits(name, dim) else value for name, value in made.items()}

    def state(dim, blank=False):
        own = {f"own{number}": torch.full((2,), 0.0 if blank else float(number)) for number in ([rank] if not blank else range(2))}
        return {"model": sharded(dim, blank), "plain": torch.zeros(3) if blank else torch.arange(3.0), "step": None if blank else 7, **own}

    def check(found, what):
        for name, value in tensors().items():
            whole = found["model"][name]
            whole = whole.full_tensor() if isinstance(whole, DTensor) else whole
            assert torch.equal(whole, value), (what, name, whole)
        assert found["plain"].tolist() == [0, 1, 2] and found["step"] == 7, what
        assert all(found[f"own{number}"].tolist() == [number] * 2 for number in range(2)), what
"""
SAVE = """
    for dim in (0, 1, None):
        dcp.save(state(dim), checkpoint_id=f"{folder}/{dim}")
    dist.destroy_process_group()
"""
LOAD = """
    for saved in (0, 1, None):
        for dim in (0, 1, None):
            found = state(dim, blank=True)
            dcp.load(found, checkpoint_id=f"{folder}/{saved}")
            check(found, (saved, dim))
    dist.destroy_process_group()
"""


def world(text: str, folder: Path, ranks: int = 2, framework: str = "flambeau", **env: str) -> list[str]:
    program = textwrap.dedent(START) + textwrap.dedent(text)
    return ok(run(program, ranks, framework=framework, env={"FOLDER": str(folder), **env}))


def test_any_number_of_ranks_loads_what_two_have_saved(tmp_path: Path) -> None:
    """Saved by two ranks with every placement, loaded by two, one and three with every other; even, uneven and empty shards."""
    world(SAVE, tmp_path)
    for ranks in (2, 1, 3):
        world(LOAD, tmp_path, ranks)
    whole = dcp.state_dict_loader._load_state_dict_from_keys  # and by a process without a group, all of it
    with pytest.warns(UserWarning, match="single process"):
        found = whole(checkpoint_id=tmp_path / "0")
    assert found["model"]["odd"].tolist() == (flambeau.arange(15.0).reshape(5, 3) + 1).tolist()
    assert found["own1"].tolist() == [1.0, 1.0]


def test_two_ranks_load_what_one_has_saved(tmp_path: Path) -> None:
    """From one rank to two, and from two back to one."""
    text = SAVE.replace("state(dim)", "{**state(dim), 'own1': torch.ones(2)}")
    world(text, tmp_path, 1)
    world(LOAD, tmp_path, 2)


@pytest.mark.parametrize("writer, reader", [("torch", "flambeau"), ("flambeau", "torch")])
def test_ranks_of_both_libraries_read_each_other(tmp_path: Path, writer: str, reader: str) -> None:
    """Two ranks of one library save DTensors, two of the other load them with other placements."""
    without_empty = '"none": (0, 2), '
    assert without_empty in START
    world(SAVE, tmp_path, framework=writer)
    world(LOAD, tmp_path, framework=reader)


def test_meshes_of_two_dimensions(tmp_path: Path) -> None:
    """Four ranks in a square save tensors cut in both directions, twice in one direction, and in one alone; two ranks and one read them."""
    square = """
        mesh2 = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        ways = {"both": [Shard(0), Shard(1)], "twice": [Shard(0), Shard(0)], "second": [Replicate(), Shard(1)], "swapped": [Shard(1), Shard(0)]}
        for name, value in tensors().items():
            if value.dim() > 1:
                made = {way: distribute_tensor(value, mesh2, placements) for way, placements in ways.items()}
                dcp.save(made, checkpoint_id=f"{folder}/{name}")
                found = {way: distribute_tensor(torch.zeros_like(value), mesh2, list(reversed(placements))) for way, placements in ways.items()}
                dcp.load(found, checkpoint_id=f"{folder}/{name}")
                assert all(torch.equal(tensor.full_tensor(), value) for tensor in found.values()), name
        dist.destroy_process_group()
    """
    line = """
        for name, value in tensors().items():
            if value.dim() > 1:
                found = {way: distribute_tensor(torch.zeros_like(value), mesh, [Shard(1)]) for way in ("both", "twice", "second", "swapped")}
                dcp.load(found, checkpoint_id=f"{folder}/{name}")
                assert all(torch.equal(tensor.full_tensor(), value) for tensor in found.values()), name
        dist.destroy_process_group()
    """
    world(square, tmp_path, 4)
    for ranks in (2, 1):
        world(line, tmp_path, ranks)


def test_parts_of_a_training(tmp_path: Path) -> None:
    """Saving in the background while ranks talk, ranks that save alone, groups of some ranks, wrapped models, and states that only rank 0 has."""
    text = """
        model = torch.nn.Linear(3, 2)
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.Adam(wrapped.parameters())
        from TORCH.distributed.checkpoint.state_dict import *

        # the names of a wrapped model are those of the model
        names = list(get_model_state_dict(wrapped)), list(get_optimizer_state_dict(wrapped, optimizer)["state"])
        assert names == (["weight", "bias"], ["weight", "bias"]), names

        # in the background: a copy is saved, messages of training do not mix with those of the save
        before = model.weight.detach().clone()
        saving = []
        for step in range(3):
            saving.append(dcp.async_save({"model": get_model_state_dict(wrapped), "step": step}, checkpoint_id=f"{folder}/{step % 2}"))
            with torch.no_grad():
                model.weight.fill_(float(step + 1))
            total = torch.ones(1000)
            for _ in range(20):
                dist.all_reduce(total)
                total /= size
            assert total.sum() == 1000
        assert all(type(one.result()).__name__ == "Metadata" for one in saving)
        for place, step, value in ((0, 2, 2.0), (1, 1, 1.0)):
            found = {"model": {"weight": torch.zeros(2, 3)}, "step": None}
            dcp.load(found, checkpoint_id=f"{folder}/{place}")
            assert found["step"] == step and (found["model"]["weight"] == value).all(), found

        # every rank for itself
        dcp.save({"mine": torch.full((2,), float(rank))}, checkpoint_id=f"{folder}/alone", use_collectives=False)
        assert sorted(os.listdir(f"{folder}/alone")) == ["__0.metadata", "__0_0.distcp", "__1.metadata", "__1_0.distcp"]
        found = {"mine": torch.zeros(2)}
        dcp.load(found, checkpoint_id=f"{folder}/alone")
        assert found["mine"].tolist() == [rank] * 2

        # one rank, while the other does something else
        if rank == 1:
            dcp.save({"x": torch.ones(2)}, checkpoint_id=f"{folder}/one", no_dist=True)
        group = dist.new_group([1])
        if rank == 1:
            found = {"x": torch.zeros(2)}
            dcp.load(found, checkpoint_id=f"{folder}/one", process_group=group)
            dcp.save(found, checkpoint_id=f"{folder}/one", process_group=group)
            assert found["x"].tolist() == [1, 1]

        # whole tensors of a sharded model, to one rank and back to all
        sharded = torch.nn.Linear(3, 5)
        for name, value in list(sharded.named_parameters()):
            whole = torch.arange(float(value.numel())).reshape(value.shape)
            setattr(sharded, name, torch.nn.Parameter(distribute_tensor(whole, mesh, [Shard(0)])))
        for offload in (False, True):
            whole = get_model_state_dict(sharded, options=StateDictOptions(full_state_dict=True, cpu_offload=offload))
            assert list(whole) == ([] if offload and rank else ["weight", "bias"]), whole
        options = StateDictOptions(full_state_dict=True)
        whole = {name: -value for name, value in get_model_state_dict(sharded, options=options).items()}
        assert not any(isinstance(value, DTensor) for value in whole.values())
        set_model_state_dict(sharded, whole, options=options)
        assert isinstance(sharded.weight, DTensor) and torch.equal(sharded.weight.full_tensor(), whole["weight"])
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(sharded, {name: 2 * value for name, value in whole.items()} if rank == 0 else {}, options=options)
        assert torch.equal(sharded.weight.full_tensor(), 2 * whole["weight"]) and torch.equal(sharded.bias.full_tensor(), 2 * whole["bias"])
        assert sharded.weight.to_local().shape == (3 - rank, 3)
        dist.destroy_process_group()
    """
    world(text, tmp_path)


def test_states_of_sharded_optimizers(tmp_path: Path) -> None:
    """Moments of sharded parameters are gathered, cut, and sent from rank 0 as the parameters are; a checkpoint of them is resharded."""
    text = """
        from TORCH.distributed.checkpoint.state_dict import *

        def make(dim):
            model = torch.nn.Linear(3, 5)
            for name, value in list(model.named_parameters()):
                whole = torch.arange(float(value.numel())).reshape(value.shape)
                way = [Shard(min(dim, value.dim() - 1))]
                setattr(model, name, torch.nn.Parameter(distribute_tensor(whole, mesh, way)))
            return model, torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)

        def whole_of(optimizer):
            return [state["momentum_buffer"].full_tensor() for state in optimizer.state.values()]

        model, optimizer = make(0)
        for value in model.parameters():
            value.grad = distribute_tensor(torch.ones(value.shape) * 3, mesh, value.placements)
        optimizer.step()
        expected = whole_of(optimizer)
        full = StateDictOptions(full_state_dict=True)
        sent = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        state = get_optimizer_state_dict(model, optimizer, options=full)
        assert not isinstance(state["state"]["weight"]["momentum_buffer"], DTensor)
        for options in (full, sent):
            other, other_optimizer = make(1)
            for value in other.parameters():
                value.grad = distribute_tensor(torch.ones(value.shape), mesh, value.placements)
            other_optimizer.step()
            set_optimizer_state_dict(other, other_optimizer, state if options is full or rank == 0 else {}, options=options)
            assert all(torch.equal(a, b) for a, b in zip(whole_of(other_optimizer), expected, strict=True))
        state = {"optimizer": get_optimizer_state_dict(model, optimizer)}
        dcp.save(state, checkpoint_id=folder)
        other, other_optimizer = make(1)
        for value in other.parameters():
            value.grad = distribute_tensor(torch.ones(value.shape), mesh, value.placements)
        other_optimizer.step()
        state = {"optimizer": get_optimizer_state_dict(other, other_optimizer)}
        dcp.load(state, checkpoint_id=folder)
        set_optimizer_state_dict(other, other_optimizer, state["optimizer"])
        assert all(torch.equal(a, b) for a, b in zip(whole_of(other_optimizer), expected, strict=True))
        dist.destroy_process_group()
    """
    world(text, tmp_path)


# -- faults --------------------------------------------------------------------------------------------------------


def test_a_rank_whose_disk_is_full_is_named_on_all(tmp_path: Path) -> None:
    """One rank may not write more than 100 kB: both hear of the rank and its file, the old checkpoint stays and nothing else does."""
    text = """
        import resource
        old = {"a": torch.ones(50_000), "b": torch.ones(49_999)}
        dcp.save(old, checkpoint_id=folder)
        before = sorted(os.listdir(folder))
        if rank == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            dcp.save({name: 2 * value for name, value in old.items()}, checkpoint_id=folder)
            raise SystemExit("nothing was noticed")
        except dcp.CheckpointException as problem:
            (number, (cause, _)), = problem.failures.items()
            print(number, type(cause).__name__, cause.errno, "__1_" in cause.filename, f"rank 1: OSError" in str(problem))
        dist.barrier()
        assert sorted(os.listdir(folder)) == before, os.listdir(folder)
        found = {name: torch.zeros_like(value) for name, value in old.items()}
        dcp.load(found, checkpoint_id=folder)
        assert all(torch.equal(found[name], old[name]) for name in old)
        dist.destroy_process_group()
    """
    assert world(text, tmp_path) == [f"1 OSError {errno.EFBIG} True True\n"] * 2


FULL = """
    import sys
    sys.path.insert(0, {tests!r})
    from worlds import ok, run
    print(ok(run({program!r}, env={{"FOLDER": sys.argv[1]}})))
"""


def test_a_full_disk_during_a_save_of_two_ranks(tmp_path: Path) -> None:
    """On a file system of 1 MB the second checkpoint does not fit: every rank that cannot write is named, the old checkpoint stays."""
    text = """
        old = {"a": torch.ones(50_000), "b": torch.ones(49_999)}
        dcp.save(old, checkpoint_id=folder)
        dist.barrier()
        before = sorted(os.listdir(folder))
        dist.barrier()
        try:
            dcp.save({name: torch.zeros(190_000) for name in old}, checkpoint_id=folder)
            raise SystemExit("nothing was noticed")
        except dcp.CheckpointException as problem:
            assert problem.failures and all(isinstance(cause, OSError) and cause.filename for cause, _ in problem.failures.values()), problem
        dist.barrier()
        assert sorted(os.listdir(folder)) == before, os.listdir(folder)
        found = {name: torch.zeros_like(value) for name, value in old.items()}
        dcp.load(found, checkpoint_id=folder)
        assert all(torch.equal(found[name], old[name]) for name in old)
        dist.destroy_process_group()
    """
    if subprocess.run(["unshare", "-rm", "sh", "-c", "mount -t tmpfs none $0", str(tmp_path)], capture_output=True).returncode:
        pytest.skip("no small file system can be mounted here: user namespaces are not allowed")
    program = FULL.format(tests=str(Path(__file__).parent), program=textwrap.dedent(START) + textwrap.dedent(text))
    command = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=1m none $0 && exec $1 -c "$2" $0/checkpoint']
    done = subprocess.run([*command, str(tmp_path), sys.executable, textwrap.dedent(program)], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("moment", ["write", "fsync", "replace"])
def test_a_rank_that_is_killed_leaves_the_old_checkpoint(tmp_path: Path, victim: int, moment: str) -> None:
    """SIGKILL of a rank in the middle of a save over another one: the other rank ends with an error, the old checkpoint is whole."""
    text = f"""
        import signal
        from flambeau.serialization import durable
        old = {{"a": torch.ones(50_000), "b": torch.ones(49_999)}}
        dcp.save(old, checkpoint_id=folder)
        print("saved", flush=True)
        if rank == {victim}:
            setattr(durable.calls, {moment!r}, lambda *args: os.kill(os.getpid(), signal.SIGKILL))
        dcp.save({{name: 2 * value for name, value in old.items()}}, checkpoint_id=folder)
    """
    ends = World(textwrap.dedent(START) + textwrap.dedent(text), env={"FOLDER": str(tmp_path)}).finish(60)
    assert [end.stdout for end in ends] == ["saved\n"] * 2
    assert ends[victim].returncode == -9 and ends[1 - victim].returncode not in (0, -9), "\n".join(map(str, ends))
    found: dict[str, Any] = {"a": flambeau.zeros(50_000), "b": flambeau.zeros(49_999)}
    dcp.load(found, checkpoint_id=tmp_path, no_dist=True)
    assert all(bool((value == 1).all()) for value in found.values())
