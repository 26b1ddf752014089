"""Bucket: the gradients of some parameters in one flat tensor, which travels as a whole."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from flambeau.distributed.data_parallel.grad_bucket import GradBucket, views
from flambeau.kernels.loops import updates
from flambeau.ops.updates import gathered
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import zeros

GATHER = gathered.kernel(())


class Bucket:
    """Takes copies of gradients, and gives them back when they have been reduced.

    number      its place in the order of sending
    indices     which of the model's parameters it is for
    dtype       of the parameters; `flat` may have another
    flat        one element for each of theirs, one parameter after the other
    views       the part of `flat` that is of each parameter, with its shape and its order in memory
    pending     how many of the gradients are still to come in this backward pass
    grads       what `.grad` of each parameter was when the bucket was filled, None where there was none
    """

    sparse = False
    flat: Tensor

    def __init__(self, number: int, indices: Sequence[int], parameters: Sequence[Tensor], *, dtype: Any = None):
        self.number, self.indices, self.parameters = number, list(indices), list(parameters)
        self.pending = 0
        self.grads: list[Tensor | None] = []
        self.dtype = parameters[0].dtype
        self._make(dtype or parameters[0].dtype)

    def _make(self, dtype: Any) -> None:
        self.flat = zeros(sum(p.numel() for p in self.parameters), dtype=dtype, device=self.parameters[0].device)
        self.views = views(self.flat, self.parameters)
        self.places = [view._array for view in self.views]
        self.turned = not all(view.is_contiguous() for view in self.views)

    def fits(self) -> bool:
        """Whether the parameters are still where and what they were: a model can be moved, or given another dtype, after it was wrapped."""
        device, dtype = self.flat.device, self.dtype
        return all([p.device == device and p.dtype is dtype for p in self.parameters])

    def fill(self, factor: float) -> None:
        """flat = factor * the gradients, in one launch; zeros for those that are not there."""
        grads: list[Any] = [p._grad for p in self.parameters]
        self.grads = grads
        places = self.places
        if not all(map(_is_there, grads)):
            for view, grad in zip(self.views, grads, strict=True):
                if grad is None:
                    view.zero_()
            places = [place for place, grad in zip(places, grads, strict=True) if grad is not None]
            grads = [grad for grad in grads if grad is not None]
        if grads:
            self._copy(places, [grad._array for grad in grads], factor)

    def keep(self) -> None:
        """Let `.grad` of each parameter that has one be its part of the bucket."""
        for p, view, grad in zip(self.parameters, self.views, self.grads, strict=True):
            if grad is not None:
                p._grad = view

    def give(self, unused: Collection[int]) -> None:
        """Let parameters without a gradient have one, if another rank has used them: their part of the bucket."""
        for index, p, view in zip(self.indices, self.parameters, self.views, strict=True):
            if p._grad is None and index not in unused:
                p._grad = view

    def spread(self, unused: Collection[int] = ()) -> None:
        """Write what came of the gradients over `.grad` of each parameter. `unused` are those that no rank has used: they stay as they are."""
        places, arrays = [], []
        for index, p, place, view in zip(self.indices, self.parameters, self.places, self.views, strict=True):
            grad = p._grad
            if grad is view or index in unused:
                continue
            if grad is None:
                p._grad = view.detach().clone()
                continue
            places.append(place)
            arrays.append(grad._array)
            storage = grad._storage or grad._shared_storage()
            storage.version += 1
        if places:
            self._copy(arrays, places, 1.0)

    def _copy(self, to: list, arrays: list, factor: float) -> None:
        if self.turned:  # one launch takes what lies in C order: channels last do, if all dimensions are seen as one
            pairs = [updates.flattened(pair) or pair for pair in zip(to, arrays, strict=True)]
            to, arrays = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        updates.run(GATHER, (to, arrays), (factor,))

    def replace(self, result: Tensor) -> None:
        """Take what a communication hook has made of the gradients."""
        if result is not self.flat:
            self.flat.copy_(result.view(-1))

    def shown(self, last: bool) -> GradBucket:
        """What a communication hook sees."""
        return GradBucket(self.number, self.flat, self.parameters, last)

    def as_zeros(self, last: bool) -> GradBucket:
        """What a rank sends that has no gradients, but takes part."""
        return GradBucket(self.number, zeros(self.flat.shape, dtype=self.flat.dtype, device=self.flat.device), self.parameters, last)

    @property
    def nbytes(self) -> int:
        """Of the gradients, if they are dense."""
        return sum(p.numel() * p.element_size() for p in self.parameters)


def _is_there(grad: Tensor | None) -> bool:
    return grad is not None
