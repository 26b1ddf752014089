"""The name under which PyTorch has the gradient modes: see modes.py."""

from flambeau.modes import *
from flambeau.modes import __all__ as __all__
from flambeau.modes import is_multithreading_enabled as is_multithreading_enabled
from flambeau.modes import is_view_replay_enabled as is_view_replay_enabled
