"""Where an epoch stands, and how to go on from there: behind `DataLoader.state_dict()` and `load_state_dict()`.

What was *given to the program* counts. Batches that workers have prepared ahead are prepared again after resuming: the order of indices is
replayed from where the generators stood when the epoch began, as many batches as were given out are left out, and every worker's
random streams are put where they stood after the last of its batches that was given out. So augmentations go on exactly.

Replaying must not disturb the program's own generators (the default one, Python's, NumPy's): they are put back afterwards.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import warnings
from collections.abc import Iterator
from typing import Any

from flambeau.utils.data import order, streams
from flambeau.utils.data.sampler import draw_seed

VERSION = 1
NEW_WORKER = {"random": None, "fetched": 0, "ended": False, "iterator": None, "dataset": None}


class Progress:
    """Where the current epoch of a loader stands. The iterator writes it, the loader reads it."""

    def __init__(self, loader: Any) -> None:
        self.start = order_of(loader)
        self.base_seed = 0
        self.seeded = False  # whether the seed of the workers was drawn in this epoch
        self.yielded = 0  # batches the program has got, without a gap
        self.ahead: set[int] = set()  # numbers of later batches it has got too (in_order=False)
        self.drawn = 0  # batches of indices taken from the sampler
        self.turn = 0  # the worker whose batch is next
        self.finished = False
        self.workers: list[dict] = [dict(NEW_WORKER) for _ in range(max(loader.num_workers, 1))]


def state_dict(loader: Any, progress: Progress | None) -> dict:
    """Numbers, lists, dicts and tensors that say where a loader stands."""
    state: dict[str, Any] = {"version": VERSION, "num_workers": loader.num_workers, "now": public(order_of(loader)), "epoch": None}
    if not loader.num_workers:
        state["dataset_random"] = streams.with_tensors(streams.states(streams.find(loader.dataset, loader.collate_fn)))
    if progress is not None:
        workers = [_plain(w) for w in progress.workers]
        state["epoch"] = {
            "start": public(progress.start),
            "base_seed": progress.base_seed,
            "seeded": progress.seeded,
            "yielded": progress.yielded,
            "ahead": sorted(progress.ahead),
            "drawn": progress.drawn > progress.yielded,
            "turn": progress.turn,
            "finished": progress.finished,
            "workers": workers,
        }
    return state


def _plain(worker: dict) -> dict:
    own = {name: copy.deepcopy(worker[name]) for name in ("iterator", "dataset")}
    return {**worker, "random": streams.with_tensors(worker["random"]), **own}


def load(loader: Any, state: dict) -> dict | None:
    """Bring a loader to a state; what has to wait for the next iterator is returned."""
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise ValueError(
            f"load_state_dict: this is not a state of a DataLoader (version {VERSION}): {type(state).__name__} {str(state)[:80]}"
        )
    iterable = loader._dataset_kind == 1
    epoch, workers = state["epoch"], state["num_workers"]
    if workers != loader.num_workers and epoch is not None and not epoch["finished"]:
        found = f"the state was saved with num_workers={workers}, and this loader has num_workers={loader.num_workers}"
        if iterable:
            raise ValueError(f"{found}: the shares of an IterableDataset would be others")
        if workers and any(w["random"] is not None for w in epoch["workers"]):
            warnings.warn(f"{found}: batches have the right items, but random numbers drawn in workers will be others", stacklevel=3)
    _set_order(loader, private(state["now"]))
    if not loader.num_workers and "dataset_random" in state:
        streams.restore(streams.find(loader.dataset, loader.collate_fn), streams.with_arrays(state["dataset_random"]))
    if epoch is None or (epoch["finished"] and not loader.persistent_workers):
        return None
    return state


# -- the order of an epoch -------------------------------------------------------------------------------------------


def order_of(loader: Any) -> dict:
    """What the order of the next epoch depends on: generators, and states that samplers give of themselves."""
    alien = loader._dataset_kind == 1 or not order.is_known(loader._index_sampler)
    own = streams.find(loader.dataset, loader.collate_fn) if loader._dataset_kind == 1 and not loader.num_workers else []
    return {
        # Samplers of this package draw from the default generator; others may draw from anywhere.
        "global": streams.states(streams.GLOBAL if alien else streams.GLOBAL[2:]),
        "generators": streams.states(_generators(loader)),
        "samplers": positions(samplers(loader)),
        "dataset": streams.states(own),
    }


def positions(samplers: list) -> list:
    """What samplers say of themselves."""
    return [copy.deepcopy(s.state_dict()) if hasattr(s, "state_dict") else getattr(s, "epoch", None) for s in samplers]


def public(saved: dict) -> dict:
    """`order_of` with tensors for arrays. What samplers said is theirs."""
    return {name: value if name == "samplers" else streams.with_tensors(value) for name, value in saved.items()}


def private(saved: dict) -> dict:
    """The reverse."""
    return {name: value if name == "samplers" else streams.with_arrays(value) for name, value in saved.items()}


def samplers(loader: Any) -> list:
    """The samplers that decide the order."""
    inner = getattr(loader.batch_sampler, "sampler", None)
    return [s for s in (loader.batch_sampler, inner if loader.batch_sampler is not None else loader.sampler) if s is not None]


def _generators(loader: Any) -> list:
    """The generators that the samplers and the loader keep."""
    if order.is_known(loader._index_sampler):
        kept = [getattr(samplers(loader)[-1], "generator", None), loader.generator]
        return list({id(g): g for g in kept if g is not None}.values())
    return streams.find(*samplers(loader), loader.generator, apart_from=loader.dataset)


def _set_order(loader: Any, saved: dict) -> None:
    streams.restore(_generators(loader), saved["generators"])
    for sampler, state in zip(samplers(loader), saved["samplers"], strict=True):
        if hasattr(sampler, "load_state_dict"):
            sampler.load_state_dict(copy.deepcopy(state))
        elif state is not None and hasattr(sampler, "set_epoch"):
            sampler.set_epoch(state)


@contextlib.contextmanager
def replaying(loader: Any, start: dict) -> Iterator[None]:
    """Within it the generators stand where they stood when the epoch began; afterwards the program's are where they were."""
    mine = streams.states(streams.GLOBAL)
    streams.restore(streams.GLOBAL[-len(start["global"]) :], start["global"])
    _set_order(loader, start)
    try:
        yield
    finally:
        streams.restore(streams.GLOBAL, mine)


def replayed_batches(loader: Any, epoch: dict) -> Iterator[Any]:
    """The batches of indices that are left in an epoch."""
    left = order.batches(loader._index_sampler)
    if epoch["seeded"]:
        draw_seed(loader.generator)  # as it was drawn then, after samplers that draw at once and before those that draw when asked
    for _ in range(epoch["yielded"]):
        next(left, None)
    if epoch["drawn"]:  # what a sampler draws when it is first asked was drawn in the epoch that is replayed
        first = list(itertools.islice(left, 1))
        left = itertools.chain(first, left)
    return left
