"""torch._inductor: settings of a compiler that is not here, and marks that programs make for it."""

from flambeau._inductor import config

__all__ = ["config"]
