"""Objects for checkpoints, in either framework, and what it means that one came back as the other."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

DTYPES = """float64 float32 float16 bfloat16 complex64 complex128 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool""".split()


def of_every_dtype(lib: Any) -> dict[str, Any]:
    """A tensor of every dtype, empty and 0-d ones among them."""
    found = {name: lib.arange(6).reshape(2, 3).to(getattr(lib, name)) for name in DTYPES}
    return found | {"empty": lib.zeros(0, 3), "number": lib.tensor(3.5), "ones": lib.ones(2, 2, dtype=lib.int64)}


def views(lib: Any) -> list[Any]:
    """Windows on one storage: transposed, shifted, every other, expanded, and the storage itself."""
    base = lib.arange(24.0).reshape(4, 6)
    return [base, base.t(), base[1:, 2:], base[::2, ::3], base[0].expand(3, 6), base.reshape(-1)[23:], base[2, 2]]


def containers(lib: Any) -> dict[str, Any]:
    """Whatever people put into checkpoints besides tensors."""
    state = collections.OrderedDict(weight=lib.ones(2))
    state._metadata = collections.OrderedDict({"": {"version": 1}})
    return {
        "numbers": [0, 1, -1, 255, 256, 65536, -(2**31), 2**31, 2**63, 2**80, -(2**200), 0.5, -0.0, float("inf"), 2 + 3j],
        "constants": (None, True, False),
        "text": ["", "ascii", "Grüße 東京 🔥", "x" * 300, "line\nbreak"],
        "bytes": [b"\x00\xff" * 200, bytearray(b"abc")],
        "nested": {"a": [(1, [2, {"b": (3,)}])], 3: {None: 1.5}, (1, "x"): 2, 2.5: 3},
        "set": {1, 2, "three"},
        "size": lib.Size([2, 3]),
        "dtype": [lib.float32, lib.bfloat16, lib.bool],
        "device": [lib.device("cpu"), lib.device("cuda:1"), lib.device("meta")],
        "layout": lib.strided,
        "ordered": state,
        "counter": collections.Counter("abracadabra"),
        "parameter": lib.nn.Parameter(lib.ones(2, 3)),
        "frozen": lib.nn.Parameter(lib.ones(2, 3), requires_grad=False),
        "leaf": lib.ones(2, requires_grad=True),
    }


def assert_same(ours: Any, theirs: Any, path: str = "") -> None:
    """Flambeau's object says what PyTorch's says: types, values, strides, and which tensors share memory."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, flambeau.Tensor), path
        assert str(ours.dtype) == str(theirs.dtype), path
        assert isinstance(ours, flambeau.nn.Parameter) == isinstance(theirs, torch.nn.Parameter), path
        assert (tuple(ours.shape), ours.stride(), ours.storage_offset()) == (
            tuple(theirs.shape),
            theirs.stride(),
            theirs.storage_offset(),
        ), path
        assert ours.requires_grad == theirs.requires_grad, path
        assert ours.untyped_storage().nbytes() == theirs.untyped_storage().nbytes(), path
        if theirs.device.type != "meta":
            assert raw(ours) == raw(theirs), path
    elif isinstance(theirs, dict):
        assert type(ours) is type(theirs), path
        assert len(ours) == len(theirs), path
        for (a, x), (b, y) in zip(ours.items(), theirs.items(), strict=True):
            assert_same(a, b, f"{path}.{a} (key)")
            assert_same(x, y, f"{path}.{a}")
        if hasattr(theirs, "__dict__"):
            assert_same(vars(ours), vars(theirs), f"{path}.__dict__")
    elif isinstance(theirs, (list, tuple)) and not isinstance(theirs, torch.Size):
        assert type(ours) is type(theirs), path
        assert len(ours) == len(theirs), path
        for i, (x, y) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(x, y, f"{path}[{i}]")
    elif type(theirs).__module__.startswith("torch"):
        assert repr(ours) == repr(theirs), path
    else:
        assert type(ours) is type(theirs), path
        assert ours == theirs or ours != ours, path


def raw(tensor: Any) -> bytes:
    """The bytes of a tensor's elements, in the order of its indices."""
    flat = tensor.detach().contiguous().reshape(-1)
    return (
        (flat.view(torch.uint8) if isinstance(flat, torch.Tensor) else flat.view(flambeau.uint8)).numpy().tobytes() if flat.numel() else b""
    )


def same_storage(tensors: list[Any]) -> bool:
    return len({t.untyped_storage().data_ptr() for t in tensors}) == 1


def numpy_of(tensor: Any) -> np.ndarray:
    return tensor.detach().numpy()
