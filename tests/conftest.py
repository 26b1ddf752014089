"""What all tests share: the device they run on, and the cores they are spread over.

    pytest                      runs everything, on all cores; `pytest -n 0` on one
    pytest --device cuda        runs tests that take the fixture `device` on a GPU; without one they are skipped

Tests in tests/cuda run on a GPU where there is one, and otherwise on a stand-in made of NumPy (see tests/cuda/fake_cupy.py).
"""

from __future__ import annotations

import importlib.metadata
import os

import pytest
from older_pytorch import CRASHES, changed


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", choices=("cpu", "cuda"), help="where tests that take `device` put their tensors")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Spread whole folders of tests over the cores, a file at a time, unless the command says otherwise or there is a GPU to share."""
    asked = config.getoption("numprocesses", 0)  # 0 without pytest-xdist
    at_once = config.getoption("usepdb") or config.getoption("--device") == "cuda" or not all(os.path.isdir(path) for path in config.args)
    if asked is None and not at_once and "PYTEST_XDIST_WORKER" not in os.environ:
        from flambeau import get_num_threads

        config.option.numprocesses, config.option.dist = min(get_num_threads(), 8), "loadfile"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs a real GPU, and is skipped without one")
    if config.getoption("--device") == "cuda":
        os.environ.setdefault("CUDA_LAUNCH_BLOCKING", "1")  # errors come from the line that a test expects them from
        os.environ.setdefault("NVIDIA_TF32_OVERRIDE", "0")  # libraries would shorten float32, and the oracle does not


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = [item for item in items if item.get_closest_marker("gpu")]
    if wanted and not has_gpu():
        for item in wanted:
            item.add_marker(pytest.mark.skip(reason="there is no GPU"))
    if oracle_is_older():
        reasons = changed()
        for item in items:
            reason = reasons.get((item.path.stem, getattr(item, "originalname", item.name)))
            if reason is not None:
                words = f"PyTorch 2.13 differs from the one installed: {reason}"
                item.add_marker(pytest.mark.xfail(reason=words, strict=False, run=reason != CRASHES))


def oracle_is_older() -> bool:
    """Whether the PyTorch that is installed is older than the one we follow."""
    try:
        major, minor, *_ = importlib.metadata.version("torch").split(".")
    except importlib.metadata.PackageNotFoundError:
        return False
    return (int(major), int(minor)) < (2, 13)


def has_gpu() -> bool:
    """Whether Flambeau finds a GPU."""
    import flambeau

    return flambeau.cuda.is_available()


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    """The device the tests were asked to run on."""
    chosen = request.config.getoption("--device")
    if chosen == "cuda" and not has_gpu():
        pytest.skip("there is no GPU")
    return chosen
