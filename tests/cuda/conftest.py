"""The GPU of these tests: a real one, or the stand-in of fake_cupy.py where there is none."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import flambeau

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
