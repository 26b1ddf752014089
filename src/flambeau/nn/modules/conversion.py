"""How converting a model (`Module.to`, `half`, `to_empty`, ...) and loading one treat the parameters that are there.

neither     a parameter gets new data, and stays the object it was       (`parameter.data = ...`, `parameter.copy_(...)`)
overwrite   converting puts a new Parameter into the module
swap        a parameter stays the object it was, and becomes the new tensor in everything else: see `utils.swap_tensors`. It goes before overwrite.
"""

from __future__ import annotations

_overwrite = _swap = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether converting a module gives it new parameters, instead of new data to those it has."""
    global _overwrite
    _overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """Whether converting a module gives it new parameters. False unless it was set."""
    return _overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Whether converting a module, and loading a state_dict into it, exchange its parameters' contents by `utils.swap_tensors`."""
    global _swap
    _swap = value


def get_swap_module_params_on_conversion() -> bool:
    """Whether parameters are converted and loaded by `utils.swap_tensors`. False unless it was set."""
    return _swap
