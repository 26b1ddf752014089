"""Differentiation: `backward`, `grad`, custom functions, modes, checks.

Names are found when first asked for, so that importing the package does not load what few programs use.
"""

from importlib import import_module

_WHERE = {
    "backward": "api", "grad": "api",
    "Function": "function", "FunctionCtx": "function", "once_differentiable": "function", "InplaceFunction": "function",
    "NestedIOFunction": "nested_function",
    "no_grad": "grad_mode", "enable_grad": "grad_mode", "set_grad_enabled": "grad_mode", "inference_mode": "grad_mode",
    "set_multithreading_enabled": "grad_mode", "is_multithreading_enabled": "grad_mode", "enforce_grad_layout_policy": "grad_mode",
    "detect_anomaly": "anomaly_mode", "set_detect_anomaly": "anomaly_mode",
    "gradcheck": "gradcheck", "gradgradcheck": "gradcheck", "GradcheckError": "gradcheck",
    "DeviceType": "profiler_util", "_profiler_enabled": "profiler", "kineto_available": "profiler",
    "is_view_replay_enabled": "grad_mode", "SavedTensor": "saved_tensor",
    "Node": "graph", "Variable": "variable",
}  # fmt: skip
_ROOMS = (
    "accumulate", "anomaly_mode", "api", "engine", "forward_ad", "function", "functional", "grad_mode", "graph",
    "profiler", "profiler_util", "variable",
)  # fmt: skip


def __getattr__(name: str):
    if name in _WHERE:
        found = getattr(import_module(f"flambeau.autograd.{_WHERE[name]}"), name)
        globals()[name] = found
        return found
    if name in _ROOMS:
        return import_module(f"flambeau.autograd.{name}")
    raise AttributeError(f"module 'flambeau.autograd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*_WHERE, *_ROOMS})
