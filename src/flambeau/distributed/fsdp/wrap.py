"""torch.distributed.fsdp.wrap: which modules are divided among ranks as one. To be imported, not used yet."""

from __future__ import annotations

from flambeau import import_only
from flambeau.distributed.fsdp import WHY

__all__ = [
    "CustomPolicy", "ModuleWrapPolicy", "always_wrap_policy", "enable_wrap", "lambda_auto_wrap_policy", "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy", "wrap",
]  # fmt: skip

CustomPolicy, ModuleWrapPolicy = import_only.classes("torch.distributed.fsdp.wrap", "CustomPolicy ModuleWrapPolicy", WHY)
(
    always_wrap_policy, enable_wrap, lambda_auto_wrap_policy, size_based_auto_wrap_policy, transformer_auto_wrap_policy, wrap,
) = import_only.functions(
    "torch.distributed.fsdp.wrap",
    "always_wrap_policy enable_wrap lambda_auto_wrap_policy size_based_auto_wrap_policy transformer_auto_wrap_policy wrap",
    WHY,
)  # fmt: skip
