"""Steps with gradients that are passed in, for those who have them somewhere else than in `.grad`."""

from __future__ import annotations

from typing import Any

from flambeau.optim import Optimizer
from flambeau.tensor import Tensor


class FunctionalOptimizer:
    """An optimizer of `flambeau.optim` (`optimizer_class`) for parameters whose gradients are passed in.

    param_group  {"params": the parameters}; the options are the optimizer's
    """

    optimizer_class: type[Optimizer]

    def __init__(self, params: list[Tensor], _allow_empty_param_list: bool = False, **options: Any) -> None:
        if not params and not _allow_empty_param_list:
            raise ValueError("optimizer got an empty parameter list")
        self.param_group = {"params": params}
        self.options = options
        self._optimizer = self.optimizer_class(params, **options) if params else None
        self.defaults = dict(self._optimizer.defaults) if self._optimizer is not None else dict(options)

    @property
    def state(self) -> Any:
        """What is remembered about each parameter."""
        return {} if self._optimizer is None else self._optimizer.state

    def step_param(self, param: Tensor, grad: Tensor | None) -> None:
        """Move one parameter."""
        self._move([param], [grad])

    def step(self, gradients: list[Tensor | None]) -> None:
        """Move all parameters, by their gradients in the same order."""
        params = self.param_group["params"]
        if len(params) != len(gradients):
            raise ValueError(
                f"the gradients passed in does not equal to the size of the parameters! Params length: {len(params)}. Gradients length: {len(gradients)}"
            )
        self._move(params, gradients)

    def _move(self, params: list[Tensor], grads: list[Tensor | None]) -> None:
        if self._optimizer is None or not any(param is p for param in params for p in self._optimizer.param_groups[0]["params"]):
            self._adopt(params)
        optimizer = self._optimizer
        assert optimizer is not None
        group = optimizer.param_groups[0]
        everything = group["params"]
        own = [p.grad for p in params]
        group["params"] = params
        try:
            for p, grad in zip(params, grads, strict=True):
                p.grad = grad
            optimizer.step()
        finally:
            group["params"] = everything
            for p, grad in zip(params, own, strict=True):
                p.grad = grad

    def _adopt(self, params: list[Tensor]) -> None:
        """Parameters that were not known at the beginning."""
        if self._optimizer is None:
            self._optimizer = self.optimizer_class(list(params), **self.options)
        else:
            self._optimizer.param_groups[0]["params"] += params
