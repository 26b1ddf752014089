"""torch.jit.annotations: the types that programs import from here, to write down for TorchScript what they hold. They are typing's."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035 - these are the names asked for

__all__ = ["Any", "Dict", "List", "Optional", "Tuple", "Union"]
