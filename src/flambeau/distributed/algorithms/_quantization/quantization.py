"""auto_quantize: a collective whose tensors travel in half precision.

auto_quantize(dist.all_gather, DQuantType.FP16)(outputs, tensor, group=group)
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import wraps
from typing import Any

from flambeau import distributed, dtypes
from flambeau.tensor import Tensor

LARGEST = 65504.0  # in float16


class DQuantType(Enum):
    """What tensors become on their way."""

    FP16 = ("fp16",)
    BFP16 = ("bfp16",)

    def __str__(self) -> str:
        return self.value[0] if isinstance(self.value, tuple) else str(self.value)


def auto_quantize(func: Callable, qtype: DQuantType, quant_loss: Any = None) -> Callable:
    """all_gather, all_to_all or all_to_all_single that casts its input before, and its outputs back after."""

    @wraps(func)
    def quantized(*args: Any, **kwargs: Any) -> Any:
        group = kwargs.get("group")
        if kwargs.get("async_op"):
            raise RuntimeError("The async_op=True mode is not supported yet: what comes back must be cast before it is used")
        outputs, inputs = args[0], args[1]
        if func is distributed.all_gather:
            small = _quantize_tensor_list(outputs, qtype)
            distributed.all_gather(small, _quantize_tensor(inputs, qtype), group=group, async_op=False)
        elif func is distributed.all_to_all:
            small = _quantize_tensor_list(outputs, qtype)
            distributed.all_to_all(small, _quantize_tensor_list(inputs, qtype), group=group, async_op=False)
        elif func is distributed.all_to_all_single:
            out_splits, in_splits = kwargs.get("out_splits"), kwargs.get("in_splits")
            single = _quantize_tensor(outputs, qtype)
            distributed.all_to_all_single(single, _quantize_tensor(inputs, qtype), out_splits, in_splits, group=group)
            outputs.copy_(_dequantize_tensor(single, qtype, quant_loss))
            return
        else:
            raise RuntimeError(f"The collective op {func} is not supported yet: all_gather, all_to_all and all_to_all_single are")
        for output, found in zip(outputs, _dequantize_tensor_list(small, qtype, quant_loss), strict=True):
            output.copy_(found)

    return quantized


def _fp32_to_fp16_with_clamp(tensor: Tensor) -> Tensor:
    """In float16, what is too large as its largest number."""
    return tensor.clamp(-LARGEST, LARGEST).half()


def _quantize_tensor(tensor: Tensor, qtype: DQuantType) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise RuntimeError(f"_quantize_tensor expecting torch.Tensor as input but found {type(tensor)}")
    if qtype is DQuantType.FP16:
        return _fp32_to_fp16_with_clamp(tensor)
    if qtype is DQuantType.BFP16:
        return tensor.to(dtypes.bfloat16)
    raise RuntimeError(f"Quantization type {qtype} is not supported")


def _quantize_tensor_list(tensor_list: list[Tensor], qtype: DQuantType) -> list[Tensor]:
    if not isinstance(tensor_list, list) or not all(isinstance(p, Tensor) for p in tensor_list):
        raise RuntimeError(f"_quantize_tensor_list expecting list of torch.Tensor as input but found {type(tensor_list)}")
    return [_quantize_tensor(t, qtype) for t in tensor_list]


def _dequantize_tensor(tensor: Tensor, qtype: DQuantType, quant_loss: Any = None) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise RuntimeError(f"_dequantize_tensor expecting torch.Tensor as input but found {type(tensor)}")
    wanted = {DQuantType.FP16: dtypes.float16, DQuantType.BFP16: dtypes.bfloat16}[qtype]
    if tensor.dtype != wanted:
        raise RuntimeError(f"tensor dtype is {tensor.dtype} while expected to be {wanted}.")
    found = tensor.float()
    return found if quant_loss is None else found / quant_loss


def _dequantize_tensor_list(tensor_list: list[Tensor], qtype: DQuantType, quant_loss: Any = None) -> list[Tensor]:
    if not isinstance(tensor_list, list) or not all(isinstance(p, Tensor) for p in tensor_list):
        raise RuntimeError(f"_dequantize_tensor_list expecting list of torch.Tensor as input but found {type(tensor_list)}")
    return [_dequantize_tensor(t, qtype, quant_loss) for t in tensor_list]
