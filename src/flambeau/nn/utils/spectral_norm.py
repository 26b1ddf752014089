"""Spectral normalization as a hook: w = v / s, s the largest singular value, estimated by power iteration.

`parametrizations.spectral_norm` is the newer form.
"""

from __future__ import annotations

from typing import Any

from flambeau import modes
from flambeau.eager import bind
from flambeau.nn.modules.module import Module
from flambeau.nn.utils.weight_norm import check_free, numbers_of
from flambeau.tensor import Tensor
from flambeau.tensor.making.parameter import Parameter

__all__ = ["SpectralNorm", "SpectralNormLoadStateDictPreHook", "SpectralNormStateDictHook", "remove_spectral_norm", "spectral_norm"]


def normalize(x: Tensor, eps: float) -> Tensor:
    """x / max(‖x‖, eps)."""
    return x / bind.functions["linalg.vector_norm"](x).clamp_min(eps)


class SpectralNorm:
    """The hook: it sets the weight of the module from `weight_orig`, and `weight_u`, `weight_v`, its leading singular vectors."""

    _version: int = 1

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, found {n_power_iterations}")
        self.name, self.dim, self.n_power_iterations, self.eps = name, dim, n_power_iterations, eps

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """(height, everything else), where height is the size of dimension `dim`."""
        if self.dim != 0:
            weight = weight.permute(self.dim, *[d for d in range(weight.dim()) if d != self.dim])
        return weight.reshape(weight.size(0), -1)

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """The normalized weight; in training the singular vectors come a step closer first."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with modes.no_grad():
                for _ in range(self.n_power_iterations):
                    # In place, so that replicas and checkpoints see them.
                    v.copy_(normalize(matrix.t().mv(u), self.eps))
                    u.copy_(normalize(matrix.mv(v), self.eps))
                # The graph of this forward must not see what the next one changes.
                u, v = u.clone(), v.clone()
        return weight / u.dot(matrix.mv(v))

    def remove(self, module: Module) -> None:
        with modes.no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        delattr(module, self.name)
        for suffix in ("_u", "_v", "_orig"):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))

    def _solve_v_and_rescale(self, weight_mat: Tensor, u: Tensor, target_sigma: Tensor) -> Tensor:
        """v such that u = normalize(W v) and uᵀ W v = target_sigma: for checkpoints of the time when v was not saved."""
        v = (weight_mat.mT @ weight_mat).pinverse() @ (weight_mat.mT @ u)
        return v * (target_sigma / u.dot(weight_mat @ v))

    @staticmethod
    def apply(module: Module, name: str, n_power_iterations: int, dim: int, eps: float) -> SpectralNorm:
        check_free(SpectralNorm, module, name, "spectral_norm")
        made = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied to the parameter `{name}`, which is None")
        with modes.no_grad():
            height, width = made.reshape_weight_to_matrix(weight).size()
            u = normalize(weight.new_empty(height).normal_(0, 1), eps)
            v = normalize(weight.new_empty(width).normal_(0, 1), eps)
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        # Until the first forward it is the plain weight, as an ordinary attribute: a parameter would be registered again.
        setattr(module, name, weight.data)
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(made)
        module._register_state_dict_hook(SpectralNormStateDictHook(made))
        module._register_load_state_dict_pre_hook(SpectralNormLoadStateDictPreHook(made))
        return made


class SpectralNormLoadStateDictPreHook:
    """Makes the v that old checkpoints do not have out of u and the weight they used."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) -> None:
        version = local_metadata.get("spectral_norm", {}).get(self.fn.name + ".version", None)
        key = prefix + self.fn.name
        if version is not None and version >= 1:
            return
        if version is None and all(key + s in state_dict for s in ("_orig", "_u", "_v")) and key not in state_dict:
            return  # saved by a newer version that wrote no metadata
        complete = all(key + s in state_dict for s in ("_orig", "_u")) and key in state_dict
        if not complete:
            if strict:
                missing_keys.extend(key + s for s in ("_orig", "", "_u") if key + s not in state_dict)
            return
        with modes.no_grad():
            original, weight, u = state_dict[key + "_orig"], state_dict.pop(key), state_dict[key + "_u"]
            sigma = (original / weight).mean()
            state_dict[key + "_v"] = self.fn._solve_v_and_rescale(self.fn.reshape_weight_to_matrix(original), u, sigma)


class SpectralNormStateDictHook:
    """Writes into the metadata that v is saved."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Module, state_dict: Any, prefix: str, local_metadata: dict) -> None:
        versions = local_metadata.setdefault("spectral_norm", {})
        key = self.fn.name + ".version"
        if key in versions:
            raise RuntimeError(f"Unexpected key in metadata['spectral_norm']: {key}")
        versions[key] = self.fn._version


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> Module:
    """Divide the parameter `name` by its largest singular value before every forward."""
    if dim is None:
        transposed = any(base.__name__ in ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d") for base in type(module).__mro__)
        dim = 1 if transposed else 0
    SpectralNorm.apply(module, name, n_power_iterations, dim, eps)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make the parameter an ordinary one again, with its present value."""
    numbers = numbers_of(SpectralNorm, module, name)
    if not numbers:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    hook: Any = module._forward_pre_hooks.pop(numbers[0])
    hook.remove(module)
    for hooks, kind in (
        (module._state_dict_hooks, SpectralNormStateDictHook),
        (module._load_state_dict_pre_hooks, SpectralNormLoadStateDictPreHook),
    ):
        for number, hook in list(hooks.items()):
            hook = getattr(hook, "hook", hook)
            if isinstance(hook, kind) and hook.fn.name == name:
                del hooks[number]
    return module
