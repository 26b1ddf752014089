"""Well-known models of images, by torchvision's names, with its layers' names and its initial weights: its checkpoints fit.

    model = resnet18(num_classes=10)
    model.load_state_dict(torch.load("resnet18-f37072fd.pth"))

Nothing is downloaded: `weights=` other than None says so.
"""

from __future__ import annotations

from typing import Any

from flambeau.vision.models import alexnet as _alexnet
from flambeau.vision.models import densenet, mobilenetv2, resnet, squeezenet, vgg
from flambeau.vision.models.alexnet import *
from flambeau.vision.models.densenet import *
from flambeau.vision.models.mobilenetv2 import *
from flambeau.vision.models.resnet import *
from flambeau.vision.models.squeezenet import *
from flambeau.vision.models.vgg import *

_HOMES = (_alexnet, densenet, mobilenetv2, resnet, squeezenet, vgg)
_BUILDERS = {name: getattr(home, name) for home in _HOMES for name in home.__all__ if name.islower()}

__all__ = [*(name for home in _HOMES for name in home.__all__), "get_model", "list_models"]


def list_models(module: Any = None, include: Any = None, exclude: Any = None) -> list[str]:
    """The names that `get_model` knows; `include` and `exclude` are patterns as of a shell, one or several."""
    from fnmatch import fnmatch

    def matches(name: str, patterns: Any) -> bool:
        return any(fnmatch(name, pattern) for pattern in ([patterns] if isinstance(patterns, str) else patterns))

    names = sorted(name for name, builder in _BUILDERS.items() if module is None or builder.__module__ == module.__name__)
    return [n for n in names if (not include or matches(n, include)) and not (exclude and matches(n, exclude))]


def get_model(name: str, **config: Any) -> Any:
    """The model of this name: get_model("resnet18", num_classes=10)."""
    if name.lower() not in _BUILDERS:
        raise ValueError(f"Unknown model {name}: there are {', '.join(sorted(_BUILDERS))}")
    return _BUILDERS[name.lower()](**config)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"flambeau.vision.models has no {name!r}: it has {', '.join(list_models())}")
