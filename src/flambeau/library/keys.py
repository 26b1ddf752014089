"""Dispatch keys: for whom a kernel was registered. A call meets them from the last of this list to the first.

>>> DispatchKeySet("CPU").add(DispatchKey.AutogradCPU).highestPriorityTypeId()
<DispatchKey.AutogradCPU: 34>
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any

BACKENDS = (
    "CPU",
    "CUDA",
    "HIP",
    "XLA",
    "MPS",
    "IPU",
    "XPU",
    "HPU",
    "VE",
    "Lazy",
    "MTIA",
    "MAIA",
    "PrivateUse1",
    "PrivateUse2",
    "PrivateUse3",
    "Meta",
)
LISTED = f"""
Undefined {" ".join(BACKENDS)} QuantizedCPU QuantizedCUDA SparseCPU SparseCUDA SparseCsrCPU SparseCsrCUDA NestedTensorCPU NestedTensorCUDA
BackendSelect Python Conjugate Negative ZeroTensor ADInplaceOrView AutogradOther {" ".join(["Autograd" + b for b in BACKENDS])} AutogradNestedTensor
AutocastCPU AutocastMPS AutocastXPU AutocastHPU AutocastIPU AutocastCUDA AutocastPrivateUse1 Functionalize FuncTorchBatched FuncTorchVmapMode FuncTorchGradWrapper
FuncTorchDynamicLayerBackMode FuncTorchDynamicLayerFrontMode TESTING_ONLY_GenericWrapper TESTING_ONLY_GenericMode PythonTLSSnapshot PreDispatch PythonDispatcher
Autograd CompositeImplicitAutograd CompositeImplicitAutogradNestedTensor CompositeExplicitAutograd CompositeExplicitAutogradNonFunctional
FuncTorchBatchedDecomposition Dense Quantized Sparse SparseCsr NestedTensor AutogradFunctionality
""".split()  # fmt: skip

DispatchKey: Any = IntEnum("DispatchKey", LISTED, start=0)  # type: ignore[misc]
DispatchKey.__doc__ = "For whom a kernel is."
DispatchKey.__module__ = __name__


def named(key: Any) -> str:
    """The name of a key, given as a name or as the key itself. RuntimeError if there is no such key."""
    name = getattr(key, "name", key)
    if name not in DispatchKey.__members__:
        raise RuntimeError(f"could not parse dispatch key: {name}. Keys are such as CPU, CUDA, Meta, Autograd, CompositeImplicitAutograd")
    return name


def of_device(kind: str) -> str:
    """The key of a device's kernels: "CUDA" of "cuda"."""
    known = {"cpu": "CPU", "cuda": "CUDA", "meta": "Meta", "lazy": "Lazy", "privateuseone": "PrivateUse1"}
    name = known.get(kind, kind.upper())
    if name not in BACKENDS:
        devices = "cpu, cuda, ipu, xpu, hip, ve, maia, xla, lazy, mps, meta, hpu, mtia, privateuseone"
        raise RuntimeError(f"Expected one of {devices} device type at start of device string: {kind}")
    return name


class DispatchKeySet:
    """A set of keys. Sets do not change: what adds or removes a key gives another."""

    def __init__(self, *keys: Any):
        found = keys[0] if len(keys) == 1 and isinstance(keys[0], (set, frozenset, list, tuple)) else keys
        self.keys: frozenset[str] = frozenset(map(named, found))

    @classmethod
    def of(cls, keys: Iterable[str]) -> DispatchKeySet:
        """The set of these names."""
        return cls(tuple(keys))

    def has(self, key: Any) -> bool:
        """Whether the key is in it."""
        return named(key) in self.keys

    def add(self, key: Any) -> DispatchKeySet:
        """This set and the key."""
        return self.of(self.keys | {named(key)})

    def remove(self, key: Any) -> DispatchKeySet:
        """This set without the key."""
        return self.of(self.keys - {named(key)})

    def highestPriorityTypeId(self) -> Any:
        """The key that a call meets first."""
        return max([DispatchKey[name] for name in self.keys], default=DispatchKey["Undefined"])

    def raw_repr(self) -> int:
        """The set as the bits of a number."""
        return sum(1 << int(DispatchKey[name]) for name in self.keys)

    @staticmethod
    def from_raw_repr(number: int) -> DispatchKeySet:
        """The set of such bits."""
        return DispatchKeySet.of([key.name for key in DispatchKey if number >> int(key) & 1])

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return self.of(self.keys | other.keys)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return self.of(self.keys & other.keys)

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return self.of(self.keys - other.keys)

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted([DispatchKey[name] for name in self.keys]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self.keys == other.keys

    def __hash__(self) -> int:
        return hash(self.keys)

    def __reduce__(self) -> tuple:
        return DispatchKeySet, tuple(sorted(self.keys))

    def __repr__(self) -> str:
        return f"DispatchKeySet({', '.join([key.name for key in self])})"


FULL_AUTOGRAD = frozenset(["AutogradOther", "AutogradNestedTensor", *(f"Autograd{b}" for b in BACKENDS)])
