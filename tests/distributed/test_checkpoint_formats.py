"""Files of torch.save become checkpoints of many processes and the other way round, the same with both libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as their_dcp
import torch.distributed.checkpoint.format_utils as theirs
from safetensors.torch import load_file

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


def tensors(lib: Any) -> dict[str, Any]:
    return {"a": lib.arange(12.0).reshape(3, 4), "half": lib.ones(5, dtype=lib.bfloat16) * 3, "n": lib.tensor(7), "none": lib.zeros(0, 3)}


def said(found: dict[str, Any]) -> dict[str, Any]:
    return {name: (value.tolist(), str(value.dtype), tuple(value.shape)) for name, value in found.items()}


@pytest.mark.parametrize("writer", [flambeau, torch], ids=["ours", "theirs"])
def test_safetensors_of_one_process(tmp_path: Path, writer: Any) -> None:
    """HuggingFaceStorageWriter puts each tensor into the file of its number; both libraries read it, and so does safetensors."""
    files = {"a": 1, "half": 2, "n": 2, "none": 1}
    dcp = our_dcp if writer is flambeau else their_dcp
    dcp.save(tensors(writer), storage_writer=dcp.HuggingFaceStorageWriter(str(tmp_path), files), no_dist=True)
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
    assert sorted(os.listdir(tmp_path)) == names
    index = json.loads((tmp_path / names[-1]).read_text())
    assert index == {"metadata": {"total_size": 48 + 10 + 8}, "weight_map": {name: names[number - 1] for name, number in files.items()}}
    whole = load_file(tmp_path / names[0]) | load_file(tmp_path / names[1])
    assert said(whole) == said(tensors(torch))
    for lib, reading in ((flambeau, our_dcp), (torch, their_dcp)):
        found = {name: lib.zeros_like(value) for name, value in tensors(lib).items()}
        reading.load(found, storage_reader=reading.HuggingFaceStorageReader(str(tmp_path), thread_count=2), no_dist=True)
        assert said(found) == said(tensors(lib))


def test_safetensors_hold_tensors_alone(tmp_path: Path) -> None:
    """An object in the state is named, and nothing is left in the folder."""
    with pytest.raises(our_dcp.CheckpointException, match="'steps' is none"):
        our_dcp.save({"w": flambeau.ones(2), "steps": [1]}, storage_writer=our_dcp.HuggingFaceStorageWriter(tmp_path), no_dist=True)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("damage", ["cut", "table", "place"])
def test_a_damaged_safetensors_file_is_refused(tmp_path: Path, damage: str) -> None:
    """A file that is cut off, whose table is no table, or whose table points outside of it is a RuntimeError that names it."""
    our_dcp.save({"w": flambeau.ones(8)}, storage_writer=our_dcp.HuggingFaceStorageWriter(tmp_path), no_dist=True)
    path = tmp_path / "model-00001-of-00001.safetensors"
    whole = path.read_bytes()
    spoilt = {"cut": whole[:-4], "table": whole[:8] + b"[" + whole[9:], "place": whole.replace(b"[0,32]", b"[4,36]")}[damage]
    path.write_bytes(spoilt)
    assert spoilt != whole
    with pytest.raises(our_dcp.CheckpointException, match="model-00001-of-00001"):
        our_dcp.load({"w": flambeau.zeros(8)}, storage_reader=our_dcp.HuggingFaceStorageReader(tmp_path), no_dist=True)


def test_the_old_order_of_arguments(tmp_path: Path) -> None:
    """save(state, writer) and load(state, reader) work, and warn; anything more is a TypeError."""
    for lib, dcp in ((flambeau, our_dcp), (torch, their_dcp)):
        with pytest.warns(UserWarning, match="argument order of save has been changed"):
            dcp.save({"w": lib.ones(2)}, dcp.FileSystemWriter(tmp_path / lib.__name__))
        found = {"w": lib.zeros(2)}
        with pytest.warns(UserWarning, match="argument order of load has been changed"):
            dcp.load(found, dcp.FileSystemReader(tmp_path / lib.__name__))
        assert found["w"].tolist() == [1.0, 1.0]
        with pytest.raises(TypeError):
            dcp.save({}, None, None)
