"""What a thread has excluded: the guards under which a kernel calls its own operator again, one level further down.

    with AutoDispatchBelowAutograd():      inside the forward of an autograd.Function that is registered for "Autograd"
        return torch.ops.mine.op(x)        runs the kernel of the device

A guard works from when it is made until its `with` ends, or until it is deleted.
"""

from __future__ import annotations

import threading
from typing import Any

from flambeau import modes
from flambeau.library.keys import FULL_AUTOGRAD, DispatchKeySet, named


class Excluded(threading.local):
    """The keys that this thread passes over, and those it meets whatever the tensors are."""

    def __init__(self) -> None:
        self.excluded: frozenset[str] = frozenset()
        self.included: frozenset[str] = frozenset()


thread = Excluded()


class Guard:
    """Changes what is excluded and included for as long as it lasts."""

    def __init__(self, excluded: frozenset[str], included: frozenset[str], grad: bool | None = None):
        self.before = thread.excluded, thread.included, modes.state.grad
        self.active = True
        thread.excluded, thread.included = excluded, included
        self.paused = modes.no_grad() if grad is False else None
        if self.paused is not None:
            self.paused.__enter__()

    def leave(self) -> None:
        """Be as before."""
        if self.active:
            self.active = False
            thread.excluded, thread.included = self.before[:2]
            if self.paused is not None:
                self.paused.__exit__(None, None, None)

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *problem: Any) -> None:
        self.leave()

    def __del__(self) -> None:
        if getattr(self, "active", False):
            self.leave()


class AutoDispatchBelowAutograd(Guard):
    """Calls go to the kernels of devices, and nothing is recorded."""

    def __init__(self) -> None:
        super().__init__(thread.excluded | FULL_AUTOGRAD, thread.included, grad=False)


class AutoDispatchBelowADInplaceOrView(Guard):
    """The same, and versions of what is written to are not counted."""

    def __init__(self) -> None:
        super().__init__(thread.excluded | FULL_AUTOGRAD | {"ADInplaceOrView"}, thread.included, grad=False)


class ExcludeDispatchKeyGuard(Guard):
    """Calls pass over these keys."""

    def __init__(self, keys: Any):
        names = keys.keys if isinstance(keys, DispatchKeySet) else frozenset([named(keys)])
        super().__init__(thread.excluded | names, thread.included)


class IncludeDispatchKeyGuard(Guard):
    """Calls meet these keys."""

    def __init__(self, keys: Any):
        names = keys.keys if isinstance(keys, DispatchKeySet) else frozenset([named(keys)])
        super().__init__(thread.excluded, thread.included | names)


class ForceDispatchKeyGuard(Guard):
    """Calls meet and pass over exactly these keys."""

    def __init__(self, included: DispatchKeySet | None = None, excluded: DispatchKeySet | None = None):
        super().__init__(thread.excluded if excluded is None else excluded.keys, thread.included if included is None else included.keys)
