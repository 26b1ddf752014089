"""Where events go, by name. Programs add their own handlers to the dictionary."""

from __future__ import annotations

import logging

_log_handlers: dict[str, logging.Handler] = {
    "console": logging.StreamHandler(),
    "dynamic_rendezvous": logging.NullHandler(),
    "null": logging.NullHandler(),
}


def get_logging_handler(destination: str = "null") -> logging.Handler:
    """The handler of that name."""
    if destination not in _log_handlers:
        raise KeyError(
            f"there is no handler of events called {destination!r} (--event_log_handler), only {', '.join(sorted(_log_handlers))}"
        )
    return _log_handlers[destination]
