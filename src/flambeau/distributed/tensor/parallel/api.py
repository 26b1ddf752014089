"""parallelize_module: a plan of which layer is cut in which style, applied to a model."""

from __future__ import annotations

import warnings
from fnmatch import fnmatch
from typing import Any

from flambeau.distributed.device_mesh import DeviceMesh, current_mesh
from flambeau.distributed.tensor.parallel.layers import ParallelStyle
from flambeau.nn import Module

Plan = ParallelStyle | dict[str, ParallelStyle]


def parallelize_module(
    module: Module, device_mesh: DeviceMesh | None = None, parallelize_plan: Plan | None = None, *, src_data_rank: int | None = 0
) -> Module:
    """Distribute the parameters of a module over a mesh of one dimension, and bring inputs and outputs where they are needed.

    parallelize_plan  a style for the module itself, or one for each submodule by its name, in which * and ? stand for anything within one level
    src_data_rank     whose parameters all get. None: every rank has the same already, and nothing is sent

        parallelize_module(block, mesh, {"attention.wq": ColwiseParallel(), "attention.wo": RowwiseParallel(), "layers.*.up": ColwiseParallel()})
    """
    mesh = device_mesh or current_mesh()
    if parallelize_plan is None:
        warnings.warn("No parallelize_plan is provided and auto-parallel is not supported, so this module will do nothing.", stacklevel=2)
        return module
    if mesh.ndim != 1:
        raise ValueError(f"parallelize_module takes a mesh of one dimension, found {mesh}. Slice it: mesh['tp']")
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise TypeError(f"Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, {type(parallelize_plan)} found!")
    for path, style in parallelize_plan.items():
        if not path:
            raise ValueError("Expect module path to be non-empty, but got empty string! Give the style alone for the module itself")
        found = _named(module, path.split("."))
        if not found:
            warnings.warn(f"Parallelize plan key '{path}' could not be resolved: no submodule matches it.", stacklevel=2)
        for submodule in found:
            parallelize_module(submodule, mesh, style, src_data_rank=src_data_rank)
    return module


def _named(module: Any, path: list[str]) -> list[Any]:
    """The submodules that a path leads to, level by level."""
    if not path:
        return [module]
    return [found for name, child in module.named_children() if fnmatch(name, path[0]) for found in _named(child, path[1:])]
