"""torch.compile, as far as it goes: the program runs as it is, and is told so once. Results are the same, fused loops are yet to come.

What a program can see of PyTorch's is here: a compiled module is an `OptimizedModule` around the module, shares its parameters, and names them
`_orig_mod.…` in its state dictionary.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flambeau import errors
from flambeau.nn.modules.module import Module

MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
AS_IT_IS = ("eager", "aot_eager")  # backends that fuse nothing in PyTorch either
BACKENDS = ("inductor", "cudagraphs", "onnxrt", "openxla", "tvm", *AS_IT_IS)
# What PyTorch's documentation of `compile` and its tutorials set, and what takes a value there. Nothing is tuned here, so none has an effect.
OPTIONS = frozenset(
    """epilogue_fusion max_autotune max_autotune_gemm max_autotune_pointwise max_autotune_gemm_backends max_autotune_conv_backends fallback_random
    shape_padding freezing cpp_wrapper coordinate_descent_tuning coordinate_descent_check_all_directions guard_filter_fn debug dce size_asserts
    nan_asserts memory_planning layout_optimization force_same_precision pattern_matcher reorder_for_locality cpp.threads cpp.simdlen
    cpp.enable_floating_point_contract_flag triton.cudagraphs triton.cudagraph_trees triton.unique_kernel_names triton.autotune_pointwise
    triton.descriptive_names trace.enabled trace.graph_diagram aggressive_fusion benchmark_kernel inplace_buffers allow_buffer_reuse
    conv_1x1_as_mm split_reductions use_mixed_mm joint_graph_constant_folding""".split()
)
_told = False


def compile(
    model: Callable | None = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: str | Callable | None = None,
    mode: str | None = None, options: dict | None = None, name: str | None = None, disable: bool = False,
    recompile_limit: int | None = None, isolate_recompiles: bool = False, shapes_spec: Any = None,
) -> Any:  # fmt: skip
    """A module or function that gives what `model` gives. With `disable`, the model itself; without a model, a decorator.

    >>> compile(lambda x: x + 1, backend="eager")(torch.zeros(2))
    tensor([1., 1.])
    """
    _check(backend, mode, options)
    if model is None:
        return functools.partial(compile, backend=backend, mode=mode, options=options, disable=disable)
    if disable:
        return model
    if not callable(model):
        raise AssertionError(f"torch.compile takes a function or a module, found a {type(model).__name__}")
    if backend not in AS_IT_IS:
        _tell()
    if isinstance(model, Module):
        return OptimizedModule(model)

    @functools.wraps(model)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    return compiled


def _check(backend: Any, mode: str | None, options: dict | None) -> None:
    if mode is not None and options is not None:
        raise RuntimeError("compile: mode is a name for some options, so give one of the two.")
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}")
    if backend in (None, "inductor"):
        for name in options or ():
            if name.replace("-", "_") not in OPTIONS:
                raise RuntimeError(f"Unexpected optimization option {name}. torch.compile knows {', '.join(sorted(OPTIONS))}")
    if callable(backend):
        raise NotImplementedError(
            "torch.compile(backend=function): Flambeau has no graph modules to give to a backend. Try backend='eager'"
        )
    if backend is not None and backend not in BACKENDS:
        raise RuntimeError(f"Invalid backend: {backend!r}. Try one of {', '.join(BACKENDS)}")


def _tell() -> None:
    global _told
    if not _told:
        _told = True
        errors.warn("torch.compile: Flambeau has no compiler yet, so the program runs as it is: the results are the same, nothing is fused")


class OptimizedModule(Module):
    """A compiled module: calls, attributes and parameters are those of `_orig_mod`."""

    _orig_mod: Module

    def __init__(self, module: Module) -> None:
        super().__init__()
        Module.__setattr__(self, "_orig_mod", module)

    @property
    def training(self) -> bool:  # type: ignore[override]
        """Whether the module trains."""
        return self._orig_mod.training

    @training.setter
    def training(self, value: bool) -> None:
        if "_orig_mod" in self._modules:
            self._orig_mod.training = value

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives."""
        return self._orig_mod(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self.__dict__["_modules"]["_orig_mod"]
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ or name == "training" or "_orig_mod" not in self.__dict__.get("_modules", ()):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)
