"""What programs registered for an operator, by dispatch key."""

from __future__ import annotations

from typing import Any

from flambeau.ops.overloads import OpOverload

registered: dict[OpOverload, Any] = {}


def run(overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
    return NotImplemented


def has(overload: OpOverload, key: Any) -> bool:
    return False
