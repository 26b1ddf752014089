"""A worker fails, the launcher is told to end, or is killed: who is told, how soon, and what is left."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from launching import REAL, Launcher, launch, well

SECOND_FAILS = """
    import os, subprocess, sys, time
    print("up", flush=True)
    if os.environ["RANK"] == "1":
        open("failing", "w").close()
        WAY
    time.sleep(60)
"""


@pytest.mark.parametrize(
    "way, words",
    [
        ("raise ValueError('no such luck')", "ValueError: no such luck"),
        ("sys.exit(3)", "rank 1: ended with exit status 3, and left no traceback: its own output says more"),
        ("os.kill(os.getpid(), 9)", "rank 1: Signal 9 (SIGKILL) received by PID "),
    ],
)
def test_the_first_failure_is_the_last_thing_printed(tmp_path, way, words):
    """The report of a failed run does not end with the reason, the exit status is not torchrun's, or the others run on for long."""
    launcher = Launcher("--nproc_per_node=2", folder=tmp_path, program=SECOND_FAILS.replace("WAY", way))
    run = launcher.finish()
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith(words), run.stderr
    assert "program.py FAILED: rank 1 was the first" in run.stderr
    row = next(line for line in run.stderr.splitlines() if line.startswith("0 "))
    assert "SIGTERM (asked to end)" in row
    assert run.since(tmp_path / "failing") < 5
    launcher.leaves_nothing(0.5)


def test_torchrun_gives_the_same_exit_status(tmp_path):
    """The exit status of a failed run is not the real launcher's."""
    program = SECOND_FAILS.replace("WAY", "sys.exit(3)")
    assert launch("--nproc_per_node=2", folder=tmp_path, program=program, start=REAL).returncode == 1


def test_who_is_deaf_is_killed_with_all_it_has_started(tmp_path):
    """Workers that ignore signals, or their children in sessions of their own, outlive a failure by more than 5 seconds."""
    program = """
        import os, signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        if os.environ["RANK"] == "1":
            open("failing", "w").close()
            sys.exit(5)
        time.sleep(600)
    """
    launcher = Launcher("--nproc_per_node=2", folder=tmp_path, program=program)
    run = launcher.finish()
    assert "exit 5" in run.stderr and "SIGKILL (asked to end)" in run.stderr
    assert run.since(tmp_path / "failing") < 5
    launcher.leaves_nothing(0.5)


STAY = """
    import os, subprocess, time
    subprocess.Popen(["sleep", "600"])
    print("up", flush=True)
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_launcher_ends_all(tmp_path, which):
    """Ctrl-C, SIGTERM or SIGHUP leave workers behind, or another exit status than torchrun's."""
    launcher = Launcher("--nproc_per_node=2", folder=tmp_path, program=STAY)
    launcher.wait_for("up", times=2)
    launcher.process.send_signal(which)
    run = launcher.finish(timeout=10)
    assert run.returncode == 1
    assert run.stderr.endswith(f"{which.name}: all workers have been ended\n")
    assert run.stdout.count("interrupted") == (2 if which == signal.SIGINT else 0)
    launcher.leaves_nothing(0.5)


def test_workers_may_take_their_time_but_not_when_asked_again(tmp_path):
    """A worker that saves its work after SIGTERM is killed at once, or a second signal has no effect."""
    program = """
        import os, signal, time
        signal.signal(signal.SIGTERM, lambda *_: print("saving", flush=True))
        print("up", flush=True)
        for _ in range(600):
            time.sleep(0.1)
    """
    launcher = Launcher("--nproc_per_node=2", folder=tmp_path, program=program)
    launcher.wait_for("up", times=2)
    launcher.process.send_signal(signal.SIGTERM)
    launcher.wait_for("saving", times=2)
    time.sleep(0.3)
    assert launcher.process.poll() is None
    launcher.process.send_signal(signal.SIGINT)
    assert launcher.finish(timeout=5).returncode == 1
    launcher.leaves_nothing(0.5)


def test_nothing_outlives_a_launcher_that_was_killed(tmp_path):
    """Workers, their children, or the guardian go on when the launcher is killed."""
    launcher = Launcher("--nproc_per_node=2", folder=tmp_path, program=STAY)
    launcher.wait_for("up", times=2)
    launcher.process.kill()
    launcher.finish()
    launcher.leaves_nothing(4.0)


def test_workers_end_with_a_guardian_that_was_killed(tmp_path):
    """Somebody killed the process between launcher and workers, and the run goes on as if nothing had happened."""
    launcher = Launcher("--nproc_per_node=2", folder=tmp_path, program=STAY.replace('subprocess.Popen(["sleep", "600"])', ""))
    launcher.wait_for("up", times=2)
    (guardian,) = [pid for pid in launcher.alive() if b"guardian.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(guardian, signal.SIGKILL)
    run = launcher.finish(timeout=10)
    assert run.returncode == 1 and "SIGKILL" in run.stderr
    launcher.leaves_nothing(0.5)


def test_the_group_starts_again(tmp_path):
    """--max_restarts does not start all workers again, with the number of the restart, or does so too often."""
    program = """
        import os, sys
        restart = os.environ["TORCHELASTIC_RESTART_COUNT"]
        print(os.environ["RANK"], restart, os.environ["TORCHELASTIC_MAX_RESTARTS"], flush=True)
        if os.environ["RANK"] == "1" and restart != sys.argv[1]:
            sys.exit(4)
    """
    run = launch("--nproc_per_node=2", "--max_restarts=2", folder=tmp_path, program=program, args=("1",))
    assert well(run) == ["0 0 2", "0 1 2", "1 0 2", "1 1 2"]
    assert "rank 1 on" in run.stderr and "(exit 4): starting the group again, restart 1 of 2" in run.stderr
    run = launch("--nproc_per_node=2", "--max_restarts=1", folder=tmp_path, program=program, args=("9",))
    assert run.returncode == 1 and run.stdout.count("1 1 1") == 1 and "1 2 1" not in run.stdout


def test_others_can_read_who_ended_how(tmp_path):
    """The store does not say at once how a worker ended, so the other ranks cannot name it."""
    program = """
        import json, os, sys, time
        from datetime import timedelta
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), 9)
        from torch.distributed import TCPStore
        store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=timedelta(seconds=1.5))
        print(store.get("launcher/ended/0/1").decode())
    """
    run = launch("--nproc_per_node=2", folder=tmp_path, program=program)
    said = json.loads(run.stdout)
    assert said["status"] == -9 and said["node"] and f"PID {said['pid']}" in run.stderr


def test_a_program_that_is_not_there(tmp_path):
    """The launcher shows its own traceback where the program's name is wrong."""
    run = launch("--nproc_per_node=2", "--no_python", "./nobody", folder=tmp_path, program="")
    assert (run.returncode, run.stderr) == (1, "./nobody cannot be started: No such file or directory\n")


def test_a_process_that_outlives_its_worker_may_if_all_went_well(tmp_path):
    """A server that a worker has left running on purpose is killed after a run without failures."""
    program = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)"
    launcher = Launcher("--nproc_per_node=1", folder=tmp_path, program=program)
    assert launcher.finish().returncode == 0
    assert len(launcher.alive()) == 1
    launcher.end_all()
