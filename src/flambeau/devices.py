"""Where a tensor lives: `cpu`, `cuda[:n]` or `meta` (shapes without data). Other devices of PyTorch's can be named, and hold no tensors."""

from __future__ import annotations

import threading

from flambeau import changes

HERE = frozenset({"cpu", "cuda", "meta"})
KNOWN = (
    "cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla", "lazy", "vulkan", "mps", "meta",
    "hpu", "mtia", "privateuseone",
)  # fmt: skip


class device:
    """A device by type and index: `device("cuda:1")`, `device("cuda", 1)`, `device("cpu")`.

    As a context manager it sets the device on which factories create tensors.

    >>> device("cuda", 1)
    device(type='cuda', index=1)
    """

    __slots__ = ("_hash", "index", "type")

    def __new__(cls, type: str | int | device, index: int | None = None):
        if isinstance(type, device):
            return type
        if isinstance(type, int) and not isinstance(type, bool):
            index, type = type, "cuda"  # a bare number is an accelerator's index
        if not isinstance(type, str):
            raise TypeError(f"device() expects a string such as 'cpu' or 'cuda:0', or an index, found {type!r}")
        return _parse(type, index)

    def __eq__(self, other) -> bool:
        return isinstance(other, device) and self.type == other.type and self.index == other.index

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __reduce__(self):
        return device, (self.type, self.index)

    def __enter__(self) -> device:
        usable(self)
        _ask()
        _state.stack.append(self)
        return self

    def __exit__(self, *exc) -> None:
        _state.stack.pop()


_interned: dict[tuple[str, int | None], device] = {}


def _parse(text: str, index: int | None) -> device:
    found = _interned.get((text, index))
    if found is not None:
        return found
    kind, colon, number = text.partition(":")
    if colon and index is not None:
        raise RuntimeError(f"device: the index was given twice, in {text!r} and by itself")
    if colon:
        if not number.isdecimal() or (len(number) > 1 and number[0] == "0"):
            raise RuntimeError(f"Invalid device string: '{text}': expected something like 'cuda:0'")
        index = int(number)
    if not kind.replace("_", "").isalpha():
        raise RuntimeError(f"Invalid device string: '{text}'" if text else "Device string must not be empty")
    if kind not in KNOWN:
        raise RuntimeError(f"Expected one of {', '.join(KNOWN)} device type at start of device string: {kind}")
    if index is not None and index < 0:
        raise RuntimeError(f"Device index must not be negative, found {index}")
    found = object.__new__(device)
    found.type, found.index, found._hash = kind, index, hash((kind, index))
    return _interned.setdefault((text, None if colon else index), found)


def gpu(index: int) -> device:
    """device("cuda", index), found as fast as can be."""
    return _interned.get(("cuda", index)) or device("cuda", index)


def usable(d: device) -> device:
    """The device, which must be one that can hold tensors here."""
    if d.type in HERE:
        return d
    if d.type == "xpu":
        raise AssertionError("Torch not compiled with XPU enabled: Flambeau computes on cpu and cuda")
    raise NotImplementedError(f"There are no tensors on {d.type} devices in Flambeau: it computes on cpu and cuda")


cpu = device("cpu")
meta = device("meta")


class _State(threading.local):
    def __init__(self):
        self.stack: list[device] = []
        self.default: device = cpu


_state = _State()
_asked = False  # whether any thread ever had another default than the CPU


def set_default_device(device) -> None:
    """Factories without `device=` create their tensors here. None means the CPU."""
    _ask()
    _state.default = cpu if device is None else usable(_Device(device))


_Device = device  # the class, where a parameter of PyTorch's takes its name


def _ask() -> None:
    global _asked
    if not _asked:
        _asked = True
        changes.announce()


def asked() -> bool:
    """Whether the default device may be another than the CPU, in some thread."""
    return _asked


def get_default_device() -> device:
    """The device of tensors that nobody gave a device."""
    if not _asked:  # to read a setting of the thread takes longer
        return cpu
    return _state.stack[-1] if _state.stack else _state.default


def resolve(d) -> device:
    """What a `device=` argument means, None being the default device."""
    if d is None:
        return get_default_device()
    return d if type(d) is device else device(d)
