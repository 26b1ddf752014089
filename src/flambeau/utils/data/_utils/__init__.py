"""The parts of the loader, under the paths PyTorch's users import them from: collate, fetch, pin_memory, worker."""

from flambeau.utils.data._utils import collate, fetch, pin_memory, worker

__all__ = ["collate", "fetch", "pin_memory", "worker"]
