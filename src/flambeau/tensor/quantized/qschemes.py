"""How integers stand for floats: torch.per_tensor_affine and its kin, x = (q - zero_point) * scale."""

from __future__ import annotations


class qscheme:
    """Whether a tensor or each of its channels has a scale, and whether 0 is the integer 0 (symmetric) or any (affine)."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


per_tensor_affine = qscheme("per_tensor_affine")
per_channel_affine = qscheme("per_channel_affine")
per_tensor_symmetric = qscheme("per_tensor_symmetric")
per_channel_symmetric = qscheme("per_channel_symmetric")
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams")
