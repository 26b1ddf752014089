"""Store: keys and values that processes share. The base of ours, and of those that programs write in Python."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NoReturn

from flambeau.distributed.stores.timeouts import DEFAULT

Text = str | bytes | bytearray  # values are bytes; text is encoded as UTF-8


class Store:
    """Keys and values that processes share. A subclass gives `set`, `get`, `add`, `check` and `wait`; the rest can do with these.

    >>> from flambeau.distributed.stores import HashStore
    >>> store = HashStore()
    >>> store.set("colour", "red")
    >>> store.get("colour"), store.add("count", 2), store.check(["shape"])
    (b'red', 2, False)
    """

    _timeout: timedelta = DEFAULT

    @property
    def timeout(self) -> timedelta:
        """How long `get` and `wait` wait for keys."""
        return self._timeout

    def set_timeout(self, timeout: timedelta, /) -> None:
        """Change how long `get` and `wait` wait for keys."""
        if not isinstance(timeout, timedelta):
            raise TypeError(f"set_timeout: a datetime.timedelta is expected, not {timeout!r}. For seconds: timedelta(seconds={timeout!r})")
        self._timeout = timeout

    def set(self, key: str, value: Text, /) -> None:
        """Give a key a value, whatever it had."""
        self._lacks("set")

    def get(self, key: str, /) -> bytes:
        """The value of a key. Waits until somebody has set it, for `timeout` at most: then DistStoreError."""
        self._lacks("get")

    def add(self, key: str, amount: int, /) -> int:
        """Add to the counter in `key`, which begins at zero. What it is then."""
        self._lacks("add")

    def check(self, keys: Sequence[str], /) -> bool:
        """Whether all keys are there."""
        self._lacks("check")

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None, /) -> None:
        """Wait until all keys are there, for `timeout` at most: then DistStoreError."""
        self._lacks("wait")

    def compare_set(self, key: str, expected_value: Text, desired_value: Text, /) -> bytes:
        """Set `key` if its value is `expected_value`, or if it is not there and "" is expected. Its value afterwards."""
        self._lacks("compare_set")

    def append(self, key: str, value: Text, /) -> None:
        """Add to the end of a value. Here by `compare_set`, as often as others are quicker."""
        before = b""
        while (found := self.compare_set(key, before, before + as_bytes(value))) != before + as_bytes(value):
            before = b"" if found == before else found  # a key that is gone answers with what was expected

    def delete_key(self, key: str, /) -> bool:
        """Forget a key. Whether there was one."""
        self._lacks("delete_key")

    def num_keys(self) -> int:
        """How many keys there are. A store may have some of its own among them."""
        self._lacks("num_keys")

    def list_keys(self) -> list[str]:
        """The names of all keys."""
        self._lacks("list_keys")

    def queue_push(self, key: str, value: Text, /) -> None:
        """Put a value at the end of the queue `key`."""
        self._lacks("queue_push")

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take the value at the front of a queue. Waits for one, or raises QueueEmptyError where `block` is False."""
        self._lacks("queue_pop")

    def queue_len(self, key: str, /) -> int:
        """How many values are in a queue."""
        self._lacks("queue_len")

    def clone(self) -> Store:
        """Another store with the same contents, to be used beside this one."""
        self._lacks("clone")

    def has_extended_api(self) -> bool:
        """Whether append, multi_get and multi_set are one step each."""
        return False

    def multi_get(self, keys: Sequence[str], /) -> list[bytes]:
        """The values of all keys, as `get` gives them."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[Text], /) -> None:
        """Set several keys."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        """Wait until `world_size` processes have come to the barrier `key`, which can be used again afterwards."""
        arrived = self.add(key, 1)
        round_ = (arrived - 1) // world_size
        if arrived % world_size == 0:
            self.set(f"{key}/{round_}", "complete")
        self.wait([f"{key}/{round_}"], *([] if timeout is None else [timeout]))

    # What PyTorch's stores have not.

    def multi_get_if_there(self, keys: Sequence[str], /) -> list[bytes | None]:
        """The values of those keys that are there now, None for the others. Does not wait."""
        return [self.get(key) if self.check([key]) else None for key in keys]

    def will(self, key: str, value: Text, /) -> bool:
        """Have `key` set if this process is lost before `goodbye()`. False where the store would not learn of that: nobody will set it."""
        return False

    def goodbye(self) -> None:
        """This process is done with the store: its wills are void, and its connections closed."""

    def _lacks(self, name: str) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__}.{name}: this store does not have it. "
            f"A store written in Python defines the methods that are called on it; TCPStore and HashStore have them all"
        )


def as_bytes(text: Text) -> bytes:
    """A key or value as it is stored."""
    if isinstance(text, str):
        return text.encode()
    if isinstance(text, (bytes, bytearray)):
        return bytes(text)
    raise TypeError(f"stores keep text and bytes, not {type(text).__name__} ({text!r:.60}). For an object: str(x), or pickle.dumps(x)")
