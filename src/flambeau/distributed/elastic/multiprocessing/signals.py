"""SignalException: the launcher was told to end. While workers run, the signals of $TORCHELASTIC_SIGNALS_TO_HANDLE raise it in the main thread."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

__all__ = ["SignalException", "default_signals", "hand_back", "raise_on_signals"]

VARIABLE = "TORCHELASTIC_SIGNALS_TO_HANDLE"
default_signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"


class SignalException(Exception):
    """A signal came. `sigval` says which."""

    def __init__(self, msg: str, sigval: signal.Signals) -> None:
        super().__init__(msg)
        self.sigval = sigval


def raise_on_signals() -> dict[int, Any]:
    """Install the handlers; the ones that were there. Nothing outside the main thread, which alone may do so."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, _raise) for number in map(_number, os.environ.get(VARIABLE, default_signals).split(","))}


def hand_back(before: dict[int, Any]) -> None:
    """Put the handlers back that were there."""
    for number, handler in before.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _number(name: str) -> signal.Signals:
    try:
        return signal.Signals[name.strip()]
    except KeyError:
        raise ValueError(f"there is no signal {name.strip()!r} here; signals to handle are named like {default_signals}") from None


def _raise(number: int, frame: FrameType | None) -> None:
    which = signal.Signals(number)
    raise SignalException(f"Process {os.getpid()} got signal: {which.name}", which)
