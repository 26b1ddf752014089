"""What others on the network can do to a program that trains: see nothing but its store, on loopback, and change nothing; and what it leaves behind."""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from launching import Launcher
from worlds import World

TRAINING = """
    import os, sys, time
    import flambeau as torch, flambeau.distributed as dist
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    sums, count = torch.zeros(100_000), 0
    print("begun", flush=True)
    while not dist.distributed_c10d._get_default_store().check(["enough"]):
        x = torch.ones(100_000)
        dist.all_reduce(x)
        group = dist.new_group([0, 1])
        objects = [None] * size
        dist.all_gather_object(objects, (rank, count), group=group)
        assert x.sum() == 100_000 * size and objects == [(0, count), (1, count)]
        dist.destroy_process_group(group)
        stop = torch.tensor([float(os.path.exists(sys.argv[1]))])
        dist.broadcast(stop, 0)
        if stop:
            break
        count += 1
    print("went on", count > 5, flush=True)
"""


def listening(pids: list[int]) -> list[tuple[str, int]]:
    """Where these processes listen, for TCP and in whatever family."""
    inodes = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                inodes |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(descriptor)))
            except OSError:
                continue
    found = []
    for kind, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                host, port = fields[1].split(":")
                words = [bytes.fromhex(host[i : i + 8])[:: -1 if sys.byteorder == "little" else 1] for i in range(0, len(host), 8)]
                found.append((socket.inet_ntop(family, b"".join(words)), int(port, 16)))
    return found


def attack(port: int, seconds: float) -> int:
    """Rubbish, half frames held open, byte after byte, and connections by the hundred; how many there were."""
    until, kept, made = time.monotonic() + seconds, [], 0
    while time.monotonic() < until:
        for number in range(50):
            wire = socket.socket()
            wire.settimeout(0.5)
            try:
                wire.connect(("127.0.0.1", port))
                made += 1
                if number % 3 == 0:
                    wire.sendall(secrets.token_bytes(200))
                elif number % 3 == 1:
                    wire.sendall(b"\0\0\0")  # of the length of a frame
            except OSError:
                wire.close()
                continue
            kept.append(wire)
        for wire in kept[-100:]:
            try:
                wire.send(b"\0")
            except OSError:
                continue
        while len(kept) > 600:
            kept.pop(0).close()
    for wire in kept:
        wire.close()
    return made


def attacked(ports: list[int]) -> None:
    made: list[int] = []
    threads = [threading.Thread(target=lambda port=port: made.append(attack(port, 2.0))) for port in ports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(made) > 300


def named_memory(pids: list[int] | list[str]) -> set[str]:
    """Shared memory of these processes that has a name, and would outlive a process that is killed."""
    maps = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in pids).splitlines()
    return {line.split(maxsplit=5)[5] for line in maps if "/dev/shm/" in line and not line.endswith("(deleted)")}


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/net"), reason="needs Linux's /proc to see who listens where")


@needs_proc
def test_ranks_that_strangers_attack_go_on(tmp_path: Path) -> None:
    """Ranks of one machine listen anywhere but on loopback, or for anything but the store; strangers disturb them; or their shared memory has a name."""
    world = World(TRAINING, arguments=[str(tmp_path / "enough")])
    for rank in range(2):
        world.wait_for("begun", rank)
    found = listening([process.pid for process in world.processes])
    assert [host for host, _ in found] == ["127.0.0.1"], found
    assert not named_memory([process.pid for process in world.processes])
    attacked([port for _, port in found])
    (tmp_path / "enough").touch()
    for rank in world.finish():
        assert (rank.returncode, rank.stdout, rank.stderr) == (0, "begun\nwent on True\n", ""), str(rank)


@needs_proc
def test_a_launcher_that_strangers_attack_goes_on(tmp_path: Path) -> None:
    """The launcher's stores listen on loopback, and strangers disturb neither it nor its workers."""
    launcher = Launcher("--nproc_per_node=2", "--standalone", folder=tmp_path, program=TRAINING, args=(str(tmp_path / "enough"),))
    launcher.wait_for("begun", 2)
    found = listening(launcher.alive())
    assert found and {host for host, _ in found} <= {"127.0.0.1", "::1"}, found
    attacked([port for host, port in found if host == "127.0.0.1"])
    (tmp_path / "enough").touch()
    end = launcher.finish()
    assert end.returncode == 0 and end.stdout.count("went on True") == 2, str(end)
    launcher.leaves_nothing(4)


@needs_proc
def test_ranks_of_mpiexec_end_one_after_the_other(tmp_path: Path) -> None:
    """mpiexec ends the ranks that are still running when the first of them has come to its end, or a rank listens beyond loopback, or leaves shared memory."""
    mpiexec = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    if not os.path.exists(mpiexec):
        pytest.skip("there is no mpiexec beside this Python: pip install mpich")
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
            import os, sys, time
            sys.path.insert(0, sys.argv[1])
            import flambeau.distributed as dist
            from test_strangers import listening, named_memory
            inherited = listening([os.getpid()])
            dist.init_process_group("mpi")
            dist.barrier()
            alone = {host for host, _ in set(listening([os.getpid()])) - set(inherited)} <= {"127.0.0.1"} and not named_memory(["self"])
            os.write(1, f"{alone}\\n".encode())  # whole, whatever PYTHONUNBUFFERED says
            time.sleep(0.4 * dist.get_rank())
            """)
    )
    command = [mpiexec, "-n", "3", sys.executable, str(program), str(Path(__file__).parent)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout) == (0, "True\n" * 3), found
