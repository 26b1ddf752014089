"""What Flambeau saves PyTorch loads, and the reverse: with weights_only and without, in the zip format and in the older one."""

from __future__ import annotations

import copy
import io
import os
import pathlib
import pickle
import subprocess
import sys
import zipfile

import pytest
from exchange import assert_same, containers, of_every_dtype, same_storage, torch, views

import flambeau

MAKERS = [of_every_dtype, views, containers]
SAFE = pytest.mark.parametrize("safe", [True, False], ids=["weights_only", "anything"])


@SAFE
@pytest.mark.parametrize("make", MAKERS)
def test_pytorch_loads_what_flambeau_saved(make, safe, tmp_path):
    """A checkpoint of ours reads differently in PyTorch."""
    ours = make(flambeau)
    flambeau.save(ours, tmp_path / "x.pt")
    assert_same(ours, torch.load(tmp_path / "x.pt", weights_only=safe))


@SAFE
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_flambeau_loads_what_pytorch_saved(make, safe, zipped, tmp_path):
    """A checkpoint of PyTorch reads differently here."""
    theirs = make(torch)
    if not zipped and make is of_every_dtype:  # PyTorch's own older writer does not know these
        theirs = {name: value for name, value in theirs.items() if name not in ("uint16", "uint32", "uint64")}
    torch.save(theirs, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    assert_same(flambeau.load(tmp_path / "x.pt", weights_only=safe), theirs)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_pickle_protocol(make, protocol):
    """An object changes on the way through a file; also with the newer pickle protocols, which PyTorch's safe loader refuses."""
    buffer = io.BytesIO()
    flambeau.save([make(flambeau), b""], buffer, pickle_protocol=protocol)
    for safe in (True, False):
        buffer.seek(0)
        assert_same(flambeau.load(buffer, weights_only=safe), [make(torch), b""])


@pytest.mark.parametrize("make", MAKERS)
def test_the_older_format_is_written_as_pytorch_reads_it(make, tmp_path):
    """torch.save(..., _use_new_zipfile_serialization=False)"""
    ours = make(flambeau)
    if make is of_every_dtype:
        ours = {name: value for name, value in ours.items() if name not in ("uint16", "uint32", "uint64")}
    flambeau.save(ours, tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    assert_same(ours, torch.load(tmp_path / "x.pt"))
    assert_same(flambeau.load(tmp_path / "x.pt"), torch.load(tmp_path / "x.pt"))


def test_shared_storages_stay_shared_and_are_written_once(tmp_path):
    """Views of one storage come back as copies, or fill the file with copies."""
    flambeau.save(views(flambeau), tmp_path / "x.pt")
    loaded = flambeau.load(tmp_path / "x.pt")
    assert same_storage(loaded)
    loaded[0][0, 0] = 100.0
    assert loaded[1][0, 0] == 100.0
    with zipfile.ZipFile(tmp_path / "x.pt") as archive:
        assert sum(name.startswith("x/data/") for name in archive.namelist()) == 1


def test_the_records_are_pytorchs(tmp_path):
    """The archive has other records than PyTorch's, in another order, or with other small contents."""
    flambeau.save({"a": flambeau.ones(3)}, tmp_path / "model.v1.pt")
    torch.save({"a": torch.ones(3)}, tmp_path / "model.v1.pth")
    with zipfile.ZipFile(tmp_path / "model.v1.pt") as ours, zipfile.ZipFile(tmp_path / "model.v1.pth") as theirs:
        compare_archives(ours, theirs)


def compare_archives(ours, theirs):
    assert ours.namelist() == theirs.namelist()
    for name in theirs.namelist():
        if not name.endswith("serialization_id"):
            assert ours.read(name) == theirs.read(name), name
    assert len(ours.read("model.v1/.data/serialization_id")) == 40
    assert ours.testzip() is None


def test_the_same_content_gives_the_same_bytes():
    """Saving twice gives two different files."""
    first, second = io.BytesIO(), io.BytesIO()
    for buffer in (first, second):
        flambeau.save(containers(flambeau), buffer)
    assert first.getvalue() == second.getvalue()


def test_tensors_with_attributes_and_of_subclasses(tmp_path):
    """What a user attached to a tensor or a Parameter is lost, or PyTorch cannot read it."""
    tensor, parameter = flambeau.ones(2), flambeau.nn.Parameter(flambeau.ones(3))
    tensor.tag, parameter.group = "a tag", {"lr": 0.1}
    flambeau.save([tensor, parameter, flambeau.nn.Buffer(flambeau.ones(1))], tmp_path / "x.pt")
    for found in (flambeau.load(tmp_path / "x.pt"), torch.load(tmp_path / "x.pt")):
        assert (found[0].tag, found[1].group, found[2].persistent) == ("a tag", {"lr": 0.1}, True)
    theirs = torch.ones(2)
    theirs.tag = [1, 2]
    torch.save(theirs, tmp_path / "y.pt")
    assert flambeau.load(tmp_path / "y.pt").tag == [1, 2]


class Marked(flambeau.Tensor):
    pass


class Slotted(flambeau.Tensor):
    __slots__ = ("other",)


def test_slots_of_a_class_of_tensors(tmp_path):
    """What a subclass of Tensor keeps in slots is lost in files and copies."""
    x = flambeau.ones(2).as_subclass(Slotted)
    x.other, x.note = flambeau.arange(3), "here"
    flambeau.save(x, tmp_path / "x.pt")
    with flambeau.serialization.safe_globals([Slotted]):
        found = [copy.deepcopy(x), pickle.loads(pickle.dumps(x)), flambeau.load(tmp_path / "x.pt")]
    assert [(type(y), y.other.tolist(), y.note) for y in found] == [(Slotted, [0, 1, 2], "here")] * 3


def test_a_class_of_tensors_needs_to_be_allowed(tmp_path):
    """A subclass of Tensor is refused although it was allowed, or accepted although it was not."""
    flambeau.save(flambeau.ones(2).as_subclass(Marked), tmp_path / "x.pt")
    with pytest.raises(pickle.UnpicklingError, match="Marked"):
        flambeau.load(tmp_path / "x.pt")
    assert type(flambeau.load(tmp_path / "x.pt", weights_only=False)) is Marked
    with flambeau.serialization.safe_globals([Marked]):
        assert type(flambeau.load(tmp_path / "x.pt")) is Marked


def test_meta_tensors_and_conjugated_ones(tmp_path):
    """Tensors without data, or that PyTorch keeps as a promise (x.conj()), read differently."""
    z, w = torch.tensor([1 + 2j, 3 - 1j]), torch.tensor([1 + 2j, 3 - 1j])
    theirs = [torch.ones(2, 3, device="meta"), z.conj(), w.conj().imag]
    for zipped in (True, False):
        torch.save(theirs[1 - zipped :], tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
        loaded = flambeau.load(tmp_path / "x.pt")
        assert loaded[-2].tolist() == theirs[1].tolist()
        assert loaded[-1].tolist() == theirs[2].tolist()
    flambeau.save(flambeau.ones(2, 3, device="meta"), tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt").is_meta
    assert flambeau.load(tmp_path / "x.pt").is_meta


def network(lib):
    lib.manual_seed(0)
    layers = [lib.nn.Conv2d(1, 4, 3), lib.nn.BatchNorm2d(4), lib.nn.ReLU(), lib.nn.Flatten(), lib.nn.Linear(4 * 36, 10)]
    return lib.nn.Sequential(*layers)


def test_whole_modules_travel_both_ways(tmp_path):
    """torch.save(model) and torch.load(weights_only=False) between the frameworks give another model."""
    x = torch.randn(2, 1, 8, 8)
    theirs = network(torch).eval()
    expected = theirs(x)
    torch.save(theirs, tmp_path / "theirs.pt")
    ours = flambeau.load(tmp_path / "theirs.pt", weights_only=False)
    assert type(ours[0]) is flambeau.nn.Conv2d
    result = ours(flambeau.from_numpy(x.numpy()))
    assert abs(result.detach().numpy() - expected.detach().numpy()).max() < 1e-5
    flambeau.save(ours, tmp_path / "ours.pt")
    back = torch.load(tmp_path / "ours.pt", weights_only=False)
    assert type(back[0]) is torch.nn.Conv2d
    for (name, a), (other, b) in zip(theirs.state_dict().items(), back.state_dict().items(), strict=True):
        assert name == other
        assert torch.equal(a, b)


def test_several_objects_in_one_file_of_the_older_format(tmp_path):
    """After loading an object, the file does not stand where the next one begins."""
    with open(tmp_path / "x.pt", "w+b") as file:
        for i in range(3):
            torch.save(torch.full((i,), float(i)), file, _use_new_zipfile_serialization=False)
        torch.save(network(torch), file, _use_new_zipfile_serialization=False)
        for buffer in (file, io.BytesIO((tmp_path / "x.pt").read_bytes())):
            buffer.seek(0)
            assert [flambeau.load(buffer).tolist() for _ in range(3)] == [[], [1], [2, 2]]
            assert type(flambeau.load(buffer, weights_only=False)[4]) is flambeau.nn.Linear


@pytest.mark.parametrize(
    "make",
    [
        lambda nn: nn.TransformerEncoderLayer(8, 2, 16),
        lambda nn: nn.MultiheadAttention(8, 2),
        lambda nn: nn.LSTM(4, 5, 2, bidirectional=True),
        lambda nn: nn.ModuleDict({"a": nn.Embedding(5, 3), "b": nn.ParameterList([nn.Parameter(nn.Linear(2, 2).weight)])}),
        lambda nn: nn.Sequential(nn.Dropout(), nn.GELU(), nn.LayerNorm(4), nn.CrossEntropyLoss(), nn.Upsample(scale_factor=2)),
    ],
    ids="transformer attention lstm containers rest".split(),
)
def test_modules_of_many_kinds(make, tmp_path):
    """A module saved whole by one framework cannot be read by the other."""
    flambeau.save(make(flambeau.nn), tmp_path / "ours.pt")
    assert repr(torch.load(tmp_path / "ours.pt", weights_only=False)) == repr(make(torch.nn))
    torch.save(make(torch.nn), tmp_path / "theirs.pt")
    assert repr(flambeau.load(tmp_path / "theirs.pt", weights_only=False)) == repr(make(flambeau.nn))


def trained(lib):
    model = network(lib)
    optimizer = lib.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = lib.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for _ in range(2):
        optimizer.zero_grad()
        model(lib.ones(2, 1, 8, 8)).sum().backward()
        optimizer.step()
        scheduler.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "rng": lib.get_rng_state(),
    }


@pytest.mark.parametrize("one, other", [(flambeau, torch), (torch, flambeau)], ids=["ours to theirs", "theirs to ours"])
def test_a_training_run_continues_in_the_other_framework(one, other, tmp_path):
    """Model, optimizer, scheduler or random state of a checkpoint mean something else in the other framework."""
    saved = trained(one)
    one.save(saved, tmp_path / "x.pt")
    loaded = other.load(tmp_path / "x.pt")
    assert loaded["optimizer"]["param_groups"][0]["lr"] == pytest.approx(saved["optimizer"]["param_groups"][0]["lr"], rel=1e-9)
    assert list(loaded["model"]) == list(saved["model"])
    assert loaded["model"]._metadata == saved["model"]._metadata
    fresh = network(other)
    fresh.load_state_dict(loaded["model"])
    optimizer = other.optim.AdamW(fresh.parameters())
    optimizer.load_state_dict(loaded["optimizer"])
    other.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10).load_state_dict(loaded["scheduler"])
    other.set_rng_state(loaded["rng"])
    one.set_rng_state(saved["rng"])
    assert other.rand(3).tolist() == one.rand(3).tolist()


def test_generators_functions_and_optimizers_whole(tmp_path):
    """An object that is pickled by name or with its state is not found in the other framework."""
    ours = [flambeau.Generator().manual_seed(7), flambeau.nn.functional.relu, flambeau.nn.ReLU, flambeau.Tensor]
    flambeau.save(ours, tmp_path / "x.pt")
    theirs = torch.load(tmp_path / "x.pt", weights_only=False)
    assert theirs[1:] == [torch.nn.functional.relu, torch.nn.ReLU, torch.Tensor]
    assert torch.rand(2, generator=theirs[0]).tolist() == flambeau.rand(2, generator=ours[0]).tolist()
    torch.save([*theirs, torch.relu, torch.sum], tmp_path / "y.pt")
    back = flambeau.load(tmp_path / "y.pt", weights_only=False)
    assert back[1:4] == ours[1:]
    assert back[4:] == [flambeau.relu, flambeau.sum]
    assert flambeau.rand(2, generator=back[0]).tolist() == torch.rand(2, generator=theirs[0]).tolist()
    model = flambeau.nn.Linear(2, 2)
    flambeau.save(flambeau.optim.SGD(model.parameters(), lr=0.5), tmp_path / "z.pt")
    assert torch.load(tmp_path / "z.pt", weights_only=False).param_groups[0]["lr"] == 0.5


def test_deep_nesting(tmp_path):
    """Containers as deep as PyTorch saves them are too deep for us."""
    deep = []
    for _ in range(300):
        deep = [{"inside": deep}]
    flambeau.save(deep, tmp_path / "x.pt")
    assert flambeau.load(tmp_path / "x.pt") == torch.load(tmp_path / "x.pt") == deep


def test_memory_as_two_types_is_refused(tmp_path):
    """PyTorch's format has one type per storage: saving one memory as two would come back wrong."""
    x = flambeau.ones(4)
    with pytest.raises(RuntimeError, match="different types"):
        flambeau.save([x, x.view(flambeau.int32)], tmp_path / "x.pt")
    assert not list(tmp_path.iterdir())


class Trickle(io.RawIOBase):
    """A file object that takes and gives a few bytes at a time."""

    def __init__(self):
        self.inner = io.BytesIO()

    def write(self, data):
        return self.inner.write(bytes(data)[:1000])

    def readinto(self, memory):
        return self.inner.readinto(memoryview(memory)[:1000])

    def seek(self, *where):
        return self.inner.seek(*where)

    def tell(self):
        return self.inner.tell()


class OnlyRead:
    """Nothing but read, seek and tell."""

    def __init__(self, data):
        self.inner = io.BytesIO(data)
        self.read, self.seek, self.tell = self.inner.read, self.inner.seek, self.inner.tell


class OnlyWrite:
    """Nothing but write, of bytes."""

    def __init__(self):
        self.parts = []

    def write(self, data):
        assert type(data) is bytes
        self.parts.append(data)


def test_file_objects_of_all_kinds(tmp_path):
    """A file object that PyTorch takes is refused, or its parts are lost."""
    ours = {"w": flambeau.arange(5000.0)}
    writer, trickle = OnlyWrite(), Trickle()
    for file in (writer, trickle):
        flambeau.save(ours, file)
    assert b"".join(writer.parts) == trickle.inner.getvalue()
    trickle.seek(0)
    plain = tmp_path / "x.pt"
    plain.write_bytes(trickle.inner.getvalue())
    with open(plain, "rb") as opened, open(plain, "rb", buffering=0) as unbuffered:
        for file in (trickle, OnlyRead(plain.read_bytes()), opened, unbuffered, str(plain), pathlib.Path(plain)):
            assert_same(flambeau.load(file), {"w": torch.arange(5000.0)})


def test_an_archive_in_the_middle_of_a_stream():
    """An archive that does not begin where the stream begins is read from the wrong place."""
    stream = io.BytesIO(b"12345678")
    stream.seek(8)
    flambeau.save(flambeau.ones(3), stream)
    stream.seek(8)
    assert flambeau.load(stream).tolist() == [1, 1, 1]
    stream.seek(8)
    assert torch.load(stream).tolist() == [1, 1, 1]


def test_files_that_are_not_there_or_not_files(tmp_path):
    """An error has another type than PyTorch's."""
    for lib in (flambeau, torch):
        with pytest.raises(FileNotFoundError):
            lib.load(tmp_path / "missing.pt")
        with pytest.raises(RuntimeError, match="Parent directory"):
            lib.save(1, tmp_path / "missing" / "x.pt")
        with pytest.raises(AttributeError, match="write"):
            lib.save(1, 3)
        with pytest.raises(AttributeError, match="seek"):
            lib.load(3)
        with pytest.raises(RuntimeError, match="pickle_module"):
            lib.load(io.BytesIO(b"1234"), pickle_module=pickle, weights_only=True)
        with pytest.raises(EOFError):
            lib.load(io.BytesIO())


def test_every_class_has_the_name_pytorch_gives_it():
    """A public class is written under a name that PyTorch does not know, or read from one we do not know."""
    from flambeau.serialization import names

    wrong = []
    for room in ("nn", "optim", "optim.lr_scheduler", "optim.swa_utils", "nn.utils.parametrizations"):
        ours, theirs = (
            names._in(room, "__name__") and __import__(f"flambeau.{room}", fromlist=["_"]),
            __import__(f"torch.{room}", fromlist=["_"]),
        )
        for name in dir(ours):
            kind, original = getattr(ours, name), getattr(theirs, name, None)
            if isinstance(kind, type) and isinstance(original, type) and original.__module__.startswith("torch"):
                module = names.name_in_files(kind.__module__, kind.__qualname__)
                if getattr(__import__(module, fromlist=["_"]), kind.__qualname__, None) is not original:
                    wrong.append(f"{room}.{name} is written as {module}")
                if names.find(original.__module__, original.__qualname__) is not kind:
                    wrong.append(f"{original.__module__}.{name} is not found")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:Sparse invariant checks")
def test_sparse_tensors_in_the_old_format(tmp_path, weights_only):
    """The indices of a sparse tensor are checked before their bytes are read: the file cannot be loaded, or bad indices come in."""
    for saver in (torch, flambeau):
        coo = saver.sparse_coo_tensor(saver.tensor([[0, 1], [1, 0]]), saver.tensor([1.0, 2.0]), (2, 2), check_invariants=True)
        saver.save([coo, saver.eye(3).to_sparse_csr()], tmp_path / "x.pt", _use_new_zipfile_serialization=False)
        coo, csr = flambeau.load(tmp_path / "x.pt", weights_only=weights_only)
        assert coo.to_dense().tolist() == [[0, 1], [2, 0]] and csr.to_dense().tolist() == flambeau.eye(3).tolist()
    bad = torch.sparse_coo_tensor(torch.tensor([[0, 7], [1, 0]]), torch.ones(2), (2, 2), check_invariants=False)
    torch.save(bad, tmp_path / "bad.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="inconsistent with indices"):
        flambeau.load(tmp_path / "bad.pt", weights_only=weights_only)


def test_a_plain_pickle_of_pytorchs_reads_under_the_alias(tmp_path):
    """pickle.dump of tensors, parameters and modules, as caches on disk are written, is not understood where torch means Flambeau."""
    known = {name: value for name, value in of_every_dtype(torch).items() if name not in ("uint16", "uint32", "uint64")}
    theirs = [
        known,
        views(torch),
        torch.nn.Linear(2, 3),
        torch.nn.Parameter(torch.ones(2)),
        torch.eye(3).to_sparse(),
        torch.ones(2, device="meta"),
    ]
    theirs[3].note = "kept"
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(theirs))
    program = """
import pickle, torch
known, views, layer, parameter, sparse, meta = pickle.load(open("x.pkl", "rb"))
assert isinstance(parameter, torch.nn.Parameter) and parameter.note == "kept" and meta.device.type == "meta"
torch.save([known, views, layer.state_dict(), parameter.detach(), sparse.to_dense()], "x.pt")
"""
    (tmp_path / "reads.py").write_text(program)
    sources = os.environ | {"PYTHONPATH": str(pathlib.Path(flambeau.__file__).parents[1])}
    run = [sys.executable, "-m", "flambeau", "run", "reads.py"]
    done = subprocess.run(run, cwd=tmp_path, env=sources, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = [known, theirs[1], theirs[2].state_dict(), theirs[3].detach(), theirs[4].to_dense()]
    assert_same(flambeau.load(tmp_path / "x.pt"), expected)
