"""How long a group waits when it is not told: half an hour, and ten minutes for NCCL, whose kernels block a GPU meanwhile."""

from __future__ import annotations

from datetime import timedelta

__all__ = ["default_pg_nccl_timeout", "default_pg_timeout"]

default_pg_timeout: timedelta = timedelta(minutes=30)
default_pg_nccl_timeout: timedelta | None = timedelta(minutes=10)
