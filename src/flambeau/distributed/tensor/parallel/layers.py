"""Styles: how one layer is cut, where its input has to lie for that, and where its output goes.

                      weight of Linear     bias          of Embedding     input       output
    ColwiseParallel   Shard(0)             Shard(0)      Shard(1)         whole       Shard(-1)
    RowwiseParallel   Shard(1)             whole         Shard(0)         Shard(-1)   terms, reduced to whole
    SequenceParallel  all parameters whole                                Shard(1)    Shard(1)

A column-wise layer followed by a row-wise one needs no communication between them, and one reduction behind them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Any

from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor._api import DTensor, distribute_module, distribute_tensor
from flambeau.distributed.tensor._utils import normalize_placements
from flambeau.distributed.tensor.placement_types import Placement, Replicate, Shard
from flambeau.nn import Embedding, Linear, Module, Parameter
from flambeau.tensor import Tensor


class ParallelStyle(ABC):
    """How a module is parallelized. `_apply(module, mesh)` does it, and returns the module."""

    src_data_rank: int | None = 0  # whose parameters all get

    @abstractmethod
    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module: ...


class _OneLayer(ParallelStyle):
    """The base of styles for Linear and Embedding.

    input_layouts, output_layouts  how a plain input lies, and how the output is wanted
    use_local_output               whether the output is a plain tensor, this rank's part
    """

    weights: dict[type, dict[str, Placement]]  # kind of module -> name of a parameter -> its placement
    inputs: dict[type, Placement]  # kind of module -> how its input has to lie
    usual_input: Placement
    usual_output: Placement

    def __init__(self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None, use_local_output: bool = True):
        super().__init__()
        self.input_layouts = (input_layouts or self.usual_input,)
        self.output_layouts = (output_layouts or self.usual_output,)
        self.desired_input_layouts = (self.inputs[Linear],)
        self.use_local_output = use_local_output

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        kind = next((k for k in self.weights if isinstance(module, k)), None)
        if kind is None:
            raise NotImplementedError(
                f"{type(self).__name__} currently only support nn.Linear and nn.Embedding! Found {type(module).__name__}. Write a ParallelStyle of your own, "
                "whose _apply calls distribute_module"
            )
        self.desired_input_layouts = (self.inputs[kind],)
        cut = partial(self._cut, self.weights[kind])
        wanted = self.desired_input_layouts
        return distribute_module(
            module,
            device_mesh,
            cut,
            lambda mod, inputs, mesh: brought(inputs, self.input_layouts, wanted, mesh),
            lambda mod, outputs, mesh: delivered(outputs, self.output_layouts, self.use_local_output),
        )

    def _cut(self, placements: dict[str, Placement], name: str, module: Any, mesh: DeviceMesh) -> None:
        for param_name, param in module.named_parameters(recurse=False):
            placed = distribute_tensor(param, mesh, [placements.get(param_name, Replicate())], src_data_rank=self.src_data_rank)
            module.register_parameter(param_name, Parameter(placed, param.requires_grad))

    def __repr__(self) -> str:
        shown = f"input_layouts={self.input_layouts}, output_layouts={self.output_layouts}, use_local_output={self.use_local_output}"
        return f"{type(self).__name__}({shown})"


class ColwiseParallel(_OneLayer):
    """Every rank computes some of the output features.

    input_layouts     how a plain input lies: Replicate() unless given. It is brought to Replicate()
    output_layouts    how the output is wanted: Shard(-1) unless given, which is how it comes
    use_local_output  whether the output is a plain tensor, this rank's part (the default), or a DTensor
    """

    weights = {Linear: {"weight": Shard(0), "bias": Shard(0)}, Embedding: {"weight": Shard(1)}}
    inputs = {Linear: Replicate(), Embedding: Replicate()}
    usual_input, usual_output = Replicate(), Shard(-1)


class RowwiseParallel(_OneLayer):
    """Every rank takes some of the input features (of an Embedding: has some of the rows); what comes out are terms, which are added.

    input_layouts     how a plain input lies: Shard(-1) unless given
    output_layouts    how the output is wanted: Replicate() unless given (an all-reduce); Shard(1) makes it a reduce-scatter
    use_local_output  whether the output is a plain tensor, this rank's part (the default), or a DTensor
    """

    weights = {Linear: {"weight": Shard(1), "bias": Replicate()}, Embedding: {"weight": Shard(0)}}
    inputs = {Linear: Shard(-1), Embedding: Replicate()}
    usual_input, usual_output = Shard(-1), Replicate()


class SequenceParallel(ParallelStyle):
    """Every rank works on some of the positions of a sequence: for LayerNorm, RMSNorm and Dropout, whose parameters all ranks have.

    sequence_dim      which dimension of the input is the sequence
    use_local_output  whether the output is a plain tensor, or a DTensor (the default)
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False):
        super().__init__()
        self.sequence_sharding = (Shard(sequence_dim),)
        self.use_local_output = use_local_output

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        return distribute_module(module, device_mesh, self._replicate, self._bring, self._deliver)

    def _replicate(self, name: str, module: Any, mesh: DeviceMesh) -> None:
        for param_name, param in module.named_parameters(recurse=False):
            # As PyTorch does: every rank has the same already, as after every ordinary initialization.
            whole = DTensor.from_local(param.detach(), mesh, [Replicate()], run_check=False)
            module.register_parameter(param_name, Parameter(whole, param.requires_grad))

    def _bring(self, module: Any, inputs: tuple, mesh: DeviceMesh) -> Any:
        first = inputs[0]
        if not isinstance(first, Tensor):
            raise ValueError(f"expecting input of {type(module).__name__} to be a torch.Tensor or DTensor, but got {type(first).__name__}")
        return brought(inputs, self.sequence_sharding, self.sequence_sharding, mesh)

    def _deliver(self, module: Any, outputs: Any, mesh: DeviceMesh) -> Any:
        return outputs.to_local() if self.use_local_output else outputs

    def __repr__(self) -> str:
        (placement,) = self.sequence_sharding
        return f"{type(self).__name__}(sequence_dim={placement.dim}, use_local_output={self.use_local_output})"


def brought(inputs: Any, layouts: tuple, wanted: tuple, mesh: DeviceMesh) -> Any:
    """The inputs of a module, the first as a DTensor placed as is wanted; plain ones lie as `layouts` says."""
    first, *rest = inputs if isinstance(inputs, tuple) else (inputs,)
    if not isinstance(first, DTensor):
        first = DTensor.from_local(first, mesh, layouts, run_check=False)
    placed = first.redistribute(placements=wanted) if first.placements != _of(wanted, first) else first
    return (placed, *rest)


def delivered(output: DTensor, layouts: tuple, use_local: bool) -> Tensor:
    """The output of a module, placed as is wanted."""
    if output.placements != _of(layouts, output):
        output = output.redistribute(placements=layouts)
    return output.to_local() if use_local else output


def _of(layouts: tuple, x: DTensor) -> tuple:
    """Layouts with dimensions counted from the front."""
    return normalize_placements(layouts, x.device_mesh, x.dim())
