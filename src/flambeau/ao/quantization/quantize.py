"""`quantize_dynamic`: a copy of a model whose linear and recurrent layers have 8-bit weights.

1. `propagate_qconfig_` writes a `qconfig` on every module: the one given for its name, else for its type, else that of the module it is in.
2. `convert` swaps each child that has one, and whose type is in the mapping, for `mapping[type].from_float(child)`.

The model itself is never swapped, only what is inside: nn.Linear alone stays what it is, as in PyTorch.
"""

from __future__ import annotations

import copy
from typing import Any

from flambeau import dtypes
from flambeau.ao.nn.quantized import dynamic
from flambeau.ao.quantization.qconfig import default_dynamic_qconfig, float16_dynamic_qconfig
from flambeau.nn.modules import rnn
from flambeau.nn.modules.linear import Linear, NonDynamicallyQuantizableLinear
from flambeau.nn.modules.module import Module
from flambeau.nn.utils.parametrize import type_before_parametrizations

# nn.MultiheadAttention reads the weight of its NonDynamicallyQuantizableLinear itself: it is swapped only where somebody asks for that type.
DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS: dict[type, Any] = {
    Linear: dynamic.Linear,
    NonDynamicallyQuantizableLinear: dynamic.Linear,
    rnn.LSTM: dynamic.LSTM,
    rnn.GRU: dynamic.GRU,
    rnn.LSTMCell: dynamic.LSTMCell,
    rnn.RNNCell: dynamic.RNNCell,
    rnn.GRUCell: dynamic.GRUCell,
}
USUAL = (Linear, rnn.LSTM, rnn.GRU, rnn.LSTMCell, rnn.RNNCell, rnn.GRUCell)
QCONFIGS = {dtypes.qint8: default_dynamic_qconfig, dtypes.float16: float16_dynamic_qconfig}


def quantize_dynamic(
    model: Module, qconfig_spec: Any = None, dtype: Any = dtypes.qint8, mapping: Any = None, inplace: bool = False
) -> Module:
    """A copy of the model (or, inplace, the model itself), in eval mode, with quantized layers.

    qconfig_spec says which: a set of types and names of submodules, quantized to `dtype` (qint8, or float16), or a dict from these to
    QConfigs, None to leave one out. Without it, all linear and recurrent layers are.

        small = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    """
    if qconfig_spec is None or isinstance(qconfig_spec, set):
        qconfig_spec = dict.fromkeys(USUAL if qconfig_spec is None else qconfig_spec, _qconfig_for(dtype, qconfig_spec is None))
    model = model if inplace else copy.deepcopy(model)
    model.eval()
    propagate_qconfig_(model, qconfig_spec)
    return convert(model, get_default_dynamic_quant_module_mappings() if mapping is None else mapping, inplace=True)


def _qconfig_for(dtype: Any, by_default: bool) -> Any:
    if dtype in QCONFIGS:
        return QCONFIGS[dtype]
    if dtype is dtypes.quint8:
        raise NotImplementedError("quantize_dynamic: quint8 is for embeddings, which cannot be quantized here. Try dtype=torch.qint8")
    found = f"{dtype}. There are torch.qint8 and torch.float16; or provide full qconfigs, in a dict"
    raise (ValueError if by_default else RuntimeError)(f"there are no default settings to quantize {found} with")


def propagate_qconfig_(module: Module, qconfig_dict: dict | None = None, prepare_custom_config_dict: dict | None = None) -> None:
    """Write a `qconfig` on a module and all inside it, unless it has one already."""
    _propagate(module, qconfig_dict or {}, None, "")


def _propagate(module: Any, qconfigs: dict, of_parent: Any, name: str) -> None:
    own = qconfigs.get(name, qconfigs.get(type_before_parametrizations(module), of_parent))
    module.qconfig = own = getattr(module, "qconfig", own)
    for child_name, child in module.named_children():
        _propagate(child, qconfigs, own, f"{name}.{child_name}" if name else child_name)


def convert(
    module: Module, mapping: dict | None = None, inplace: bool = False, remove_qconfig: bool = True, is_reference: bool = False,
    convert_custom_config_dict: dict | None = None, use_precomputed_fake_quant: bool = False,
) -> Module:  # fmt: skip
    """The module with each child that has a `qconfig` swapped as the mapping from types says."""
    if mapping is None or is_reference or convert_custom_config_dict:
        raise NotImplementedError("convert: static quantization is not available. Try quantize_dynamic(model)")
    module = module if inplace else copy.deepcopy(module)
    _convert(module, mapping)
    if remove_qconfig:
        for part in module.modules():
            vars(part).pop("qconfig", None)
    return module


def _convert(module: Module, mapping: dict) -> None:
    for name, child in list(module.named_children()):
        _convert(child, mapping)
        swapped = swap_module(child, mapping)
        if swapped is not child:
            module.add_module(name, swapped)


def swap_module(mod: Any, mapping: dict, custom_module_class_mapping: Any = None, use_precomputed_fake_quant: bool = False) -> Module:
    """The quantized kin of a module that has a `qconfig`, with its hooks; else the module."""
    kind = mapping.get(type_before_parametrizations(mod))
    if getattr(mod, "qconfig", None) is None or kind is None:
        return mod
    made = kind.from_float(mod)
    for hook in mod._forward_pre_hooks.values():
        made.register_forward_pre_hook(hook)
    for hook in mod._forward_hooks.values():
        made.register_forward_hook(hook)
    return made


def get_default_dynamic_quant_module_mappings() -> dict[type, Any]:
    """Which layer takes the place of which."""
    return dict(DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS)
