"""Files of torch.save become checkpoints of many processes and the other way round, the same with both libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as their_dcp
import torch.distributed.checkpoint.format_utils as theirs

import flambeau
import flambeau.distributed.checkpoint as our_dcp
import flambeau.distributed.checkpoint.format_utils as ours

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def state(lib: Any) -> dict[str, Any]:
    return {"model": {"weight": lib.arange(6.0).reshape(2, 3), "half": lib.ones(3, dtype=lib.bfloat16)}, "steps": [1, 2], "lr": 0.1}


def plain(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "model": {name: (value.tolist(), str(value.dtype)) for name, value in found["model"].items()}}


def test_a_folder_becomes_a_file(tmp_path: Path) -> None:
    """dcp_to_torch_save of a folder of either library is a file that both load, with the whole state."""
    for lib, dcp in ((flambeau, our_dcp), (torch, their_dcp)):
        dcp.save(state(lib), checkpoint_id=tmp_path / lib.__name__, no_dist=True)
        for convert in (ours, theirs):
            convert.dcp_to_torch_save(tmp_path / lib.__name__, tmp_path / "x.pt")
            assert plain(flambeau.load(tmp_path / "x.pt")) == plain(torch.load(tmp_path / "x.pt")) == plain(state(lib))


def test_a_file_becomes_a_folder(tmp_path: Path) -> None:
    """torch_save_to_dcp of a file of either library is a folder that both load."""
    for lib in (flambeau, torch):
        lib.save(state(lib), tmp_path / "x.pt")
        for number, convert in enumerate((ours, theirs)):
            folder = tmp_path / f"{lib.__name__}{number}"
            convert.torch_save_to_dcp(tmp_path / "x.pt", folder)
            for reader, dcp in ((flambeau, our_dcp), (torch, their_dcp)):
                found: dict[str, Any] = {"model": {k: reader.zeros_like(v) for k, v in state(reader)["model"].items()}, "steps": 0, "lr": 0}
                dcp.load(found, checkpoint_id=folder, no_dist=True)
                assert plain(found) == plain(state(lib))


def test_the_command_converts(tmp_path: Path) -> None:
    """python -m ...format_utils does both from a shell."""
    flambeau.save(state(flambeau), tmp_path / "x.pt")
    command = [sys.executable, "-m", "flambeau.distributed.checkpoint.format_utils"]
    for mode, src, dst in (("torch_to_dcp", "x.pt", "folder"), ("dcp_to_torch", "folder", "y.pt")):
        subprocess.run([*command, mode, src, dst], cwd=tmp_path, check=True, capture_output=True, timeout=60, env={**os.environ})
    assert plain(flambeau.load(tmp_path / "y.pt")) == plain(state(flambeau))


def test_a_file_is_loaded_into_a_state(tmp_path: Path) -> None:
    """BroadcastingTorchSaveReader with DynamicMetaLoadPlanner fills tensors from a file; what is no tensor, or not there, is refused by name."""
    flambeau.save({"model": {"weight": flambeau.ones(2, 3), "n": 1}}, tmp_path / "x.pt")

    def load(wanted: dict[str, Any]) -> None:
        our_dcp.load(
            wanted,
            checkpoint_id=tmp_path / "x.pt",
            storage_reader=ours.BroadcastingTorchSaveReader(),
            planner=ours.DynamicMetaLoadPlanner(),
            no_dist=True,
        )

    found = {"model": {"weight": flambeau.zeros(2, 3)}}
    load(found)
    assert found["model"]["weight"].tolist() == [[1.0] * 3] * 2
    for wanted, words in (
        ({"model": {"weight": flambeau.zeros(3, 3)}}, "shape (2, 3)"),
        ({"weight": flambeau.zeros(2, 3)}, "no such name"),
        ({"model": {"n": 1}}, "Non-tensor value identified at model.n"),
    ):
        with pytest.raises(our_dcp.CheckpointException) as raised:
            load(wanted)
        assert words in str(raised.value)
