"""The parts of the loader, under the paths PyTorch's users import them from: collate, fetch, pin_memory, worker."""

from flambeau.utils.data._utils import collate, fetch, pin_memory, worker

MP_STATUS_CHECK_INTERVAL = worker.LOOK_AFTER_PARENT

__all__ = ["collate", "fetch", "pin_memory", "worker"]
