"""The environment in which a worker is started: who it is, and where the others are."""

from __future__ import annotations

import os

from flambeau.distributed.elastic.agent.server.api import Worker, WorkerGroup


def environment(group: WorkerGroup, worker: Worker, *, run_id: str, restart: int, use_agent_store: bool) -> dict[str, str]:
    """torchrun's variables for one worker."""
    spec = group.spec
    found = {
        "LOCAL_RANK": 0 if spec.virtual_local_rank else worker.local_rank,
        "RANK": worker.global_rank,
        "GROUP_RANK": group.group_rank,
        "ROLE_RANK": worker.role_rank,
        "ROLE_NAME": spec.role,
        "LOCAL_WORLD_SIZE": spec.local_world_size,
        "WORLD_SIZE": worker.world_size,
        "GROUP_WORLD_SIZE": group.group_world_size,
        "ROLE_WORLD_SIZE": worker.role_world_size,
        "MASTER_ADDR": group.master_addr,
        "MASTER_PORT": group.master_port,
        "TORCHELASTIC_RESTART_COUNT": restart,
        "TORCHELASTIC_MAX_RESTARTS": spec.max_restarts,
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_USE_AGENT_STORE": use_agent_store,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        "PYTHONUNBUFFERED": os.environ.get("PYTHONUNBUFFERED", "1"),
    }
    if "OMP_NUM_THREADS" in os.environ:
        found["OMP_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"]
    if spec.virtual_local_rank:
        found["CUDA_VISIBLE_DEVICES"] = own_device(worker.local_rank)
    return {name: str(value) for name, value in found.items()}


def own_device(local_rank: int) -> str:
    """The one GPU that a worker is to see."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return str(local_rank)
    devices = [device.strip() for device in given.split(",")]
    if local_rank >= len(devices):
        raise ValueError(f"--virtual_local_rank: there is no GPU for local rank {local_rank}, CUDA_VISIBLE_DEVICES={given}")
    return devices[local_rank]
