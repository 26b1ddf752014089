"""Ranks that disagree, wait in vain, die or never come are told so, soon, on every rank, by name and line."""

from __future__ import annotations

import re
import signal

import pytest
from worlds import World, ok, run

PROLOGUE = """
    import os, sys, time
    import flambeau as torch, flambeau.distributed as dist

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.ones(4)

    def told(call):
        start = time.monotonic()
        try:
            call()
        except Exception as problem:
            print(f"{type(problem).__name__} after {time.monotonic() - start:.1f} s: {problem}".replace(chr(10), " | "), flush=True)
        else:
            print("nothing", flush=True)
"""

MISTAKES = {
    "another operation": "dist.all_reduce(x) if rank else dist.broadcast(x, 0)",
    "another reduction": "dist.all_reduce(x, dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM)",
    "another dtype": "dist.all_reduce(x.double() if rank else x)",
    "another shape": "dist.all_reduce(torch.ones(5) if rank else x)",
    "as many elements, of another shape": "dist.all_reduce(torch.ones(2, 3) if rank else torch.ones(3, 2))",
    "another root": "dist.broadcast(x, rank)",
    "another large tensor": "dist.all_reduce(torch.ones(100_000 + rank))",
    "a gather with another shape": "dist.all_gather([torch.ones(2 + rank) for _ in range(size)], torch.ones(2 + rank))",
    "a reduce_scatter with another dtype": "dist.reduce_scatter_tensor(torch.ones(1, dtype=kind), torch.ones(size, dtype=kind))",
    "other lengths of an all_to_all": "dist.all_to_all([torch.ones(3 + rank * (1 - i)) for i in range(size)], [torch.ones(3) for _ in range(size)])",
    "another subgroup": "dist.new_group([rank])",
    "objects, when the others reduce": "dist.all_gather_object([None] * size, 1) if rank else dist.all_reduce(x)",
    "asynchronously": "dist.all_reduce(torch.ones(3 + rank), async_op=True).wait()",
}


def test_ranks_that_disagree_are_told_on_every_rank_with_the_calls_and_lines_of_all():
    """A call that the ranks do not make alike gave no DistBackendError, or one that does not show both calls with their lines; or the next call suffered."""
    calls = "\n".join(f"    told(lambda: {mistake})\n    dist.barrier()" for mistake in MISTAKES.values())
    outputs = ok(
        run(
            PROLOGUE
            + "\n    kind = torch.float64 if rank else torch.float32\n"
            + calls
            + "\n    y = torch.ones(2); dist.all_reduce(y); print(y.tolist())"
        )
    )
    for output in outputs:
        *said, right = output.splitlines()
        for mistake, line in zip(MISTAKES, said, strict=True):
            assert re.match(r"DistBackendError after [0-4]\.", line), (mistake, line)
            assert "rank 0 " in line and "rank 1 " in line, (mistake, line)
            if "lengths" not in mistake:
                assert line.count("program.py:") == 2, (mistake, line)
        assert right == "[2.0, 2.0]"


def test_a_message_that_its_receiver_does_not_expect_is_an_error_on_both_sides():
    """A receiver took a message of another size or dtype, or the sender was not told."""
    program = (
        PROLOGUE
        + "\n    told(lambda: (dist.recv(torch.ones(7), 0), dist.barrier()) if rank else (dist.send(torch.ones(5), 1), dist.barrier()))"
    )
    for output in ok(run(program)):
        assert re.search("DistBackendError after [0-4].*rank 0   send float32, 5 elements.*rank 1   receive float32, 7 elements", output)


COLLECTIVES = {
    "all_reduce": "dist.all_reduce(big)",
    "small all_reduce": "dist.all_reduce(x)",
    "broadcast": "dist.broadcast(big, 0)",
    "reduce": "dist.reduce(big, 0)",
    "all_gather": "dist.all_gather([torch.empty_like(big) for _ in range(size)], big)",
    "gather": "dist.gather(big, [torch.empty_like(big) for _ in range(size)] if rank == 0 else None)",
    "scatter": "dist.scatter(big, [big.clone() for _ in range(size)] if rank == 0 else None)",
    "reduce_scatter": "dist.reduce_scatter(big, [big.clone() for _ in range(size)])",
    "all_to_all": "dist.all_to_all([torch.empty_like(big) for _ in range(size)], [big.clone() for _ in range(size)])",
    "barrier": "dist.barrier()",
    "messages": "dist.send(big, 1 - rank) if rank == 0 else dist.recv(big, 0)",
    "asynchronously": "dist.all_reduce(big, async_op=True).wait()",
}


@pytest.mark.parametrize("names", [list(COLLECTIVES)[start::3] for start in range(3)], ids=lambda names: "+".join(names))
def test_a_rank_killed_in_the_middle_of_a_collective_is_named(names):
    """The rank that is left was not told within 5 seconds that the other one died, or hung."""
    worlds = []
    for name in names:  # all at once: their time is spent waiting
        program = f"""
    big = torch.ones(1_000_000)
    def repeat():
        while True:
            {COLLECTIVES[name]}
    print("ready", flush=True)
    told(repeat)
"""
        worlds.append(World(PROLOGUE + program))
    for world in worlds:
        world.wait_for("ready", 1)
        world.wait_for("ready", 0)
    for world in worlds:
        world.kill(1, signal.SIGKILL)
    for name, world in zip(names, worlds, strict=True):
        survivor, killed = world.finish()
        assert killed.returncode == -signal.SIGKILL
        assert "DistBackendError" in survivor.stdout and "rank 1 " in survivor.stdout and "died" in survivor.stdout, (name, str(survivor))
        assert survivor.seconds - killed.seconds < 5, (name, survivor.seconds, killed.seconds)


def test_ranks_that_wait_for_each_other_are_told():
    """Two ranks that both receive first, or that use two groups in opposite orders, hang instead of being told."""
    crossing = (
        PROLOGUE
        + """
    a, b = dist.new_group([0, 1]), dist.new_group([0, 1])
    told(lambda: dist.all_reduce(x, group=b if rank else a))
"""
    )
    receiving = PROLOGUE + "\n    told(lambda: dist.recv(x, 1 - rank))"
    worlds = [World(crossing), World(receiving)]
    for world in worlds:
        for output in ok(world.finish()):
            assert re.match(
                r"DistBackendError after [0-4]\..*ranks \[0, 1\] wait for each other.*rank 0.*program.py:\d+.*rank 1.*program.py:\d+",
                output,
            ), output


def test_a_rank_that_came_to_its_end_is_no_longer_waited_for():
    """A rank waited on for one that had ended, or did not say with which error."""
    left, waiting = run(PROLOGUE + "\n    if rank == 0: raise ValueError('out of cheese')\n    told(lambda: dist.all_reduce(x))")
    assert left.returncode == 1
    assert re.match(r"DistBackendError after [0-4]\..*rank 0   has ended with ValueError: out of cheese", waiting.stdout), str(waiting)


def test_a_rank_that_is_late_is_asked_for_on_both_sides_and_not_lost():
    """Nobody said for whom a call waited, and where that rank was; or a late rank spoiled the call."""
    early, late = run(PROLOGUE + "\n    if rank: time.sleep(4.5)\n    dist.all_reduce(x)\n    print(x.tolist())")
    assert early.stdout == late.stdout == "[2.0, 2.0, 2.0, 2.0]\n"
    assert re.search(
        r"rank 0 has waited 3 s in all_reduce SUM float32 \(4,\) at \S+program.py:\d+:\n    rank 1   is at \S+program.py:\d+", early.stderr
    ), early.stderr
    assert re.search(r"rank 0 waits for rank 1 in all_reduce .*this process is at \S+program.py:\d+", late.stderr), late.stderr


def test_a_rank_that_never_comes_is_named_when_time_is_up():
    """A timeout did not say who was missing, and where they were instead."""
    program = PROLOGUE.replace('"gloo")', '"gloo", timeout=timedelta(seconds=2))').replace(
        "import os", "from datetime import timedelta; import os"
    )
    first, _ = run(
        program + "\n    if rank == 0: told(lambda: dist.all_reduce(x)); told(lambda: dist.barrier())\n    else: time.sleep(3.5)"
    )
    slow, after = first.stdout.splitlines()
    assert re.match(r"DistBackendError after 2\.\d s: all_reduce.*timeout of 2 s: \|     rank 1   is at \S+program.py", slow), slow
    assert "come apart" in after, after


def test_a_process_that_is_never_started_is_named():
    """init_process_group waited for a process that nobody started, without saying for which."""
    program = """
        from datetime import timedelta
        import flambeau.distributed as dist
        dist.init_process_group("gloo", timeout=timedelta(seconds=5))
    """
    (alone,) = World(program, 1, env={"WORLD_SIZE": "2"}).finish()
    assert alone.returncode == 1
    assert "has waited 3 s for rank 1" in alone.stderr and re.search(r"missing +rank 1", alone.stderr), alone.stderr


def test_without_the_check_right_programs_run_as_well():
    """FLAMBEAU_DIST_CHECK=0 changed a result."""
    program = (
        PROLOGUE
        + """
    dist.all_reduce(x); big = torch.ones(100_000); dist.all_reduce(big); dist.barrier()
    print(x.tolist(), big.sum().item())
"""
    )
    assert ok(run(program, env={"FLAMBEAU_DIST_CHECK": "0"})) == ["[2.0, 2.0, 2.0, 2.0] 200000.0\n"] * 2


def test_report_shows_who_is_where():
    """report() does not show the call in which another rank waits, or where this one is."""
    program = (
        PROLOGUE
        + """
    if rank: time.sleep(2); print(dist.report())
    dist.all_reduce(x)
"""
    )
    _, said = ok(run(program))
    assert re.match(
        r"rank 0   pid \d+   is in all_reduce SUM float32 \(4,\) at \S+program.py:\d+, for [\d.]+ s\nrank 1   pid \d+   is at \S+program.py:\d+",
        said,
    ), said
