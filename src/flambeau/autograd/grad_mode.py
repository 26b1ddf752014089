"""The name under which PyTorch has the gradient modes: see modes.py."""

from flambeau.autograd.modes import *
from flambeau.autograd.modes import __all__ as __all__
