"""Styles that leave a module as it is, and only bring its inputs and outputs where they are wanted.

Layouts are a placement for each input (or output): how a plain tensor lies; None for one that is left alone. Desired layouts say where it is brought.
"""

from __future__ import annotations

from typing import Any

from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor._api import DTensor
from flambeau.distributed.tensor.parallel.layers import ParallelStyle
from flambeau.distributed.tensor.placement_types import Placement
from flambeau.nn import Module
from flambeau.tensor import Tensor

Layouts = Placement | tuple[Placement | None, ...] | None


def _tuple(layouts: Layouts) -> tuple | None:
    return (layouts,) if isinstance(layouts, Placement) else layouts


class PrepareModuleInput(ParallelStyle):
    """Brings the inputs of a module where they are desired.

    input_layouts, desired_input_layouts              one for each positional input
    input_kwarg_layouts, desired_input_kwarg_layouts  the same for inputs by name
    use_local_output                                  whether the module gets plain tensors, this rank's parts, instead of DTensors
    """

    def __init__(
        self, *, input_layouts: Layouts = None, desired_input_layouts: Layouts = None, input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None, use_local_output: bool = False,
    ):  # fmt: skip
        self.input_layouts, self.desired_input_layouts = _tuple(input_layouts), _tuple(desired_input_layouts)
        self.use_local_output = use_local_output
        self.with_kwargs = input_kwarg_layouts is not None
        self.input_kwarg_layouts, self.desired_input_kwarg_layouts = input_kwarg_layouts or {}, desired_input_kwarg_layouts or {}
        if self.with_kwargs and len(self.input_kwarg_layouts) != len(self.desired_input_kwarg_layouts):
            raise AssertionError("input kwarg layouts and desired input kwarg layouts should have same length!")
        if self.input_layouts is not None:
            if self.desired_input_layouts is None:
                raise AssertionError("desired module inputs should not be None!")
            if len(self.input_layouts) != len(self.desired_input_layouts):
                raise AssertionError("input_layouts and desired_input_layouts should have same length!")

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        if self.with_kwargs:
            module.register_forward_pre_hook(lambda mod, args, kwargs: self._bring_all(args, kwargs, device_mesh), with_kwargs=True)
        else:
            module.register_forward_pre_hook(lambda mod, args: self._bring(args, device_mesh))
        return module

    def _bring(self, inputs: Any, mesh: DeviceMesh) -> Any:
        if self.input_layouts is None:
            return inputs
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        if len(given) != len(self.input_layouts):
            raise ValueError(
                f"module inputs and input_layouts should have same length! Found {len(given)} inputs and {len(self.input_layouts)} layouts"
            )
        wanted: Any = self.desired_input_layouts
        return tuple(self._one(x, layout, to, mesh) for x, layout, to in zip(given, self.input_layouts, wanted, strict=True))

    def _bring_all(self, args: Any, kwargs: dict, mesh: DeviceMesh) -> tuple:
        named = {
            name: self._one(x, self.input_kwarg_layouts.get(name), self.desired_input_kwarg_layouts.get(name), mesh)
            for name, x in kwargs.items()
        }
        return self._bring(args, mesh), named

    def _one(self, x: Any, layout: Placement | None, wanted: Placement | None, mesh: DeviceMesh) -> Any:
        if layout is not None and not isinstance(x, Tensor):
            raise AssertionError(f"expecting input to be a torch.Tensor, found {type(x).__name__}")
        return _brought(x, layout, wanted, mesh, self.use_local_output)

    def __repr__(self) -> str:
        parts = f"input_layouts={self.input_layouts}, desired_input_layouts={self.desired_input_layouts}"
        named = f"input_kwarg_layouts={self.input_kwarg_layouts}, desired_input_kwarg_layouts={self.desired_input_kwarg_layouts}"
        return f"{type(self).__name__}({parts}, {named}, use_local_output={self.use_local_output})"


class PrepareModuleOutput(ParallelStyle):
    """Brings the outputs of a module where they are desired; use_local_output: as plain tensors, this rank's parts."""

    def __init__(self, *, output_layouts: Layouts, desired_output_layouts: Layouts, use_local_output: bool = True):
        self.output_layouts: tuple = _tuple(output_layouts) or ()
        self.desired_output_layouts: tuple = _tuple(desired_output_layouts) or ()
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError("output_layouts and desired_output_layouts should have same length!")

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        module.register_forward_hook(lambda mod, inputs, outputs: self._deliver(outputs, device_mesh))
        return module

    def _deliver(self, outputs: Any, mesh: DeviceMesh) -> Any:
        given = outputs if isinstance(outputs, tuple) else (outputs,)
        if len(given) != len(self.output_layouts):
            raise ValueError(
                f"module outputs and output_layouts should have same length! Found {len(given)} and {len(self.output_layouts)}"
            )
        found = [
            _brought(x, layout, to, mesh, self.use_local_output)
            for x, layout, to in zip(given, self.output_layouts, self.desired_output_layouts, strict=True)
        ]
        return found[0] if len(found) == 1 else tuple(found)

    def __repr__(self) -> str:
        parts = f"output_layouts={self.output_layouts}, desired_output_layouts={self.desired_output_layouts}"
        return f"{type(self).__name__}({parts}, use_local_output={self.use_local_output})"


class PrepareModuleInputOutput(ParallelStyle):
    """Both: PrepareModuleInput and PrepareModuleOutput of one module."""

    def __init__(
        self, *, input_layouts: Layouts = None, desired_input_layouts: Layouts = None, input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None, use_local_input: bool = False, output_layouts: Layouts,
        desired_output_layouts: Layouts, use_local_output: bool = True,
    ):  # fmt: skip
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts, input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts, use_local_output=use_local_input,
        )  # fmt: skip
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts, desired_output_layouts=desired_output_layouts, use_local_output=use_local_output
        )

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.prepare_module_input!r}, {self.prepare_module_output!r})"


def _brought(x: Any, layout: Placement | None, wanted: Placement | None, mesh: DeviceMesh, local: bool) -> Any:
    """What is placed as `layout` says, placed as wanted; `local`: this rank's part of it. What has no layout stays as it is."""
    if layout is None:
        return x
    placed = x if isinstance(x, DTensor) else DTensor.from_local(x, mesh, (layout,), run_check=False)
    if wanted is not None and layout != wanted:
        placed = placed.redistribute(placements=(wanted,))
    return placed.to_local() if local else placed
