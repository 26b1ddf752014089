"""Full backward hooks: what flows into a module's outputs and out of its inputs, whatever it did in between.

The inputs pass through one node before `forward`, the outputs through another after it. The second runs first in backward and sees all
gradients of the outputs at once; when the first runs, the gradients of the inputs are complete.

    inputs -> [node] -> forward -> [node] -> outputs
              hooks                pre-hooks
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from flambeau import modes
from flambeau.autograd.function import Function
from flambeau.tensor import Tensor


class BackwardHookFunction(Function):
    """The identity of several tensors, as one node."""

    @staticmethod
    def forward(*args: Tensor) -> Any:
        return args

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        ctx.mark_non_differentiable(*[arg for arg in inputs if not arg.requires_grad])

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Tensor) -> Any:
        return args, in_dims

    @staticmethod
    def backward(ctx: Any, *args: Any) -> Any:
        return args


class BackwardHook:
    """The hooks of one call of a module."""

    def __init__(self, module: Any, user_hooks: Sequence[Callable], user_pre_hooks: Sequence[Callable]):
        self.module, self.user_hooks, self.user_pre_hooks = module, user_hooks, user_pre_hooks
        self.grad_outputs: Any = None
        self.n_inputs = self.n_outputs = -1
        self.input_tensors_index: list[int] | None = None
        self.output_tensors_index: list[int] | None = None

    def setup_input_hook(self, args: tuple) -> tuple:
        """The arguments, after the node that calls the hooks."""
        self.n_inputs = len(args)
        args, self.input_tensors_index = self._through_node(args, lambda node: node.register_hook(self._inputs_are_known))
        return args

    def setup_output_hook(self, result: Any) -> Any:
        """The output, after the node that calls the pre-hooks."""
        results = result if isinstance(result, tuple) else (result,)
        self.n_outputs = len(results)
        results, self.output_tensors_index = self._through_node(results, lambda node: node.register_prehook(self._outputs_are_known))
        return results if isinstance(result, tuple) else results[0]

    def _through_node(self, args: tuple, register: Callable) -> tuple[tuple, list[int] | None]:
        places = [i for i, arg in enumerate(args) if isinstance(arg, Tensor)]
        tensors = [args[i] for i in places]
        if not modes.state.grad or not any(t.requires_grad for t in tensors):
            return args, None
        passed = BackwardHookFunction.apply(*tensors)
        register(next(t.grad_fn for t in passed if t.requires_grad))
        changed = list(args)
        for place, tensor in zip(places, passed, strict=True):
            changed[place] = tensor
        return type(args)(*changed) if hasattr(args, "_fields") else tuple(changed), places

    def _outputs_are_known(self, grads: tuple) -> tuple | None:
        self.grad_outputs = _spread(self.output_tensors_index, grads, self.n_outputs)
        for hook in self.user_pre_hooks:
            answer = hook(self.module, self.grad_outputs)
            if answer is None:
                continue
            answer = answer if isinstance(answer, tuple) else (answer,)
            _check_number("Backward pre hook", "grad_output", answer, self.grad_outputs)
            self.grad_outputs = answer
        found = self.grad_outputs
        if self.input_tensors_index is None:
            self._no_inputs()
        return tuple(found[i] for i in self.output_tensors_index)

    def _no_inputs(self) -> None:
        """No input needs a gradient, so that no node stands before the module: its hooks are called now."""
        if self.user_hooks:
            said = (
                "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs require gradients"
            )
            warnings.warn(f"{said}: there are no gradients of inputs to show.", stacklevel=5)
        for hook in self.user_hooks:
            answer = hook(self.module, (None,) * self.n_inputs, self.grad_outputs)
            if answer is not None and not (isinstance(answer, tuple) and all(a is None for a in answer)):
                wanted = "has no gradient to change: it may return None, or a tuple of nothing else"
                raise RuntimeError(f"Backward hook of a module where no input requires gradient {wanted}.")
        self.grad_outputs = None

    def _inputs_are_known(self, grads: tuple, _arrived: tuple) -> tuple | None:
        if self.grad_outputs is None:
            return None  # the gradient came to the inputs without passing through the outputs
        found = _spread(self.input_tensors_index, grads, self.n_inputs)
        for hook in self.user_hooks:
            answer = hook(self.module, found, self.grad_outputs)
            if answer is None:
                continue
            answer = answer if isinstance(answer, tuple) else (answer,)
            _check_number("Backward hook", "grad_input", answer, found)
            found = answer
        self.grad_outputs = None
        return tuple(found[i] for i in self.input_tensors_index)


def _spread(places: list[int], values: Sequence, length: int) -> tuple:
    """`values` at their places among `length`, None elsewhere."""
    spread = [None] * length
    for place, value in zip(places, values, strict=True):
        spread[place] = value
    return tuple(spread)


def _check_number(what: str, whose: str, found: tuple, expected: tuple) -> None:
    if len(found) != len(expected):
        raise RuntimeError(f"{what} returned an invalid number of {whose}, got {len(found)}, but expected {len(expected)}")
