"""One model, the same in every process, whose gradients are averaged. The names here are those of torch.nn.parallel.distributed, which shows them."""

from __future__ import annotations

from flambeau.doors import door

__getattr__, __dir__, __all__ = door(__name__, {
    "buffers": "_BufferCommHook _BufferCommHookLocation",
    "by_hand": """BuiltinCommHookType _DEFAULT_FIRST_BUCKET_BYTES _broadcast_coalesced _compute_bucket_assignment_by_size _register_builtin_comm_hook
        _register_comm_hook _verify_params_across_processes""",
    "grad_bucket": "GradBucket",
    "logging_data": "Logger",
    "mixed_precision": "_MixedPrecision",
    "module": "DistributedDataParallel",
    "reducer": "Reducer",
    "uneven": "_DDPJoinHook",
    "unused": "_find_tensors",
})  # fmt: skip
