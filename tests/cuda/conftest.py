"""The GPU of these tests: a real one, or the stand-in of fake_cupy.py where there is none."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import flambeau
from flambeau.kernels import libraries

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    """The CUDA room, working; `gpu.real` says on what."""
    from flambeau.kernels import arrays

    if flambeau.cuda.is_available():
        room = arrays.cuda()
        room.real = True
        yield room
        return
    if shutil.which("g++") is None:
        pytest.skip("neither a GPU nor g++ to stand in for one")
    import fake_cupy

    with pytest.MonkeyPatch.context() as patch, fake_cupy.installed():
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("FLAMBEAU_CUDA_DRIVER", fake_cupy.fake_driver()._name)
        flambeau.cuda.choosing.installed.cache_clear()
        room = arrays.cuda()
        room.real = False
        yield room
    flambeau.cuda.choosing.installed.cache_clear()


@pytest.fixture
def own_kernels(gpu, monkeypatch):
    """What cuDNN would do is done by our own kernels."""
    monkeypatch.setattr(libraries, "enabled", False)


@pytest.fixture
def graphs(gpu, monkeypatch):
    """cuDNN, or the stand-in of fake_cudnn.py, exact in float32; the graphs that it has carried out."""
    if not gpu.real:
        import fake_cudnn

        monkeypatch.setitem(sys.modules, "cudnn", fake_cudnn)
    gpu.cudnn.package.cache_clear()
    if not gpu.cudnn.is_used():
        pytest.skip("cuDNN is not installed")
    monkeypatch.setattr(libraries, "convolutions_in_tf32", False)
    ran, run = [], gpu.cudnn.Graph.run
    monkeypatch.setattr(gpu.cudnn.Graph, "run", lambda graph, addresses: (ran.append(graph), run(graph, addresses))[1])
    yield ran
    attention, norm = gpu.attention.attention_graphs, gpu.norm_graphs
    gpu.convolution.convolution_graphs._ways.clear()
    attention._ways.clear()
    for kept in (gpu.cudnn.package, attention._forward, attention._backward, norm._forward, norm._backward):
        kept.cache_clear()
