"""Names of parameters as the model alone has them, whatever it is wrapped in: `module.0.weight` of DistributedDataParallel is `0.weight`.

around a model                      puts into names                what it is
DistributedDataParallel             module.
torch.compile                       _orig_mod.
checkpoint_wrapper                  _checkpoint_wrapped_module.
FullyShardedDataParallel            _fsdp_wrapped_module.
anything with `_fqn_modifiers()`    what that says                 {name of an attribute: attribute to go on in}
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from flambeau.nn.modules.module import _EXTRA_STATE_KEY_SUFFIX, Module
from flambeau.tensor import Tensor

ALWAYS = frozenset({"_checkpoint_wrapped_module", "_fsdp_wrapped_module"})


def canonical(model: Module, name: str, modifiers: str = "_fqn_modifiers") -> str:
    """The name of an entry of `model.state_dict()` without wrappers."""
    place: Any = model
    kept = []
    for part in name.split("."):
        following = part
        if part not in ALWAYS and not _is_wrapper(place, part):
            kept.append(part)
            if hasattr(place, modifiers):
                following = getattr(place, modifiers)().get(part) or part
        place = None if part == _EXTRA_STATE_KEY_SUFFIX else getattr(place, following, None)
    return ".".join(kept)


def _is_wrapper(place: Any, attribute: str) -> bool:
    """Whether an object only wraps what it has under this name."""
    if attribute == "module":
        return any(isinstance(place, kind) for kind in _loaded("flambeau.nn.parallel.distributed", "DistributedDataParallel"))
    return attribute == "_orig_mod" and any(isinstance(place, kind) for kind in _loaded("flambeau.compiler.eagerly", "OptimizedModule"))


def _loaded(module: str, name: str) -> list[type]:
    """A class, if its module has been imported: nobody has an object of it otherwise."""
    found = getattr(sys.modules.get(module), name, None)
    return [found] if isinstance(found, type) else []


def names_of_tensors(model: Module, modifiers: str = "_fqn_modifiers") -> Iterator[tuple[str, str, Tensor]]:
    """(name in the state of the model, canonical name, tensor) of all parameters and persistent buffers, a shared one under each of its names."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None and name not in module._non_persistent_buffers_set:
                full = f"{prefix}.{name}" if prefix else name
                yield full, canonical(model, full, modifiers), tensor
