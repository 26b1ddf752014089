"""flambeau.nn: so far the parameter type and the functions that are formulas (`nn.functional`)."""

from flambeau.nn import functional
from flambeau.parameter import Parameter

__all__ = ["Parameter", "functional"]
