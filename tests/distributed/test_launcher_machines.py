"""Several agents, as on several machines: numbered by hand or as they come, lost, and joined later. Two of them on this machine, or in two networks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

import pytest
from launching import Launcher
from worlds import free_port

WHO = """
    import os
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME")
    print(*(os.environ[name] for name in names))
"""


def agents(tmp_path, program, *each, env=None, args=()):
    """A launcher for each tuple of options. They share a secret, as users of several machines give them."""
    secret = {"FLAMBEAU_DIST_SECRET": "a secret of this test", **(env or {})}
    started = []
    for number, options in enumerate(each):
        folder = tmp_path / f"machine{number}"
        folder.mkdir(parents=True)
        started.append(Launcher(*options, folder=folder, program=program, env=secret, args=args))
    return started


def static(port, count=2, *more):
    return [("--nnodes", str(count), f"--node_rank={rank}", f"--master_port={port}", *more) for rank in range(count)]


def as_they_come(port, nodes="2", *more):
    return ("--nnodes", nodes, "--rdzv_backend=c10d", f"--rdzv_endpoint=localhost:{port}", "--rdzv_conf=last_call_timeout=1", *more)


def test_machines_are_numbered_by_hand(tmp_path):
    """Ranks over two machines with --node_rank are not those of torchrun: by machine, then by worker."""
    first, second = static(free_port())
    ends = [one.finish() for one in agents(tmp_path, WHO, (*first, "--nproc_per_node=1"), (*second, "--nproc_per_node=2"))]
    assert [sorted(end.stdout.splitlines()) for end in ends] == [
        ["0 0 3 0 2 0 3 default"],
        ["1 0 3 1 2 1 3 default", "2 1 3 1 2 2 3 default"],
    ], "\n".join(map(str, ends))
    assert [end.returncode for end in ends] == [0, 0]


def test_machines_are_numbered_as_they_come(tmp_path):
    """Machines that meet at an endpoint get numbers twice or not at all, or roles are not counted apart."""
    meet = as_they_come(free_port())
    ends = [one.finish() for one in agents(tmp_path, WHO, (*meet, "--nproc_per_node=2", "--role=a"), (*meet, "--role=b"))]
    assert [end.returncode for end in ends] == [0, 0], "\n".join(map(str, ends))
    lines = sorted(line for end in ends for line in end.stdout.splitlines())
    a_first = ["0 0 3 0 2 0 2 a", "1 1 3 0 2 1 2 a", "2 0 3 1 2 0 1 b"]
    b_first = ["0 0 3 0 2 0 1 b", "1 0 3 1 2 0 2 a", "2 1 3 1 2 1 2 a"]
    assert lines in (a_first, b_first)


FAIL = """
    import os, sys, time
    print("up", os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
    if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] in sys.argv:
        open("failing", "w").close()
        raise ValueError("no such luck")
    time.sleep(float(sys.argv[1]))
"""


def test_a_failure_is_told_on_every_machine(tmp_path):
    """A worker fails on one machine, and the other one runs on, or ends without saying why."""
    ends = [one.finish() for one in agents(tmp_path, FAIL, *static(free_port()), args=("60", "0"))]
    for end in ends:
        assert end.returncode == 1
        assert "program.py FAILED: rank 1 was the first" in end.stderr
        assert end.stderr.endswith("ValueError: no such luck\n"), end.stderr
        assert end.since(tmp_path / "machine1" / "failing") < 5


def test_all_machines_start_again(tmp_path):
    """After a failure on one machine only that one starts its workers again, or they do not meet the others."""
    ends = [one.finish() for one in agents(tmp_path, FAIL, *static(free_port(), 2, "--max_restarts=1"), args=("0.1", "0"))]
    assert [end.returncode for end in ends] == [0, 0], "\n".join(map(str, ends))
    assert [end.stdout.splitlines() for end in ends] == [["up 0 0", "up 0 1"], ["up 1 0", "up 1 1"]]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_machine_is_lost(tmp_path, lost):
    """The agent of one machine is killed, and the other one goes on waiting."""
    both = agents(tmp_path, FAIL, *static(free_port()), args=("60", "never"))
    for one in both:
        one.wait_for("up")
    both[lost].process.kill()
    killed = time.monotonic()
    end = both[1 - lost].finish(timeout=15)
    assert time.monotonic() - killed < 6
    assert end.returncode == 1 and ("is gone" in end.stderr), end.stderr
    both[lost].finish()
    for one in both:
        one.leaves_nothing(4)


def test_a_machine_joins_later_and_another_goes(tmp_path):
    """With --nnodes=1:2 a machine that comes later is not taken in, or the run ends when it is lost."""
    meet = as_they_come(free_port(), "1:2", "--max_restarts=3")
    program = """
        import os, time
        print("world", os.environ["WORLD_SIZE"], flush=True)
        while not os.path.exists(FILE):
            time.sleep(0.05)
    """.replace("FILE", repr(str(tmp_path / "enough")))
    (first,) = agents(tmp_path / "a", program, meet)
    first.wait_for("world 1")
    (second,) = agents(tmp_path / "b", program, meet)
    second.wait_for("world 2")
    first.wait_for("world 2")
    second.process.kill()
    first.wait_for("world 1", times=2)
    (tmp_path / "enough").touch()
    assert first.finish().returncode == 0
    second.finish()
    second.leaves_nothing(4)


def test_nobody_comes(tmp_path):
    """An agent waits for ever for one that does not come, or does not say who is missing."""
    (one,) = agents(tmp_path, WHO, (*static(free_port())[0], "--rdzv_conf=timeout=1"))
    end = one.finish(timeout=20)
    assert end.returncode == 1
    assert "RendezvousTimeoutError: nodes [1] of 2 did not come" in end.stderr, end.stderr


def test_two_networks(tmp_path):
    """Two machines with names, networks and shared memory of their own do not meet: the store listens at the wrong place, the workers find the wrong one, or MPI
    thinks that they are on one machine."""
    if not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("needs the commands unshare and ip")
    make = """
        set -e
        mount -t sysfs sysfs /sys  # where MPI looks for networks
        ip link set lo up
        ip link add east type veth peer name west
        ip addr add 10.77.0.1/24 dev east; ip link set east up
        unshare -num sleep 60 > /dev/null 2>&1 & other=$!
        trap 'kill $other' EXIT
        sleep 0.3
        ip link set west netns $other
        west() { nsenter -t $other -n -u -m "$@"; }
        west sh -c 'hostname west; mount -t sysfs sysfs /sys; mount -t tmpfs tmpfs /dev/shm
                    ip link set lo up; ip addr add 10.77.0.2/24 dev west; ip link set west up'
        west "$PYTHON" -m flambeau run --nnodes=2 --node_rank=1 --master_addr=10.77.0.1 --master_port=29511 "$1" > "$2" &
        "$PYTHON" -m flambeau run --nnodes=2 --node_rank=0 --master_addr=10.77.0.1 --master_port=29511 "$1"
        wait %2
    """
    probe = "mount -t sysfs sysfs /sys && ip link add east type veth peer name west && unshare -num hostname west"
    made = subprocess.run(["unshare", "-rnm", "sh", "-c", probe], capture_output=True, text=True, timeout=20)
    if made.returncode:
        pytest.skip(f"this kernel makes no networks for us: {made.stderr.strip()}")
    program = tmp_path / "program.py"
    program.write_text(
        "import os, socket, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "large = torch.full((1_000_000,), dist.get_rank() + 1.0)\n"
        "dist.all_reduce(large)\n"
        "names = [None, None]\n"
        "dist.all_gather_object(names, socket.gethostname())\n"
        "print(dist.get_rank(), os.environ['MASTER_ADDR'], large.sum().item(), names[1], len(set(names)))\n"
    )
    # UCX would find ways around a network between namespaces of one kernel, and is told not to.
    env = {
        **os.environ,
        "PYTHON": sys.executable,
        "FLAMBEAU_DIST_SECRET": "a secret of this test",
        "OMP_NUM_THREADS": "1",
        "UCX_TLS": "tcp,self",
    }
    run = subprocess.run(
        ["unshare", "-rnm", "sh", "-c", make, "sh", str(program), str(tmp_path / "second")],
        capture_output=True,
        text=True,
        env=env,
        timeout=90,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout == "0 10.77.0.1 3000000.0 west 2\n"
    assert (tmp_path / "second").read_text() == "1 10.77.0.1 3000000.0 west 2\n"
