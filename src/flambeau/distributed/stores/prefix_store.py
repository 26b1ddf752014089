"""PrefixStore: a room of its own in somebody else's store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from flambeau.distributed.stores.store import Store, Text, as_bytes


class PrefixStore(Store):
    """Every key `k` is `prefix/k` in the store underneath.

    >>> from flambeau.distributed.stores import HashStore
    >>> whole = HashStore()
    >>> PrefixStore("room", whole).set("lamp", "on")
    >>> whole.list_keys()
    ['room/lamp']
    """

    def __init__(self, prefix: str, store: Store):
        if store is None:
            raise ValueError("PrefixStore: store is None. Give the store that the keys are kept in")
        if not isinstance(prefix, str) or not isinstance(store, Store):
            raise TypeError(f"PrefixStore(prefix: str, store: Store), not ({type(prefix).__name__}, {type(store).__name__})")
        self._prefix, self._store = prefix, store

    @property
    def underlying_store(self) -> Store:
        """The store underneath."""
        return self._store

    @property
    def _underlying_non_prefix_store(self) -> Store:
        """The first store underneath that is no PrefixStore."""
        store: Store = self
        while isinstance(store, PrefixStore):
            store = store._store
        return store

    def _key(self, key: Text) -> str:
        if not isinstance(key, (str, bytes)):
            raise TypeError(f"a key is text, not {type(key).__name__} ({key!r:.60})")
        return f"{self._prefix}/{key.decode() if isinstance(key, bytes) else key}"

    def _keys(self, keys: Sequence[str]) -> list[str]:
        if isinstance(keys, (str, bytes)):
            raise TypeError(f"a list of keys is expected, not the single key {keys!r}: write [{keys!r}]")
        return [self._key(key) for key in keys]

    @property
    def timeout(self) -> timedelta:
        return self._store.timeout

    def set_timeout(self, timeout: timedelta, /) -> None:
        self._store.set_timeout(timeout)

    def set(self, key: str, value: Text, /) -> None:
        self._store.set(self._key(key), as_bytes(value))

    def get(self, key: str, /) -> bytes:
        return self._store.get(self._key(key))

    def add(self, key: str, amount: int, /) -> int:
        return self._store.add(self._key(key), amount)

    def check(self, keys: Sequence[str], /) -> bool:
        return self._store.check(self._keys(keys))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None, /) -> None:
        if timeout is None:  # stores written in Python may take one argument
            self._store.wait(self._keys(keys))
        else:
            self._store.wait(self._keys(keys), timeout)

    def compare_set(self, key: str, expected_value: Text, desired_value: Text, /) -> bytes:
        return self._store.compare_set(self._key(key), as_bytes(expected_value), as_bytes(desired_value))

    def append(self, key: str, value: Text, /) -> None:
        self._store.append(self._key(key), as_bytes(value))

    def delete_key(self, key: str, /) -> bool:
        return self._store.delete_key(self._key(key))

    def num_keys(self) -> int:
        """How many keys the whole store underneath has, as in PyTorch."""
        return self._store.num_keys()

    def list_keys(self) -> list[str]:
        start = f"{self._prefix}/"
        return [key.removeprefix(start) for key in self._store.list_keys() if key.startswith(start)]

    def queue_push(self, key: str, value: Text, /) -> None:
        self._store.queue_push(self._key(key), as_bytes(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        return self._store.queue_pop(self._key(key), block)

    def queue_len(self, key: str, /) -> int:
        return self._store.queue_len(self._key(key))

    def clone(self) -> PrefixStore:
        return PrefixStore(self._prefix, self._store.clone())

    def has_extended_api(self) -> bool:
        return self._store.has_extended_api()

    def multi_get(self, keys: Sequence[str], /) -> list[bytes]:
        return self._store.multi_get(self._keys(keys))

    def multi_set(self, keys: Sequence[str], values: Sequence[Text], /) -> None:
        self._store.multi_set(self._keys(keys), [as_bytes(value) for value in values])

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        self._store.barrier(self._key(key), world_size, timeout)

    def multi_get_if_there(self, keys: Sequence[str], /) -> list[bytes | None]:
        return self._store.multi_get_if_there(self._keys(keys))

    def will(self, key: str, value: Text, /) -> bool:
        return self._store.will(self._key(key), value)

    def goodbye(self) -> None:
        self._store.goodbye()

    def __reduce__(self):
        raise TypeError("cannot pickle 'PrefixStore': make one in the other process, from the same prefix and a store there")
