"""The queues between processes. Tensors go through them as shared memory."""

from multiprocessing.queues import Queue, SimpleQueue
from multiprocessing.reduction import ForkingPickler

import flambeau.multiprocessing.reductions  # noqa: F401 - how tensors are sent

__all__ = ["ForkingPickler", "Queue", "SimpleQueue"]
