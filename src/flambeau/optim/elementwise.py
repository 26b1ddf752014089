"""Optimizers that move every element of a parameter by itself: a rule, and how the state of a parameter starts.

A subclass names its rule (`ops/updates.py`) and says
    _start     the state of a parameter before its first step
    _options   the numbers of the rule, from the options of a group and the step
and all parameters of a group move in one launch. With differentiable=True they move by operations that are recorded.
"""

from __future__ import annotations

from typing import Any

from flambeau.eager import updates
from flambeau.modes import set_recording
from flambeau.modes import state as modes
from flambeau.ops.formats import preserve_format
from flambeau.ops.updates import Rule
from flambeau.optim.optimizer import Optimizer, _get_scalar_dtype, evaluated, one_element
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import tensor, zeros, zeros_like

# What groups saved by older versions may lack.
_SINCE = {
    "amsgrad": False, "capturable": False, "centered": False, "decoupled_weight_decay": False, "differentiable": False, "foreach": None,
    "fused": None, "maximize": False, "momentum": 0, "nesterov": False,
}  # fmt: skip


class Elementwise(Optimizer):
    """The base of the optimizers in this room that have a rule."""

    rule: Rule
    states: tuple[str, ...] = ()  # those of the rule, by name
    shown, instead = "", ""  # who does not support sparse gradients, and what to take instead

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter before its first step: a counter, and zeros."""
        return {"step": self._counter(p, group)} | {name: like(p) for name in self._names(group)}

    def _options(self, group: dict[str, Any], key: Any) -> dict[str, Any]:
        """The numbers of the rule, for parameters with this key: the step they are at."""
        raise NotImplementedError

    def _names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The states that this group's parameters have."""
        return self.states

    def _keys(self, group: dict[str, Any], held: list[dict], params: list[Tensor]) -> list:
        """What the numbers of each parameter depend on besides the group. Counts the step."""
        return updates.counted([s["step"] for s in held])

    def step(self, closure=None):
        """Move all parameters once, by their gradients; a closure computes these anew, and its loss is returned."""
        before = modes.grad
        set_recording(bool(self.defaults.get("differentiable")))
        try:
            loss = evaluated(closure)
            for group in self.param_groups:
                params, grads = [], []
                for p in group["params"]:
                    grad = p.grad
                    if grad is not None:
                        if grad.is_sparse:
                            self._move_sparsely(group, p, grad)
                            continue
                        params.append(p)
                        grads.append(grad)
                if len(set(map(id, params))) < len(params):  # given twice, they move twice
                    for p, grad in zip(params, grads, strict=True):
                        self._move(group, [p], [grad])
                elif params:
                    self._move(group, params, grads)
        finally:
            set_recording(before)
        return loss

    def _move(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        if group.get("capturable") or group.get("fused"):
            _check_devices(group, params)
        elif "capturable" in group and updates.being_captured(params[:1]):
            self._cuda_graph_capture_health_check()
        self._move_with(group, params, grads, self._held(group, params))

    def _move_with(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], held: list[dict]) -> None:
        names, keys = self._names(group), self._keys(group, held, params)
        tensors = [params, grads, *[[s[name] for s in held] for name in names]]
        if keys.count(keys[0]) == len(keys):
            updates.move(self.rule, names, tensors, self._options(group, keys[0]))
            return
        for key in dict.fromkeys(keys):
            chosen = [i for i, k in enumerate(keys) if k == key]
            updates.move(self.rule, names, [[t[i] for i in chosen] for t in tensors], self._options(group, key))

    def _move_sparsely(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> None:
        """A step by a sparse gradient. Most rules move elements whose gradient is zero, too, so they have none."""
        raise RuntimeError(f"{self.shown or type(self).__name__} does not support sparse gradients{self.instead}")

    def _move_rows(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> None:
        """The rule for those elements of a parameter and its states that a sparse gradient has; the others stay as they are."""
        grad, held, names = grad.coalesce(), self._held(group, [p]), self._names(group)
        (key,) = self._keys(group, held, [p])
        if not grad._nnz():
            return
        places, whole = tuple(grad.indices().unbind(0)), [p, *[held[0][name] for name in names]]
        simple = len(places) == 1  # rows of a table, nearly always
        rows = [t.index_select(0, places[0]) if simple else t[places] for t in whole]
        updates.move(self.rule, names, [[rows[0]], [grad.values()], *[[r] for r in rows[1:]]], self._options(group, key))
        for t, new in zip(whole, rows, strict=True):
            t.index_copy_(0, places[0], new) if simple else t.index_put_(places, new)

    def _held(self, group: dict[str, Any], params: list[Tensor]) -> list[dict]:
        """The states of these parameters, begun where there are none yet."""
        held = [self.state[p] for p in params]
        for p, state in zip(params, held, strict=True):
            if not state:
                state.update(self._start(p, group))
        return held

    def _counter(self, p: Tensor, group: dict[str, Any]) -> Tensor:
        """A step count of 0: in main memory, unless the step is to be captured."""
        fused = group.get("fused")
        return zeros((), dtype=_get_scalar_dtype(fused), device=p.device if fused or group.get("capturable") else "cpu")

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name in self.defaults.keys() & _SINCE.keys():
                group.setdefault(name, _SINCE[name])
            for p in group["params"]:
                own = self.state.get(p, {})
                for name in ("step", "eta", "mu", "mu_product"):  # once plain numbers
                    if name in own and not isinstance(own[name], Tensor):
                        own[name] = tensor(float(own[name]), dtype=_get_scalar_dtype(group.get("fused")))


def apply(cls: type[Elementwise], params: list[Tensor], grads: list[Tensor], states: dict[str, list], **group: Any) -> list[dict]:
    """A step of an optimizer's rule on tensors that somebody else keeps, for the functional forms; their states by parameter."""
    used = {name: tensors for name, tensors in states.items() if tensors}
    held = [{name: tensors[i] for name, tensors in used.items()} for i in range(len(params))]
    if params:
        object.__new__(cls)._move_with(group, list(params), list(grads), held)
    return held


def like(p: Tensor) -> Tensor:
    """Zeros that lie in memory as the parameter does."""
    return zeros_like(p, memory_format=preserve_format)


def check(lr: Any, betas: tuple = (), **options: Any) -> None:
    """Refuse what no optimizer takes: negative options, and betas outside of [0, 1)."""
    one_element(lr)
    if not lr >= 0.0:
        raise ValueError(f"Invalid learning rate: {lr}")
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
    for name, value in options.items():
        if not value >= 0.0:
            raise ValueError(f"Invalid {'epsilon' if name == 'eps' else name} value: {value}")


def check_fused(fused: bool | None, foreach: bool | None, differentiable: bool) -> None:
    """Refuse ways to run that exclude each other."""
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`: a fused step is not recorded")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def _check_devices(group: dict[str, Any], params: list[Tensor]) -> None:
    for p in params:
        if group.get("capturable") and p.device.type != "cuda":
            raise AssertionError(f"capturable=True is for parameters and steps on 'cuda', found {p.device}.")
        if group.get("fused") and not (p.is_floating_point() and p.device.type in ("cpu", "cuda")):
            found = f"found {p.dtype} on {p.device.type}"
            raise RuntimeError(f"`fused=True` requires all the params to be floating point Tensors on a cpu or cuda; {found}")
