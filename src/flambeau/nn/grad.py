"""torch.nn.grad: the derivatives of a convolution, for those who write its backward pass themselves.

input (N, C, *S), weight (O, C / groups, *K) -> grad_output (N, O, *P)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flambeau.autograd import api
from flambeau.modes import enable_grad
from flambeau.nn import functional as F
from flambeau.tensor import Tensor

__all__ = [f"conv{n}d_{part}" for n in (1, 2, 3) for part in ("input", "weight")]


def _by_input(convolution: Callable) -> Callable:
    def by_input(
        input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride=1, padding=0, dilation=1, groups=1
    ) -> Tensor:  # fmt: skip
        """The gradient of a convolution's input, whose shape is `input_size`."""
        start = grad_output.new_zeros(tuple(input_size)[-grad_output.dim() :])
        if start.dim() != grad_output.dim():
            raise ValueError(f"input_size must have {grad_output.dim()} numbers, found {tuple(input_size)}")
        return _derivative(lambda x: convolution(x, weight, None, stride, padding, dilation, groups), start, grad_output)

    return by_input


def _by_weight(convolution: Callable) -> Callable:
    def by_weight(
        input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride=1, padding=0, dilation=1, groups=1
    ) -> Tensor:  # fmt: skip
        """The gradient of a convolution's weight, whose shape is `weight_size`."""
        start = grad_output.new_zeros(tuple(weight_size))
        return _derivative(lambda w: convolution(input, w, None, stride, padding, dilation, groups), start, grad_output)

    return by_weight


def _derivative(function: Callable[[Tensor], Tensor], start: Tensor, grad: Tensor) -> Tensor:
    """A convolution is linear in both tensors, so that it does not matter where its derivative is taken."""
    with enable_grad():
        start.requires_grad_()
        return api.grad(function(start), start, grad, create_graph=grad.requires_grad)[0]


conv1d_input, conv1d_weight = _by_input(F.conv1d), _by_weight(F.conv1d)
conv2d_input, conv2d_weight = _by_input(F.conv2d), _by_weight(F.conv2d)
conv3d_input, conv3d_weight = _by_input(F.conv3d), _by_weight(F.conv3d)
for _name in __all__:
    globals()[_name].__name__ = globals()[_name].__qualname__ = _name
