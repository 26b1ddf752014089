"""torch.__future__: how converting and loading a model treat the parameters that are there. See nn/modules/conversion.py."""

from flambeau.nn.modules.conversion import (
    get_overwrite_module_params_on_conversion,
    get_swap_module_params_on_conversion,
    set_overwrite_module_params_on_conversion,
    set_swap_module_params_on_conversion,
)

__all__ = [
    "get_overwrite_module_params_on_conversion", "get_swap_module_params_on_conversion", "set_overwrite_module_params_on_conversion",
    "set_swap_module_params_on_conversion",
]  # fmt: skip
