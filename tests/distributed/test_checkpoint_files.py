"""Files of `distributed.checkpoint` are PyTorch's, both ways."""

from __future__ import annotations

import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as their_dcp

import flambeau
import flambeau.distributed.checkpoint as our_dcp
from flambeau.distributed.checkpoint import metadata_file
from flambeau.distributed.checkpoint.default_planner import DefaultLoadPlanner
from flambeau.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled", "ignore:Detected an existing checkpoint")

DTYPES = "float64 float32 float16 bfloat16 float8_e4m3fn int64 int32 int16 int8 uint8 bool complex64".split()


def state(lib: Any) -> dict[str, Any]:
    """Something of everything that people save, made by either library."""
    numbers = lib.arange(12).reshape(3, 4) - 5
    model = {name: numbers.to(getattr(lib, name)) for name in DTYPES}
    model |= {
        "transposed": numbers.double().t(),
        "every_other": numbers.double()[:, ::2],
        "scalar": lib.tensor(2.5),
        "empty": lib.empty(0, 3),
        "parameter": lib.nn.Parameter(lib.ones(2, 2)),
    }
    return {
        "model": model,
        "optimizer": {
            "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0, 1]}],
            "state": {0: {"step": lib.tensor(3.0), "n": 3}},
        },
        "history": [lib.ones(2), {"loss": 0.5}],
        "step": 7,
        "name": "né",
        "pair": (1, lib.full((2,), 4.0)),
        "nothing": None,
    }


def blank(value: Any, lib: Any) -> Any:
    """The same state with nothing in it yet."""
    if isinstance(value, lib.Tensor):
        return lib.zeros_like(value)
    if isinstance(value, dict):
        return {key: blank(inside, lib) for key, inside in value.items()}
    if isinstance(value, list):
        return [blank(inside, lib) for inside in value]
    return "not loaded"


def plain(value: Any, lib: Any) -> Any:
    """The state as lists, with dtypes, that both libraries have alike."""
    if isinstance(value, lib.Tensor):
        value = value.detach()
        name = str(value.dtype).removeprefix("torch.")
        return name, tuple(value.shape), (value.float() if "float8" in name else value).tolist()
    if isinstance(value, dict):
        return {key: plain(inside, lib) for key, inside in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inside, lib) for inside in value]
    return value


WRITERS = [
    {},
    {"thread_count": 3},
    {"single_file_per_rank": False},
    {"single_file_per_rank": False, "thread_count": 2},
    {"sync_files": False},
]


@pytest.mark.parametrize("options", WRITERS, ids=str)
@pytest.mark.parametrize("direction", ["ours to theirs", "theirs to ours", "ours to ours"])
def test_checkpoints_are_interchangeable(tmp_path: Path, direction: str, options: dict[str, Any]) -> None:
    """What one library saves, the other loads: every dtype and layout, objects, nested names, for every way of sharing items out to files."""
    writer, reader = (("flambeau" if side == "ours" else "torch") for side in direction.split(" to "))
    libs = {"flambeau": (flambeau, our_dcp), "torch": (torch, their_dcp)}
    lib, dcp = libs[writer]
    dcp.save(state(lib), storage_writer=dcp.FileSystemWriter(tmp_path, **options), no_dist=True)
    expected = plain(state(lib), lib)
    lib, dcp = libs[reader]
    found = blank(state(lib), lib)
    dcp.load(found, checkpoint_id=tmp_path, no_dist=True)
    found = plain(found, lib)
    found["optimizer"]["state"][0]["n"] = expected["optimizer"]["state"][0]["n"]  # PyTorch puts it beside, under "0"
    found["optimizer"]["state"].pop("0", None)
    assert found == expected


def test_the_files_have_the_same_names_and_metadata(tmp_path: Path) -> None:
    """A first save leaves the files that PyTorch leaves, described by metadata with the same content."""
    described = []
    for lib, dcp in ((flambeau, our_dcp), (torch, their_dcp)):
        folder = tmp_path / lib.__name__
        dcp.save(state(lib), storage_writer=dcp.FileSystemWriter(folder, thread_count=2), no_dist=True)
        with open(folder / ".metadata", "rb") as file:
            found = pickle.load(file) if lib is torch else metadata_file.parse(file.read(), "file")
        # the order is that in which threads finished, and PyTorch's record of nothing, the last one of its file, is a little shorter
        places = sorted(repr(entry) for entry in found.storage_data.items() if entry[0].fqn != "model.empty")
        described.append((sorted(os.listdir(folder)), places, repr(found.state_dict_metadata), found.planner_data, found.version))
    assert described[0] == described[1]


def test_their_reader_sees_our_metadata(tmp_path: Path) -> None:
    """The bytes of our `.metadata` are, for PyTorch's own pickle, objects of PyTorch's classes."""
    our_dcp.save({"x": flambeau.ones(2, 3)}, checkpoint_id=tmp_path, no_dist=True)
    found = their_dcp.FileSystemReader(tmp_path).read_metadata()
    assert type(found) is their_dcp.Metadata
    (index,) = found.storage_data
    assert type(index).__module__ == "torch.distributed.checkpoint.metadata"
    assert found.state_dict_metadata["x"].properties.dtype is torch.float32
    names = {argument for code, argument, _ in pickletools.genops((tmp_path / ".metadata").read_bytes()) if isinstance(argument, str)}
    assert not [name for name in names if "flambeau" in name and "." in name and os.sep not in name]


@pytest.mark.parametrize("flatten", [True, False])
def test_nested_names_can_be_left_as_they_are(tmp_path: Path, flatten: bool) -> None:
    """With flatten_state_dict=False a nested entry is one object, in files of both libraries."""
    nested = {"a": {"x": flambeau.ones(2), "n": 1}, "b": flambeau.zeros(2)}
    our_dcp.save(nested, checkpoint_id=tmp_path, planner=our_dcp.DefaultSavePlanner(flatten_state_dict=flatten), no_dist=True)
    names = set(FileSystemReader(tmp_path).read_metadata().state_dict_metadata)
    assert names == ({"a.x", "a.n", "b"} if flatten else {"a", "b"})
    found: dict[str, Any] = {"a": {"x": torch.zeros(2), "n": 0}, "b": torch.ones(2)}
    their_dcp.load(
        found, checkpoint_id=tmp_path, planner=their_dcp.DefaultLoadPlanner(flatten, flatten_sharded_tensors=flatten), no_dist=True
    )
    assert plain(found, torch) == plain(nested, flambeau)


def test_a_value_lands_under_the_key_that_is_there(tmp_path: Path) -> None:
    """Optimizers number their parameters: an object inside is put back under the number, not beside it under its text."""
    our_dcp.save({"state": {0: {"n": 5}}}, checkpoint_id=tmp_path, no_dist=True)
    found = {"state": {0: {"n": 0}}}
    our_dcp.load(found, checkpoint_id=tmp_path, no_dist=True)
    assert found == {"state": {0: {"n": 5}}}


def test_loading_fills_the_memory_that_is_there(tmp_path: Path) -> None:
    """Tensors are filled in place, converted to their dtype, strides and all; gradients stay possible, meta tensors get memory."""
    our_dcp.save({"x": flambeau.arange(6.0).reshape(2, 3), "y": flambeau.ones(3)}, checkpoint_id=tmp_path, no_dist=True)
    base = flambeau.zeros(3, 4, dtype=flambeau.float64)
    parameter = flambeau.zeros(3, requires_grad=True)
    wanted = {"x": base[:, :2].t(), "y": parameter}
    our_dcp.load(wanted, checkpoint_id=tmp_path, no_dist=True)
    assert base.tolist() == [[0, 3, 0, 0], [1, 4, 0, 0], [2, 5, 0, 0]]
    assert wanted["y"] is parameter and parameter.requires_grad and parameter.tolist() == [1, 1, 1]
    meta = {"x": flambeau.empty(2, 3, device="meta")}
    our_dcp.load(meta, checkpoint_id=tmp_path, no_dist=True)
    assert meta["x"].device.type == "cpu" and meta["x"].tolist() == [[0, 1, 2], [3, 4, 5]]


class Counter:
    """Something with a state of its own."""

    def __init__(self, count: int = 0):
        self.count = count

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "tensor": flambeau.full((2,), float(self.count))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state["tensor"].tolist() == [state["count"]] * 2
        self.count = state["count"]


def test_stateful_objects_save_and_load_themselves(tmp_path: Path) -> None:
    """An entry with state_dict and load_state_dict is asked for its state and given it back; modules are such entries."""
    model = flambeau.nn.Linear(2, 2)
    our_dcp.save({"counter": Counter(3), "model": model}, checkpoint_id=tmp_path, no_dist=True)
    counter, other = Counter(), flambeau.nn.Linear(2, 2)
    our_dcp.load({"counter": counter, "model": other}, checkpoint_id=tmp_path, no_dist=True)
    assert counter.count == 3
    assert other.weight.tolist() == model.weight.tolist()


def failure(problem: BaseException) -> BaseException:
    """The one failure in a CheckpointException."""
    ((found, _),) = problem.failures.values()  # type: ignore[attr-defined]
    return found


def test_errors_teach(tmp_path: Path) -> None:
    """Missing names, other shapes and kinds are PyTorch's exceptions, with what there is and what to try."""
    our_dcp.save({"model": {"weight": flambeau.ones(3)}, "n": 1}, checkpoint_id=tmp_path, no_dist=True)

    def load(wanted: dict[str, Any], **options: Any) -> BaseException:
        with pytest.raises(our_dcp.CheckpointException) as raised:
            our_dcp.load(wanted, checkpoint_id=options.pop("place", tmp_path), no_dist=True, **options)
        return failure(raised.value)

    missing = load({"weight": flambeau.ones(3)})
    assert type(missing) is RuntimeError and str(missing).startswith("Missing key in checkpoint state_dict: weight.")
    assert "it has model.weight" in str(missing) and "allow_partial_load=True" in str(missing)
    shape = load({"model": {"weight": flambeau.ones(4)}})
    assert type(shape) is ValueError and "Size mismatch between saved torch.Size([3]) and current: torch.Size([4]) for model.weight" in str(
        shape
    )
    kind = load({"model": {"weight": 3}})
    assert type(kind) is ValueError and "Put a tensor there" in str(kind)
    absent = load({"n": 0}, place=tmp_path / "elsewhere")
    assert type(absent) is AssertionError and "no complete checkpoint" in str(absent)
    with pytest.raises(RuntimeError, match="`checkpoint_id` must be specified"):
        our_dcp.save({"n": 1}, no_dist=True)
    with pytest.raises(our_dcp.CheckpointException) as raised:
        our_dcp.save({"n": 1}, storage_writer=FileSystemWriter(tmp_path, overwrite=False), no_dist=True)
    assert "overwrite=False" in str(failure(raised.value))


def test_what_is_missing_can_be_left_alone(tmp_path: Path) -> None:
    """allow_partial_load loads what there is and leaves the rest."""
    our_dcp.save({"a": flambeau.ones(2)}, checkpoint_id=tmp_path, no_dist=True)
    found = {"a": flambeau.zeros(2), "b": flambeau.zeros(2), "n": 5}
    our_dcp.load(found, checkpoint_id=tmp_path, planner=DefaultLoadPlanner(allow_partial_load=True), no_dist=True)
    assert plain(found, flambeau) == plain({"a": flambeau.ones(2), "b": flambeau.zeros(2), "n": 5}, flambeau)


# -- files of strangers --------------------------------------------------------------------------------------------


class Runs:
    """A pickle of this runs a command."""

    def __reduce__(self) -> Any:
        return os.system, ("touch ran",)


@pytest.mark.parametrize("place", ["metadata", "planner_data", "item"])
def test_no_file_runs_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Pickles that call something are refused with its name, in the metadata and in the items alike."""
    monkeypatch.chdir(tmp_path)
    our_dcp.save({"n": 1}, checkpoint_id="c", no_dist=True)
    if place == "item":
        their_dcp.save({"n": Runs()}, checkpoint_id="c", no_dist=True)
    else:
        hostile: Any = Runs() if place == "metadata" else their_dcp.Metadata({}, planner_data={"n": Runs()})
        Path("c/.metadata").write_bytes(pickle.dumps(hostile))
    with pytest.raises(our_dcp.CheckpointException) as raised:
        our_dcp.load({"n": 0}, checkpoint_id="c", no_dist=True)
    assert "system" in str(failure(raised.value))
    assert not Path("ran").exists()


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "a/../../secret"])
def test_metadata_name_no_file_outside(tmp_path: Path, path: str) -> None:
    """A checkpoint is its folder: data elsewhere are not read."""
    our_dcp.save({"n": 1}, checkpoint_id=tmp_path, no_dist=True)
    found = FileSystemReader(tmp_path).read_metadata()
    for info in found.storage_data.values():
        info.relative_path = path
    (tmp_path / ".metadata").write_bytes(metadata_file.dump(found))
    with pytest.raises(our_dcp.CheckpointException) as raised:
        our_dcp.load({"n": 0}, checkpoint_id=tmp_path, no_dist=True)
    assert "outside" in str(failure(raised.value))


def test_damaged_metadata_are_refused(tmp_path: Path) -> None:
    """Whatever byte of `.metadata` is cut off or changed: it is read, or refused with a RuntimeError, and nothing else happens."""
    our_dcp.save(state(flambeau), checkpoint_id=tmp_path, no_dist=True)
    whole = (tmp_path / ".metadata").read_bytes()
    for at in range(0, len(whole), 7):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]):
            try:
                metadata_file.parse(damaged, "file")
            except RuntimeError as problem:
                assert "file" in str(problem)


def test_metadata_of_pytorch_before_2_3_are_read(tmp_path: Path) -> None:
    """Properties of tensors lived in another module then."""
    our_dcp.save({"x": flambeau.ones(2)}, checkpoint_id=tmp_path, no_dist=True)
    data = (tmp_path / ".metadata").read_bytes()
    found = metadata_file.MetadataInterpreter(data).run()
    old = "torch.distributed._shard.sharded_tensor.metadata"
    for name, kind in ((f"{old}.TensorProperties", type(found.state_dict_metadata["x"].properties)),):
        assert metadata_file._known()[name] is kind
