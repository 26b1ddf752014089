"""torch.distributed.elastic.agent.server: the agent, and what it knows about its workers."""

from __future__ import annotations

from flambeau.doors import door

__getattr__, __dir__, __all__ = door(__name__, {
    "api": "ElasticAgent RunResult SimpleElasticAgent Worker WorkerGroup WorkerSpec WorkerState",
    "local_elastic_agent": "LocalElasticAgent",
})  # fmt: skip
