"""The session key: 32 random bytes that the processes of one program share, from init_process_group to destroy_process_group.

One of them draws it and puts it into the store they met at, which lets nobody in who does not know the program's secret; under mpiexec, where
there is no store, it goes from rank 0 to the others by broadcast. It signs the objects that they send each other (`objects.py`).
"""

from __future__ import annotations

import secrets
from typing import Any

from flambeau.distributed.collectives.world import _get_default_group, _world
from flambeau.distributed.options import BroadcastOptions
from flambeau.dtypes import uint8
from flambeau.tensor.making import factories

BYTES = 32
DRAWN, KEY = "session_key/drawn", "session_key"

_keys: dict[int, tuple[Any, bytes]] = {}  # by the first group, which is held so that no other gets its id


def session_key() -> bytes:
    """The key. The first call of a process asks the store, and waits for whoever draws it."""
    everyone = _get_default_group()
    held = _keys.get(id(everyone))
    if held is None:
        _keys.clear()
        held = _keys[id(everyone)] = everyone, _from_store(_world.pg_map[everyone][1])
    return held[1]


def _from_store(store: Any) -> bytes:
    if store is None:
        raise RuntimeError("objects cannot be sent: the group has no store, so its processes share no key")
    if store.add(DRAWN, 1) == 1:
        store.set(KEY, secrets.token_hex(BYTES))
    return bytes.fromhex(bytes(store.get(KEY)).decode())


def share(pg: Any) -> None:
    """Give a key to all members of a group that has no store. All of them call this."""
    key = factories.tensor(list(secrets.token_bytes(BYTES)), dtype=uint8, device=pg._device_types[0])
    pg.broadcast([key], BroadcastOptions(asyncOp=False)).wait()
    _keys.clear()
    _keys[id(pg)] = pg, bytes(key.tolist())
