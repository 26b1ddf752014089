"""Engines for quantized layers. There is one, our own, which computes what PyTorch's do; it answers to their names."""

from __future__ import annotations

engine = "x86"
supported_engines = ["qnnpack", "onednn", "x86", "fbgemm"]
