"""Moving a model: to another device, dtype or memory, in place; and switching what it is used for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Self

from flambeau import devices, dtypes, modes
from flambeau.nn.modules import conversion
from flambeau.ops.copying import parse_to
from flambeau.tensor import DISPATCHED, Tensor
from flambeau.tensor.making import factories
from flambeau.tensor.making.parameter import Parameter
from flambeau.tensor.methods.queries import _has_compatible_shallow_copy_type
from flambeau.tensor.swapping import swap_tensors


class Moves:
    """The part of Module that changes all its tensors at once."""

    training: bool

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace the data of every parameter, gradient and buffer by `fn` of it. Parameters stay the same objects where that can be."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, parameter in self._parameters.items():
            if parameter is not None:
                self._parameters[name] = _moved(parameter, fn, f"{self._get_name()}.{name}")
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def apply(self, fn: Callable) -> Self:
        """Call fn(module) for every module inside and then for this one: model.apply(initialize)."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move to a device, a floating-point dtype, those of a tensor, or a memory format. In place: returns the module itself.

        >>> from flambeau.nn import Linear
        >>> Linear(2, 2).to(dtypes.float64).weight.dtype
        torch.float64
        """
        dtype, device, _, layout, non_blocking = parse_to(*args, **kwargs)
        device = None if device is None else devices.device(device)
        if dtype is not None:
            if not (dtype.is_floating_point or dtype.is_complex):
                raise TypeError(f"Module.to only accepts floating point or complex numbers, for parameters to learn; found {dtype}")
            if dtype.is_complex:
                warnings.warn("Complex modules are a new feature: some modules may not work as expected with complex tensors", stacklevel=2)

        def convert(t: Tensor) -> Tensor:
            wanted = dtype if t.is_floating_point() or t.is_complex() else None
            options = {"memory_format": layout} if layout is not None and t.dim() in (4, 5) else {}
            if t.is_meta and device is not None and device.type != "meta":
                cure = "use torch.nn.Module.to_empty() instead of torch.nn.Module.to() when moving module from meta to a different device"
                raise NotImplementedError(f"Cannot copy out of meta tensor; no data! Please {cure}.")
            return t.to(device, wanted, non_blocking, **options)

        return self._apply(convert)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Move to a device without copying the values: for models that were made on the meta device."""
        return self._apply(lambda t: factories.empty_like(t, device=device), recurse=recurse)

    def cuda(self, device: Any = None) -> Self:
        """Move to a GPU."""
        return self._apply(lambda t: t.cuda(device))

    def cpu(self) -> Self:
        """Move to main memory."""
        return self._apply(lambda t: t.cpu())

    def ipu(self, device: Any = None) -> Self:
        """Not available: there is no such device here."""
        raise NotImplementedError("Module.ipu: flambeau runs on the CPU and on CUDA")

    def xpu(self, device: Any = None) -> Self:
        """Not available: there is no such device here."""
        raise NotImplementedError("Module.xpu: flambeau runs on the CPU and on CUDA")

    def mtia(self, device: Any = None) -> Self:
        """Not available: there is no such device here."""
        raise NotImplementedError("Module.mtia: flambeau runs on the CPU and on CUDA")

    def type(self, dst_type: Any) -> Self:
        """Convert all parameters and buffers to a type."""
        return self._apply(lambda t: t.type(dst_type))

    def _cast(self, dtype: dtypes.dtype) -> Self:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self) -> Self:
        """Convert floating-point parameters and buffers to float32."""
        return self._cast(dtypes.float32)

    def double(self) -> Self:
        """Convert floating-point parameters and buffers to float64."""
        return self._cast(dtypes.float64)

    def half(self) -> Self:
        """Convert floating-point parameters and buffers to float16."""
        return self._cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """Convert floating-point parameters and buffers to bfloat16."""
        return self._cast(dtypes.bfloat16)

    def share_memory(self) -> Self:
        """Move to memory that other processes can share."""
        return self._apply(lambda t: t.share_memory_())

    # -- what it is used for

    def train(self, mode: bool = True) -> Self:
        """Switch to training: dropout drops, batch norm looks at the batch."""
        if not isinstance(mode, bool):
            raise ValueError(f"training mode is expected to be boolean, found {mode!r}")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """Switch to evaluation: the same as train(False)."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Whether the parameters are to be learned; False freezes the module."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters; with set_to_none=False, fill them with zeros."""
        if getattr(self, "_is_replica", False):
            said = "Calling .zero_grad() from a module created with nn.DataParallel() has no effect: its parameters are not leaves"
            warnings.warn(f"{said}. Call it on the original module.", stacklevel=2)
        for parameter in self.parameters():
            grad = parameter._grad
            if grad is not None:
                parameter._grad = None if set_to_none else grad
                if not set_to_none:
                    (grad.requires_grad_(False) if grad.grad_fn is None else grad.detach_()).zero_()


def _moved(parameter: Parameter, fn: Callable[[Tensor], Tensor], name: str) -> Parameter:
    """The parameter with its data and gradient replaced by `fn` of them: the same object where that can be, unless `torch.__future__` says
    otherwise. Data cannot come from the meta device, or go there."""
    grad = parameter._grad
    with modes.no_grad():
        data = fn(parameter)
        new_grad = None if grad is None else fn(grad)
    made_of_tensors = type(data) in DISPATCHED and hasattr(type(data), "__tensor_flatten__")  # which are exchanged with it
    if conversion.get_swap_module_params_on_conversion() or made_of_tensors:
        return _swapped(parameter, data, new_grad, name)
    if _has_compatible_shallow_copy_type(parameter, data) and not conversion.get_overwrite_module_params_on_conversion():
        parameter.data = data
        if grad is not None:
            grad.data = new_grad
        return parameter
    moved = Parameter(data, parameter.requires_grad)
    if grad is not None:
        moved._grad = new_grad.requires_grad_(grad.requires_grad)
    return moved


def _swapped(parameter: Parameter, data: Tensor, new_grad: Tensor | None, name: str) -> Parameter:
    """The parameter, after becoming a Parameter of this data; and its gradient, after becoming the new one."""
    grad = parameter._grad
    try:
        swap_tensors(parameter, Parameter(data, parameter.requires_grad))
        if grad is not None and new_grad is not grad:
            swap_tensors(grad, new_grad.requires_grad_(grad.requires_grad))
    except RuntimeError as problem:
        raise RuntimeError(f"_apply(): Couldn't swap {name}: {problem}") from problem
    parameter._grad = grad
    return parameter
