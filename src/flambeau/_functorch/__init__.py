"""torch._functorch: what programs set about PyTorch's compiler of functions. There is none here; settings are kept."""

from flambeau._functorch import config

__all__ = ["config"]
