"""torch.distributed.elastic.metrics: numbers about a run. Nobody takes them until `configure` is called."""

from __future__ import annotations

from flambeau.distributed.elastic.metrics.api import *
from flambeau.distributed.elastic.metrics.api import MetricsConfig
from flambeau.distributed.elastic.metrics.api import __all__ as _names

__all__ = [*_names, "initialize_metrics"]


def initialize_metrics(cfg: MetricsConfig | None = None) -> None:
    """Called before workers start. Nothing to do: handlers are chosen with `configure`."""
