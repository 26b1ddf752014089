"""Ranks that disagree, wait in vain, die or never come are told so, soon, on every rank, by name and line."""

from __future__ import annotations

import re

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


CALLS = [
    "broadcast(new({n}, {kind}), {root}, {how})",
    "all_reduce(new({n}, {kind}), {op}, {how})",
    "reduce(new({n}, {kind}), {root}, {op}, {how})",
    "all_gather([new({n}, {kind}) for _ in range(3)], new({n}, {kind}), {how})",
    "all_gather_into_tensor(new(3 * {n}, {kind}), new({n}, {kind}), {how})",
    "gather(new({n}, {kind}), [new({n}, {kind}) for _ in range(3)] if rank == {root} else None, {root}, {how})",
    "scatter(new({n}, {kind}), [new({n}, {kind})] * 3 if rank == {root} else None, {root}, {how})",
    "reduce_scatter(new({n}, {kind}), [new({n}, {kind})] * 3, {op}, {how})",
    "reduce_scatter_tensor(new({n}, {kind}), new(3 * {n}, {kind}), {op}, {how})",
    "all_to_all([new({n}, {kind}) for _ in range(3)], [new({n}, {kind})] * 3, {how})",
    "all_to_all_single(new(3 * {n}, {kind}), new(3 * {n}, {kind}), {how})",
    "barrier({how})",
]
MOST = {"kind": "torch.float32", "n": "4", "op": "ReduceOp.SUM", "root": "0"}
ONE = {"kind": "torch.float64", "n": "5", "op": "ReduceOp.MAX", "root": "1"}
HOW = ("group=None, async_op=False", "group=some, async_op=True")


def test_each_collective_finds_out_what_one_of_three_ranks_does_differently():
    """Dtype, shape, root, reduction or operation of rank 1 differ: somebody is not told in time, or is not shown all three calls with their lines; also in a
    group of some ranks, and with async_op=True, where wait() tells."""
    cases = []
    for call, other in zip(CALLS, CALLS[1:] + CALLS[:1], strict=True):
        for changed in ("operation", *(name for name in MOST if f"{{{name}}}" in call)):
            how = {"how": HOW[len(cases) % 2]}
            wrong = other if changed == "operation" else call
            cases.append((call.format(**MOST, **how), wrong.format(**{**MOST, changed: ONE.get(changed)}, **how)))
    assert len(cases) == 12 + 11 + 11 + 4 + 4
    program = f"""{PROLOGUE}
    import warnings
    warnings.simplefilter("ignore")
    from flambeau.distributed import *
    new, some = lambda n, kind: torch.ones(n, dtype=kind), new_group([0, 2, 1], group_desc="some")
    finish = lambda work: work.wait() if work is not None else None
    """
    program += "".join(f"\n    told(lambda: finish({wrong} if rank == 1 else {right}))" for right, wrong in cases)
    program += "\n    y = torch.ones(2); all_reduce(y); all_reduce(y, group=some); print(y.tolist())"
    for output in ok(run(program, 3)):
        *said, right = output.splitlines()
        for (call, wrong), line in zip(cases, said, strict=True):
            assert re.match(r"DistBackendError after [0-4]\.", line), (call, wrong, line)
            if "the lengths do not fit" in line:
                assert re.search("all_to_all: .*rank 1 sends rank [02] 5 elements, which expects 4", line), line
                continue
            assert all(re.search(rf"\|     rank {rank}   [a-z_]+ .*?at \S+program.py:\d+ \|", line) for rank in range(3)), (
                call,
                wrong,
                line,
            )
            assert ("group some of ranks [0, 1, 2]" if "group=some" in call else "the group of all ranks") in line, line
        assert right == "[9.0, 9.0]"


def test_a_message_that_its_receiver_does_not_expect_is_an_error_on_both_sides():
    """A receiver took a message of another size or dtype, or the sender was not told."""
    program = (
        PROLOGUE
        + "\n    told(lambda: (dist.recv(torch.ones(7), 0), dist.barrier()) if rank else (dist.send(torch.ones(5), 1), dist.barrier()))"
    )
    for output in ok(run(program)):
        assert re.search("DistBackendError after [0-4].*rank 0   send float32, 5 elements.*rank 1   receive float32, 7 elements", output)


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


def test_a_rank_that_ends_well_without_a_call_is_no_longer_waited_for():
    """Two ranks waited on, in two groups, with and without wait(), for one that had come to its end before."""
    program = """
    some = dist.new_group([1, 2], group_desc="some")
    if rank < 2: told(lambda: dist.all_reduce(x, async_op=True).wait())
    if rank == 1: told(lambda: dist.recv(x, 2)); told(lambda: dist.all_gather_object([None] * 2, 1, group=some))
"""
    first, second, ended = run(PROLOGUE + program, 3)
    assert ended.returncode == 0
    for line in (first.stdout + second.stdout).splitlines():
        assert re.match(r"DistBackendError after [0-4]\..* at \S+program.py:\d+ waits for ranks that are gone: \|     rank 2   ", line), (
            line
        )
        assert "rank 2   ended with exit status 0" in line or "rank 2   has left the group" in line, line
    assert first.stdout.count("Dist") == 1 and second.stdout.count("Dist") == 3


def test_a_rank_that_came_to_its_end_is_no_longer_waited_for():
    """A rank waited on for one that had ended, or did not say with which error."""
    left, waiting = run(PROLOGUE + "\n    if rank == 0: raise ValueError('out of cheese')\n    told(lambda: dist.all_reduce(x))")
    assert left.returncode == 1
    assert re.match(r"DistBackendError after [0-4]\..*rank 0   has ended with ValueError: out of cheese", waiting.stdout), str(waiting)


def test_a_process_that_hosted_the_store_is_missed_as_any_other():
    """Rank 0, where the store was, is killed: the others do not learn of it, cannot go on among themselves, or no longer notice who of them dies."""
    program = """
    some = dist.new_group([1, 2])
    dist.barrier(); time.sleep(0.5)
    if rank == 0: os.kill(os.getpid(), 9)
    told(lambda: dist.all_reduce(x))
    dist.all_reduce(x, group=some); print(x.tolist())
    if rank == 2: time.sleep(0.5); os._exit(7)
    told(lambda: dist.all_reduce(x, group=some))
    print(dist.report())
"""
    _, second, third = run(PROLOGUE + program, 3)
    for survivor in (second, third):
        assert re.match(
            r"DistBackendError after [0-4]\..*rank 0   (was killed by SIGKILL|has died).*, and the store that it hosted with it\n",
            survivor.stdout,
        )
        assert "[2.0, 2.0, 2.0, 2.0]" in survivor.stdout, str(survivor)
    assert re.search(
        r"rank 2   (ended with exit status 7|has died)(.|\n)*rank 0   (was|has)(.|\n)*rank 1   pid \d+   is at", second.stdout
    ), str(second)


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
    """report() does not show in which call of which group ranks wait, for how long and for whom, where the one is that is late, or how one has ended."""
    program = """
    some = dist.new_group([0, 2], group_desc="some")
    if rank == 1:
        time.sleep(1.7)
        print(dist.report())
    elif rank == 0:
        dist.all_reduce(x, group=some)
    else:
        time.sleep(2.2)
        dist.all_reduce(x, group=some)
        os._exit(3)
    if rank == 1:
        time.sleep(2)
        last = dist.report()
        print(last, last[0]["pid"], len(last))
    else:
        time.sleep(2)
"""
    told = run(PROLOGUE + program, 3)
    late, ended = told[1].stdout.split("\n", 3)[:3], told[1].stdout.split("\n", 3)[3]
    wanted = [
        r"rank 0   pid \d+   is in all_reduce SUM float32 \(4,\) of group some of ranks \[0, 2\] at \S+program.py:\d+, for [12](\.\d)? s, and waits for rank 2",
        r"rank 1   pid \d+   is at \S+program.py:\d+(, for [12](\.\d)? s)?, after new_group \[0, 2\] at \S+program.py:\d+",
        r"rank 2   pid \d+   is at \S+program.py:\d+, for [12](\.\d)? s, after new_group \[0, 2\] at \S+program.py:\d+",
    ]
    for line, pattern in zip(late, wanted, strict=True):
        assert re.fullmatch(pattern, line), line
    assert re.search(r"rank 2   (ended with exit status 3 \(pid \d+\)|has died \(its connection broke.*)\n?.* \d+ 3\n", ended), ended
    assert re.match(r"rank 0   pid \d+   is at \S+program.py:\d+(, for [\d.]+ s)?, after all_reduce SUM .*", ended), ended
