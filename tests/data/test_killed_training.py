"""A training run that is killed with kill -9 in the middle of an epoch, and resumed, is the run that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau

TRAINING = Path(__file__).with_name("killed_training.py")


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_killed_training_ends_with_the_same_weights(tmp_path, workers):
    """Dropout, augmentation, mixed precision with a scaler and a schedule: a run that is killed and resumed twice ends with the weights of one that is not, bit for bit."""

    def train(folder, kill_at):
        environment = {**os.environ, "PYTHONPATH": str(Path(flambeau.__file__).parents[1])}
        command = [sys.executable, str(TRAINING), str(folder), str(workers), str(kill_at)]
        return subprocess.run(command, env=environment, capture_output=True, timeout=100)

    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    done = train(tmp_path / "whole", -1)
    assert done.returncode == 0, done.stderr.decode()
    for kill_at in (3, 9):
        assert train(tmp_path / "killed", kill_at).returncode == -signal.SIGKILL
    assert train(tmp_path / "killed", -1).returncode == 0
    whole, killed = [(tmp_path / name / "weights").read_bytes() for name in ("whole", "killed")]
    assert whole == killed
