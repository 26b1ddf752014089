"""torch._library.fake_profile: fake implementations made from calls that were seen: for these ranks, dtypes and devices, such results.

    profiles = {"shop.double.default": {OpProfile((TensorMetadata(2, torch.float32, torch.device("cpu"), torch.strided),), out)}}
    save_op_profiles(profiles, "profiles.yaml")
    with unsafe_generate_fake_kernels(load_op_profiles("profiles.yaml")): ...

What is not in a profile raises MissingOpProfile. Files are YAML, as PyTorch's, and need the package pyyaml.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from flambeau import devices, dtypes, layouts
from flambeau.factories import empty
from flambeau.library import kernels
from flambeau.library.fakes import FakeImpl, current
from flambeau.library.libraries import lookup
from flambeau.tensor import Tensor
from flambeau.version import __version__

__all__ = [
    "MissingOpProfile", "OpProfile", "TensorMetadata", "generate_yaml_from_profiles", "load_op_profiles", "read_profiles_from_yaml", "save_op_profiles",
    "unsafe_generate_fake_kernels",
]  # fmt: skip
VERSION = "0.1"  # of the files


class MissingOpProfile(RuntimeError):
    """A call was not among those seen."""


@dataclass(frozen=True)
class TensorMetadata:
    """What is kept of a tensor."""

    rank: int
    dtype: Any
    device: Any
    layout: Any

    @staticmethod
    def maybe_from_tensor(t: Any) -> TensorMetadata | None:
        """Of a tensor; None of anything else."""
        return TensorMetadata(t.dim(), t.dtype, t.device, t.layout) if isinstance(t, Tensor) else None


@dataclass(frozen=True)
class OpProfile:
    """What a call was given, and gave."""

    args_profile: tuple
    out_profile: Any


def _kernel(name: str, profiles: set[OpProfile]) -> Callable[..., Any]:
    def fake(*args: Any, **kwargs: Any) -> Any:
        asked = tuple([TensorMetadata.maybe_from_tensor(a) for a in (*args, *kwargs.values())])
        for profile in profiles:
            if _without_devices(profile.args_profile) == _without_devices(asked):
                out = profile.out_profile
                return tuple(map(_made, out)) if isinstance(out, tuple) else _made(out)
        known = ", ".join(map(str, profiles))
        raise MissingOpProfile(f"No fake kernel was found for {name}: no profile fits the arguments {asked}. There are: {known}")

    return fake


def _without_devices(given: tuple) -> tuple:
    """Metadata to be compared: fake implementations run on the meta device."""
    return tuple([None if m is None else (m.rank, m.dtype, m.layout) for m in given])


def _made(out: TensorMetadata) -> Tensor:
    context = current()
    return empty(tuple([context.new_dynamic_size() for _ in range(out.rank)]), dtype=out.dtype, device="meta")


@contextlib.contextmanager
def unsafe_generate_fake_kernels(op_profiles: dict[str, set[OpProfile]]) -> Iterator[None]:
    """Within it, these operators have fake implementations by their profiles."""
    before = []
    for name, profiles in op_profiles.items():
        namespace, short, *overload = name.split(".")
        found = lookup(f"{namespace}::{'.'.join([short, *[o for o in overload if o != 'default']])}")
        if found is None:
            continue
        entry = kernels.entry(found)
        before.append((entry, entry.fake))
        entry.fake = FakeImpl(found, _kernel(found.name(), profiles), "fake_profile")
    try:
        yield
    finally:
        for entry, fake in before:
            entry.fake = fake


# -- files ---------------------------------------------------------------------------------------------------------------------------------


def generate_yaml_from_profiles(op_profiles: dict[str, set[OpProfile]]) -> str:
    """The profiles as a text."""
    operators = {}
    for name, profiles in op_profiles.items():
        operators[name] = [
            {"args_profile": [_plain(a) for a in p.args_profile], "out_profile": _plain(p.out_profile)} for p in sorted(profiles, key=str)
        ]
    head = {"torch_version": _torch_version(), "format_version": VERSION, "operators": operators}
    return import_module("yaml").dump(head, sort_keys=False)


def _torch_version() -> str:
    return ".".join(str(__version__).split("+")[0].split(".")[:2])


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return None if value is None else {k: v if isinstance(v, int) else str(v).removeprefix("torch.") for k, v in asdict(value).items()}


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_read, value))
    if value is None:
        return None
    layout = getattr(layouts, value["layout"])
    return TensorMetadata(value["rank"], getattr(dtypes, value["dtype"]), devices.device(value["device"]), layout)


def read_profiles_from_yaml(yaml_str: str) -> dict[str, set[OpProfile]]:
    """The profiles of a text. RuntimeError if it is of another version."""
    read = import_module("yaml").safe_load(yaml_str)
    if str(read["torch_version"]) != _torch_version() or read["format_version"] != VERSION:
        raise RuntimeError(
            f"Unable to load outdated profile. It was saved with version {read['torch_version']} (format {read['format_version']}), this is {_torch_version()} "
            f"(format {VERSION}). Save it anew"
        )
    return {
        name: {OpProfile(tuple(map(_read, p["args_profile"])), _read(p["out_profile"])) for p in profiles}
        for name, profiles in read["operators"].items()
    }


def save_op_profiles(op_profiles: dict[str, set[OpProfile]], f: Any) -> None:
    """Write profiles to a file, by its name or as it is open."""
    text = generate_yaml_from_profiles(op_profiles)
    if isinstance(f, str | Path):
        Path(f).write_text(text)
    elif isinstance(f, io.BytesIO):
        f.write(text.encode("utf-8"))
    else:
        raise ValueError(f"save_op_profiles(profiles, f): f is a path or a BytesIO, found {type(f)}")


def load_op_profiles(f: Any) -> dict[str, set[OpProfile]]:
    """Read profiles from a file."""
    if isinstance(f, str | Path):
        return read_profiles_from_yaml(Path(f).read_text())
    if isinstance(f, io.BytesIO):
        return read_profiles_from_yaml(f.read().decode("utf-8"))
    raise ValueError(f"load_op_profiles(f): f is a path or a BytesIO, found {type(f)}")
