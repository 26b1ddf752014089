"""Unit: the parameters of one wrapper, flat, and what the modules inside hold of them.

group   one DTensor parameter with all elements end to end, which the shared machinery divides, gathers and reduces
flat    the FlatParameter that programs see: this rank's piece of it, in the same memory

the modules hold        use_orig_params=False                               use_orig_params=True
most of the time        tensors without memory, of the right shape;         the program's own Parameters; the data of each is the
                        the wrapped module has `flat`                       part of `flat` that is its own here, maybe nothing
in forward, backward    plain tensors: views of the gathered memory, behind which the tape finds the flat parameter
in summon_full_params   Parameters of whole shape                           the same Parameters, of whole shape
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau import modes
from flambeau.distributed.fsdp._fully_shard.meshes import Meshes
from flambeau.distributed.fsdp._wrapped.flat_group import FlatGroup
from flambeau.distributed.fsdp._wrapped.flat_parameter import FlatParameter
from flambeau.distributed.fsdp._wrapped.layout import Apart, Layout, Place
from flambeau.distributed.tensor import DTensor, Replicate, Shard
from flambeau.modes import no_grad
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Tensor
from flambeau.tensor.making import factories

FLAT_PARAM = "_flat_param"


class Unit:
    """What PyTorch calls a FlatParamHandle."""

    def __init__(
        self, module: Module, parameters: Sequence[Parameter], meshes: Meshes, device: Any, *, own_names: bool, aligned_to: Any,
        low_precision_grads: bool, **group: Any,
    ):  # fmt: skip
        """own_names: use_orig_params.   aligned_to: the dtype of which the gathered memory will be.   low_precision_grads: whether gradients stay in the dtype in
        which they were reduced.   group: more arguments of the group"""
        self.module, self.meshes, self.device, self._use_orig_params, self._for_group = module, meshes, device, own_names, group
        size = (aligned_to or parameters[0].dtype).itemsize if own_names else None
        self.layout = Layout.of(module, parameters, meshes.shard_size, meshes.shard_rank, size)
        self.requires_grad = any(p.requires_grad for p in parameters)
        mixed = group["mp_policy"]
        self.grad_dtype = (mixed.param_dtype or mixed.reduce_dtype) if low_precision_grads else None
        self.summoned = False
        self._holds_views = False
        with no_grad():
            self._form_group(self.layout.flattened(parameters[0].device))
        self.flat_param = self._flat_parameter()
        for place in self.layout.places:
            if own_names:
                place.parameter._fsdp_flattened = True
                place.parameter.grad = None
        self._cut_pieces()

    def _form_group(self, flat: Tensor) -> None:
        self.group = FlatGroup(flat, self, **self._for_group)
        self._orig_param_dtype = flat.dtype

    def _flat_parameter(self) -> FlatParameter:
        flat = FlatParameter(self.group.piece, requires_grad=self.requires_grad)
        flat._fqns = tuple(place.names[0] for place in self.layout.places)
        flat._shapes = tuple(place.shape for place in self.layout.places)
        flat._numels = tuple(place.shape.numel() for place in self.layout.places)
        return flat

    @property
    def uses_sharded_strategy(self) -> bool:
        """Whether this rank has less than everything."""
        return self.meshes.shard_group is not None

    @property
    def parameters(self) -> list[Parameter]:
        """What optimizers see."""
        return [place.parameter for place in self.layout.places] if self._use_orig_params else [self.flat_param]

    # -- what the modules hold

    def hold_pieces(self) -> None:
        """Let the modules hold what they hold most of the time, if it is something else."""
        if self._holds_views:
            self._hold_pieces()

    def _hold_pieces(self) -> None:
        self._holds_views = False
        for place in self.layout.places:
            self._hold(place, place.parameter)
        if not self._use_orig_params:
            self.module._parameters[FLAT_PARAM] = self.flat_param

    def _cut_pieces(self) -> None:
        """Give the program's parameters their data anew, and let the modules hold them."""
        for place in self.layout.places:
            if self._use_orig_params:
                place.parameter.data = self._piece(self.flat_param.data, place)
                place.known = place.parameter._array
            else:
                place.parameter = factories.empty(place.shape, dtype=self.flat_param.dtype, device="meta")
        self._hold_pieces()

    def hold_views(self) -> None:
        """Let the modules hold views of the gathered parameters."""
        self._holds_views = True
        whole = self.group.whole
        with modes.enable_grad() if self.requires_grad and not modes.is_inference_mode_enabled() else no_grad():
            views = Apart.apply(whole, self.layout)
        for place, view in zip(self.layout.places, views, strict=True):
            self._hold(place, view)

    @contextmanager
    def holding_whole(self, whole: Tensor, grad: Tensor | None) -> Iterator[None]:
        """Let the modules hold Parameters that are views of a flat tensor that somebody else has gathered; with gradients, if they are given."""
        self.module._parameters.pop(FLAT_PARAM, None)
        before = [place.parameter._grad if self._use_orig_params else None for place in self.layout.places]
        for place in self.layout.places:
            view = self.layout.view(whole, place)
            held = place.parameter if self._use_orig_params else Parameter(view, requires_grad=place.requires_grad)
            if self._use_orig_params:
                held.grad = None
                held.data = view
            if grad is not None and place.requires_grad:
                held.grad = self.layout.view(grad, place)
            self._hold(place, held)
        self.summoned = True
        try:
            yield
        finally:
            self.summoned = False
            if self._use_orig_params:
                for place in self.layout.places:
                    place.parameter.grad = None
            self._cut_pieces()
            for place, own in zip(self.layout.places, before, strict=True):
                if self._use_orig_params:
                    place.parameter._grad = own  # which may be of lower precision

    @contextmanager
    def holding_flat(self) -> Iterator[None]:
        """Let the wrapped module hold the flat parameter, and nobody anything else."""
        if self._use_orig_params:
            for place in self.layout.places:
                for owner, name in place.owners:
                    owner._parameters.pop(name, None)
        self.module._parameters[FLAT_PARAM] = self.flat_param
        try:
            yield
        finally:
            self.flat_param = self.module._parameters.pop(FLAT_PARAM)  # type: ignore[assignment]  # it may have been moved
            self._cut_pieces()

    def _hold(self, place: Place, held: Any) -> None:
        is_parameter = isinstance(held, Parameter)
        for owner, name in place.owners:
            if not is_parameter:
                owner._parameters.pop(name, None)  # where it may not stand
            if type(owner).__setattr__ is not Module.__setattr__:  # modules that look at what is assigned to them
                setattr(owner, name, held)
            elif is_parameter:
                owner._parameters[name] = held
            else:
                owner.__dict__[name] = held

    def _piece(self, flat: Tensor, place: Place) -> Tensor:
        """A parameter's part of this rank's piece; of its own shape where it is whole."""
        start, stop = self.layout.extent(place)
        found = flat[start:stop]
        return found if self.uses_sharded_strategy else found.view(place.shape)

    # -- gradients

    def receive(self, grad: Tensor) -> None:
        """Add this rank's piece of a reduced gradient to those that optimizers see."""
        grad = grad if self.grad_dtype is None else grad.to(self.grad_dtype)
        if not self._use_orig_params:
            _add(self.flat_param, grad)
            return
        for place in self.layout.places:
            if place.parameter.requires_grad and place.parameter.numel():
                _add(place.parameter, self._piece(grad, place))

    def flat_grad(self) -> Tensor | None:
        """This rank's piece of the gradient, as one tensor; None if there is none anywhere here."""
        if not self._use_orig_params:
            return self.flat_param.grad
        found = [(place, place.parameter.grad) for place in self.layout.places if place.parameter.grad is not None]
        if not found:
            return None
        flat = factories.zeros(self.flat_param.shape, dtype=found[0][1].dtype, device=self.flat_param.device)
        for place, grad in found:
            self._piece(flat, place).copy_(grad)
        return flat

    # -- whole tensors without the group

    def gathered(self, piece: Tensor) -> Tensor:
        """The flat tensor of which every rank has such a piece; the piece itself where it is everything."""
        if not self.uses_sharded_strategy:
            return piece
        piece = piece if piece.device == self.device else piece.to(self.device)
        placements = self.group.sharded.placements
        with no_grad():
            return DTensor.from_local(piece.detach(), self.meshes.mesh, placements, run_check=False).full_tensor()

    def distributed(self, whole: Tensor) -> DTensor:
        """A parameter, or a state of its shape, that all ranks have as a DTensor of which each has some rows."""
        mesh = self.meshes.mesh
        with no_grad():
            everywhere = DTensor.from_local(whole.detach(), mesh, [Replicate()] * mesh.ndim, run_check=False)
            return everywhere.redistribute(placements=self.meshes.placements(Shard(0)))

    def refresh(self) -> bool:
        """Take over what a program has made of its parameters: other data, maybe of another dtype or on another device. Whether there is a new group."""
        self._ask_who_learns()
        data, own = self.flat_param.data, self.group.piece
        if data.dtype != own.dtype or data.device != own.device:
            with no_grad():
                self._form_group(self.gathered(data))
                self.flat_param.data = self.group.piece
            self._cut_pieces()
            return True
        if data.data_ptr() != own.data_ptr():
            self.group.take_piece(data)
            self._cut_pieces()
        elif self._use_orig_params:
            for place in self.layout.places:
                if place.parameter._array is not place.known:
                    self._take_back(place)
        return False

    def _ask_who_learns(self) -> None:
        """Parameters may have been frozen, or the other way round."""
        for place in self.layout.places:
            place.requires_grad = (place.parameter if self._use_orig_params else self.flat_param).requires_grad
        wanted = any(place.requires_grad for place in self.layout.places)
        if wanted != self.requires_grad:
            self.requires_grad = wanted
            self.group.want_gradient(wanted)

    def _take_back(self, place: Place) -> None:
        """Copy what a parameter was given as its data to where its elements are."""
        start, stop = self.layout.extent(place)
        given, place.parameter.data = place.parameter.data, self._piece(self.flat_param.data, place)
        place.known = place.parameter._array
        if given.size() == place.shape and self.uses_sharded_strategy:
            begin = self.layout.rank * self.layout.per_rank + start - place.start
            given = given.reshape(-1)[begin : begin + stop - start] if stop > start else given.reshape(-1)[:0]
        if given.size() != place.parameter.size():
            raise RuntimeError(
                f"{place.names[0]} was given data of shape {tuple(given.shape)}, and this rank has {tuple(place.parameter.shape)} of it, of {tuple(place.shape)} "
                "in all. Write to parameters within FullyShardedDataParallel.summon_full_params"
            )
        with no_grad():
            place.parameter.copy_(given)


def _add(parameter: Any, grad: Tensor) -> None:
    """Let a gradient arrive at a leaf. It may be of lower precision than the parameter, where the program wants it so."""
    if parameter._grad is None:
        parameter._grad = grad
    else:
        parameter._grad.add_(grad)
    for hook in list((parameter._post_accumulate or {}).values()):
        hook(parameter)
