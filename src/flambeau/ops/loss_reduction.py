"""From the losses of elements to the one that is trained on: "mean", "sum" or "none"."""

from __future__ import annotations

from flambeau import errors

REDUCTIONS = ("mean", "sum", "none")


def chosen(reduction: str, size_average=None, reduce=None) -> str:
    """The reduction that was asked for; old programs ask by two flags, with a warning."""
    if size_average is None and reduce is None:
        if reduction not in REDUCTIONS:
            raise ValueError(f"{reduction} is not a valid value for reduction. Try 'mean', 'sum' or 'none'")
        return reduction
    found = by_flags(size_average, reduce)
    errors.warn(f"size_average and reduce are deprecated: reduction='{found}' says the same")
    return found


def by_flags(size_average, reduce) -> str:
    """The reduction that two flags mean, None being True."""
    return "none" if reduce is False else "sum" if size_average is False else "mean"


def reduced(loss, reduction: str):
    """The mean or sum of a tensor of losses, or the tensor itself."""
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


def warn_of_broadcasting(input, target) -> None:
    """A target of another shape than the input is a mistake more often than not: (N) against (N, 1) makes N x N differences."""
    if input.shape != target.shape:
        errors.warn(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}): one is broadcast against the other, and "
            "the loss is seldom what was meant. Please ensure they have the same size. Try target.view_as(input)"
        )


LOGITS = {"SoftmaxBackward0": "softmax", "SigmoidBackward0": "sigmoid"}


def warn_of_probabilities(loss: str, input, wanted: str) -> None:
    """A loss that takes numbers before (or the logarithm of) softmax or sigmoid, but is given its result, is computed without complaint, and wrong."""
    node = input._node
    if node is not None and type(node).__name__ in LOGITS:
        errors.warn(f"{loss}: the input is the result of {LOGITS[type(node).__name__]}, but {wanted}")


def check_same_shape(name: str, input, target) -> None:
    """ValueError where target and input differ in shape, for losses that do not broadcast."""
    if input.shape != target.shape:
        hint = ""
        if input.numel() == target.numel():
            hint = f". They have as many elements: try target.view_as(input){', or input.squeeze(-1)' if input.shape[-1:] == (1,) else ''}"
        raise ValueError(
            f"{name}: Using a target size ({target.shape}) for an input of size ({input.shape}){hint or '. Please ensure they have the same size'}"
        )
