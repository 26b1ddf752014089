"""What the functions of torch.distributed are given, right and wrong, in one process that is a world of its own: the same outcome as with PyTorch.

An outcome is the value, or the type of the error, and the categories of the warnings. All expressions of a list run in one process per
framework; a failure names the expressions that differ.
"""

from __future__ import annotations

import json

import pytest
from worlds import run_both

PREAMBLE = """
import datetime, json, os, re, warnings
import TORCH as torch
import TORCH.distributed as dist
import TORCH.distributed.distributed_c10d as c10d
from datetime import timedelta

def shown(value):
    if value is None or isinstance(value, (bool, int, str, float, torch.device)):
        return repr(value)
    if isinstance(value, torch.Tensor):
        return repr(value.tolist())
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(shown, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {shown(v)}" for k, v in value.items()) + "}"
    return next((kind.__name__ for kind in (dist.ProcessGroup, dist.Work) if isinstance(value, kind)), type(value).__name__)

def outcome(text, names):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = shown(eval(text, names))
        except Exception as error:
            found = type(error).__name__
    return [found, *(warning.category.__name__ for warning in caught)]

names = dict(torch=torch, dist=dist, c10d=c10d, timedelta=timedelta, os=os, N=-100)
"""
START = """
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=5))
names.update(t=torch.ones(2), z=torch.zeros(2), c=torch.ones(2, dtype=torch.complex64), W=dist.group.WORLD)
"""


def differences(checks: str, program: str = "") -> list[str]:
    """The expressions, one in each line, whose outcomes are not PyTorch's."""
    lines = [line.strip() for line in checks.strip().splitlines()]
    text = f"{PREAMBLE}{program}\nfor text in {lines!r}:\n    print(json.dumps(outcome(text, names)), flush=True)\nos._exit(0)\n"
    (ours,), (theirs,) = run_both(text, 1)
    found = zip(lines, map(json.loads, ours.splitlines()), map(json.loads, theirs.splitlines()), strict=True)
    return [f"{line}\n    flambeau {mine}\n    torch    {real}" for line, mine, real in found if mine != real]


def same(checks: str, program: str = "") -> None:
    wrong = differences(checks, program)
    assert not wrong, "\n".join(wrong)


def test_before_there_is_a_group():
    """Without init_process_group everything that needs a group says so, and questions that do not are answered."""
    same("""
        dist.get_rank()
        dist.get_world_size()
        dist.get_rank(N), dist.get_world_size(N)
        dist.get_backend()
        dist.get_backend_config()
        dist.get_pg_count()
        dist.get_process_group_ranks(None)
        dist.get_node_local_rank("x")
        dist.get_node_local_rank(3)
        dist.destroy_process_group()
        dist.destroy_process_group(N)
        dist.barrier()
        dist.all_reduce(torch.ones(2))
        dist.all_gather_object([None], 1)
        dist.new_group()
        dist.group.WORLD, dist.GroupMember.WORLD, dist.GroupMember.NON_GROUP_MEMBER
        dist.is_initialized(), dist.is_torchelastic_launched()
        c10d._get_default_group()
        c10d._get_default_store()
        c10d._rank_not_in_group(None), c10d._rank_not_in_group(N)
    """)


def test_init_process_group_checks_its_arguments():
    """Every wrong way to begin ends with PyTorch's type of error, and leaves no group behind."""
    same(
        """
        dist.init_process_group("gloo", timeout=3, init_method=URL, rank=0, world_size=1)
        dist.init_process_group("nope", init_method=URL, rank=0, world_size=1)
        dist.init_process_group(3, init_method=URL, rank=0, world_size=1)
        dist.init_process_group("ucc", init_method=URL, rank=0, world_size=1)
        dist.init_process_group("cpu:gloo,cuda", init_method=URL, rank=0, world_size=1)
        dist.init_process_group("cpu:gloo,cpu:gloo", init_method=URL, rank=0, world_size=1)
        dist.init_process_group("gloo", init_method=URL)
        dist.init_process_group("gloo", init_method=URL, rank=0)
        dist.init_process_group("gloo", init_method="abc://127.0.0.1:29544", rank=0, world_size=1)
        dist.init_process_group("gloo", init_method=3, rank=0, world_size=1)
        dist.init_process_group("gloo", store=dist.HashStore())
        dist.init_process_group("gloo", store=dist.HashStore(), world_size=1)
        dist.init_process_group("gloo", store=dist.HashStore(), init_method="env://", rank=0, world_size=1)
        dist.init_process_group("gloo", store=dist.HashStore(), rank=1, world_size=1)
        dist.init_process_group("gloo", store=3, rank=0, world_size=1)
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, device_id="cpu")
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device("cpu"))
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, device_id=3)
        dist.is_initialized()
        os.environ.pop("RANK")
        dist.init_process_group("gloo")
        dist.is_initialized()
        dist.init_process_group("GLOO", store=dist.HashStore(), rank=0, world_size=1)
        dist.is_initialized()
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        dist.get_backend(), dist.get_backend_config(), dist.group.WORLD.name(), dist.group.WORLD.group_desc
        dist.group.WORLD.rank(), dist.group.WORLD.size()
        dist.destroy_process_group()
        dist.is_initialized()
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
        dist.get_backend(), dist.get_backend_config(), dist.group.WORLD.name(), dist.group.WORLD._device_types
        dist.group.WORLD.bound_device_id
        dist.destroy_process_group()
        dist.init_process_group("cpu:gloo", store=dist.HashStore(), rank=0, world_size=1)
        dist.get_backend(), dist.get_backend_config()
        """,
        'names["URL"] = f"tcp://127.0.0.1:{os.environ[\'MASTER_PORT\']}"',
    )


def test_questions_about_groups():
    """Ranks, sizes, names, tags and tables of the first group, and of arguments that are no group."""
    same(
        """
        dist.get_backend(3)
        dist.get_rank(3)
        dist.get_rank("x")
        dist.get_group_rank(3, 0)
        dist.get_group_rank(W, 0), dist.get_group_rank(W, 5), dist.get_global_rank(W, 5)
        dist.get_global_rank(None, 5)
        dist.get_group_rank(None, 5)
        dist.get_process_group_ranks(None)
        dist.get_process_group_ranks(3)
        dist.get_pg_count()
        dist.destroy_process_group(3)
        dist.destroy_process_group(N)
        c10d._get_process_group_name(W), W.group_name
        sorted(c10d._device_capability()), c10d._get_object_coll_device()
        c10d._find_pg_by_ranks_and_tag("", [0]) is W, c10d._find_pg_by_ranks_and_tag("x", [0])
        c10d._get_group_tag(W), c10d._find_pg_by_ranks_and_tag("ptd:0", [0]) is W
        c10d._resolve_process_group("0") is W
        c10d._resolve_process_group("7")
        c10d._get_group_size_by_name("0")
        c10d._world.pg_names[W], c10d._world.pg_group_ranks[W], c10d._world.pg_backend_config[W], c10d._world.pg_map[W][0]
        c10d._world.pg_config_info
        c10d._get_all_pg_configs()
        c10d._world.group_count, c10d._world.default_pg is W, c10d._get_default_group() is W
        c10d._get_default_timeout("gloo")
        c10d._get_default_store().add("x", 3)
        """,
        START,
    )


def test_new_groups_check_their_arguments():
    """Wrong ranks, sizes, timeouts and backends of new groups; and what right ones are called."""
    same(
        """
        dist.new_group([0])
        dist.new_group([0, 0])
        dist.new_group([0, 1])
        dist.new_group([])
        dist.new_group([1])
        dist.new_group([-1])
        dist.new_group([0], backend="nope")
        dist.new_group([0], timeout=3)
        dist.new_group(ranks=None, group_desc="hello").group_desc
        dist.new_group(ranks=None).group_desc
        dist.new_group((0,)).size()
        dist.new_group([0], use_local_synchronization=True).size()
        dist.get_process_group_ranks(dist.new_group([0], use_local_synchronization=True, sort_ranks=False))
        dist.new_subgroups(1)
        dist.new_subgroups(2)
        dist.new_subgroups(0)
        dist.new_subgroups(-1)
        dist.new_subgroups()
        dist.new_subgroups_by_enumeration([[0]])
        dist.new_subgroups_by_enumeration([[0], [0]])
        dist.new_subgroups_by_enumeration([])
        dist.new_subgroups_by_enumeration(None)
        dist.new_subgroups_by_enumeration([[0, 1]])
        dist.split_group()
        dist.split_group(split_ranks=[])
        dist.shrink_group([0])
        dist.shrink_group([])
        dist.shrink_group(3)
        dist.get_rank(dist.new_group([0])), dist.get_world_size(dist.new_group([0]))
        dist.destroy_process_group(dist.new_group([0]))
        """,
        START,
    )


def test_broadcast_and_reductions_check_their_arguments():
    """broadcast, all_reduce and reduce: tensors, roots, groups, reductions, layouts."""
    same(
        """
        dist.broadcast(3, 0)
        dist.broadcast([t], 0)
        dist.broadcast(t)
        dist.broadcast(t, 0, group_src=0)
        dist.broadcast(t, 5)
        dist.broadcast(t, -1)
        dist.broadcast(t, "a")
        dist.broadcast(t, group_src=5)
        dist.broadcast(t, 0, group=3)
        dist.broadcast(t, 0, group=N)
        dist.broadcast(t, 0), dist.broadcast(t, group_src=0)
        dist.broadcast(t, 0, async_op=True), dist.broadcast(t, 0, async_op=True).wait()
        dist.broadcast(torch.ones(2, requires_grad=True), 0)
        dist.broadcast(torch.ones(2).to_sparse(), 0)
        dist.broadcast(torch.ones(()), 0), dist.broadcast(torch.ones(0), 0), dist.broadcast(torch.ones(2, 3).t(), 0)
        dist.broadcast(c, 0), dist.broadcast(torch.ones(2, dtype=torch.bool), 0)
        dist.all_reduce(3)
        dist.all_reduce([t])
        dist.all_reduce(t, op=3)
        dist.all_reduce(t, op="sum")
        dist.all_reduce(t, op=None)
        dist.all_reduce(t, dist.ReduceOp.AVG), dist.all_reduce(t, dist.ReduceOp(dist.ReduceOp.MAX))
        dist.all_reduce(t, dist.ReduceOp.BAND)
        dist.all_reduce(t, dist.ReduceOp.PREMUL_SUM)
        dist.all_reduce(c), dist.all_reduce(c, dist.ReduceOp.AVG)
        dist.all_reduce(c, dist.ReduceOp.MAX)
        dist.all_reduce(c, dist.ReduceOp.PRODUCT)
        dist.all_reduce(c, dist.ReduceOp.BXOR)
        dist.all_reduce(torch.ones(2, dtype=torch.bool))
        dist.all_reduce(torch.ones(2, requires_grad=True))
        dist.all_reduce(torch.ones(2, 3).t()), dist.all_reduce(torch.ones(1).expand(3))
        dist.all_reduce(t, group=N)
        dist.all_reduce(t, group=N, async_op=True)
        dist.all_reduce(t, group="x")
        dist.all_reduce(t, async_op=True)
        dist.all_reduce(t, async_op=True).get_future().wait()
        dist.all_reduce_coalesced(t)
        dist.all_reduce_coalesced([])
        dist.all_reduce_coalesced([t, torch.ones(3)])
        dist.all_reduce_coalesced([t, torch.ones(3, dtype=torch.float64)])
        dist.all_reduce_coalesced([t, 3])
        dist.all_reduce_coalesced([t], async_op=True).wait()
        dist.all_reduce_coalesced([t], group=N)
        dist.all_reduce_coalesced([c], dist.ReduceOp.MAX)
        dist.reduce(t)
        dist.reduce(t, 0, group_dst=0)
        dist.reduce(t, 0), dist.reduce(t, group_dst=0), dist.reduce(t, 0, dist.ReduceOp.AVG)
        dist.reduce(t, 5)
        dist.reduce(3, 0)
        dist.reduce(t, 0, "sum")
        dist.reduce(t, 0, group=N)
        dist.reduce(t, 0, async_op=True)
        dist.reduce(c, 0, dist.ReduceOp.MIN)
        dist.supports_complex(dist.ReduceOp.SUM), dist.supports_complex(dist.ReduceOp.MAX), dist.supports_complex(dist.ReduceOp.AVG)
        dist.supports_complex(dist.ReduceOp(dist.ReduceOp.MAX))
        """,
        START,
    )


def test_gathers_and_scatters_check_their_arguments():
    """all_gather, gather, scatter, reduce_scatter, all_to_all and their relatives: lists, lengths, shapes, dtypes, roots."""
    same(
        """
        dist.all_gather(t, t)
        dist.all_gather([], t)
        dist.all_gather([torch.zeros(3)], t)
        dist.all_gather([torch.zeros(2, 1)], t)
        dist.all_gather([torch.zeros(2, dtype=torch.float64)], t)
        dist.all_gather([z], t)
        dist.all_gather([z, z], t)
        dist.all_gather((z,), t)
        dist.all_gather([z], [t])
        dist.all_gather([3], t)
        dist.all_gather([z], t, group=N)
        dist.all_gather([z], t, async_op=True).get_future().wait()
        dist.all_gather([torch.zeros(2, dtype=torch.complex64)], c)
        dist.all_gather([torch.zeros(0)], torch.ones(0)), dist.all_gather([torch.zeros(())], torch.ones(()))
        dist.all_gather([torch.zeros(3, 2).t()], torch.ones(3, 2).t())
        dist.all_gather([z], torch.ones(2).to_sparse())
        dist.all_gather_into_tensor(t, 3)
        dist.all_gather_into_tensor([t], t)
        dist.all_gather_into_tensor(z, t)
        dist.all_gather_into_tensor(torch.zeros(3), t)
        dist.all_gather_into_tensor(torch.zeros(2, 1), t)
        dist.all_gather_into_tensor(torch.zeros(2, dtype=torch.float64), t)
        dist.all_gather_into_tensor(z, t, group=N)
        dist.all_gather_into_tensor(z, t, async_op=True)
        dist.all_gather_single(torch.zeros(2, dtype=torch.complex64), c)
        dist.all_gather_single(torch.zeros(4).view(2, 2).t(), torch.ones(2, 2))
        dist._all_gather_base(z, t)
        dist.all_gather_coalesced([[z]], [t])
        dist.all_gather_coalesced([z], [t])
        dist.all_gather_coalesced([], [t])
        dist.all_gather_coalesced([[z]], t)
        dist.all_gather_coalesced([[z]], [t], group=N)
        dist.all_gather_coalesced([[torch.zeros(3)]], [t])
        dist.gather(t)
        dist.gather(t, [z]), dist.gather(t, [z], group_dst=0)
        dist.gather(t, [torch.zeros(3)])
        dist.gather(t, [z, z])
        dist.gather(t, [], 0)
        dist.gather(t, t, 0)
        dist.gather(3, [t], 0)
        dist.gather(t, [z], 0, group_dst=0)
        dist.gather(t, [z], 5)
        dist.gather(t, [torch.zeros(2, dtype=torch.float64)], 0)
        dist.gather(t, [z], 0, group=N)
        dist.gather(t, [z], 0, async_op=True)
        dist.scatter(t)
        dist.scatter(t, [z]), dist.scatter(t, [z], group_src=0)
        dist.scatter(t, [torch.zeros(3)])
        dist.scatter(t, [z, z])
        dist.scatter(t, [], 0)
        dist.scatter(t, t, 0)
        dist.scatter(3, [t], 0)
        dist.scatter(t, [z], 0, group_src=0)
        dist.scatter(t, [z], 5)
        dist.scatter(t, [torch.zeros(2, dtype=torch.float64)], 0)
        dist.scatter(t, [z], 0, group=N)
        dist.scatter(c, [c], 0)
        dist.reduce_scatter(t, t)
        dist.reduce_scatter(t, [])
        dist.reduce_scatter(t, [z])
        dist.reduce_scatter(t, [torch.zeros(3)])
        dist.reduce_scatter(t, [z, z])
        dist.reduce_scatter(t, [torch.zeros(2, dtype=torch.float64)])
        dist.reduce_scatter(t, [z], 3)
        dist.reduce_scatter(t, [z], group=N)
        dist.reduce_scatter(c, [c]), dist.reduce_scatter(t, [z], async_op=True)
        dist.reduce_scatter(c, [c], dist.ReduceOp.MAX)
        dist.reduce_scatter_tensor(t, 3)
        dist.reduce_scatter_tensor([t], t)
        dist.reduce_scatter_tensor(z, t)
        dist.reduce_scatter_tensor(torch.zeros(3), t)
        dist.reduce_scatter_tensor(torch.zeros(2, dtype=torch.float64), t)
        dist.reduce_scatter_tensor(z, t, group=N)
        dist.reduce_scatter_single(c, c), dist.reduce_scatter_single(z, t, async_op=True)
        dist.reduce_scatter_single(c, c, dist.ReduceOp.MAX)
        dist._reduce_scatter_base(z, t)
        dist.all_to_all([z], [t])
        dist.all_to_all(t, [t])
        dist.all_to_all([t], t)
        dist.all_to_all([torch.zeros(3)], [t])
        dist.all_to_all([z, z], [t, t])
        dist.all_to_all([torch.zeros(2, dtype=torch.float64)], [t])
        dist.all_to_all([z], [t], group=N)
        dist.all_to_all([c], [c]), dist.all_to_all([z], [t], async_op=True)
        dist.all_to_all([], [])
        dist.all_to_all_single(z, t), dist.all_to_all_single(z, t, [2], [2]), dist.all_to_all_single(z, t, async_op=True)
        dist.all_to_all_single(torch.zeros(3), t)
        dist.all_to_all_single(torch.zeros(2, dtype=torch.float64), t)
        dist.all_to_all_single(z, t, [1], [2])
        dist.all_to_all_single(z, t, [1, 1], [2])
        dist.all_to_all_single(z, t, [2], [2], group=N)
        dist.all_to_all_single([t], t)
        dist.all_to_all_single(torch.zeros(2, 2), torch.ones(2, 2).t())
        dist.all_to_all_single(torch.zeros(()), torch.ones(())), dist.all_to_all_single(c, c)
        """,
        START,
    )


def test_messages_and_barriers_check_their_arguments():
    """send, recv, batches and barriers: peers, groups, operations, timeouts."""
    same(
        """
        dist.send(t, 0)
        dist.isend(t, 0)
        dist.send(t)
        dist.isend(t)
        dist.send(3, 0)
        dist.isend(3, 0)
        dist.send(t, 0, group=N)
        dist.isend(t, 0, group=N)
        dist.send(t, 0, group_dst=0)
        dist.send(t, group_dst=0)
        dist.recv(3, 0)
        dist.irecv(3, 0)
        dist.recv(t, 0)
        dist.recv(t, 0, group=N)
        dist.irecv(t, 0, group=N)
        dist.irecv(t, 0, group_src=0)
        dist.P2POp(3, t, 0)
        dist.P2POp(dist.send, t, 0)
        dist.P2POp(dist.isend, 3, 0)
        dist.P2POp(dist.isend, t)
        repr(dist.P2POp(dist.isend, t, 0)), repr(dist.P2POp(dist.irecv, t, group_peer=0))
        dist.P2POp(dist.isend, t, 0, group=N)
        dist.batch_isend_irecv([])
        dist.batch_isend_irecv(3)
        dist.batch_isend_irecv([3])
        dist.barrier(), dist.barrier(device_ids=3), dist.barrier(device_ids=[0]), dist.barrier(timeout=timedelta(seconds=3))
        dist.barrier(group=N)
        dist.barrier(async_op=True)
        dist.barrier(async_op=True).get_future().wait()
        dist.barrier(device_ids=[])
        dist.barrier(timeout=3)
        dist.barrier(group=3)
        dist.monitored_barrier(), dist.monitored_barrier(wait_all_ranks=True), dist.monitored_barrier(timeout=timedelta(seconds=3))
        dist.monitored_barrier(timeout=3)
        dist.monitored_barrier(group=N)
        """,
        START,
    )


def test_objects_check_their_arguments():
    """The calls that send objects: lists, lengths, roots, groups."""
    same(
        """
        dist.all_gather_object([None], 3), dist.all_gather_object([None, None], 3)
        dist.all_gather_object([], 3)
        dist.all_gather_object([None], 3, group=N)
        dist.all_gather_object(3, 3)
        dist.gather_object(3)
        dist.gather_object(3, [None])
        dist.gather_object(3, [])
        dist.gather_object(3, [None], 0, group_dst=0)
        dist.gather_object(3, [None], 0, group=N)
        dist.gather_object(3, [None], 5)
        dist.broadcast_object_list([1, 2], 0), dist.broadcast_object_list([1, 2]), dist.broadcast_object_list([1], 0, device="cpu")
        dist.broadcast_object_list([1], 0, device=torch.device("cpu"))
        dist.broadcast_object_list([], 0)
        dist.broadcast_object_list(3, 0)
        dist.broadcast_object_list([1], 0, group=N)
        dist.broadcast_object_list([1], 5)
        dist.scatter_object_list([None], [3], 0), dist.scatter_object_list([None], [3])
        dist.scatter_object_list([], [3], 0)
        dist.scatter_object_list(3, [3], 0)
        dist.scatter_object_list([None], [3, 4], 0)
        dist.scatter_object_list([None], None, 0)
        dist.scatter_object_list([None], [3], 0, group=N)
        dist.send_object_list([1], 0)
        dist.send_object_list([1])
        dist.send_object_list(3, 0)
        dist.send_object_list([1], 0, group=N)
        dist.recv_object_list(3, 0)
        dist.recv_object_list([1], 0, group=N)
        """,
        START,
    )


def test_coalescing():
    """What a coalescing manager gives while calls wait in it, and what it makes of them."""
    same(
        """
        m.append(cm.__enter__())
        dist.all_reduce(t), dist.all_reduce(t, async_op=True)
        type(dist.all_reduce(t, async_op=True)).__name__
        dist.all_reduce(t, async_op=True).wait()
        cm.__enter__()
        cm.__exit__(None, None, None), len(m[0].works)
        m[0].wait()
        t
        """,
        START + "names.update(cm=c10d._coalescing_manager(async_ops=True), m=[])",
    )


def test_backends():
    """Names of backends, what serves which device, and backends that a program brings."""
    same(
        """
        dist.Backend("gloo"), dist.Backend("GLOO"), dist.Backend("nope"), dist.Backend("cpu:GLOO"), type(dist.Backend("gloo")).__name__
        dist.Backend(3)
        dist.Backend.GLOO, dist.Backend.NCCL, dist.Backend.MPI, dist.Backend.UNDEFINED, dist.Backend.UCC
        dist.Backend.default_device_backend_map, dist.Backend.backend_capability, dist.Backend.backend_list
        dist.Backend.register_backend("NEW", lambda *a: 0)
        dist.Backend("new"), dist.Backend.NEW, dist.Backend.backend_list
        dist.Backend.register_backend("new2", lambda *a: 0, devices=["cuda"])
        dist.Backend.register_backend("new3", lambda *a: 0, devices=["maia"])
        dist.Backend.backend_capability, dist.Backend.default_device_backend_map
        dist.is_backend_available("gloo"), dist.is_backend_available("GLOO"), dist.is_backend_available("nope")
        dist.is_backend_available("cpu:gloo,cuda:gloo"), dist.is_backend_available("new2"), dist.is_backend_available("ucc")
        str(dist.BackendConfig(dist.Backend("gloo"))), repr(dist.BackendConfig(dist.Backend("cpu:gloo,cuda:nccl")))
        dist.BackendConfig(dist.Backend("undefined")).get_device_backend_map()
        dist.BackendConfig(dist.Backend("nccl")).get_device_backend_map()
        dist.BackendConfig(dist.Backend("mpi")).get_device_backend_map()
        dist.BackendConfig(dist.Backend("cpu:gloo")).get_device_backend_map()
        dist.BackendConfig(dist.Backend("cpu:gloo,cpu:mpi"))
        dist.BackendConfig(dist.Backend("gloo,nccl")).get_device_backend_map()
        dist.get_default_backend_for_device("cpu"), dist.get_default_backend_for_device(torch.device("cuda:1"))
        dist.get_default_backend_for_device("nope")
        dist.get_default_backend_for_device("meta")
        """
    )


def test_debug_levels():
    """The level, from the environment and set by hand."""
    same(
        """
        int(dist.get_debug_level()), dist.DebugLevel.INFO.value, dist.DebugLevel.INFO.name, repr(dist.DebugLevel(1))
        dist.set_debug_level(3)
        dist.set_debug_level(dist.DebugLevel.INFO), dist.get_debug_level().name, dist.DebugLevel.INFO == dist.get_debug_level()
        os.environ.update(TORCH_DISTRIBUTED_DEBUG="detail")
        dist.set_debug_level_from_env(), dist.get_debug_level().name
        os.environ.update(TORCH_DISTRIBUTED_DEBUG="foo")
        dist.set_debug_level_from_env()
        """
    )


def test_reduce_op():
    """ReduceOp and its members: equality, hashes, copies, pickles, factors, and the old name reduce_op."""
    same(
        """
        R.SUM == R.SUM, R.SUM == R.MAX, R(R.SUM) == R.SUM, R.SUM == R(R.SUM), R(R.SUM) == R(R.SUM), R(R.SUM) == R(R.MAX), R.SUM == 3
        isinstance(R.SUM, R), isinstance(R(R.SUM), R), isinstance(3, R)
        hash(R.SUM) == hash(R.SUM), {R.SUM: 1}[R.SUM], len({R(R.SUM), R(R.SUM)})
        repr(R.SUM), str(R.MAX), R.AVG.name, R.AVG.value, int(R.BXOR), bool(R.SUM)
        repr(R(R.SUM).op), R(R.SUM).op == R.SUM
        R()
        R(3)
        R.SUM.foo
        copy.copy(R(R.MAX)) == R.MAX, copy.deepcopy(R(R.MAX)) == R.MAX, copy.copy(R.MIN) == R.MIN, copy.deepcopy(R.MIN) == R.MIN
        pickle.loads(pickle.dumps(R(R.BOR))) == R.BOR, pickle.loads(pickle.dumps(R.BOR)) == R.BOR
        dist._make_nccl_premul_sum(2.0) == R.PREMUL_SUM
        dist._make_nccl_premul_sum("a")
        pickle.loads(pickle.dumps(dist._make_nccl_premul_sum(2.0))) == R.PREMUL_SUM
        dist.reduce_op.SUM == R.SUM
        dist.reduce_op.PRODUCT == R.PRODUCT
        """,
        "import copy, pickle; names.update(R=dist.ReduceOp, copy=copy, pickle=pickle)",
    )


@pytest.mark.parametrize("extended", [False, True])
def test_a_backend_of_the_programs_own(extended):
    """register_backend: init_process_group and new_group make the groups of that name with the program's function, which gets what it needs."""
    same(
        """
        dist.init_process_group("mine", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=7))
        dist.all_reduce(t), dist.broadcast(t, 0), dist.get_rank(), dist.get_world_size(), dist.get_backend()
        dist.get_backend_config()
        dist.all_reduce(t, async_op=True)
        calls
        dist.new_group([0])
        len(made), [(rank, size, seconds) for rank, size, seconds in made]
        """,
        """
class Mine(dist.ProcessGroup):
    def __init__(self, rank, size):
        super().__init__(rank, size)
    def getBackendName(self):
        return "mine"
    def allreduce(self, tensors, opts):
        calls.append(["allreduce", len(tensors), repr(opts.reduceOp.op) if hasattr(opts.reduceOp, "op") else repr(opts.reduceOp)])
        return None
    def broadcast(self, tensors, opts):
        calls.append(["broadcast", opts.rootRank])
        return None

def make(store, rank, size, timeout):
    store.set("here", "1")
    made.append([rank, size, timeout.total_seconds()])
    return Mine(rank, size)

def make_extended(told, options):
    return make(told.store, told.group_rank, told.group_size, told.timeout)

calls, made = [], []
names.update(t=torch.ones(2), calls=calls, made=made)
"""
        + f'dist.Backend.register_backend("mine", make{"_extended, True" if extended else ", False"}, ["cpu"])',
    )
