"""PostLocalSGDOptimizer: a step, and then perhaps an average of all ranks' parameters.

model.register_comm_hook(PostLocalSGDState(None, subgroup, start_localSGD_iter=100), post_localSGD_hook)
optimizer = PostLocalSGDOptimizer(SGD(model.parameters(), lr=0.1), PeriodicModelAverager(period=4, warmup_steps=100))
"""

from __future__ import annotations

import warnings
from typing import Any

from flambeau.distributed.algorithms.model_averaging.averagers import ModelAverager
from flambeau.optim import Optimizer

__all__ = ["PostLocalSGDOptimizer"]


class PostLocalSGDOptimizer(Optimizer):
    """The optimizer inside, and an averager that is asked after each step."""

    def __init__(self, optim: Optimizer, averager: ModelAverager):
        self.optim, self.averager = optim, averager
        self.param_groups = optim.param_groups

    @property  # type: ignore[misc]
    def state(self) -> Any:
        return self.optim.state

    def __repr__(self) -> str:
        return repr(self.optim)

    def state_dict(self) -> dict[str, Any]:
        """That of the optimizer, with the averager's count as "step"."""
        found = self.optim.state_dict()
        found["step"] = self.averager.step
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where that one was. One without a "step" restarts the averager's count."""
        self.optim.load_state_dict(state_dict)
        if "step" in state_dict:
            self.averager.step = state_dict["step"]
        else:
            warnings.warn("Loaded state dict does not contain a step counter for an averager. Setting step counter to 0.", stacklevel=2)
            self.averager.step = 0

    def step(self) -> None:  # type: ignore[override]
        """A step, and an average if it is time."""
        self.optim.step()
        self.averager.average_parameters(params=self.param_groups)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.optim.add_param_group(param_group)
