"""Looking at models, graphs and gradients: each function returns an object that prints well, in a terminal and in a notebook."""

from flambeau.viz.gradients import gradients
from flambeau.viz.graph import graph
from flambeau.viz.summary import summary

__all__ = ["gradients", "graph", "summary"]
