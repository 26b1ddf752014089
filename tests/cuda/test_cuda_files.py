"""Checkpoints of tensors on a GPU: where they come back, and what PyTorch makes of them."""

from __future__ import annotations

import io

import pytest

import flambeau


def saved(gpu) -> io.BytesIO:
    base = flambeau.arange(12.0, device="cuda").reshape(3, 4)
    buffer = io.BytesIO()
    flambeau.save({"w": base, "t": base.t(), "cpu": flambeau.ones(2), "p": flambeau.nn.Parameter(flambeau.ones(2, device="cuda"))}, buffer)
    buffer.seek(0)
    return buffer


def test_tensors_come_back_to_their_gpu(gpu):
    """A tensor of a GPU comes back on the CPU, or its views as copies."""
    loaded = flambeau.load(saved(gpu))
    assert (str(loaded["w"].device), str(loaded["p"].device), str(loaded["cpu"].device)) == ("cuda:0", "cuda:0", "cpu")
    assert loaded["w"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert loaded["t"].data_ptr() == loaded["w"].data_ptr()
    assert loaded["p"].requires_grad


@pytest.mark.parametrize(
    "where", ["cpu", flambeau.device("cpu"), {"cuda:0": "cpu"}, lambda storage, place: storage], ids="str device dict function".split()
)
def test_or_to_the_cpu(gpu, where):
    """map_location does not bring tensors of a GPU to the CPU."""
    loaded = flambeau.load(saved(gpu), map_location=where)
    assert {str(value.device) for value in loaded.values()} == {"cpu"}
    assert loaded["t"].data_ptr() == loaded["w"].data_ptr()


def test_or_all_to_the_gpu(gpu):
    """map_location does not bring tensors of the CPU to a GPU, or a GPU that is not there is accepted."""
    for where in ("cuda", "cuda:0", flambeau.device("cuda"), lambda storage, place: storage.cuda()):
        assert str(flambeau.load(saved(gpu), map_location=where)["cpu"].device) == "cuda:0"
    with pytest.raises(RuntimeError, match=r"device_count\(\) is"):
        flambeau.load(saved(gpu), map_location="cuda:77")


def test_pytorch_reads_them_on_the_cpu(gpu):
    """PyTorch does not understand where our tensors were."""
    torch = pytest.importorskip("torch")
    loaded = torch.load(saved(gpu), map_location="cpu")
    assert loaded["w"].sum() == 66
    assert b"cuda:0" in saved(gpu).getvalue()


def test_the_older_format(gpu):
    """Tensors of a GPU in a file of the older format hold what was in memory before."""
    buffer = io.BytesIO()
    flambeau.save(flambeau.arange(5.0, device="cuda"), buffer, _use_new_zipfile_serialization=False)
    buffer.seek(0)
    loaded = flambeau.load(buffer)
    assert loaded.is_cuda
    assert loaded.tolist() == [0, 1, 2, 3, 4]
