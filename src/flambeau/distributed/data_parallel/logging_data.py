"""Logger: what a DistributedDataParallel knows about itself and its last pass, by the names that PyTorch gives the numbers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from flambeau import dtypes

# By the names they have in C++, which PyTorch writes here.
NAMES = {dtypes.float32: "float", dtypes.float64: "double", dtypes.float16: "c10::Half", dtypes.bfloat16: "c10::BFloat16"}


class Logger:
    """Collects the numbers of one reducer."""

    def __init__(self, reducer: Any):
        self.reducer = reducer
        self.fixed: dict[str, Any] = {}
        self.passes = 0
        self.sums = {"forward": 0, "backward": 0, "comm": 0, "overlap": 0}

    def set_construction_data_and_log(
        self,
        module_name: str,
        device_ids: Sequence[int],
        output_device: int,
        broadcast_buffers: bool,
        has_sync_bn: bool,
        static_graph: bool,
    ) -> None:
        """What does not change."""
        reducer = self.reducer
        group = reducer.group
        self.fixed = {
            "world_size": group.size(),
            "rank": group.rank(),
            "module_name": module_name,
            "device_ids": ", ".join(map(str, device_ids)),
            "output_device": output_device,
            "broadcast_buffers": int(broadcast_buffers),
            "has_sync_bn": int(has_sync_bn),
            "backend_name": group.name() if callable(getattr(group, "name", None)) else "",
            "find_unused_parameters": int(reducer.find_unused),
            "gradient_as_bucket_view": int(reducer.as_view),
            "bucket_cap_bytes": reducer.limits[-1],
            "num_parameter_tensors": len(reducer.params),
            "total_parameter_size_bytes": sum(p.numel() * p.element_size() for p in reducer.params),
            "bucket_sizes": _sizes(reducer),
            "dtypes": ", ".join(dict.fromkeys(NAMES.get(p.dtype, str(p.dtype)) for p in reducer.params)),
            "is_multi_device_module": int(len({p.device for p in reducer.params}) > 1),
            "master_addr": os.environ.get("MASTER_ADDR", ""),
            "master_port": os.environ.get("MASTER_PORT", ""),
        }
        if static_graph:
            self._set_static_graph()

    def _set_comm_hook_name(self, hook: str) -> None:
        self.fixed["comm_hook"] = hook

    def _set_static_graph(self) -> None:
        self.fixed["static_graph"] = 1

    def _set_uneven_input_join(self) -> None:
        self.fixed["join_uneven_inputs"] = True

    def set_error_and_log(self, error: str) -> None:
        self.fixed |= {"has_error": 1, "error": error}

    def set_runtime_stats_and_log(self) -> None:
        """Numbers are taken at the end of each pass."""

    def pass_ended(self) -> None:
        """Add up the times of a pass."""
        seen, sent = self.reducer.seen, self.reducer.sent_at
        self.passes += 1
        self.sums["forward"] += seen["first"] - seen["forward"]
        self.sums["backward"] += seen["done"] - seen["first"]
        if sent:
            self.sums["comm"] += seen["done"] - sent[0]
            self.sums["overlap"] += max(0, seen["last"] - sent[0])

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        reducer, n = self.reducer, max(1, self.passes)
        seen, sent = reducer.seen, reducer.sent_at
        found = {
            **self.fixed,
            "iteration": self.passes,
            "has_rebuilt_buckets": int(reducer.rebuilt),
            "unused_parameter_size": sum(reducer.params[i].numel() * reducer.params[i].element_size() for i in reducer.unused),
            "avg_forward_compute_time": self.sums["forward"] // n,
            "avg_backward_compute_comm_overlap_time": self.sums["overlap"] // n,
            "avg_backward_comm_time": self.sums["comm"] // n,
            "avg_backward_compute_time": self.sums["backward"] // n,
        }
        if reducer.find_unused:
            found["can_set_static_graph"] = reducer._ddp_graph_static()
        if reducer.rebuilt:
            found["rebuilt_bucket_sizes"] = _sizes(reducer)
            found["rebuilt_per_bucket_param_indices"] = ", ".join(" ".join(map(str, indices)) for indices in reducer.assignment)
        if self.passes:
            found |= {
                "num_buckets_reduced": len(sent),
                "forward_compute_time": seen["first"] - seen["forward"],
                "forward_compute_time_start": seen["forward"],
                "backward_compute_time_start": seen["first"],
                "backward_compute_comm_overlap_time": max(0, seen["last"] - sent[0]) if sent else 0,
                "backward_comm_time": seen["done"] - sent[0] if sent else 0,
                "backward_compute_time": seen["last"] - seen["first"],
                "backward_compute_time_end": seen["last"],
                "backward_comm_time_start": sent[0] if sent else 0,
                "backward_comm_time_end": seen["done"],
            }
        return found


def _sizes(reducer: Any) -> str:
    """The bytes of each bucket."""
    return ", ".join(str(bucket.nbytes) for bucket in reducer.buckets)
