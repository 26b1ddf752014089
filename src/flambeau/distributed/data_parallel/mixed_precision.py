"""Mixed precision: forward and backward run in half precision, the parameters that the optimizer sees stay as they are.

While forward runs, the module finds copies in the place of its parameters. That copying is recorded, so backward leads through it to the parameters,
and their gradients have the parameters' own dtype. Only on their way to other ranks they may have another, `reduce_dtype`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from flambeau.distributed.data_parallel.moving import mapped
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor


@dataclass
class _MixedPrecision:
    """The dtypes of parameters in forward and backward, of gradients on their way, and of buffers; None leaves them as they are."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None
    _low_precision_param_dtype: Any = None
    _cast_forward_inputs: bool = True


class MixedParameters:
    """Lets a module see its parameters in another dtype while its forward runs.

    places   (module, name, parameter) of everything that is exchanged, a shared parameter once for each place
    """

    def __init__(self, module: Module, policy: _MixedPrecision, ignored: Collection[str]):
        self.policy, self.ignored = policy, set(ignored)
        self.places = [
            (inner, name, p)
            for path, inner in module.named_modules()
            for name, p in inner._parameters.items()
            if p is not None and f"{path}.{name}".lstrip(".") not in self.ignored and p.is_floating_point()
        ]
        if policy.buffer_dtype is not None:
            for b in module.buffers():
                if b.is_floating_point():
                    b.data = b.data.to(policy.buffer_dtype)

    def enter(self, inputs: Any, kwargs: Any) -> tuple[Any, Any]:
        """Exchange parameters, and cast inputs."""
        dtype = self.policy.param_dtype
        if dtype is None:
            return inputs, kwargs
        made: dict[int, Tensor] = {}
        for inner, name, p in self.places:
            if id(p) not in made:
                made[id(p)] = p.to(dtype)
            inner.__dict__[name] = made[id(p)]
        return cast((inputs, kwargs), dtype) if self.policy._cast_forward_inputs else (inputs, kwargs)

    def leave(self) -> None:
        """Put the parameters back."""
        for inner, name, p in self.places:
            inner.__dict__[name] = p


def cast(found: Any, dtype: Any) -> Any:
    """The same structure, its floating-point tensors in another dtype."""
    return mapped(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, found)
