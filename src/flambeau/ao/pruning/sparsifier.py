"""BaseSparsifier: which weights of a model are masked, and when their masks are made anew.

sparsifier.prepare(model, [{"tensor_fqn": "linear.weight"}])     the weight is mask * weight from now on; the mask is all ones
sparsifier.step()                                                `update_mask` of the class makes every mask anew
sparsifier.squash_mask()                                         the weight is what it was last, without the mask
"""

from __future__ import annotations

import abc
import copy
from collections import defaultdict
from typing import Any

from flambeau.ao.pruning.fake_sparsity import FakeSparsity, get_arg_info_from_tensor_fqn
from flambeau.modes import no_grad
from flambeau.nn import Linear, Module
from flambeau.nn.utils import parametrize
from flambeau.tensor import Tensor

__all__ = ["BaseSparsifier"]


class BaseSparsifier(abc.ABC):
    """What all sparsifiers do. `defaults` are the arguments of `update_mask` for weights whose configuration does not say otherwise."""

    def __init__(self, defaults: dict[str, Any] | None = None):
        self.defaults: dict[str, Any] = defaults or {}
        self.state: dict[str, dict] = defaultdict(dict)  # the weight's name -> its mask
        self.groups: list[dict[str, Any]] = []
        self.enable_mask_update = True

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "groups": self.groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.groups):
            rest = "".join([f"\t    {key}: {group[key]}\n" for key in sorted(group) if key != "module"])
            text += f"\n\tGroup {i}\n\t    module: {group['module']}\n{rest}"
        return f"{text})"

    def state_dict(self) -> dict[str, Any]:
        """The masks, and the configuration of each weight."""
        return {"state": self.state, "groups": [{k: v for k, v in g.items() if k != "module"} for g in self.groups]}

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> None:
        """Take masks and configuration from `state_dict()` of another one, for the weights of those names."""
        groups, state = copy.deepcopy(state_dict["groups"]), state_dict["state"]
        for name, known in state.items():
            info = get_arg_info_from_tensor_fqn(self.model, name)
            module, tensor_name = info["module"], info["tensor_name"]
            if strict and module is None:
                raise RuntimeError(f"Error loading {name} into the model: there is no such module")
            masked = parametrize.is_parametrized(module, tensor_name)
            found = [p for p in module.parametrizations[tensor_name] if isinstance(p, FakeSparsity)] if masked else []
            if not found:
                found = [FakeSparsity(_all(getattr(module, tensor_name)))]
                parametrize.register_parametrization(module, tensor_name, found[0])
            if known.get("mask") is not None:
                found[0].mask = known.pop("mask")
            for group in groups:
                if group["tensor_fqn"] == name:
                    group["module"] = module
        self.__setstate__({"state": state, "groups": groups})

    def make_config_from_model(self, model: Module, SUPPORTED_MODULES: set[type] = frozenset((Linear,))) -> None:  # type: ignore[assignment]
        """Mask the weights of all modules of these classes."""
        found = [name for name, module in model.named_modules() if type(module) in SUPPORTED_MODULES]
        self.config = [{"tensor_fqn": f"{name}.weight" if name else "weight"} for name in found]

    def prepare(self, model: Module, config: list[dict[str, Any]] | None) -> None:
        """Mask weights of a model: those of the configuration, {"tensor_fqn": name, ...} each, or all that can be."""
        self.model = model
        if config is None:
            self.make_config_from_model(model)
        else:
            self.config = config
        for given in self.config:
            if not isinstance(given, dict):
                raise AssertionError(f"config elements should be dicts not modules, but got {type(given)}")
            if not isinstance(given.get("tensor_fqn"), str):
                raise AssertionError(
                    "tensor_fqn is a required argument in the sparsity config which replaces previous `module` and `module_fqn`"
                )
            info = get_arg_info_from_tensor_fqn(model, given["tensor_fqn"])
            if any(given.get(key, value) is not value and given.get(key, value) != value for key, value in info.items()):
                raise AssertionError("Given both a module and `tensor_fqn` in the config, it is expected them to agree!")
            self.groups.append(copy.deepcopy(self.defaults) | given | info)
        self._prepare()

    def _prepare(self, *args: Any, **kwargs: Any) -> None:
        for group in self.groups:
            module, name = group["module"], group["tensor_name"]
            mask = group.get("mask", _all(getattr(module, name)))
            self.state[group["tensor_fqn"]]["mask"] = mask
            parametrize.register_parametrization(module, name, group.get("parametrization", FakeSparsity)(mask))

    def squash_mask(
        self, params_to_keep: tuple[str, ...] | None = None, params_to_keep_per_layer: dict[str, tuple[str, ...]] | None = None, *args: Any, **kwargs: Any
    ) -> None:  # fmt: skip
        """Let weights be what their masks left of them. What is kept of the configuration is in `module.sparse_params` then."""
        for group in self.groups:
            module = group["module"]
            parametrize.remove_parametrizations(module, group["tensor_name"], leave_parametrized=True)
            names = (*(params_to_keep or ()), *((params_to_keep_per_layer or {}).get(group["module_fqn"]) or ()))
            if names:
                module.sparse_params = {name: group[name] for name in names}

    def convert(
        self, module: Module, mapping: dict[type[Module], type[Module]] | None = None, inplace: bool = False, parameterization: type[Module] = FakeSparsity
    ) -> Module:  # fmt: skip
        """Modules whose weights are masked, replaced by those that `mapping` has for their classes: new.from_dense(old)."""
        if mapping is None:
            raise NotImplementedError("Need to auto generate mapping: give {class: class that is made from it}")
        module = module if inplace else copy.deepcopy(module)
        for name, child in list(module.named_children()):
            kind = parametrize.type_before_parametrizations(child)
            if kind in mapping and any(isinstance(p, parameterization) for p in child.modules()):
                setattr(module, name, mapping[kind].from_dense(child))  # type: ignore[attr-defined]
            else:
                self.convert(child, mapping, True, parameterization)
        return module

    def step(self, use_path: bool = True) -> None:
        """Make every mask anew."""
        if self.enable_mask_update:
            with no_grad():
                for group in self.groups:
                    self.update_mask(**group)

    @abc.abstractmethod
    def update_mask(self, module: Module, tensor_name: str, **kwargs: Any) -> None:
        """Make the mask of one weight anew."""


def _all(weight: Tensor) -> Tensor:
    """The mask that leaves everything."""
    return weight.new_ones(weight.shape)
