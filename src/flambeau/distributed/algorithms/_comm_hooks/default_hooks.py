"""All-reduce and reduce-scatter of one gradient, as they are or in half precision.

The sum is divided in two steps, before and after, so that neither the gradients nor their sum leave the range of half precision:

    mean = (sum of g / before) / after,   before * after = number of ranks
"""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.distributed import options
from flambeau.tensor import Tensor

__all__ = ["allreduce_hook", "bf16_compress_hook", "fp16_compress_hook", "reduce_scatter_hook"]


class DefaultState:
    """The group, and by what to divide before and after the sum."""

    __slots__ = ["gradient_postdivide_factor", "gradient_predivide_factor", "process_group", "world_size"]

    def __init__(self, process_group: Any):
        if process_group is None:
            raise ValueError(f"Expected to pass in an explicit ProcessGroup to {self}.")
        self.process_group = process_group
        self.world_size = process_group.size()
        self.gradient_predivide_factor = self._get_gradient_predivide_factor(self.world_size)
        self.gradient_postdivide_factor = self.world_size / self.gradient_predivide_factor

    @staticmethod
    def _get_gradient_predivide_factor(world_size: int) -> float:
        """The power of two that is a divisor of the number of ranks and next above its square root.

        >>> [DefaultState._get_gradient_predivide_factor(n) for n in (2, 4, 8, 6)]
        [2.0, 2.0, 4.0, 2.0]
        """
        factor = 1
        while world_size % factor == 0 and world_size / factor > factor:
            factor *= 2
        return float(factor)


class LowPrecisionState(DefaultState):
    """The same, and the dtype that gradients have afterwards."""

    __slots__ = ["parameter_type"]

    def __init__(self, process_group: Any, parameter_type: Any = dtypes.float32):
        super().__init__(process_group)
        self.parameter_type = parameter_type


def _decompress(state: LowPrecisionState, grad: Tensor) -> None:
    """Give a gradient its dtype again."""
    grad.data = grad.data.to(state.parameter_type)


def allreduce_hook(state: DefaultState, grad: Tensor) -> None:
    """The mean over the group, in place."""
    if state.gradient_predivide_factor > 1:
        grad.div_(state.gradient_predivide_factor)
    opts = options.AllreduceOptions()
    opts.asyncOp = False
    state.process_group.allreduce([grad], opts).wait()
    if state.gradient_postdivide_factor > 1:
        grad.div_(state.gradient_postdivide_factor)


def reduce_scatter_hook(state: DefaultState, grad: Tensor, output: Tensor) -> None:
    """This rank's piece of the mean, in `output`."""
    if state.gradient_predivide_factor > 1:
        grad.div_(state.gradient_predivide_factor)
    opts = options.ReduceScatterOptions()
    opts.asyncOp = False
    state.process_group._reduce_scatter_base(output, grad, opts).wait()
    if state.gradient_postdivide_factor > 1:
        output.div_(state.gradient_postdivide_factor)


def fp16_compress_hook(state: LowPrecisionState, grad: Tensor, output: Tensor | None = None) -> None:
    """The mean in float16: an all-reduce, or with `output` a reduce-scatter."""
    _low_precision_hook(dtypes.float16, state, grad, output)


def bf16_compress_hook(state: LowPrecisionState, grad: Tensor, output: Tensor | None = None) -> None:
    """The mean in bfloat16: an all-reduce, or with `output` a reduce-scatter."""
    _low_precision_hook(dtypes.bfloat16, state, grad, output)


def _low_precision_hook(prec: Any, state: LowPrecisionState, grad: Tensor, output: Tensor | None) -> None:
    if grad.dtype != prec:
        grad.data = grad.data.to(prec)
    if output is None:
        allreduce_hook(state, grad)
        _decompress(state, grad)
        return
    if output.dtype != prec:
        output.data = output.data.to(prec)
    reduce_scatter_hook(state, grad, output)
    _decompress(state, output)
