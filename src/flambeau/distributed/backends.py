"""Backend: what carries the tensors of a group, by name, and which backend serves which device.

"gloo" and "mpi" are both MPI here, "nccl" is NCCL through CuPy. A program may bring its own: `Backend.register_backend`.

>>> Backend("GLOO"), BackendConfig(Backend("gloo")), BackendConfig(Backend("cpu:gloo,cuda:nccl"))
('gloo', cpu:gloo,cuda:gloo, cpu:gloo,cuda:nccl)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple

from flambeau.distributed.groups.process_group import BackendKind

__all__ = [
    "Backend", "BackendConfig", "get_default_backend_for_device", "is_backend_available", "is_gloo_available", "is_mpi_available",
    "is_nccl_available", "is_ucc_available", "is_xccl_available",
]  # fmt: skip


class _Plugin(NamedTuple):
    """A backend that a program brought: how its groups are made, and whether from one options object or from (store, rank, size, timeout)."""

    creator_fn: Callable
    extended_api: bool


class Backend(str):
    """The name of a backend, in lower case: any string, known or not, so that names of several devices fit too."""

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    XCCL = "xccl"
    FAKE = "fake"

    _BackendPlugin = _Plugin
    _plugins: ClassVar[dict[str, _Plugin]] = {}
    backend_list: ClassVar[list[str]] = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE]
    default_device_backend_map: ClassVar[dict[str, str]] = {"cpu": GLOO, "cuda": NCCL, "xpu": XCCL, "mps": GLOO}
    backend_capability: ClassVar[dict[str, list[str]]] = {
        GLOO: ["cpu", "cuda"], NCCL: ["cuda"], XCCL: ["xpu"], UCC: ["cpu", "cuda"], MPI: ["cpu", "cuda"], FAKE: ["cpu", "cuda", "hpu", "xpu"],
    }  # fmt: skip
    backend_type_map: ClassVar[dict[str, BackendKind]] = {
        UNDEFINED: BackendKind.UNDEFINED, GLOO: BackendKind.GLOO, NCCL: BackendKind.NCCL, XCCL: BackendKind.XCCL,
        UCC: BackendKind.UCC, MPI: BackendKind.MPI, FAKE: BackendKind.CUSTOM,
    }  # fmt: skip

    def __new__(cls, name: str) -> str:  # type: ignore[misc]
        """The name in lower case, a plain str: what `dist.get_backend() == "gloo"` compares with."""
        if not isinstance(name, str):
            raise ValueError(
                f'Backend() takes the name of a backend, such as "gloo", or "cpu:gloo,cuda:nccl"; it must be a string, not {name!r}'
            )
        return getattr(Backend, name.upper(), "") or name.lower()

    @classmethod
    def register_backend(cls, name: str, func: Callable, extended_api: bool = False, devices: str | Sequence[str] | None = None) -> None:
        """Let `init_process_group(name)` and `new_group(backend=name)` make their groups with `func`.

        `func(store, rank, size, timeout)`, or with `extended_api` func(options, backend_options), returns a ProcessGroup: a subclass written in
        Python. `devices` are the types of devices whose tensors it takes.
        """
        lower, upper = name.lower(), name.upper()
        if not hasattr(cls, upper):
            setattr(cls, upper, lower)
        if lower not in cls.backend_list:
            cls.backend_list.append(lower)
        if devices is None:
            warnings.warn(
                f"Backend.register_backend({name!r}): no `devices` were given, so it is taken to serve cpu and cuda. Pass devices=[...] to say which",
                stacklevel=2,
            )
            cls.backend_capability[lower] = ["cpu", "cuda"]
        else:
            cls.backend_capability[lower] = [devices] if isinstance(devices, str) else list(devices)
            for device in cls.backend_capability[lower]:
                cls.default_device_backend_map.setdefault(device, lower)
        cls.backend_type_map.setdefault(lower, BackendKind.CUSTOM)
        cls._plugins[upper] = _Plugin(func, extended_api)


class BackendConfig:
    """Which backend serves which type of device, from any of the ways to say it: "gloo", "cpu:gloo,cuda:nccl", or nothing at all."""

    def __init__(self, backend: str):
        self.device_backend_map: dict[str, str] = {}
        if backend == Backend.UNDEFINED:
            self.device_backend_map = {device: Backend.default_device_backend_map[device] for device in _devices_here()}
        elif backend in Backend.backend_capability:
            self.device_backend_map = dict.fromkeys(Backend.backend_capability[backend], backend)
        elif ":" in backend:
            self.device_backend_map = _pairs(backend)
        else:
            warnings.warn(
                f"nobody has said which devices the backend {backend!r} serves: it is taken to serve cpu and cuda. Name them, as in cpu:{backend}",
                stacklevel=3,
            )
            self.device_backend_map = dict.fromkeys(("cpu", "cuda", "xpu"), backend)

    def get_device_backend_map(self) -> dict[str, str]:
        """{"cpu": "gloo", ...}"""
        return self.device_backend_map

    def __repr__(self) -> str:
        return ",".join(f"{device}:{backend}" for device, backend in self.device_backend_map.items())


def _pairs(text: str) -> dict[str, str]:
    """ "cpu:gloo,cuda:nccl" as a dict."""
    found: dict[str, str] = {}
    for pair in text.lower().split(","):
        device, colon, backend = pair.partition(":")
        if not colon or not device or not backend or ":" in backend:
            raise ValueError(f"backend={text!r}: {pair!r} is not a pair device:backend, as in cpu:gloo,cuda:nccl")
        if device in found:
            raise ValueError(f"backend={text!r} names two backends for {device}: {found[device]} and {backend}. One for each device")
        found[device] = backend
    return found


def _devices_here() -> list[str]:
    """The types of devices that a group without a named backend serves: the CPU, and the GPU where there is one."""
    from flambeau import cuda

    return ["cpu", "cuda"] if cuda.is_available() else ["cpu"]


def get_default_backend_for_device(device: Any) -> str:
    """The backend of a group that serves this device when nobody names one: gloo for the CPU, nccl for CUDA.

    >>> get_default_backend_for_device("cuda:1")
    'nccl'
    """
    from flambeau.devices import device as as_device

    kind = as_device(device).type
    if kind not in Backend.default_device_backend_map:
        known = ", ".join(Backend.default_device_backend_map)
        raise ValueError(
            f"no backend is the default for {kind} tensors, only for {known}: Backend.register_backend(..., devices={kind!r}) makes one"
        )
    return Backend.default_device_backend_map[kind]


@cache
def is_mpi_available() -> bool:
    """Whether groups of CPU tensors can start: mpi4py is installed."""
    return find_spec("mpi4py") is not None


def is_gloo_available() -> bool:
    """As is_mpi_available(): "gloo" is MPI here."""
    return is_mpi_available()


@cache
def is_nccl_available() -> bool:
    """Whether groups of CUDA tensors can start: CuPy is installed, and finds NCCL."""
    if find_spec("cupy") is None:
        return False
    try:
        from cupy.cuda import nccl
    except ImportError:
        return False
    return bool(nccl.available)


def is_ucc_available() -> bool:
    """No: there is no UCC backend."""
    return False


def is_xccl_available() -> bool:
    """No: there is no XCCL backend, which is for Intel's GPUs."""
    return False


def is_backend_available(backend: str) -> bool:
    """Whether a backend, or each one in "cpu:gloo,cuda:nccl", can be used on this machine.

    >>> is_backend_available("ucc")
    False
    """
    names = _pairs(backend).values() if ":" in backend else [backend.lower()]
    return all(_is_available(name) for name in names)


def _is_available(name: str) -> bool:
    known = {
        "gloo": is_gloo_available,
        "mpi": is_mpi_available,
        "nccl": is_nccl_available,
        "ucc": is_ucc_available,
        "xccl": is_xccl_available,
    }
    return known[name]() if name in known else name.upper() in Backend._plugins
