"""`torch.utils.serialization`: settings of `save` and `load`."""

from flambeau.utils.serialization import config

__all__ = ["config"]
