"""MPI in a process where it was started before: by the program, by the parent process, or for other ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from worlds import World, free_port, ok, run

TAIL = """
    def total(ranks, port, rank):
        place = f"tcp://127.0.0.1:{port}"
        dist.init_process_group("gloo", init_method=place, rank=ranks.index(rank), world_size=len(ranks), timeout=timedelta(seconds=60))
        x = torch.full((1000,), 2.0**rank)
        dist.all_reduce(x)
        dist.destroy_process_group()
        assert bool((x == x[0]).all())
        return int(x[0])
"""
HEAD = """
    import os
    from datetime import timedelta
    import flambeau as torch, flambeau.distributed as dist
    rank = int(os.environ["RANK"])
"""


def ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]


def test_a_program_that_uses_mpi4py_keeps_its_own_world():
    """Groups cannot start after `from mpi4py import MPI`, which some libraries do to look around, or they take the program's MPI from it."""
    program = """
        from mpi4py import MPI
        import flambeau as torch, flambeau.distributed as dist
        before = MPI.COMM_WORLD.Get_size(), MPI.COMM_WORLD.allreduce(3)
        dist.init_process_group("gloo")
        x = torch.ones(70000) * (dist.get_rank() + 1)
        dist.all_reduce(x)
        print(before, x.unique().tolist(), MPI.COMM_WORLD.Get_size(), MPI.COMM_WORLD.allreduce(4))
    """
    assert ok(run(program)) == ["(1, 3) [3.0] 1 4\n"] * 2


def test_signals_stay_the_programs():
    """MPI takes signals from a program, such as those by which Slurm and closed terminals say that the end is near."""
    program = """
        import os, signal
        import flambeau.distributed as dist
        got = []
        for which in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
            signal.signal(which, lambda number, frame: got.append(signal.Signals(number).name))
        dist.init_process_group("gloo")
        dist.barrier()
        for which in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(which)
        print(*got)
    """
    assert ok(run(program)) == ["SIGHUP SIGUSR1 SIGUSR2 SIGTERM SIGINT\n"] * 2


def test_ranks_end_with_their_terminal():
    """A rank goes on after SIGHUP, for MPI has taken it."""
    world = World("""
        import signal, time
        import flambeau.distributed as dist
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever started the tests may have switched it off
        dist.init_process_group("gloo")
        print("up", flush=True)
        time.sleep(60)
    """)
    for number in range(2):
        world.wait_for("up", number)
    for number in range(2):
        world.kill(number, signal.SIGHUP)
    assert [rank.returncode for rank in world.finish(timeout=20)] == [-signal.SIGHUP] * 2


def test_ranks_may_meet_others_than_before():
    """A process that has left a group cannot join one with ranks it has not met, or gets the wrong sums there."""
    worlds = [[0, 1], [1, 2], [2, 1, 0], [0, 2], [0, 1, 2]]
    program = (
        HEAD + TAIL + f"    print([total(ranks, port, rank) for ranks, port in zip({worlds}, {ports(len(worlds))}) if rank in ranks])\n"
    )
    sums = [sum(2**rank for rank in world) for world in worlds]
    expected = [[total for total, world in zip(sums, worlds, strict=True) if rank in world] for rank in range(3)]
    assert ok(run(program, 3)) == [f"{sums}\n" for sums in expected]


def test_forked_processes_start_anew():
    """Processes that are forked from one with a group, or with MPI, cannot make groups of their own."""
    program = (
        HEAD.replace("import os\n", "import os, sys\n    from mpi4py import MPI\n")
        + TAIL
        + f"""
    def child(number, ports):
        sys.stdout.write(f"child {{number}} of {{rank}} {{total([0, 1], ports[rank], number)}}\\n")
        sys.stdout.flush()
    first, last, *inner = {ports(4)}
    print(total([0, 1], first, rank), flush=True)
    torch.multiprocessing.start_processes(child, (inner,), nprocs=2, start_method="fork")
    print(total([0, 1], last, rank), MPI.COMM_WORLD.Get_size())
    """
    )
    for rank, said in enumerate(ok(run(program))):
        assert sorted(said.splitlines()) == sorted(["3", *(f"child {number} of {rank} 3" for number in range(2)), "3 1"])


def test_a_program_under_mpiexec_may_start_mpi_itself(tmp_path):
    """Under mpiexec, `from mpi4py import MPI` before init_process_group: the groups cannot start, or are not those of mpiexec's ranks."""
    mpiexec = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    if not os.path.exists(mpiexec):
        pytest.skip("there is no mpiexec beside this Python: pip install mpich")
    file = tmp_path / "program.py"
    file.write_text(
        "import sys\n"
        "from mpi4py import MPI\n"
        "import flambeau as torch, flambeau.distributed as dist\n"
        'dist.init_process_group("mpi")\n'
        "x = torch.full((3,), 2.0 ** MPI.COMM_WORLD.Get_rank())\n"
        "dist.all_reduce(x)\n"
        'sys.stdout.write(f"{MPI.COMM_WORLD.Get_rank() == dist.get_rank()} {x.tolist()} {MPI.COMM_WORLD.allreduce(4)}\\n")\n'
        "dist.destroy_process_group()\n"
    )
    found = subprocess.run([mpiexec, "-n", "2", sys.executable, str(file)], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == ["True [3.0, 3.0, 3.0] 8"] * 2
