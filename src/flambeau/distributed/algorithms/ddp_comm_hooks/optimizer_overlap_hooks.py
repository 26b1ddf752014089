"""Steps of an optimizer for the parameters of a bucket, as soon as their gradients have been averaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flambeau.autograd.grad_mode import no_grad
from flambeau.distributed.data_parallel.grad_bucket import GradBucket, views
from flambeau.futures import Future
from flambeau.tensor import Tensor

__all__: list[str] = []

Hook = Callable[[Any, GradBucket], Future[Tensor]]


class _OptimizerHookState:
    """A functional optimizer, and the parameters that it moves: None for all."""

    __slots__ = ["functional_optimizer", "params_to_optimize"]

    def __init__(self, functional_optim: Any, params: Iterable[Tensor] | None = None):
        self.functional_optimizer = functional_optim
        self._check_valid_functional_optim()
        self._set_params_to_optimize(params)

    def _set_params_to_optimize(self, params: Iterable[Tensor] | None) -> None:
        self.params_to_optimize = None if params is None else set(params)

    def _check_valid_functional_optim(self) -> None:
        if not hasattr(self.functional_optimizer, "step_param"):
            raise ValueError(f"Class {type(self.functional_optimizer)} must implement method step_param(param, grad).")


def _hook_then_optimizer(hook: Hook, optimizer_state: _OptimizerHookState) -> Hook:
    """`hook`, and a step with what comes of it."""
    chosen = optimizer_state.params_to_optimize

    def with_step(state: Any, bucket: GradBucket) -> Future[Tensor]:
        def step(future: Future[Tensor]) -> Tensor:
            result: Any = future.value()
            flat = result[0] if isinstance(result, (list, tuple)) else result
            params = bucket.parameters()
            with no_grad():
                for p, grad in zip(params, views(flat, params), strict=True):
                    if chosen is None or p in chosen:
                        optimizer_state.functional_optimizer.step_param(p, grad)
            return flat

        return hook(state, bucket).then(step)

    return with_step
