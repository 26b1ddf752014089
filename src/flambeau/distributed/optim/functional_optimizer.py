"""Steps with gradients that are passed in, for those who have them somewhere else than in `.grad`."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any

from flambeau.optim import Optimizer
from flambeau.tensor import Tensor


class FunctionalOptimizer:
    """An optimizer of `flambeau.optim` for parameters whose gradients are passed in.

    param_group  {"params": the parameters}; the options are the optimizer's

        class _FunctionalSGD(FunctionalOptimizer, of=SGD, lr=1e-2, momentum=0.0): ...       # in the order in which they may be passed
    """

    optimizer_class: type[Optimizer]
    __signature__: Signature

    def __init_subclass__(cls, of: type[Optimizer], **options: Any) -> None:
        cls.optimizer_class = of
        defaults = {**options, "_allow_empty_param_list": False}
        taken = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=value) for name, value in defaults.items()]
        cls.__signature__ = Signature([Parameter("params", Parameter.POSITIONAL_OR_KEYWORD), *taken])

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = self.__signature__.bind(*args, **kwargs)
        given.apply_defaults()
        params, *_, may_be_empty = given.args
        if not params and not may_be_empty:
            raise ValueError("optimizer got an empty parameter list")
        self.param_group = {"params": params}
        self.options = self._options({name: given.arguments[name] for name in [*given.arguments][1:-1]})
        self._optimizer = self.optimizer_class(params, **self.options) if params else None
        self.defaults = dict(self._optimizer.defaults) if self._optimizer is not None else dict(self.options)

    def _options(self, given: dict[str, Any]) -> dict[str, Any]:
        """What the optimizer is told."""
        return given

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
