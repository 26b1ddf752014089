"""Folders of images, CIFAR's pickles, and noise."""

from __future__ import annotations

import hashlib
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

import flambeau
from flambeau.vision import datasets, transforms

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def pictures(tmp_path):
    for i, name in enumerate(["dog/a.png", "dog/deep/b.JPG", "cat/c.png", "cat/notes.txt"]):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("txt"):
            path.write_text("no image")
        else:
            Image.new("L" if i == 2 else "RGB", (6, 4), 50 * i).save(path)
    return tmp_path


def test_a_folder_of_images_is_a_data_set(pictures):
    """Classes are the folders in order, samples all images below them in order, loaded in red, green and blue."""
    data = datasets.ImageFolder(pictures, transform=transforms.ToTensor())
    assert data.classes == ["cat", "dog"] and data.class_to_idx == {"cat": 0, "dog": 1}
    assert [(os.path.relpath(path, pictures), target) for path, target in data.samples] == [
        ("cat/c.png", 0),
        ("dog/a.png", 1),
        ("dog/deep/b.JPG", 1),
    ]
    assert data.imgs == data.samples and data.targets == [0, 1, 1] and len(data) == 3
    x, y = data[0]
    assert x.shape == (3, 4, 6) and y == 0 and x.unique().item() == np.float32(100) / np.float32(255)
    assert repr(data) == (
        f"Dataset ImageFolder\n    Number of datapoints: 3\n    Root location: {pictures}\n    StandardTransform\nTransform: ToTensor()"
    )


def test_what_counts_can_be_chosen(pictures):
    """Any loader with its extensions, or a function that chooses files."""
    data = datasets.DatasetFolder(pictures, lambda path: Path(path).read_text(), (".txt",), allow_empty=True)
    assert data[0] == ("no image", 0) and len(data) == 1
    data = datasets.ImageFolder(pictures, is_valid_file=lambda path: path.endswith("c.png") or "deep" in path, loader=str)
    assert [os.path.basename(path) for path, _ in data] == ["c.png", "b.JPG"]


def test_empty_and_missing_folders_are_named(pictures):
    """A class without images, a root without classes and contradictory rules are errors that say which."""
    (pictures / "bird").mkdir()
    with pytest.raises(FileNotFoundError, match=r"classes bird.*\.jpg"):
        datasets.ImageFolder(pictures)
    assert len(datasets.ImageFolder(pictures, allow_empty=True)) == 3
    with pytest.raises(FileNotFoundError, match="any class folder"):
        datasets.ImageFolder(pictures / "bird")
    with pytest.raises(FileNotFoundError):
        datasets.ImageFolder(pictures / "nowhere")
    with pytest.raises(ValueError, match="same time"):
        datasets.DatasetFolder(pictures, str)


class Cifar(datasets.CIFAR10):
    """CIFAR-10 with the checksums of a test's own files."""

    url = "http://127.0.0.1:9/none"


@pytest.fixture
def cifar(tmp_path, monkeypatch):
    """An archive with two training batches, one of them pickled as Python 2 did."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "made" / Cifar.base_folder
    folder.mkdir(parents=True)
    batches = {name: rng.integers(0, 256, (3, 3072), dtype=np.uint8) for name in ("data_batch_1", "data_batch_2", "test_batch")}
    for i, (name, data) in enumerate(batches.items()):
        (folder / name).write_bytes(pickle.dumps({"data": data, "labels": [i, 1, 2]}, protocol=2))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": ["plane", "car", "bird"]}))
    md5 = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    monkeypatch.setattr(Cifar, "train_list", [[name, md5[name]] for name in ("data_batch_1", "data_batch_2")])
    monkeypatch.setattr(Cifar, "test_list", [["test_batch", md5["test_batch"]]])
    monkeypatch.setattr(Cifar, "meta", {"filename": "batches.meta", "key": "label_names", "md5": md5["batches.meta"]})
    root = tmp_path / "root"
    root.mkdir()
    with tarfile.open(root / Cifar.filename, "w:gz") as archive:
        archive.add(folder, Cifar.base_folder)
    monkeypatch.setattr(Cifar, "tgz_md5", hashlib.md5((root / Cifar.filename).read_bytes()).hexdigest())
    return root, batches


def test_cifar_reads_its_batches(cifar):
    """An archive that is there is unpacked without the network; images are (32, 32, 3), channels in order."""
    root, batches = cifar
    data = Cifar(root, download=True, transform=transforms.ToTensor())
    assert data.data.shape == (6, 32, 32, 3) and data.targets == [0, 1, 2, 1, 1, 2] and data.classes == ["plane", "car", "bird"]
    x, y = data[4]
    assert y == 1 and np.array_equal(x.numpy().reshape(-1), batches["data_batch_2"][1].astype(np.float32) / np.float32(255))
    assert len(Cifar(root, train=False)) == 3


def test_cifar_notices_damaged_and_missing_files(cifar, monkeypatch):
    """A batch with another checksum is not loaded, and named; offline the archive and its place are named."""
    root, _ = cifar
    Cifar(root, download=True)
    damaged = root / Cifar.base_folder / "data_batch_2"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    with pytest.raises(RuntimeError, match="corrupted") as error:
        Cifar(root)
    assert str(damaged) in str(error.value) and "data_batch_1" not in str(error.value)
    (root / Cifar.filename).unlink()
    monkeypatch.setattr(datasets.utils, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(RuntimeError, match=rf"put {Cifar.filename} \(md5 {Cifar.tgz_md5}\) into {root}"):
        Cifar(root, download=True)


def test_a_pickle_that_would_run_code_is_refused(cifar, monkeypatch):
    """A data set is data: a batch that names a function of the system is not executed."""
    root, _ = cifar
    Cifar(root, download=True)
    evil = root / Cifar.base_folder / "test_batch"
    evil.write_bytes(b"cos\nsystem\n(S'echo boom'\ntR.")
    monkeypatch.setattr(Cifar, "test_list", [["test_batch", hashlib.md5(evil.read_bytes()).hexdigest()]])
    with pytest.raises(pickle.UnpicklingError, match="system"):
        Cifar(root, train=False)


def test_noise_is_the_same_at_each_call_and_draws_nothing():
    """Item i of FakeData is what PyTorch's generator gives for its seed, and the default generator is left alone."""
    flambeau.manual_seed(5)
    data = datasets.FakeData(3, (3, 8, 9), num_classes=4, random_offset=11)
    torch.manual_seed(1 + 11)
    pixels, target = torch.randn(3, 8, 9).mul(255).byte(), torch.randint(0, 4, (1,))
    img, found = data[1]
    assert np.array_equal(np.asarray(img), pixels.permute(1, 2, 0).numpy()) and found == target.item()
    torch.manual_seed(5)
    assert flambeau.rand(1).item() == torch.rand(1).item()
    with pytest.raises(IndexError):
        data[3]
    assert len(list(data)) == 3


def test_the_image_backend_is_pillow():
    """Programs ask which library loads images; there is one."""
    from flambeau import vision

    assert vision.get_image_backend() == "PIL"
    vision.set_image_backend("PIL")
    with pytest.raises(ValueError, match="accimage"):
        vision.set_image_backend("accimage")


def test_what_is_missing_says_what_there_is():
    """torchvision.tv_tensors and other data sets are not here: the error lists what is."""
    from flambeau import vision

    with pytest.raises(AttributeError, match=r"'tv_tensors'.*datasets"):
        _ = vision.tv_tensors
    with pytest.raises(AttributeError, match=r"'CelebA'.*ImageFolder"):
        _ = datasets.CelebA
    with pytest.raises(ImportError):
        from flambeau.vision.transforms import AutoAugment  # noqa: F401
