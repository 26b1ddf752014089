"""torch.ao.quantization.fx._decomposed: checks of scales and zero points."""

from __future__ import annotations

from math import prod

from flambeau.tensor import Tensor


def _per_token_quant_qparam_dim_check(input: Tensor, scales: Tensor, zero_points: Tensor) -> None:
    """AssertionError unless there is one scale and one zero point for each row of the last dimension."""
    tokens = prod(input.shape[:-1])
    for name, given in (("scales", scales), ("zero_points", zero_points)):
        if given.numel() != tokens:
            raise AssertionError(f"num_tokens: {tokens} {name}: {given.size()}. One for each row is expected")
