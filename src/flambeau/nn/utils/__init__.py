"""flambeau.nn.utils: what is done to the parameters of a model from outside. Each subject has its file, imported when asked for."""

from __future__ import annotations

from importlib import import_module as _import_module

_SUBJECTS = {
    "clip_grad": "clip_grad_norm clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_ get_total_norm",
    "convert_parameters": "parameters_to_vector vector_to_parameters",
    "fusion": "fuse_conv_bn_eval fuse_conv_bn_weights fuse_linear_bn_eval fuse_linear_bn_weights",
    "init": "skip_init",
    "memory_format": "convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format",
    "spectral_norm": "spectral_norm remove_spectral_norm",
    "weight_norm": "weight_norm remove_weight_norm",
    "parametrizations": "", "parametrize": "", "prune": "", "rnn": "", "stateless": "",
}  # fmt: skip
_HOMES = {name: subject for subject, names in _SUBJECTS.items() for name in names.split()}
_HIDDEN = {"clip_grad", "convert_parameters", "fusion", "init", "memory_format", "prune"}  # found, but not part of `import *`
__all__ = sorted(({*_HOMES} | {*_SUBJECTS}) - _HIDDEN)  # noqa: PLE0605


def __getattr__(name: str):
    if name not in _HOMES and name not in _SUBJECTS:
        raise AttributeError(f"module 'flambeau.nn.utils' has no attribute {name!r}")
    room = _import_module(f"flambeau.nn.utils.{_HOMES.get(name, name)}")
    # Importing a file puts it here under its own name, which some functions have, too: weight_norm is the function.
    globals().update({n: getattr(room, n) for n in _SUBJECTS[_HOMES.get(name, name)].split()})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_SUBJECTS})


# As the file and the function have one name, whoever imports the file first would hide the function: these two come at once.
from flambeau.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm  # noqa: E402
from flambeau.nn.utils.weight_norm import remove_weight_norm, weight_norm  # noqa: E402
