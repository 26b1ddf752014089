"""_remote_device: a device of another process, as "rank:1/cuda:0", "worker1/cpu", or one of this process, as "cuda:0"."""

from __future__ import annotations

from flambeau.devices import device


class _remote_device:
    """Whose device it is (`rank()` or `worker_name()`, both None for this process), and which (`device()`).

    >>> there = _remote_device("rank:1/cuda:0")
    >>> there.rank(), there.device()
    (1, device(type='cuda', index=0))
    """

    def __init__(self, remote_device: str | device):
        self._worker_name: str | None = None
        self._rank: int | None = None
        text = str(remote_device)
        if not isinstance(remote_device, str | device):
            raise TypeError(f'_remote_device takes a device or a str such as "rank:1/cuda:0", not {remote_device!r}')
        whose, slash, which = text.partition("/")
        if not slash:
            whose, which = ("", text) if _is_device(text) else (text, "cpu")
        elif not whose or not which or "/" in which:
            raise ValueError(f'could not parse remote_device {text!r}: it reads "worker/device", "rank:1/device" or "device"')
        if whose.startswith("rank:"):
            number = whose.removeprefix("rank:")
            if not number.isdigit():
                raise ValueError(f"could not parse remote_device {text!r}: {number!r} is no rank")
            self._rank = int(number)
        elif whose:
            self._worker_name = whose
        self._device = device(which)

    def worker_name(self) -> str | None:
        """The name of the worker, if it was given by name."""
        return self._worker_name

    def rank(self) -> int | None:
        """The rank, if it was given by rank."""
        return self._rank

    def device(self) -> device:
        """The device there."""
        return self._device

    def __repr__(self) -> str:
        if self._rank is not None:
            return f"rank:{self._rank}/{self._device}"
        return f"{self._worker_name}/{self._device}" if self._worker_name else str(self._device)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _remote_device) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


def _is_device(text: str) -> bool:
    try:
        device(text)
    except RuntimeError:
        return False
    return True
