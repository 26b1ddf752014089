"""auto_wrap_policy: wrappers around modules inside, as a policy chooses them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from flambeau.distributed.fsdp._wrapped import materialize, precision
from flambeau.distributed.fsdp._wrapped.ignored import is_wrapper
from flambeau.distributed.fsdp.wrap import (
    _construct_wrap_fn,
    _or_policy,
    _Policy,
    _post_order_apply,
    _recursive_wrap,
    _run_mixed_precision_override_policy,
    _wrap_module_cls_individually,
)
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter


def auto_wrap(
    root: Module,
    policy: Any,
    ignored_modules: set[Module],
    ignored_params: set[Parameter],
    arguments: dict[str, Any],
    wrapper: Callable[..., Module],
) -> None:
    """Wrap what the policy chooses below `root`, with these arguments. The root itself is the caller's."""
    for name, module in root.named_modules():
        if is_wrapper(module):
            raise ValueError(f"FSDP auto wrapping requires modules to not already have FSDP applied but found {name} in\n{root}")
    mixed = arguments["mixed_precision"]
    full = mixed._module_classes_to_ignore if mixed is not None else ()
    if isinstance(policy, _Policy):
        chosen = policy._run_policy(root, ignored_modules, {**arguments, "auto_wrap_policy": None})
        chosen = _run_mixed_precision_override_policy(root, full, ignored_modules, {**arguments, "auto_wrap_policy": None}, chosen)
        precision.keep_full(root, full)
        materialize.warn_of_frozen(root, set(chosen), ignored_params, arguments["use_orig_params"])
        _post_order_apply(root, _construct_wrap_fn(root, chosen, wrapper))
        return
    if mixed is not None:
        precision.keep_full(root, full)
        policy = partial(_or_policy, policies=[policy, partial(_wrap_module_cls_individually, module_classes=full)])
    _recursive_wrap(root, policy, wrapper, ignored_modules, ignored_params, only_wrap_children=True, **arguments)
