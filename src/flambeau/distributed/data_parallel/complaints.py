"""What is said when gradients do not come as expected: which parameters, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

SHOWN = 20


def never_finished(missing: Sequence[str], rank: int, *, finds_unused: bool, static: bool) -> str:
    """Some parameters got no gradient in the pass before."""
    names = "\n".join(f"    {name}" for name in missing[:SHOWN]) + (
        f"\n    and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    )
    if static:
        advice = (
            "static_graph=True promises that each pass uses the same parameters, as often as the first, and this one did not: "
            "find_unused_parameters=True instead looks anew each time"
        )
    elif finds_unused:
        advice = (
            "find_unused_parameters=True is set, and these were part of the graph of forward's outputs, so a gradient was expected. Outputs from "
            "which the loss is not computed are a reason, or outputs in an object whose tensors cannot be found: return tuples, lists, dicts or "
            "dataclasses of tensors, and use all of them, or detach() what is not used"
        )
    else:
        advice = (
            "DistributedDataParallel(model, find_unused_parameters=True) looks for such parameters after each forward pass; requires_grad=False on "
            "those that are never used costs nothing; and all outputs of forward should take part in the loss"
        )
    return (
        "Expected to have finished reduction in the prior iteration before starting a new one. "
        f"These {len(missing)} parameters did not receive a gradient in it on rank {rank}:\n{names}\n    try   {advice}"
    )


def came_twice(name: str, static: bool) -> str:
    """A gradient came a second time in one pass."""
    return (
        f"Expected to mark a variable ready only once: the gradient of {name} has come twice in one pass. Two reasons are common: the parameter is "
        "used inside of several checkpoint(use_reentrant=True) regions, or inside of one and outside: checkpoint(use_reentrant=False) counts them "
        "together. Or the forward pass was made through model.module, or backward ran twice over one forward pass."
        + (
            ""
            if static
            else "\n    try   DistributedDataParallel(model, static_graph=True), if each pass uses the same parameters in the same way"
        )
    )
