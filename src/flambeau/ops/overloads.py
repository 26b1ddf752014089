"""`torch.ops.aten`: operations by the names of PyTorch's kernels, for those who talk about them (policies of selective checkpoints).

    torch.ops.aten.mm.default       an OpOverload: a name that can be compared, put into a set, and called
    torch.ops.aten.mm               an OpOverloadPacket: all of that name

What PyTorch splits into overloads by the types of arguments is one operation here, so overloads of one name are equal.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from flambeau.ops import contents
from flambeau.ops.declare import OPS

# Names of PyTorch's kernels that are parts of operations here, and cannot be called by themselves.
PARTS = frozenset("""
_convolution _efficient_attention_forward _flash_attention_forward _fused_sdp_choice _log_softmax _pin_memory _sparse_addmm _sparse_mm_reduce_impl alias index
slice _scaled_dot_product_cudnn_attention
_scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu
_scaled_dot_product_flash_attention_for_cpu_backward convolution_backward
_scaled_dot_product_fused_attention_overrideable _softmax _to_copy _unsafe_view bernoulli_ copy_ cross_entropy_loss detach embedding_dense_backward fill_
linear max_pool2d_with_indices native_dropout native_layer_norm_backward nll_loss_forward nll_loss_nd scaled_dot_product_attention zero_
""".split())  # fmt: skip
# What PyTorch calls the overload that takes tensors, where it is not "default".
OVERLOADS = dict.fromkeys("add sub mul div remainder fmod eq ne lt le gt ge maximum_ bitwise_and bitwise_or bitwise_xor".split(), "Tensor")
OVERLOADS |= {"pow": "Tensor_Scalar", "sum": "dim_IntList", "mean": "dim", "transpose": "int", "select": "int", "where": "self"}


class OpOverload:
    """One operation. Two of the same name are equal."""

    namespace = "aten"

    def __init__(self, packet: OpOverloadPacket, overload: str):
        self._opname, self._overloadname, self.overloadpacket = packet.__name__, overload, packet
        self.__name__ = f"{packet.__name__}.{overload}"

    def name(self) -> str:
        """aten::mm"""
        return f"aten::{self._opname}" + ("" if self._overloadname == "default" else f".{self._overloadname}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.overloadpacket(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpOverload) and other._opname == self._opname

    def __hash__(self) -> int:
        return hash(self._opname)

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='aten.{self._opname}', overload='{self._overloadname}')>"


class OpOverloadPacket:
    """All overloads of a name."""

    def __init__(self, name: str):
        self.__name__ = name

    def overloads(self) -> list[str]:
        """The one there is."""
        return [OVERLOADS.get(self.__name__, "default")]

    def __getattr__(self, overload: str) -> OpOverload:
        if overload.startswith("__"):
            raise AttributeError(overload)
        found = self.__dict__[overload] = OpOverload(self, overload)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        op = _operation(self.__name__)
        if op is not None:
            return op(*args, **kwargs)
        method = getattr(args[0], self.__name__, None) if args else None
        if method is None:
            raise NotImplementedError(
                f"torch.ops.aten.{self.__name__} is a name here, and cannot be called: it is part of another operation"
            )
        return method(*args[1:], **kwargs)

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='aten.{self.__name__}')>"


class Namespace:
    """torch.ops.aten"""

    def __getattr__(self, name: str) -> OpOverloadPacket:
        if name.startswith("__") or not (name in PARTS or _operation(name) or _operation(name.removesuffix("_"))):
            raise AttributeError(f"torch.ops.aten has no {name!r}: there is no such operation")
        return packet(name)

    def __repr__(self) -> str:
        return "<torch.ops.aten>"


@cache
def packet(name: str) -> OpOverloadPacket:
    """The names are made once, so that `is` compares them as well."""
    return OpOverloadPacket(name)


def overload(name: str) -> OpOverload:
    """The usual overload of an operation."""
    return getattr(packet(name), OVERLOADS.get(name, "default"))


def _operation(name: str) -> Any:
    """The declaration of a function of this name, loaded if need be."""
    for full in (name, f"nn.functional.{name}"):
        if full not in OPS:
            for subject in contents.homes(full):
                contents.load(subject)
        if full in OPS:
            return OPS[full]
    return None


aten = Namespace()
