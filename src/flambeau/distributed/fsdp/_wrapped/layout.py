"""Where the parameters of a wrapper lie in the one flat tensor that is divided among its ranks.

| weight (15) | - | bias (5) | - |          - are paddings: to addresses that vector instructions like, and to a multiple of the ranks
|     rank 0    |     rank 1     |          so a rank may have a piece of several parameters, and nothing of others
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau.autograd.function import Function
from flambeau.distributed.fsdp._wrapped.ignored import own_modules
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Size, Tensor
from flambeau.tensor.making import factories

ALIGNMENT = 16  # bytes


@dataclass(eq=False)
class Place:
    """One parameter of the program, and where it lies."""

    parameter: Any  # the program's own, with use_orig_params; or what stands for it: its shape without memory
    shape: Size
    start: int
    owners: list[tuple[Module, str]] = field(default_factory=list)  # several for a shared parameter
    names: list[str] = field(default_factory=list)  # in the wrapped module, without wrappers: one for each owner
    requires_grad: bool = True
    known: Any = None  # the array that the parameter was given here

    @property
    def stop(self) -> int:
        """Where it ends."""
        return self.start + self.shape.numel()


class Layout:
    """The places of parameters, and the arithmetic between the flat tensor, the parameters, and the piece of one rank."""

    def __init__(self, places: list[Place], elements: int, ranks: int, rank: int):
        self.places = places
        self.elements = elements  # without the padding at the end
        self.per_rank = -(-elements // ranks)
        self.padded = self.per_rank * ranks
        self.rank = rank

    @staticmethod
    def of(module: Module, parameters: Sequence[Parameter], ranks: int, rank: int, itemsize: int | None) -> Layout:
        """The parameters in order. `itemsize`: of the dtype whose addresses are to be aligned; None: nothing lies between parameters."""
        places: dict[int, Place] = {}
        elements, step = 0, ALIGNMENT // itemsize if itemsize else 1
        for parameter in parameters:
            start = -(-elements // step) * step
            place = Place(parameter, parameter.size(), start, requires_grad=parameter.requires_grad)
            places[id(parameter)], elements = place, place.stop
        inside = set(own_modules(module))
        for prefix, owner in module.named_modules(remove_duplicate=False):
            for name, parameter in owner._parameters.items() if owner in inside else ():
                place = places.get(id(parameter))
                if place is not None:
                    place.owners.append((owner, name))
                    place.names.append(clean(f"{prefix}.{name}" if prefix else name))
        return Layout(list(places.values()), elements, ranks, rank)

    def flattened(self, device: Any) -> Tensor:
        """All parameters end to end, with zeros between them."""
        flat = factories.zeros((self.padded,), dtype=self.places[0].parameter.dtype, device=device)
        for place in self.places:
            flat[place.start : place.stop].copy_(place.parameter.detach().reshape(-1))
        return flat

    def view(self, flat: Tensor, place: Place) -> Tensor:
        """A parameter in the flat tensor."""
        return flat[place.start : place.stop].view(place.shape)

    def extent(self, place: Place) -> tuple[int, int]:
        """From where to where in this rank's piece a parameter lies; (0, 0) if nothing of it is there."""
        begin = self.rank * self.per_rank
        start, stop = max(place.start, begin), min(place.stop, begin + self.per_rank)
        return (start - begin, stop - begin) if start < stop else (0, 0)

    def piece(self, flat: Tensor) -> Tensor:
        """The part of a whole flat tensor that is this rank's."""
        return flat[self.rank * self.per_rank : (self.rank + 1) * self.per_rank]

    @property
    def own_elements(self) -> int:
        """How many elements of this rank's piece are no padding at the end."""
        return max(0, min(self.per_rank, self.elements - self.rank * self.per_rank))


def clean(name: str) -> str:
    """A name without what wrappers put into it."""
    return name.replace("_fsdp_wrapped_module.", "").replace("_checkpoint_wrapped_module.", "")


class Apart(Function):
    """The parameters as views of the flat tensor. Backward lays their gradients end to end again: one tensor, however many parameters."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, layout: Layout) -> tuple[Tensor, ...]:
        """(padded,) -> the shapes of the program."""
        ctx.set_materialize_grads(False)
        ctx.layout, ctx.look = layout, (flat.dtype, flat.device)
        views = [layout.view(flat, place) for place in layout.places]
        ctx.mark_non_differentiable(*[view for view, place in zip(views, layout.places, strict=True) if not place.requires_grad])
        return tuple(views)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None]:
        """The gradients of the parameters -> (padded,)."""
        if all(grad is None for grad in grads):
            return None, None
        layout, (dtype, device) = ctx.layout, ctx.look
        flat = factories.empty((layout.padded,), dtype=dtype, device=device)
        filled = 0
        for place, grad in zip(layout.places, grads, strict=True):
            if grad is not None:
                flat[filled : place.start].zero_()
                layout.view(flat, place).copy_(grad)
                filled = place.stop
        flat[filled:].zero_()
        return flat, None
