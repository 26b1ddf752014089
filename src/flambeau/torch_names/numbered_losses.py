"""Losses as functions of the package itself (torch.kl_div), where PyTorch has them with the reduction as a number, and their arguments in the
order of its kernels. Programs call those of torch.nn.functional; libraries, and programs that were traced, these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.eager.overrides import overridable
from flambeau.ops import OPS
from flambeau.tensor import Tensor

REDUCTIONS = ("none", "mean", "sum")
ORDERS = {
    "binary_cross_entropy_with_logits": "input target weight pos_weight reduction",
    "cosine_embedding_loss": "input1 input2 target margin reduction",
    "ctc_loss": "log_probs targets input_lengths target_lengths blank reduction zero_infinity",
    "hinge_embedding_loss": "input target margin reduction",
    "kl_div": "input target reduction",
    "margin_ranking_loss": "input1 input2 target margin reduction",
    "poisson_nll_loss": "input target log_input full eps reduction",
    "triplet_margin_loss": "anchor positive negative margin p eps swap reduction",
}


def _numbered(name: str, order: list[str]) -> Callable:
    def numbered(*args: Any, **kwargs: Any) -> Tensor:
        if len(args) > len(order):
            raise TypeError(f"{name}() takes {len(order)} positional arguments ({', '.join(order)}), found {len(args)}")
        given = dict(zip(order, args, strict=False)) | kwargs
        number = given.pop("reduction", 1)
        if number not in range(3):
            raise ValueError(f"{name}(): reduction must be 0 (none), 1 (mean) or 2 (sum), found {number!r}")
        if name == "margin_ranking_loss":  # the other refuses tensors of different dimensions
            given.update(zip(order[:3], OPS["broadcast_tensors"](*[given[n] for n in order[:3]]), strict=True))
        loss = OPS[f"nn.functional.{name}"]
        if name == "kl_div" and number == 1:
            return loss(**given, reduction="none").mean()  # without the warning that the other has for "mean"
        return loss(**given, reduction=REDUCTIONS[number])

    numbered.__name__ = numbered.__qualname__ = name
    numbered.__doc__ = (
        f"{name}({', '.join(order)}): torch.nn.functional.{name} with a number for the reduction, 0, 1 or 2: none, mean or sum."
    )
    return overridable(numbered)


globals().update({name: _numbered(name, order.split()) for name, order in ORDERS.items()})
