"""FlatGroup: the shared machinery with one parameter, the flat one. It tells its unit when that becomes whole, and when its gradient has come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from flambeau.distributed.fsdp._fully_shard.param_group import ParamGroup, Stage
from flambeau.distributed.fsdp._fully_shard.policies import DefaultReduceScatter
from flambeau.distributed.fsdp._fully_shard.releasing import Region
from flambeau.distributed.fsdp.api import BackwardPrefetch
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Tensor
from flambeau.tensor.making import factories

if TYPE_CHECKING:
    from flambeau.distributed.fsdp._wrapped.unit import Unit


class FlatGroup(ParamGroup):
    """A ParamGroup of the flat parameter of a unit. The module that holds it is none of the program's."""

    def __init__(self, flat: Tensor, unit: Unit, prefetch: BackwardPrefetch | None, **arguments: Any):
        self.unit, self.backward_prefetch = unit, prefetch
        self.holder = Module()
        self.before_division: Any = Parameter(
            flat, requires_grad=unit.requires_grad
        )  # kept, without elements: groups know parameters by their id
        self.holder.flat = self.before_division
        super().__init__([self.before_division], [self.holder], unit.meshes, unit.device, **arguments)
        self.before_division.data = factories.empty((0,), dtype=flat.dtype)
        self.want_gradient(unit.requires_grad)

    def want_gradient(self, wanted: bool) -> None:
        """Whether the flat parameter is to be learned, as far as the program has said."""
        self.sharded.requires_grad_(wanted)
        if wanted and not self.sharded._post_accumulate:
            self.sharded.register_post_accumulate_grad_hook(self._arrived)

    @property
    def sharded(self) -> Any:
        """The DTensor that the machinery divides."""
        return self.params[0].sharded

    @property
    def whole(self) -> Any:
        """All elements; its memory comes and goes."""
        return self.params[0].whole

    @property
    def piece(self) -> Tensor:
        """This rank's piece."""
        return self.sharded._local_tensor

    def take_piece(self, piece: Tensor) -> None:
        """Other memory for it."""
        self.sharded._local_tensor = piece

    def _arrived(self, sharded: Any) -> None:
        grad, sharded.grad = sharded.grad._local_tensor, None
        self.unit.receive(grad)

    # -- whole and back

    def unshard(self, async_op: bool = False) -> None:
        """As for any group; a piece that is everything is used as it is."""
        if (
            self.is_whole
            or self.meshes.shard_group is not None
            or self._whole_dtype(self.params[0]) != self.piece.dtype
            or self.piece.device != self.device
        ):
            super().unshard(async_op)
            return
        self.check()
        self.params[0].hold_whole(self.piece)
        self.regions.setdefault(self.piece.dtype, Region(self.name)).fill(self.piece, [self.whole])
        self.is_whole = True

    def before_forward(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        inputs = super().before_forward(inputs)
        self.unit.hold_views()  # later than what hears of the inputs' gradients: backward comes to it before
        return inputs

    def after_forward(self, outputs: Iterable[Tensor]) -> None:
        super().after_forward(outputs)
        self.unit.hold_pieces()

    def before_backward(self, *, prefetch: bool = True) -> None:
        if self.stage is not Stage.BEFORE_BACKWARD:
            super().before_backward(prefetch=prefetch and self.backward_prefetch is BackwardPrefetch.BACKWARD_PRE)
            self.unit.hold_views()  # for a checkpointed forward

    def after_backward(self) -> None:
        super().after_backward()
        self.unit.hold_pieces()
        if self.backward_prefetch is BackwardPrefetch.BACKWARD_POST and self.places:
            place = self.places.pop()
            if place:
                self.communication.order[place - 1].prefetch(Stage.BEFORE_BACKWARD)

    def forget_forward(self) -> None:
        """A forward has failed."""
        self.stage = Stage.IDLE
        self.wait()
        self.be_sharded()
        self.unit.hold_pieces()

    def discard(self) -> None:
        super().discard()
        self.unit.hold_pieces()

    # -- a program's own reduction

    def reduce_by(self, hook: Callable[..., None], state: Any) -> None:
        """Let hook(state, gradient, piece of the mean) reduce gradients, or hook(state, gradient), in place, where nothing is divided."""
        self.gradient_divide_factor = 1.0  # dividing is the hook's business
        if self.meshes.shard_group is not None:
            self.reduce_scatter = _ByHook(hook, state)
            return
        self.meshes = copy(self.meshes)
        self.meshes.replicate_group, self.meshes.replicate_size = None, 1  # averaging is the hook's business, too
        self.all_reduce_hook = lambda grad: hook(state, grad)


class _ByHook(DefaultReduceScatter):
    def __init__(self, hook: Callable[..., None], state: Any):
        self.hook, self.state = hook, state

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False) -> None:
        self.hook(self.state, input_tensor, output_tensor)
