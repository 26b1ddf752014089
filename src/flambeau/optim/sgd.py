"""Stochastic gradient descent."""

from __future__ import annotations

from flambeau.ops import updates
from flambeau.optim.elementwise import Elementwise, apply, check, check_fused
from flambeau.tensor.making.factories import empty_like

__all__ = ["SGD", "sgd"]


class SGD(Elementwise):
    """Descend along the gradient g, or along its running sum b.

    b <- momentum b + (1 - dampening) g,    p <- p - lr b            (nesterov: p - lr (g + momentum b))

    The buffer b begins as the first gradient. weight_decay adds weight_decay p to g. See Sutskever et al., On the importance of initialization
    and momentum in deep learning, whose lr multiplies g instead of b.
    """

    rule = updates.sgd

    def __init__(
        self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False, foreach=None,
        differentiable=False, fused=None,
    ):  # fmt: skip
        check(lr, momentum=momentum, weight_decay=weight_decay)
        defaults = dict(
            lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov, maximize=maximize,
            foreach=foreach, differentiable=differentiable, fused=fused,
        )  # fmt: skip
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("SGD: nesterov needs momentum, and no dampening")
        super().__init__(params, defaults)
        check_fused(fused, foreach, differentiable)

    def _init_group(self, group, params, grads, momentum_buffer_list):
        """Fill the lists that `sgd` takes; whether a gradient is sparse. For subclasses with a step of their own."""
        given = [p for p in group["params"] if p.grad is not None]
        params += given
        grads += [p.grad for p in given]
        if group["momentum"] != 0:
            momentum_buffer_list += [self.state[p].get("momentum_buffer") for p in given]
        return any(p.grad.is_sparse for p in given)

    def _names(self, group):
        return ("momentum_buffer",) if group["momentum"] != 0 else ()

    def _held(self, group, params):
        return [self.state[p] for p in params] if group["momentum"] != 0 else [{}] * len(params)

    def _keys(self, group, held, params):
        """Whether this is a parameter's first step, with which its buffer begins."""
        if group["momentum"] == 0:
            return [False]
        first = [state.get("momentum_buffer") is None for state in held]
        if any(first):
            for state, p, begins in zip(held, params, first, strict=True):
                if begins:
                    state["momentum_buffer"] = empty_like(p)
        return first

    def _move_sparsely(self, group, p, grad):
        """By a sparse gradient; the buffer is sparse, too."""
        if group["weight_decay"] != 0:
            raise RuntimeError("SGD: weight_decay is not supported with sparse gradients: it would move elements that have none")
        grad = -grad if group["maximize"] else grad
        if group["momentum"] != 0:
            state = self.state[p]
            buffer = state.get("momentum_buffer")
            if buffer is None:
                buffer = state["momentum_buffer"] = grad.detach().clone()
            else:
                buffer.mul_(group["momentum"]).add_(grad, alpha=1 - group["dampening"])
            grad = grad.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
        p.add_(grad, alpha=-float(group["lr"]))

    def _options(self, group, key):
        names = ("lr", "momentum", "dampening", "nesterov", "weight_decay", "maximize")
        return {name: group[name] for name in names} | {"first": key}


def sgd(
    params, d_p_list, momentum_buffer_list, has_sparse_grad=False, foreach=None, fused=None, grad_scale=None, found_inf=None, *, weight_decay,
    momentum, lr, dampening, nesterov, maximize,
):  # fmt: skip
    """A step of SGD on tensors that the caller keeps; buffers that are None begin, in their list."""
    held = apply(
        SGD, params, d_p_list, {"momentum_buffer": momentum_buffer_list}, weight_decay=weight_decay, momentum=momentum, lr=lr,
        dampening=dampening, nesterov=nesterov, maximize=maximize,
    )  # fmt: skip
    momentum_buffer_list[:] = [state.get("momentum_buffer") for state in held] if momentum != 0 else momentum_buffer_list
