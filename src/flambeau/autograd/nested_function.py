"""NestedIOFunction: a user-defined operation whose arguments and results are tuples, lists and dictionaries of tensors, nested at will.

    class Swap(NestedIOFunction):
        def forward_extended(self, pair):
            self.save_for_backward(pair)
            return {"first": pair[1], "second": pair[0] * 2}

        def backward_extended(self, grads):
            return ((grads["second"] * 2, grads["first"]),)

    Swap.apply((a, b))

A plain Function sees the tensors one by one; here they come back in the containers they came in. One gradient is returned per argument, in that
argument's containers.
"""

from __future__ import annotations

from typing import Any

from flambeau.autograd.function import Function
from flambeau.batching import trees


class NestedIOFunction(Function):
    """Subclass it with `forward_extended` and `backward_extended`, which are methods: `self` is what other functions call ctx."""

    _ctx: Any
    _saved_shape: Any
    _result_shape: Any

    @classmethod
    def apply(cls, *input: Any) -> Any:
        """The result of forward_extended, in its containers."""
        self = object.__new__(cls)
        leaves, shape = trees.flatten(input)
        found = _Flat.apply(self, shape, *leaves)
        return trees.unflatten(found, self._result_shape)

    def forward_extended(self, *input: Any) -> Any:
        """The result, of the arguments as they were given."""
        raise NotImplementedError(f"{type(self).__name__} has no forward_extended(self, *input)")

    def backward_extended(self, *grad_output: Any) -> Any:
        """A gradient per argument, of the gradients in the containers of the result."""
        raise NotImplementedError(f"{type(self).__name__} has no backward_extended(self, *grad_output)")

    def save_for_backward(self, *args: Any) -> None:
        """Keep nested tensors for `saved_tensors`."""
        leaves, self._saved_shape = trees.flatten(args)
        self._ctx.save_for_backward(*leaves)

    @property
    def saved_tensors(self) -> Any:
        """What was saved, in its containers."""
        return trees.unflatten(self._ctx.saved_tensors, self._saved_shape)

    def mark_dirty(self, *args: Any, **kwargs: Any) -> None:
        """Say which arguments were changed in place."""
        self._ctx.mark_dirty(*trees.flatten((args, kwargs))[0])

    def mark_non_differentiable(self, *args: Any, **kwargs: Any) -> None:
        """Say which results have no gradient."""
        self._ctx.mark_non_differentiable(*trees.flatten((args, kwargs))[0])


class _Flat(Function):
    """The same operation on a flat list of tensors."""

    @staticmethod
    def forward(ctx: Any, self: NestedIOFunction, shape: Any, *leaves: Any) -> tuple:
        ctx.nested, ctx.count, self._ctx = self, len(leaves), ctx
        found, self._result_shape = trees.flatten(self.forward_extended(*trees.unflatten(leaves, shape)))
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        self = ctx.nested
        shape = self._result_shape
        arranged = trees.unflatten(grads, shape)
        several = shape is not trees.LEAF and shape.kind is tuple
        leaves = trees.leaves_of(self.backward_extended(*arranged) if several else self.backward_extended(arranged))
        if len(leaves) != ctx.count:
            raise RuntimeError(
                f"{type(self).__name__}.backward_extended returned {len(leaves)} gradients for {ctx.count} inputs: one each, None where there is none"
            )
        return (None, None, *leaves)
