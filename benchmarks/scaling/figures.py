"""The figures that everything else is computed from, each with where it is from. Seconds, bytes and operations per second, never prefixes."""

from __future__ import annotations

from dataclasses import dataclass

# The part of its peak that a GPU keeps up in forward and backward of a decoder. "The Llama 3 Herd of Models" (2024) reports 0.38 to 0.43
# on H100s; a kernel alone does better: a product of two 8192 x 8192 matrices in bfloat16 ran at 0.8 of the peak on an H200.
UTILIZATION = 0.4

NODE = 8  # GPUs on one NVLink switch: DGX and HGX of A100, H100, H200


@dataclass(frozen=True)
class Link:
    """What carries: n bytes take `latency` + n / `bandwidth`. The bandwidth is one GPU's, in one direction."""

    name: str
    latency: float
    bandwidth: float


@dataclass(frozen=True)
class GPU:
    """What computes. `peak` is of dense bfloat16 products, `bandwidth` that of its own memory, `link` leads to the others of its node."""

    name: str
    peak: float
    memory: float
    bandwidth: float
    link: Link


@dataclass(frozen=True)
class Cluster:
    """Nodes of `node` ranks: one kind of link inside of them, another between them, one for each rank."""

    within: Link
    between: Link
    node: int = NODE


# NVLink: half of what the data sheets say, which count both directions, and of that the 0.82 that NCCL's rings reach: 365 to 370 GB/s were
# reported for 2 to 8 H100s (github.com/NVIDIA/nccl, issue 1455), close to 240 for A100s (issue 1712). 1.9 µs a hop: what NCCL 2.20 reckons
# with (src/graph/tuning.cc, ring, LL128).
RINGS = 0.82
NVLINK_3, NVLINK_4 = (Link(f"NVLink {n}", 1.9e-6, both / 2 * RINGS) for n, both in ((3, 600e9), (4, 900e9)))

# NVIDIA's data sheets of the SXM modules.
GPUS = {
    "a100": GPU("A100", 312e12, 80e9, 2.039e12, NVLINK_3),
    "h100": GPU("H100", 989.4e12, 80e9, 3.35e12, NVLINK_4),
    "h200": GPU("H200", 989.4e12, 141e9, 4.8e12, NVLINK_4),
}

# 46 to 48 GB/s are what a card of 400 Gb/s should give (github.com/NVIDIA/nccl-tests, issue 290): 0.94 of 50.
CARDS = 0.94

LINKS = {
    # A DGX H100 has a card of 400 Gb/s for each GPU, a DGX A100 one of 200 (their user guides). 4.0 µs a hop: NCCL 2.20, as above.
    "infiniband": Link("InfiniBand, 400 Gb/s for each GPU", 4.0e-6, 400e9 / 8 * CARDS),
    "infiniband-200": Link("InfiniBand, 200 Gb/s for each GPU", 4.0e-6, 200e9 / 8 * CARDS),
    # One card of 100 Gb/s that the eight GPUs of a node share, over TCP. The latency is our assumption, of the size of a ping within a rack.
    "ethernet": Link("Ethernet, 100 Gb/s for each node", 30e-6, 100e9 / 8 / NODE * CARDS),
}
