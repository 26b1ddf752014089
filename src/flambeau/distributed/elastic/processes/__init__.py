"""The processes of a launcher on one machine: `Workers` starts them through a guardian, which outlives it by a moment to end them."""

from flambeau.distributed.elastic.processes.workers import Workers

__all__ = ["Workers"]
