"""What goes wrong between processes. All are RuntimeErrors, as in PyTorch.

DistError                 anything below
  DistBackendError        a collective: a rank died, or does something else than the others
  DistNetworkError        a connection: nobody listens, the port is taken, the other side is gone
  DistStoreError          a store: a key that nobody set in time
    QueueEmptyError       a queue with nothing in it, asked not to wait
"""

from __future__ import annotations


class DistError(RuntimeError):
    """Something went wrong between processes."""


class DistBackendError(DistError):
    """A collective could not be finished: a rank died, came too late, or called something else than the others."""


class DistNetworkError(DistError):
    """A connection could not be made, or was lost."""


class DistStoreError(DistError):
    """A store could not answer: mostly, a key that nobody set in time."""


class QueueEmptyError(DistStoreError):
    """`queue_pop(block=False)` found an empty queue."""


for _error in (DistError, DistBackendError, DistNetworkError, DistStoreError, QueueEmptyError):
    _error.__module__ = "flambeau.distributed"  # where programs find them: what tracebacks show and pickles name
