"""Optimizers that begin as a copy of one of PyTorch's find what that imports, and move as they do there."""

from __future__ import annotations

import importlib

import pytest
from oracle import torch

import flambeau


def _names(t, module: str, *names: str) -> list:
    home = importlib.import_module(f"{t.__name__}.{module}")
    return [getattr(home, name) for name in names]


def _cautious(t):
    """Adam with a mask on its gradients: a subclass with a step of its own."""
    (wrap,), (adam,) = _names(t, "optim.optimizer", "_use_grad_for_differentiable"), _names(t, "optim.adam", "adam")

    class Cautious(t.optim.Adam):
        @wrap
        def step(self, closure=None):
            self._accelerator_graph_capture_health_check()
            assert not t.is_grad_enabled()
            for group in self.param_groups:
                lists = [[] for _ in range(6)]
                complex_ones = self._init_group(group, *lists)
                lists[1][:] = [g * (g.abs() > 0.01) for g in lists[1]]
                options = {
                    n: group[n] for n in ("amsgrad", "lr", "weight_decay", "eps", "maximize", "foreach", "capturable", "differentiable")
                }
                adam(*lists, beta1=group["betas"][0], beta2=group["betas"][1], has_complex=complex_ones, **options)

    return Cautious


def _plain(t):
    """SGD, its lists filled and moved by hand."""
    (sgd,) = _names(t, "optim.sgd", "sgd")

    class Plain(t.optim.SGD):
        @t.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                params, grads, buffers = [], [], []
                sparse = self._init_group(group, params, grads, buffers)
                options = {n: group[n] for n in ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "foreach")}
                sgd(params, grads, buffers, has_sparse_grad=sparse, **options)
                for p, buffer in zip(params, buffers, strict=True):
                    self.state[p]["momentum_buffer"] = buffer

    return Plain


def _signs(t):
    """A rule of its own, in groups of device and dtype."""
    wrap, value = _names(t, "optim.optimizer", "_use_grad_for_differentiable", "_get_value")

    class Signs(t.optim.Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params, {"lr": lr, "differentiable": False})

        @wrap
        def step(self, closure=None):
            for group in self.param_groups:
                params = [p for p in group["params"] if p.grad is not None]
                grouped = self._group_tensors_by_device_and_dtype([params, [p.grad for p in params]], with_indices=True)
                assert sorted(i for _, places in grouped.values() for i in places) == list(range(len(params)))
                for (moved, grads), _ in grouped.values():
                    t._foreach_add_(moved, t._foreach_sign(grads), alpha=-value(group["lr"]))

    return Signs


@pytest.mark.parametrize(("make", "options"), [
    (_cautious, {"lr": 0.1}), (_cautious, {"lr": 0.05, "amsgrad": True, "weight_decay": 0.1}),
    (_plain, {"lr": 0.1, "momentum": 0.9, "nesterov": True}), (_signs, {}),
])  # fmt: skip
def test_an_optimizer_of_somebody_elses(make, options):
    """A few steps end elsewhere than with PyTorch, or cannot be taken."""
    found = []
    for t in (torch, flambeau):
        t.manual_seed(0)
        single, double = t.nn.Linear(4, 3), t.nn.Linear(3, 2).double()
        optimizer = make(t)([*single.parameters(), *double.parameters()], **options)
        x = t.randn(5, 4)
        for _ in range(3):
            optimizer.zero_grad()
            double(single(x).double()).pow(2).mean().backward()
            optimizer.step()
        found.append([single.weight.flatten().tolist(), double.bias.tolist()])
        assert t.is_grad_enabled()
    assert found[1] == [pytest.approx(values, rel=1e-5) for values in found[0]]


def test_questions_about_lists_of_tensors():
    """Device, dtype and the ways to move are answered otherwise than in PyTorch."""
    found = []
    for t in (torch, flambeau):
        group, supports = _names(t, "utils._foreach_utils", "_group_tensors_by_device_and_dtype", "_has_foreach_support")
        ways, real, fused, counted = _names(
            t, "optim.optimizer", "_default_to_fused_or_foreach", "_view_as_real", "_device_dtype_check_for_fused", "_get_scalar_dtype"
        )
        mixed = [t.ones(1), t.ones(2, dtype=t.float64), t.ones(3)]
        weights = [t.nn.Parameter(x) for x in mixed]
        groups = {(d.type, str(k)): ([[None if x is None else x.shape for x in xs] for xs in lists], places)
                  for (d, k), (lists, places) in group([mixed, [None] * 3], True).items()}  # fmt: skip
        with pytest.raises(RuntimeError):
            group([[]])
        with pytest.raises(RuntimeError, match="requires all the params to be floating point"):
            fused(t.ones(1, dtype=t.int32))
        pairs = [t.ones(2, dtype=t.complex64), t.ones(1)]
        beside = [2 * pairs[0], pairs[1]]
        real(pairs, beside)
        answers = [supports(mixed, mixed[0].device), supports(weights, mixed[0].device), ways(weights, False), ways(weights, False, True)]
        shapes = [tuple(x.shape) for x in (*pairs, *beside)]
        found.append((groups, answers, ways(weights, True, True), shapes, str(counted()), group([mixed])[mixed[0].device, t.float32][1]))
    assert found[0] == found[1]
