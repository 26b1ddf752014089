"""Why agents do not find each other."""

from __future__ import annotations


class RendezvousError(Exception):
    """Agents could not meet."""


class RendezvousClosedError(RendezvousError):
    """The run has ended: nobody is waiting for this agent any more."""


class RendezvousTimeoutError(RendezvousError):
    """Not enough agents came in time."""


class RendezvousConnectionError(RendezvousError):
    """The store in which they meet could not be reached."""


class RendezvousStateError(RendezvousError):
    """What the store says about the meeting makes no sense."""


class RendezvousGracefulExitError(RendezvousError):
    """This agent is not needed, and ends as it should."""
