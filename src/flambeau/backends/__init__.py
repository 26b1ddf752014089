"""torch.backends: which libraries are there, and the switches PyTorch has for them.

Programs set `torch.backends.cudnn.benchmark = True` and the like before they train. Those switches can be set and read here, with PyTorch's
defaults. What is said of `cudnn` and of `cuda.matmul` has effect on GPUs, the rest has none. What Flambeau computes with on the CPU instead of these libraries
is in `flambeau info`.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import Any

ROOMS = frozenset("cpu cuda cudnn cusparselt kleidiai mha miopen mkl mkldnn mps nnpack openmp opt_einsum quantized".split())


@contextmanager
def for_a_while(switches: dict[str, Any], values: dict[str, Any]):
    """Within it these switches have these values (None: as they are)."""
    changed = {name: value for name, value in values.items() if value is not None}
    before = {name: switches[name] for name in changed}
    switches.update(changed)
    try:
        yield
    finally:
        switches.update(before)


@contextmanager
def __allow_nonbracketed_mutation():
    """Within it switches can be set without a `with flags(...)`, as they always can here: PyTorch forbids it in its own tests."""
    yield


def __getattr__(name: str) -> Any:
    if name not in ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *ROOMS})
