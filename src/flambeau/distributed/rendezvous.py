"""Rendezvous: from a URL to a store, a rank and a number of ranks. How processes that know nothing of each other meet.

    env://                                  RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT from the environment
    tcp://host:port?rank=0&world_size=2     the process with rank 0 hosts the store there
    file:///path?rank=0&world_size=2        a file that all can write

>>> import tempfile
>>> store, rank, world_size = next(rendezvous(f"file://{tempfile.mktemp()}?rank=0&world_size=1"))
>>> store.set("colour", "red")
>>> rank, world_size
(0, 1)
"""

# Note [meeting again]
# A program may leave its group and start another one at the same port. The store of the first must not be taken for that of the second: the host
# may be slower to leave than another rank is to come back. So every rank counts, in the store it reached, how many times it has come there, and
# rank 0 declares each round open. A rank that came early finds its round not open: it waits, and if that store ends meanwhile (the host
# has left), it connects again. Rounds after the first have their keys under a prefix, for the server may be the same (a launcher's, or one
# that the program kept).

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from numbers import Integral
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from flambeau.distributed.constants import default_pg_timeout
from flambeau.distributed.errors import DistNetworkError, DistStoreError
from flambeau.distributed.stores import FileStore, PrefixStore, Store, TCPStore
from flambeau.distributed.stores.arrival import ranks, wait_for
from flambeau.distributed.stores.steps import HIDDEN

__all__ = ["register_rendezvous_handler", "rendezvous"]

Meeting = tuple[Store, int, int]
Handler = Callable[..., Iterator[Meeting]]

_handlers: dict[str, Handler] = {}
_OWN = HIDDEN.decode()


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Iterator[Meeting]:
    """Yield store, rank and number of ranks, as the handler of the URL's scheme finds them. `rank` and `world_size` stand for those in the URL."""
    if not isinstance(url, str):
        raise RuntimeError(f"`url` must be a string, not {type(url)}: {url}")
    for name, number in (("rank", rank), ("world_size", world_size)):
        if not isinstance(number, Integral):
            raise RuntimeError(f"`{name}` must be an integer, not {number!r}")
    parts = urlsplit(url)
    if rank != -1 or world_size != -1:
        query = _query(url)
        if "rank" in query or "world_size" in query:
            raise AssertionError(
                f"rendezvous: the url {url} has rank or world_size in it, and they are given as arguments, too. Give them once"
            )
        query |= {name: str(number) for name, number in (("rank", rank), ("world_size", world_size)) if number != -1}
        url = urlunsplit(parts._replace(query=urlencode(query)))
        if parts.netloc == "" and not url.startswith(f"{parts.scheme}://"):  # urlunsplit leaves out the slashes of "env://"
            url = f"{parts.scheme}://{url.removeprefix(f'{parts.scheme}:')}"
    handler = _handlers.get(parts.scheme)
    if handler is None:
        known = ", ".join(f"{scheme}://" for scheme in _handlers)
        raise RuntimeError(
            f"No rendezvous handler for {parts.scheme}:// (of {url!r}). There are {known}; register_rendezvous_handler adds others"
        )
    return handler(url, **kwargs)


def register_rendezvous_handler(scheme: str, handler: Handler) -> None:
    """Have URLs that begin with `scheme://` handled by a generator function: it is called with the URL and yields (store, rank, world_size)."""
    if scheme in _handlers:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered. Choose another scheme for yours")
    _handlers[scheme] = handler


def _from_environment(url: str, timeout: timedelta = default_pg_timeout, **kwargs: Any) -> Iterator[Meeting]:
    """env://: what a launcher left in the environment. Rank and world size may also stand in the URL."""
    query = _query(url)
    rank = int(query["rank"] if "rank" in query else _variable("RANK"))
    world_size = int(query["world_size"] if "world_size" in query else _variable("WORLD_SIZE"))
    host, port = _variable("MASTER_ADDR"), int(_variable("MASTER_PORT"))
    yield _meet(host, port, rank, world_size, timeout), rank, world_size
    raise RuntimeError(
        "rendezvous: env:// cannot meet twice. Call rendezvous() again, or init_process_group() after destroy_process_group()"
    )


def _at_address(url: str, timeout: timedelta = default_pg_timeout, **kwargs: Any) -> Iterator[Meeting]:
    """tcp://: rank 0 hosts the store at the address in the URL."""
    parts, query = urlsplit(url), _query(url)
    if parts.port is None:
        raise _lacks("tcp", "port number", url, "tcp://127.0.0.1:29500?rank=0&world_size=2")
    rank, world_size = _numbers("tcp", url, query)
    yield _meet(parts.hostname or "", parts.port, rank, world_size, timeout), rank, world_size
    raise RuntimeError("Unable to perform re-rendezvous using tcp:// method: call rendezvous() again")


def _in_file(url: str, **kwargs: Any) -> Iterator[Meeting]:
    """file://: a file that all ranks can write, and that was not there before."""
    parts, query = urlsplit(url), _query(url)
    path = parts.netloc + parts.path
    if not path:
        raise _lacks("file", "path", url, "file:///tmp/meeting?rank=0&world_size=2")
    rank, world_size = _numbers("file", url, query)
    yield FileStore(path, world_size), rank, world_size
    raise RuntimeError("Unable to perform re-rendezvous using file:// method: call rendezvous() again, with another file")


for _scheme, _handler in (("tcp", _at_address), ("env", _from_environment), ("file", _in_file)):
    register_rendezvous_handler(_scheme, _handler)


def _meet(host: str, port: int, rank: int, world_size: int, timeout: timedelta) -> Store:
    """The store at an address, once rank 0 is there. See Note [meeting again]."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return _at_launcher(host, port, rank, timeout)
    hosts = rank == 0
    deadline = time.monotonic() + timeout.total_seconds()
    while True:
        left = timedelta(seconds=max(deadline - time.monotonic(), 0.0))
        store = TCPStore(host, port, world_size if world_size > 0 else None, hosts, left, wait_for_workers=False, multi_tenant=True)
        store.set_timeout(timeout)
        try:
            return _join(store, rank, world_size, left)
        except DistNetworkError:  # this store ended while we waited: it was an earlier group's
            if hosts or time.monotonic() >= deadline:
                raise
            store.goodbye()


def _join(store: TCPStore, rank: int, world_size: int, timeout: timedelta) -> Store:
    """Come to the store, and wait until rank 0 has come; rank 0 waits for everybody."""
    if rank < 0 or world_size <= 0:
        return store
    times = store.add(f"{_OWN}times/{rank}", 1)

    def here(other: int) -> str:
        return f"{_OWN}here/{times}/{other}"

    store.set(here(rank), "")
    awaited = {other: here(other) for other in (range(world_size) if rank == 0 else (0,))}
    missing = wait_for(store, awaited, timeout, f"init_process_group on rank {rank} of {world_size}")
    if missing:
        store.goodbye()
        raise DistStoreError(
            f"rendezvous: timed out after {timeout.total_seconds():.3g} seconds waiting for clients at {store.host}:{store.port}: "
            f"{len(awaited) - len(missing)}/{world_size} clients joined\n"
            f"    missing  {ranks(missing)}\n"
            f"    try      see whether they were started, with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE={world_size}, and what they printed"
        )
    return store if times == 1 else PrefixStore(f"meeting_{times}", store)


def _at_launcher(host: str, port: int, rank: int, timeout: timedelta) -> Store:
    """The store that the launcher hosts for all ranks. It outlives restarts, whose groups must not find the keys of those before them."""
    store = TCPStore(host, port, None, False, timeout)
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    times = store.add(f"{_OWN}times/{restarts}/{rank}", 1)
    if restarts == 0 and times == 1:
        return store
    return PrefixStore(f"attempt_{restarts}_meeting_{times}", store)


def _query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def _numbers(scheme: str, url: str, query: dict[str, str]) -> tuple[int, int]:
    for name, said in (("rank", "rank parameter"), ("world_size", "world size parameter")):
        if name not in query:
            raise _lacks(scheme, said, url, f"...?rank=0&world_size=2, or {name}= as an argument of init_process_group")
    return int(query["rank"]), int(query["world_size"])


def _lacks(scheme: str, what: str, url: str, example: str) -> ValueError:
    return ValueError(f"Error initializing torch.distributed using {scheme}:// rendezvous: {what} missing in {url!r}. Expected {example}")


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise ValueError(
            f"Error initializing torch.distributed using env:// rendezvous: environment variable {name} expected, but not set. "
            f"A launcher sets it (flambeau run --nproc_per_node=2 train.py); by hand, RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are needed"
        )
    return value
