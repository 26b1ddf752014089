"""ReduceOp: how the tensors of all ranks become one.

A call takes a member (`ReduceOp.SUM`) or a ReduceOp object, which alone can carry the factor of PREMUL_SUM. The module itself is what
programs older than ReduceOp import as `torch.distributed.reduce_op`: its members warn and are those of ReduceOp.

>>> ReduceOp.SUM, ReduceOp.PREMUL_SUM(0.5).factor
(<RedOpType.SUM: 0>, 0.5)
"""

from __future__ import annotations

import enum
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

__all__ = ["ReduceOp"]


class RedOpType(enum.IntEnum):
    """The reductions there are, by the numbers that PyTorch gives them."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8

    def __call__(self, factor: float | Tensor) -> ReduceOp:
        """A PREMUL_SUM with its factor; the others take none."""
        if self is not RedOpType.PREMUL_SUM:
            raise RuntimeError(f"ReduceOp.{self.name} takes no factor: only ReduceOp.PREMUL_SUM(factor) does")
        return _make_nccl_premul_sum(float(factor) if isinstance(factor, int) else factor)

    def __eq__(self, other: object) -> bool:
        return self is other  # not the number, and not a ReduceOp of this member, which compares the other way round

    def __hash__(self) -> int:
        return self.value

    def __bool__(self) -> bool:
        return True  # as of any object: SUM is 0, and programs write `op or default`

    def __str__(self) -> str:
        return f"RedOpType.{self.name}"


RedOpType.__qualname__ = "ReduceOp.RedOpType"  # the path by which pickle finds it


class _AsksMembers(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return type.__instancecheck__(cls, instance) or isinstance(instance, RedOpType)


class ReduceOp(metaclass=_AsksMembers):
    """A reduction, made of a member of its own: ReduceOp(ReduceOp.SUM). `op` is that member, `factor` what PREMUL_SUM multiplies by."""

    __slots__ = ("_factor", "op")

    SUM = RedOpType.SUM
    AVG = RedOpType.AVG
    PRODUCT = RedOpType.PRODUCT
    MIN = RedOpType.MIN
    MAX = RedOpType.MAX
    BAND = RedOpType.BAND
    BOR = RedOpType.BOR
    BXOR = RedOpType.BXOR
    PREMUL_SUM = RedOpType.PREMUL_SUM

    def __init__(self, op: RedOpType) -> None:
        if not isinstance(op, RedOpType):
            raise TypeError(f"ReduceOp() takes one of its members, such as ReduceOp.SUM, not {op!r}")
        self.op = op
        self._factor: float | Tensor | None = None

    @property
    def factor(self) -> float | Tensor:
        """What each rank multiplies its tensor by before the sum."""
        if self.op is not RedOpType.PREMUL_SUM:
            raise RuntimeError(f"only ReduceOp.PREMUL_SUM has a factor, this is {self.op}")
        if self._factor is None:
            raise RuntimeError("this PREMUL_SUM has no factor: write ReduceOp.PREMUL_SUM(factor)")
        return self._factor

    def __eq__(self, other: object) -> bool:
        """Whether the reduction is the same; factors are not compared, as in PyTorch."""
        if type(other) is RedOpType:
            return self.op is other
        return self.op is other.op if type(other) is ReduceOp else False

    def __hash__(self) -> int:
        return int(self.op)

    def __getstate__(self) -> tuple[RedOpType, float | Tensor | None]:
        return self.op, self.factor if self.op is RedOpType.PREMUL_SUM else None

    def __setstate__(self, state: tuple[RedOpType, float | Tensor | None]) -> None:
        self.op, self._factor = state

    def __copy__(self) -> ReduceOp:
        other = ReduceOp(self.op)
        other._factor = self._factor
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> ReduceOp:
        return self.__copy__()


ReduceOp.RedOpType = RedOpType  # here, because inside the class the name would hide the type from the annotations


def _make_nccl_premul_sum(factor: float | Tensor) -> ReduceOp:
    """PREMUL_SUM with its factor: a float, or a tensor of one element."""
    from flambeau.tensor import Tensor

    if not isinstance(factor, float | Tensor):
        raise TypeError(f"the factor of PREMUL_SUM is a float or a tensor of one element, not {factor!r}")
    if isinstance(factor, Tensor) and factor.numel() != 1:
        raise RuntimeError(f"the factor of PREMUL_SUM is a tensor of one element, not of {factor.numel()}: shape {tuple(factor.shape)}")
    op = ReduceOp(RedOpType.PREMUL_SUM)
    op._factor = factor
    return op


def __getattr__(name: str) -> RedOpType:
    if name in RedOpType.__members__:
        warnings.warn(
            f"torch.distributed.reduce_op is an old name of torch.distributed.ReduceOp: write ReduceOp.{name}", FutureWarning, stacklevel=2
        )
        return RedOpType[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
