"""Pruning: parameters with elements or channels switched off.

A pruned parameter `weight` is kept as the parameter `weight_orig` and the buffer `weight_mask`; a hook sets `weight` to their product
before every forward. Pruning a second time only looks at what is left.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from flambeau.eager import bind
from flambeau.nn.modules.module import Module
from flambeau.nn.utils.convert_parameters import parameters_to_vector
from flambeau.ops.formats import contiguous_format
from flambeau.tensor import Tensor
from flambeau.tensor.making import factories, random_factories


class BasePruningMethod(ABC):
    """A rule of what to prune: subclasses say it in `compute_mask`, and in PRUNING_TYPE whether single elements go ("unstructured"),
    whole channels ("structured"), or whatever the mask says of all that is there ("global")."""

    _tensor_name: str
    PRUNING_TYPE: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """A mask like `default_mask`, with zeros where the tensor of importances `t` says so."""

    def apply_mask(self, module: Module) -> Tensor:
        """The pruned parameter: mask times original."""
        if getattr(self, "_tensor_name", None) is None:
            raise AssertionError(f"Module {module} has to be pruned")
        original = getattr(module, self._tensor_name + "_orig")
        return getattr(module, self._tensor_name + "_mask").to(dtype=original.dtype) * original

    @classmethod
    def apply(cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any) -> BasePruningMethod:
        """Prune a parameter, on top of what was pruned before."""
        method = _combined(module, name, cls(*args, **kwargs))
        original = getattr(module, name)
        if importance_scores is not None and importance_scores.shape != original.shape:
            wanted = "importance_scores should have one score for each element of the parameter"
            raise AssertionError(f"{wanted} {name} of {module}: found {importance_scores.shape}, expected {original.shape}")
        first = not isinstance(method, PruningContainer)
        scores = original if importance_scores is None else importance_scores
        if first:
            module.register_parameter(name + "_orig", original)
            del module._parameters[name]
            before = factories.ones_like(original)
        else:
            before = getattr(module, name + "_mask").detach().clone(memory_format=contiguous_format)
        try:
            mask = method.compute_mask(scores, default_mask=before)
            module.register_buffer(name + "_mask", mask)
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if first:
                module.register_parameter(name, getattr(module, name + "_orig"))
                del module._parameters[name + "_orig"]
            raise
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A pruned copy of a tensor, by itself."""
        if importance_scores is not None and importance_scores.shape != t.shape:
            raise AssertionError(f"importance_scores should have the shape of t: found {importance_scores.shape}")
        mask = factories.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(t if importance_scores is None else importance_scores, default_mask=mask)

    def remove(self, module: Module) -> None:
        """Make pruning permanent: the pruned values become the parameter."""
        name = getattr(self, "_tensor_name", None)
        if name is None:
            raise AssertionError(f"Module {module} has to be pruned before that is taken back")
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters[name + "_orig"]
        original.data = weight.data
        del module._parameters[name + "_orig"]
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


def _combined(module: Module, name: str, method: BasePruningMethod) -> BasePruningMethod:
    """The method, or a container of it and those that pruned this parameter before, whose hook it replaces."""
    method._tensor_name = name
    earlier = [(k, h) for k, h in module._forward_pre_hooks.items() if isinstance(h, BasePruningMethod) and h._tensor_name == name]
    if len(earlier) > 1:
        raise AssertionError(
            f"Avoid adding multiple pruning hooks to the tensor {name} of module {module}: a PruningContainer holds several methods."
        )
    for number, old in earlier:
        del module._forward_pre_hooks[number]
        container = old if isinstance(old, PruningContainer) else PruningContainer(old)
        container.add_pruning_method(method)
        return container
    return method


class PruningContainer(BasePruningMethod):
    """Several pruning methods, one after another, of the same parameter."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple = ()
        if len(args) == 1 and isinstance(args[0], Iterable):
            args = tuple(args[0])
        if args:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod | None) -> None:
        """Add a method that comes after those that are there."""
        if method is not None:
            if not isinstance(method, BasePruningMethod):
                raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
            if self._tensor_name != method._tensor_name:
                mine = f"Can only add pruning methods acting on '{self._tensor_name}' to PruningContainer {self}"
                raise ValueError(f"{mine}. Found '{method._tensor_name}'")
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: int) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask with what the last method takes away from what is left."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype).clone()
        if method.PRUNING_TYPE == "unstructured":
            left: Any = default_mask == 1
        elif method.PRUNING_TYPE == "structured":
            if not hasattr(method, "dim"):
                raise AttributeError("Pruning methods of PRUNING_TYPE structured must have the attribute `dim`")
            dim = method.dim % t.dim()
            kept = default_mask.sum(dim=[d for d in range(t.dim()) if d != dim]) != 0
            left = tuple(kept if d == dim else slice(None) for d in range(t.dim()))
        elif method.PRUNING_TYPE == "global":
            left = (slice(None),) * t.dim()
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        mask[left] = method.compute_mask(t[left], default_mask=default_mask[left]).to(dtype=mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Prunes nothing, but makes mask and original."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class _ByAmount(BasePruningMethod):
    """Takes away a number (int) or a fraction (float) of what is there."""

    amount: float

    def _number(self, size: int) -> int:
        number = _compute_nparams_toprune(self.amount, size)
        _validate_pruning_amount(number, size)
        return number


class RandomUnstructured(_ByAmount):
    """Prunes elements at random."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def _ranked(self, t: Tensor, number: int) -> Tensor:
        return random_factories.rand_like(t).view(-1).topk(number).indices

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        number = self._number(t.nelement())
        mask = default_mask.clone(memory_format=contiguous_format)
        if number:
            mask.view(-1)[self._ranked(t, number)] = 0
        return mask


class L1Unstructured(RandomUnstructured):
    """Prunes the elements of smallest magnitude."""

    def _ranked(self, t: Tensor, number: int) -> Tensor:
        return t.abs().reshape(-1).topk(number, largest=False).indices


class RandomStructured(_ByAmount):
    """Prunes channels along a dimension at random."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount, self.dim = amount, dim

    def _kept(self, t: Tensor, number: int) -> Tensor:
        luck = random_factories.rand(t.shape[self.dim])
        return luck > luck.kthvalue(k=number).values

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        _validate_structured_pruning(t)
        _validate_pruning_dim(t, self.dim)
        number = self._number(t.shape[self.dim])
        if not number:
            return default_mask
        mask = factories.zeros_like(t)
        mask[tuple(self._kept(t, number) if d == self.dim % t.dim() else slice(None) for d in range(t.dim()))] = 1
        return mask * default_mask.to(dtype=mask.dtype)


class LnStructured(RandomStructured):
    """Prunes the channels along a dimension with the smallest n-norm."""

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _kept(self, t: Tensor, number: int) -> Tensor:
        return _compute_norm(t, self.n, self.dim).topk(t.shape[self.dim] - number, largest=True).indices


class CustomFromMask(BasePruningMethod):
    """Prunes where a given mask is zero."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(f"the mask has shape {tuple(self.mask.shape)}, the parameter {tuple(default_mask.shape)}")
        return default_mask * self.mask.to(dtype=default_mask.dtype)


# -- as functions --------------------------------------------------------------------------------------------------


def identity(module: Module, name: str) -> Module:
    """Prune nothing, but make mask and original."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Prune elements at random: `amount` of them, or this fraction."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> Module:
    """Prune the elements of smallest magnitude (or importance): `amount` of them, or this fraction."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Prune channels along `dim` at random: `amount` of them, or this fraction."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Module, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None) -> Module:
    """Prune the channels along `dim` with the smallest n-norm: `amount` of them, or this fraction."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune where a mask is zero."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters: Any, pruning_method: Any, importance_scores: dict | None = None, **kwargs: Any) -> None:
    """Prune several parameters, pairs (module, name), as if they were one vector."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    parameters = list(parameters)
    scores = importance_scores if importance_scores is not None else {}
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    relevant = parameters_to_vector([scores.get((m, n), getattr(m, n)).reshape(-1) for m, n in parameters])
    masks = [getattr(m, n + "_mask", factories.ones_like(getattr(m, n))).reshape(-1) for m, n in parameters]
    container = PruningContainer()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    if method.PRUNING_TYPE != "unstructured":
        found = f"Found method {pruning_method} of type {method.PRUNING_TYPE}"
        raise TypeError(f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. {found}')
    container.add_pruning_method(method)
    final = container.compute_mask(relevant, parameters_to_vector(masks))
    start = 0
    for module, name in parameters:
        parameter = getattr(module, name)
        end = start + parameter.numel()
        custom_from_mask(module, name, mask=final[start:end].view_as(parameter))
        start = end


def remove(module: Module, name: str) -> Module:
    """Make the pruning of a parameter permanent."""
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[number]
            return module
    raise ValueError(f"Parameter '{name}' of {module} has to be pruned before that is taken back")


def is_pruned(module: Module) -> bool:
    """Whether some parameter in a model is pruned."""
    return any(isinstance(hook, BasePruningMethod) for inner in module.modules() for hook in inner._forward_pre_hooks.values())


# -- checks --------------------------------------------------------------------------------------------------------


def _validate_pruning_amount_init(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount} is neither a share nor a number of elements")
    whole = isinstance(amount, numbers.Integral)
    if (whole and amount < 0) or (not whole and not 0.0 <= float(amount) <= 1.0):
        raise ValueError(f"amount={amount} should either be a share, a float from 0 to 1, or a number of elements")


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    if isinstance(amount, numbers.Integral) and amount > tensor_size:
        raise ValueError(f"amount={amount} should be smaller than the tensor, of {tensor_size} elements")


def _validate_structured_pruning(t: Tensor) -> None:
    if t.dim() <= 1:
        cure = "For unstructured pruning, use random_unstructured or l1_unstructured"
        raise ValueError(f"Structured pruning can only be applied to tensors with channels, found {t.shape}. {cure}.")


def _validate_pruning_dim(t: Tensor, dim: int) -> None:
    if dim >= t.dim():
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    return int(amount) if isinstance(amount, numbers.Integral) else round(amount * tensor_size)


def _compute_norm(t: Tensor, n: Any, dim: int) -> Tensor:
    return bind.functions["norm"](t, p=n, dim=[d for d in range(t.dim()) if d != dim % t.dim()])
