"""flambeau.ops.overloads, the older address of operators/overloads.py: the same module."""

import sys

from flambeau.operators import overloads

sys.modules[__name__] = overloads
