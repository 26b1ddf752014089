"""Pool: worker processes for map() and apply(). Tensors among arguments and results are shared memory."""

from multiprocessing.pool import Pool
from multiprocessing.queues import SimpleQueue

import flambeau.multiprocessing.reductions  # noqa: F401 - how tensors are sent

__all__ = ["Pool", "SimpleQueue"]
