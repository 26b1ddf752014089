"""torch.utils.backcompat: warnings about very old programs, which are off."""

from __future__ import annotations


class Warning:
    """A switch that can be set and read."""

    def __init__(self) -> None:
        self.enabled = False


broadcast_warning = Warning()
keepdim_warning = Warning()
