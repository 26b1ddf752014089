"""torch._functorch: the parts of vmap, for libraries that bring containers of their own (vmap.py), and what programs set about PyTorch's compiler of
functions. There is none here; settings are kept. `torch.func` is what programs use."""

from flambeau._functorch import config

__all__ = ["config"]
