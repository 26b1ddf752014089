"""torch._library.autograd"""

from flambeau.library.autograd import Info, supports_tensorlist

__all__ = ["Info", "supports_tensorlist"]
