"""MNIST and its relatives: where files are looked for, what comes out of them, what happens without a network and without Pillow."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import shutil
import sys

import numpy as np
import pytest
from data_server import serving
from test_idx import idx_bytes

import flambeau
from flambeau.vision import datasets, transforms
from flambeau.vision.datasets import utils
from flambeau.vision.picture import Picture

Image = pytest.importorskip("PIL.Image")

FILES = {
    "train-images-idx3-ubyte": np.arange(20 * 28 * 28, dtype=np.uint64).astype(np.uint8).reshape(20, 28, 28),
    "train-labels-idx1-ubyte": (np.arange(20) % 10).astype(np.uint8),
    "t10k-images-idx3-ubyte": np.full((6, 28, 28), 3, np.uint8),
    "t10k-labels-idx1-ubyte": np.array([9, 8, 7, 6, 5, 4], np.uint8),
}
USUAL = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.2860,), (0.3530,))])


@pytest.fixture
def root(tmp_path):
    """A folder with a small Fashion-MNIST: the training part unpacked, the test part gzipped."""
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for name, array in FILES.items():
        packed = name.startswith("t10k")
        (raw / f"{name}{'.gz' if packed else ''}").write_bytes(gzip.compress(idx_bytes(array)) if packed else idx_bytes(array))
    return tmp_path


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(utils, "_fetch", refuse)


@pytest.fixture
def no_pillow(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "PIL"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "PIL", None)


def test_files_that_are_there_are_read_without_the_network(root, no_network):
    """download=True with the files in place, gzipped or not, must not ask the network."""
    train = datasets.FashionMNIST(root, train=True, download=True)
    test = datasets.FashionMNIST(str(root), train=False, download=True)
    assert train.data.dtype is flambeau.uint8 and train.targets.dtype is flambeau.int64
    assert np.array_equal(train.data.numpy(), FILES["train-images-idx3-ubyte"])
    assert train.targets.tolist() == [*range(10), *range(10)] and test.targets.tolist() == [9, 8, 7, 6, 5, 4]
    assert len(train) == 20 and len(test) == 6
    assert train.classes[9] == "Ankle boot" and train.class_to_idx["Bag"] == 8
    assert train.raw_folder == str(root / "FashionMNIST" / "raw")


def test_the_old_names_still_serve(root):
    """train_data and its like are data and targets, with a warning."""
    data = datasets.FashionMNIST(root)
    for old, new in (("train_data", "data"), ("test_data", "data"), ("train_labels", "targets"), ("test_labels", "targets")):
        with pytest.warns(UserWarning, match=f"{old} has been renamed {new}"):
            assert getattr(data, old) is getattr(data, new)


def test_an_item_is_an_image_and_a_label(root):
    """Without a transform an item is one of Pillow's images and an int; transforms are applied to both."""
    img, target = datasets.FashionMNIST(root)[3]
    assert isinstance(img, Image.Image) and img.mode == "L" and img.size == (28, 28) and target == 3 and type(target) is int
    assert np.array_equal(np.asarray(img), FILES["train-images-idx3-ubyte"][3])
    x, y = datasets.FashionMNIST(root, transform=USUAL, target_transform=lambda t: t + 100)[3]
    expected = (FILES["train-images-idx3-ubyte"][3][None].astype(np.float32) / np.float32(255) - np.float32(0.2860)) / np.float32(0.3530)
    assert x.shape == (1, 28, 28) and np.array_equal(x.numpy(), expected) and y == 103


def test_a_batch_is_the_same_as_its_items(root, monkeypatch):
    """What a loader gets for a list of indices has the bits, types and order of single items; random transforms are drawn one by one."""
    indices = [5, 0, 19, 5]
    for transform in (None, USUAL, transforms.ToTensor(), transforms.Compose([transforms.RandomCrop(20), transforms.ToTensor()])):
        data = datasets.FashionMNIST(root, transform=transform, target_transform=lambda t: -t)
        flambeau.manual_seed(1)
        together = data.__getitems__(indices)
        flambeau.manual_seed(1)
        for (x, y), (u, v) in zip(together, [data[i] for i in indices], strict=True):
            assert np.array_equal(np.asarray(x), np.asarray(u)) and type(x) is type(u) and (y, type(y)) == (v, type(v))

    class Doubled(datasets.FashionMNIST):
        def __getitem__(self, index):
            img, target = super().__getitem__(index)
            return img * 2, target

    plain, doubled = datasets.FashionMNIST(root, transform=USUAL), Doubled.__new__(Doubled)
    doubled.__dict__.update(plain.__dict__)
    assert flambeau.equal(doubled.__getitems__([1])[0][0], plain[1][0] * 2)


def test_the_repr_is_torchvisions(root):
    """Programs print their data sets: name, size, folder, part and transforms."""
    assert repr(datasets.FashionMNIST(root, train=False, transform=USUAL)) == (
        f"Dataset FashionMNIST\n    Number of datapoints: 6\n    Root location: {root}\n    Split: Test\n    StandardTransform\n"
        "Transform: Compose(\n               ToTensor()\n               Normalize(mean=(0.286,), std=(0.353,))\n           )"
    )


def test_a_data_set_can_be_pickled(root):
    """Workers that are spawned get their data set as a pickle."""
    again = pickle.loads(pickle.dumps(datasets.FashionMNIST(root, transform=USUAL)))
    assert flambeau.equal(again[4][0], datasets.FashionMNIST(root, transform=USUAL)[4][0])


def test_missing_files_are_named_with_their_place(tmp_path):
    """Without files and without download=True, the error says which files are wanted, and where."""
    with pytest.raises(RuntimeError, match="Dataset not found") as error:
        datasets.MNIST(tmp_path, train=False)
    for part in ("download=True", str(tmp_path / "MNIST" / "raw"), "t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"):
        assert part in str(error.value)


def test_files_that_do_not_belong_together_are_refused(root):
    """Fewer labels than images would train on wrong pairs."""
    raw = root / "FashionMNIST" / "raw"
    (raw / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(19, np.uint8)))
    with pytest.raises(ValueError, match="a label for each of 20 images"):
        datasets.FashionMNIST(root)
    shutil.copy(raw / "train-labels-idx1-ubyte", raw / "train-images-idx3-ubyte")
    with pytest.raises(ValueError, match="expected images"):
        datasets.FashionMNIST(root)


def served(answers, monkeypatch, arrays=FILES):
    """MNIST's files at the addresses of a class like it."""
    packed = {f"{name}.gz": gzip.compress(idx_bytes(array)) for name, array in arrays.items()}
    answers.bodies.update({f"/data/{name}": body for name, body in packed.items()})
    monkeypatch.setattr(utils, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(datasets.KMNIST, "mirrors", [f"{answers.url}/gone/", f"{answers.url}/data"])
    monkeypatch.setattr(datasets.KMNIST, "resources", [(name, hashlib.md5(packed[name]).hexdigest()) for name in packed])


def test_files_are_downloaded_once_checked_and_unpacked(tmp_path, monkeypatch):
    """download=True fetches all four files from the first mirror that has them, and torchvision finds them unpacked."""
    with serving() as answers:
        served(answers, monkeypatch)
        train = datasets.KMNIST(tmp_path, download=True)
        asked = len(answers.asked)
        datasets.KMNIST(tmp_path, train=False, download=True)
        assert len(answers.asked) == asked == 8
    assert np.array_equal(train.data.numpy(), FILES["train-images-idx3-ubyte"])
    assert {path.name for path in (tmp_path / "KMNIST" / "raw").iterdir()} == {*FILES, *(f"{name}.gz" for name in FILES)}


def test_offline_the_message_says_what_to_do(tmp_path, monkeypatch):
    """Without a network: which files, with which checksum, into which folder; and no half file in it."""
    with serving() as answers:
        served(answers, monkeypatch)
        address = answers.url
    with pytest.raises(RuntimeError, match=r"KMNIST: could not download train-images-idx3-ubyte\.gz") as error:
        datasets.KMNIST(tmp_path, download=True)
    message = str(error.value)
    for part in (address, "refused", str(tmp_path / "KMNIST" / "raw"), "train-labels-idx1-ubyte.gz    md5 ", "gzipped or not"):
        assert part in message
    assert message.count("    md5 ") == 4 and list((tmp_path / "KMNIST" / "raw").iterdir()) == []


def test_the_other_part_missing_is_a_warning(tmp_path, monkeypatch):
    """Training must not fail because the test files cannot be fetched."""
    with serving() as answers:
        served(answers, monkeypatch)
        answers.bodies = {path: body for path, body in answers.bodies.items() if "t10k" not in path}
        with pytest.warns(UserWarning, match="t10k"):
            assert len(datasets.KMNIST(tmp_path, download=True)) == 20


def test_emnist_reads_its_selections(tmp_path):
    """Each selection of EMNIST has its files and its classes."""
    raw = tmp_path / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    (raw / "emnist-letters-test-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(FILES["t10k-images-idx3-ubyte"])))
    (raw / "emnist-letters-test-labels-idx1-ubyte").write_bytes(idx_bytes(FILES["t10k-labels-idx1-ubyte"]))
    data = datasets.EMNIST(tmp_path, "letters", train=False, download=True)
    assert len(data) == 6 and len(data.classes) == 27 and data.class_to_idx["z"] == 26
    assert [len(datasets.EMNIST.classes_split_dict[split]) for split in datasets.EMNIST.splits] == [62, 47, 47, 27, 10, 10]
    with pytest.raises(ValueError, match="letters"):
        datasets.EMNIST(tmp_path, "words")


def test_everything_works_without_pillow(root, no_pillow):
    """The lab's transforms give the same tensors from a Picture, which knows its size, its mode and its numbers."""
    img, _ = datasets.FashionMNIST(root)[3]
    assert type(img) is Picture and img.size == (28, 28) and img.mode == "L" and repr(img) == "<Picture mode=L size=28x28>"
    assert np.array_equal(np.asarray(img), FILES["train-images-idx3-ubyte"][3])
    augmented = transforms.Compose(
        [
            transforms.RandomCrop(28, padding=2),
            transforms.RandomHorizontalFlip(),
            transforms.RandomRotation(5),
            transforms.Resize(14),
            USUAL,
        ]
    )
    x, _ = datasets.FashionMNIST(root, transform=augmented)[3]
    assert x.shape == (1, 14, 14) and x.dtype is flambeau.float32
    x, _ = datasets.FashionMNIST(root, transform=USUAL)[3]
    assert flambeau.equal(x, datasets.FashionMNIST(root, transform=USUAL).__getitems__([3])[0][0])
    assert transforms.functional.crop(img, 0, 1, 5, 4).size == (4, 5)
    with pytest.raises(ImportError, match=r"pip install 'flambeau\[vision\]'"):
        flambeau.vision.utils.save_image(x, "nowhere.png")
    with pytest.raises(ImportError, match=r"reading .*a\.png needs Pillow"):
        (root / "a.png").write_bytes(b"")
        datasets.folder.default_loader(root / "a.png")
