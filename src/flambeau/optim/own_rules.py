"""What optimizers of other people import besides `Optimizer`: most begin as a copy of one of PyTorch's, which uses these.

`optimizer.py` shows them under PyTorch's path torch.optim.optimizer, torch.utils._foreach_utils those about lists of tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flambeau import devices, dtypes
from flambeau.modes import set_recording
from flambeau.modes import state as modes
from flambeau.ops.complex import view_as_real
from flambeau.tensor import Tensor
from flambeau.tensor.making.parameter import Parameter

Groups = dict[tuple[devices.device, dtypes.dtype], tuple[list[list], list[int]]]

_foreach_supported_types = [Tensor]
_moved_types = (Tensor, Parameter)

# What their docstrings are put together from.
_params_doc = "params (iterable): tensors, (name, tensor) pairs, or dicts that define parameter groups"
_foreach_doc = "foreach (bool, optional): whether tensors are moved in lists instead of one by one"
_fused_doc = "fused (bool, optional): whether one kernel does the whole step"
_capturable_doc = "capturable (bool, optional): whether a step can be captured in a CUDA graph"
_differentiable_doc = "differentiable (bool, optional): whether autograd records a step"
_maximize_doc = "maximize (bool, optional): climb instead of descending"


def _use_grad_for_differentiable(step: Callable) -> Callable:
    """A step that autograd records only if the optimizer was made with differentiable=True."""

    @functools.wraps(step)
    def recorded_if_wanted(self, *args, **kwargs):
        before = modes.grad
        set_recording(bool(self.defaults["differentiable"]))
        try:
            return step(self, *args, **kwargs)
        finally:
            set_recording(before)

    return recorded_if_wanted


def _get_value(x: Any) -> Any:
    """The number in a tensor of one element; numbers are their own."""
    return x.item() if isinstance(x, Tensor) else x


def _stack_if_compiling(x: Any) -> Any:
    """A list of numbers, as it is: only PyTorch's compiler wants them as one tensor."""
    return x


def _get_scalar_dtype(is_fused: bool | None = None) -> dtypes.dtype:
    """What steps are counted in."""
    return dtypes.float64 if not is_fused and dtypes.get_default_dtype() is dtypes.float64 else dtypes.float32


def _view_as_real(params: list[Tensor], *state_and_grads: list[Tensor]) -> None:
    """Complex parameters, their gradients and states, replaced in their lists by views as pairs of real numbers."""
    for i, p in enumerate(params):
        if p.is_complex():
            for tensors in (params, *state_and_grads):
                tensors[i] = view_as_real(tensors[i])


def _disable_dynamo_if_unsupported(single_tensor_fn: Callable | None = None) -> Callable[[Callable], Callable]:
    """A decorator for functions that PyTorch's compiler should leave alone; here it changes nothing."""
    return lambda function: function


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Where moving tensors in lists pays."""
    return ["cuda", "xpu", "mtia", "privateuseone"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """Where one kernel can do a whole step."""
    return ["mps", "cuda", "xpu", "hpu", "cpu", "mtia", "privateuseone"]


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """Where a step can be captured."""
    return ["cuda", "xpu", "hpu", *(["xla"] if supports_xla else [])]


def _device_has_foreach_support(device: devices.device) -> bool:
    return device.type in (*_get_foreach_kernels_supported_devices(), "cpu")


def _has_foreach_support(tensors: list[Tensor | None], device: devices.device) -> bool:
    return _device_has_foreach_support(device) and all(t is None or type(t) in _foreach_supported_types for t in tensors)


def _default_to_fused_or_foreach(params: list[Tensor | None], differentiable: bool, use_fused: bool = False) -> tuple[bool, bool]:
    """(fused, foreach): what an optimizer does if it is not told. On the CPU neither, unless fused is asked for."""
    if differentiable:
        return False, False
    given = [p for p in params if p is not None]
    plain = all(type(p) in _moved_types for p in given)
    fused = use_fused and plain and all(_can_be_fused(p, _get_fused_kernels_supported_devices()) for p in given)
    listed = _get_foreach_kernels_supported_devices()
    return fused, not fused and plain and all(p.device.type in listed for p in given)


def _can_be_fused(p: Tensor, places: list[str]) -> bool:
    return p.device.type in places and p.is_floating_point()


def _device_dtype_check_for_fused(p: Tensor, cuda_unsupported: bool = False) -> None:
    """RuntimeError if one kernel cannot do a step of this parameter."""
    places = [d for d in _get_fused_kernels_supported_devices() if not (cuda_unsupported and d == "cuda")]
    if not _can_be_fused(p, places):
        raise RuntimeError(
            f"`fused=True` requires all the params to be floating point Tensors on {places}, found {p.dtype} on {p.device.type}"
        )


def _group_tensors_by_device_and_dtype(tensorlistlist: list[list], with_indices: bool = False) -> Groups:
    """Lists of tensors split into groups that share device and dtype, as the first list has them: {(device, dtype): (lists, indices)}."""
    first = tensorlistlist[0]
    if not first or any(t is None for t in first):
        raise RuntimeError("the first list of tensors decides about the groups, so it can be neither empty nor have None in it")
    chosen: dict[tuple[devices.device, dtypes.dtype], list[int]] = {}
    for i, t in enumerate(first):
        chosen.setdefault((t.device, t.dtype), []).append(i)
    return {
        key: ([[tensors[i] for i in places] if tensors else [] for tensors in tensorlistlist], places if with_indices else [])
        for key, places in chosen.items()
    }
