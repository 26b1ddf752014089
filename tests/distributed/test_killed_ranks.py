"""A rank that is killed in the middle of a call: the others are told within 5 seconds by whom they were left, and how that one ended.

One world for many deaths: ranks 0 and 1 survive, and every other rank is the victim of one call, which the three make in a group of theirs
again and again until the victim kills itself.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from worlds import World

from flambeau.distributed.watch.fate import Fate

PROGRAM = """
    import json, os, signal, sys, threading, time
    import flambeau as torch, flambeau.distributed as dist
    from flambeau import nn

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = dist.distributed_c10d._get_default_store()
    calls, later = json.loads(sys.argv[1]), sys.argv[2] == "later"

    def die():
        store.set(f"died {rank}", str(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)

    def training(group, victim, mine):
        torch.manual_seed(0)
        model = nn.parallel.DistributedDataParallel(nn.Sequential(*[nn.Linear(300, 300) for _ in range(4)]), process_group=group)
        def step():
            y = model(torch.randn(4, 300))
            if mine:
                y.register_hook(lambda grad: threading.Timer(0.005, die).start())
            y.sum().backward()
        return step

    def repeat(victim, text, group):
        if rank not in (0, 1, victim):
            return
        mine, others = rank == victim, (0, 1)
        store.wait([f"turn {victim}"])
        count = 16 << 20 if "huge" in text else 300_000
        big = torch.ones(count)
        huge, n, me = big, 3, dist.get_rank(group)
        parts, places = [torch.ones(count // n) for _ in range(n)], [torch.empty(count // n) for _ in range(n)]
        objects = [{"a": list(range(1000))} for _ in range(n)]
        names = {**globals(), **locals(), "group": group, "how": {"group": group, "async_op": later}}
        if text == "training":
            call = training(group, victim, mine)
        else:
            code = compile(text, "<call>", "eval")
            call = lambda: eval(code, names)
            if mine:
                threading.Timer(0.15, die).start()
        start = time.monotonic()
        try:
            while time.monotonic() - start < 20:
                for work in (found if isinstance(found := call(), list) else [found]):
                    if work is not None and hasattr(work, "wait"):
                        work.wait()
        except Exception as problem:
            said = type(problem).__name__, str(problem), time.monotonic() - float(store.get(f"died {victim}"))
        else:
            said = "nothing", "", 0
        print(json.dumps([victim, text, *said]), flush=True)
        if rank < 2:
            store.set(f"over {rank} {victim}", "")
            store.wait([f"over {other} {victim}" for other in others])

    groups = {victim: dist.new_group([0, 1, victim]) for victim in range(2, 2 + len(calls))}
    for victim, group in groups.items():
        if rank == 0:
            store.set(f"turn {victim}", "")
        repeat(victim, calls[victim - 2], group)
    store.set(f"end {rank}", "")
    store.wait(["end 1"])  # rank 0 has the store
"""
COLLECTIVES = [
    "dist.broadcast(big, 1, **how)",
    "dist.all_reduce(big, **how)",
    "dist.reduce(big, 0, **how)",
    "dist.all_gather(places, parts[0], **how)",
    "dist.all_gather_into_tensor(big, parts[0], **how)",
    "dist.gather(parts[0], places if rank == 0 else None, 0, **how)",
    "dist.scatter(places[0], parts if rank == 1 else None, 1, **how)",
    "dist.reduce_scatter(places[0], parts, **how)",
    "dist.reduce_scatter_tensor(places[0], big, **how)",
    "dist.all_to_all(places, parts, **how)",
    "dist.all_to_all_single(torch.empty_like(big), big, **how)",
    "dist.barrier(**how)",
]
OTHERS = [
    "dist.all_reduce(torch.ones(2), group=group)",
    "dist.all_reduce(huge, group=group)",
    "dist.send(huge, victim, group=group) if not mine else [dist.recv(huge, other, group=group) for other in others]",
    "dist.recv(big, victim, group=group) if not mine else [dist.send(big, other, group=group) for other in others]",
    "dist.batch_isend_irecv([dist.P2POp(op, big, peer, group) for peer in (others if mine else [victim]) for op in (dist.isend, dist.irecv)])",
    "dist.all_gather_object([None] * n, objects, group=group)",
    "dist.broadcast_object_list(objects, 1, group=group)",
    "dist.gather_object(objects, [None] * n if rank == 0 else None, 0, group=group)",
    "dist.scatter_object_list([None], objects, 1, group=group)",
    "training",
]


def status_of_a_stranger() -> bool:
    """Whether the kernel says how a process ended that is not ours: since Linux 6.15."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    fate = Fate(process.pid)
    process.communicate()
    found = fate.status()
    fate.close()
    return found is not None


@pytest.mark.parametrize(
    ("calls", "how"), [(COLLECTIVES, "now"), (COLLECTIVES, "later"), (OTHERS, "now")], ids=["collectives", "asynchronously", "others"]
)
def test_the_survivors_are_told_who_was_killed(calls: list[str], how: str) -> None:
    """A survivor was not told within 5 seconds who was killed, and by what; or got an error of another kind, or none."""
    survivors = World(PROGRAM, 2 + len(calls), arguments=[json.dumps(calls), how]).finish(180)[:2]
    ended = "was killed by SIGKILL" if status_of_a_stranger() else "has died"
    for survivor in survivors:
        assert survivor.returncode == 0, str(survivor)
        told = [json.loads(line) for line in survivor.stdout.splitlines()]
        assert [victim for victim, *_ in told] == list(range(2, 2 + len(calls))), str(survivor)
        for victim, call, kind, message, seconds in told:
            assert kind == "DistBackendError", (call, kind, message)
            assert f"rank {victim}   {ended}" in message, (call, message)
            assert "program.py:" in message, (call, message)
            assert 0 <= seconds < 5, (call, seconds)
