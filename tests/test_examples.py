"""The example that `flambeau train` runs: it learns, goes on where it was stopped, and is a PyTorch program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import flambeau
from flambeau.cli.train import EXAMPLES

torch = pytest.importorskip("torch")


def command(*words: str, framework: str = "flambeau") -> list[str]:
    if framework == "torch":
        return [sys.executable, str(EXAMPLES / f"{words[0]}.py"), *words[1:]]
    return [sys.executable, "-m", "flambeau", *words]


def run(folder: Path, *words: str, framework: str = "flambeau") -> str:
    done = subprocess.run(command(*words, framework=framework), cwd=folder, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(flambeau.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


def weights(path: Path) -> dict[str, np.ndarray]:
    return {name: t.numpy() for name, t in flambeau.load(path, map_location="cpu")["model"].items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run of two epochs that nobody stops."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "said.txt").write_text(run(folder, "train", "--epochs", "2"))
    return folder


def test_two_epochs_teach_digits(whole):
    """After two passes over the images that come with the package, more than nine of ten test images are told right."""
    last = flambeau.load(whole / "runs/mnist/last.pt")["history"][-1]
    assert last["valid accuracy"] > 0.9 and last["valid loss"] < last["loss"]
    assert (whole / "runs/mnist/best.pt").exists()
    said = (whole / "said.txt").read_text().splitlines()
    assert said[0].startswith("mnist: MLP with 235,146 parameters, 156 batches of 64") and said[2].startswith("epoch  2/2   loss ")


def test_interrupted_run_goes_on_to_the_same_weights(whole, tmp_path):
    """Ctrl-C in the middle, then --resume: the weights at the end are those of the run that was not stopped, bit for bit."""
    child = subprocess.Popen(command("train", "--epochs", "2"), cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline().startswith("mnist")
    time.sleep(0.05)  # all of it takes 0.3 s on a quick machine
    child.send_signal(signal.SIGINT)
    said = child.communicate(timeout=120)[0]
    assert child.returncode == 130 and "flambeau train --resume runs/mnist/last.pt" in said
    stopped = flambeau.load(tmp_path / "runs/mnist/last.pt")
    assert (stopped["epoch"], stopped["batch"]) < (2, 0)
    assert "resumed" in run(tmp_path, "train", "--resume", "runs/mnist/last.pt")
    resumed, straight = weights(tmp_path / "runs/mnist/last.pt"), weights(whole / "runs/mnist/last.pt")
    assert all(np.array_equal(resumed[name], straight[name]) for name in straight)


def test_it_is_a_pytorch_program(whole, tmp_path):
    """The same file under PyTorch: the same losses, to rounding, and a checkpoint that Flambeau goes on from."""
    run(tmp_path, "train", "--epochs", "1", framework="torch")
    theirs = flambeau.load(tmp_path / "runs/mnist/last.pt")
    said = run(tmp_path, "train", "--epochs", "1", "--out", "ours")
    ours = flambeau.load(tmp_path / "ours/last.pt")
    for name in ("loss", "valid loss", "valid accuracy"):
        assert ours["history"][0][name] == pytest.approx(theirs["history"][0][name], rel=2e-2), said
    assert "best: validation loss" in run(tmp_path, "train", "--resume", "runs/mnist/last.pt")


def test_a_text_is_learned_and_sampled(tmp_path):
    """The GPT's loss falls below that of guessing by frequency, and `flambeau sample` writes the same text for the same seed."""
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog.\n" * 200)
    run(tmp_path, "train", "shakespeare", "--data", str(text), "--epochs", "1", "--batch-size", "4", "--warmup", "10")
    checkpoint = "runs/shakespeare/last.pt"
    assert flambeau.load(tmp_path / checkpoint)["history"][-1]["valid loss"] < 1.5
    first, again = (run(tmp_path, "sample", checkpoint, "--start", "the ", "--count", "20", "--seed", "1") for _ in range(2))
    assert first == again and first.startswith("the ") and len(first) == 25


def test_what_is_missing_is_said(tmp_path):
    """A folder without the idx files, a checkpoint that cannot write: one sentence each, and no traceback."""
    (tmp_path / "empty").mkdir()
    done = subprocess.run(command("train", "--data", "empty"), cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "There is no train-images-idx3-ubyte(.gz) in empty" in done.stderr and "Traceback" not in done.stderr
    flambeau.save({"model": {}}, tmp_path / "other.pt")
    done = subprocess.run(command("sample", "other.pt"), cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "holds no model that writes" in done.stderr
