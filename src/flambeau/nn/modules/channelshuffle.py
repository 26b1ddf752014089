"""ChannelShuffle: channels of different groups side by side, so that the next grouped layer mixes them (Zhang et al. 2018)."""

from __future__ import annotations

from flambeau.nn import functional as F
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """The first channel of every group, then the second of every group, ... (N, C, *) -> the same shape."""

    __constants__ = ["groups"]

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
