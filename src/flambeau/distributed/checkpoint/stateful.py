"""`Stateful`: anything with `state_dict` and `load_state_dict` can be an entry of what is saved."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable

__all__ = ["Stateful", "StatefulT"]


@runtime_checkable
class Stateful(Protocol):
    """An object that tells its state when a checkpoint is saved, and takes it back when one is loaded."""

    def state_dict(self) -> dict[str, Any]:
        """The state, as a dictionary that can be saved."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go back to this state."""
        ...


StatefulT = TypeVar("StatefulT", bound=Stateful)
