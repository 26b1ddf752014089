"""The layers: one file per subject, listed here, imported when one of its names is first asked for.

To add layers, write `modules/<subject>.py` and give it a line in SUBJECTS; they are then found in `flambeau.nn` and here.
"""

from __future__ import annotations

from importlib import import_module as _import_module

from flambeau.nn.modules.module import Module

SUBJECTS = {
    "container": "Container ModuleDict ModuleList ParameterDict ParameterList Sequential",
    "conv": """Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d
               LazyConvTranspose2d LazyConvTranspose3d""",
    "linear": "Bilinear Identity LazyLinear Linear",
    "pooling": """AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d AvgPool1d
                  AvgPool2d AvgPool3d FractionalMaxPool2d FractionalMaxPool3d LPPool1d LPPool2d LPPool3d MaxPool1d MaxPool2d MaxPool3d
                  MaxUnpool1d MaxUnpool2d MaxUnpool3d""",
}
HOMES = {name: subject for subject, names in SUBJECTS.items() for name in names.split()}
__all__ = ["Module", *sorted(HOMES)]


def __getattr__(name: str):
    subject = HOMES.get(name)
    if subject is None:
        if name not in SUBJECTS:
            raise AttributeError(f"module 'flambeau.nn.modules' has no attribute {name!r}")
        return _import_module(f"flambeau.nn.modules.{name}")
    found = globals()[name] = getattr(_import_module(f"flambeau.nn.modules.{subject}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *HOMES, *SUBJECTS})
