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
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from flambeau import devices, dtypes
from flambeau.library import kernels
from flambeau.library.fakes import FakeImpl, current
from flambeau.library.libraries import lookup
from flambeau.tensor import Tensor, layouts
from flambeau.tensor.making.factories import empty
from flambeau.version import torch_version

__all__ = [
    "MissingOpProfile", "OpProfile", "TensorMetadata", "generate_yaml_from_profiles", "load_op_profiles", "read_profiles_from_yaml", "save_op_profiles",
    "unsafe_generate_fake_kernels",
]  # fmt: skip
# The numbers by which the files name dtypes and layouts.
DTYPES = dict(enumerate("uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool bfloat16".split(), 1))
DTYPES |= {
    28: "uint16",
    **dict(enumerate("float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu uint32 uint64".split(), 29)),
}
LAYOUTS = {**dict(enumerate("sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc".split(), 1)), 7: "strided"}


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


def _without_devices(given: tuple) -> list:
    """Metadata to be compared: fake implementations run on the meta device."""
    return [(m.rank, m.dtype, m.layout) for m in given if m is not None]


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
    operators = {
        name: [
            {"args_profile": [_plain(a) for a in p.args_profile if a is not None], "out_profile": _plain(p.out_profile)}
            for p in sorted(profiles, key=str)
        ]
        for name, profiles in op_profiles.items()
    }
    return import_module("yaml").dump({"torch_version": _torch_version(), "operators": operators}, sort_keys=False)


def _torch_version() -> str:
    return ".".join(torch_version.split(".")[:2])


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return {
        "rank": value.rank,
        "dtype": _number(DTYPES, value.dtype.name),
        "device": str(value.device),
        "layout": _number(LAYOUTS, value.layout.name),
    }


def _number(names: dict[int, str], name: str) -> int:
    return next(number for number, known in names.items() if known == name)


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_read, value))
    dtype, layout = getattr(dtypes, DTYPES[value["dtype"]]), getattr(layouts, LAYOUTS[value["layout"]])
    return TensorMetadata(value["rank"], dtype, devices.device(value["device"]), layout)


def read_profiles_from_yaml(yaml_str: str) -> dict[str, set[OpProfile]]:
    """The profiles of a text. RuntimeError if it is of another version."""
    read = import_module("yaml").safe_load(yaml_str)
    if str(read["torch_version"]) != _torch_version():
        raise RuntimeError(
            f"Unable to load outdated profile. It was saved with torch version: {read['torch_version']}, and this is {_torch_version()}. Save it anew"
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
