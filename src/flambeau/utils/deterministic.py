"""torch.utils.deterministic: a switch for programs that must not depend on uninitialised memory."""

from __future__ import annotations

# PyTorch fills `torch.empty` with NaN under use_deterministic_algorithms while this is True. Remembered, and not acted upon here.
fill_uninitialized_memory = True
