"""Anomaly detection: which forward line made the gradient that is NaN, or the node that failed."""

from __future__ import annotations

import warnings

from flambeau.autograd import modes


def set_anomaly(mode: bool, check_nan: bool = True) -> None:
    """Switch anomaly detection in this thread."""
    mode = bool(mode)
    if mode != modes.state.anomaly:
        modes.state.anomaly = mode
        modes.enter() if mode else modes.leave()
    modes.state.check_nan = check_nan


def is_anomaly_enabled() -> bool:
    """Whether nodes remember where they were made."""
    return modes.state.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Whether gradients are searched for NaN."""
    return modes.state.check_nan


class detect_anomaly:
    """Within it every recorded operation remembers its line; a NaN in a gradient is an error that names it.

    >>> with detect_anomaly():
    ...     pass
    """

    def __init__(self, check_nan: bool = True):
        self.check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging.", stacklevel=2
        )

    def __enter__(self) -> None:
        self.before = (modes.state.anomaly, modes.state.check_nan)
        set_anomaly(True, self.check_nan)

    def __exit__(self, *exc) -> None:
        set_anomaly(*self.before)


class set_detect_anomaly:
    """Switch anomaly detection on or off, at once; as a context manager, until its end."""

    def __init__(self, mode: bool, check_nan: bool = True):
        self.before = (modes.state.anomaly, modes.state.check_nan)
        set_anomaly(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc) -> None:
        set_anomaly(*self.before)


def forward_lines(node) -> str:
    """Where a node was made, as traceback text; empty if it was recorded outside anomaly mode."""
    lines = (node.metadata_ or {}).get("traceback_")
    return "".join(lines) if lines else ""


def explain(node) -> None:
    """Warn with the forward call of the node in which backward failed."""
    where = forward_lines(node)
    if where:
        warnings.warn(f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n{where}", stacklevel=4)
    else:
        warnings.warn(
            f"Error detected in {node.name()}. No forward pass information available. Enable detect anomaly during forward pass for more "
            "information.",
            stacklevel=4,
        )


def check(node, sent) -> None:
    """RuntimeError if a gradient the node sends contains NaN."""
    for i, grad in enumerate(sent or ()):
        if grad is not None and grad._is_float() and bool(grad.isnan().any()):
            raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")
