"""The name under which PyTorch has the checks of gradients, as a module and as the function in it: see gradient_check.py."""

import sys
from types import ModuleType

from flambeau.autograd.gradient_check import GradcheckError, gradcheck, gradgradcheck

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class _Callable(ModuleType):
    """Importing this module puts it where `torch.autograd.gradcheck`, the function, was: so it must be able to stand for it."""

    def __call__(self, *args, **kwargs):
        return gradcheck(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
